/* Streams that wait for each other: events, notifies, limits. */
#include "check.h"

int main(void)
{
    gate hold = GATE;
    aclrtContext context;
    aclrtStream first, second;
    aclrtEvent event;
    aclrtNotify notify;
    int32_t zero = 0, status = -1;
    uint32_t id = 0;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&first));
    OK(aclrtCreateStream(&second));
    OK(aclrtSetStreamFailureMode(first, ACL_STOP_ON_FAILURE));
    OK(aclrtCreateEvent(&event));
    OK(aclrtCreateNotify(&notify, 0));
    OK(aclrtGetNotifyId(notify, &id));
    int32_t *number = on_device(&zero, sizeof zero);

    OK(aclrtLaunchHostFunc(first, pass, &hold));
    OK(aclrtLaunchHostFunc(first, increment, number));
    OK(aclrtRecordEvent(event, first));
    OK(aclrtStreamWaitEvent(second, event));
    OK(aclrtResetEvent(event, second));
    OK(aclrtLaunchHostFunc(second, twice, number));
    OK(aclrtStreamQuery(second, &status));
    TRUE(status == 1);
    CODE(507046, aclrtSynchronizeStreamWithTimeout(second, 20));
    open_gate(&hold);
    OK(aclrtRecordEvent(event, second));
    OK(aclrtSynchronizeEvent(event));
    TRUE(number_at(number) == 2);

    /* a notify that is waited for before it is recorded */
    OK(aclrtWaitAndResetNotify(notify, second, 0));
    OK(aclrtLaunchHostFunc(second, twice, number));
    OK(aclrtLaunchHostFunc(first, increment, number));
    CODE(507046, aclrtSynchronizeStreamWithTimeout(second, 20));
    OK(aclrtRecordNotify(notify, first));
    OK(aclrtSynchronizeStream(second));
    TRUE(number_at(number) == 6);
    OK(aclrtDestroyNotify(notify));
    CODE(107000, aclrtDestroyNotify(notify));
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyStreamForce(first));
    OK(aclrtDestroyStreamForce(second));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
