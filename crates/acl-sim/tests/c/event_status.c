/* Events before, during and after their record. */
#include "check.h"

int main(void)
{
    gate hold = GATE;
    aclrtContext context;
    aclrtStream stream;
    aclrtEvent event, external;
    int32_t status = -1;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
    CODE(107000, aclrtSetStreamFailureMode(stream, ACL_CONTINUE_ON_FAILURE));
    OK(aclrtCreateEvent(&event));
    OK(aclrtQueryEventStatus(event, &status));
    TRUE(status == 1); /* complete before the first record */
    OK(aclrtLaunchHostFunc(stream, pass, &hold));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtQueryEventStatus(event, &status));
    TRUE(status == 0);
    OK(aclrtQueryEvent(event, &status));
    TRUE(status == 1); /* the old question counts the other way */
    CODE(507047, aclrtSynchronizeEventWithTimeout(event, 20));
    CODE(107000, aclrtSynchronizeEventWithTimeout(event, 0));
    CODE(107000, aclrtSynchronizeEventWithTimeout(event, -2));
    open_gate(&hold);
    OK(aclrtSynchronizeEvent(event));
    OK(aclrtQueryEventStatus(event, &status));
    TRUE(status == 1);
    CODE(107000, aclrtCreateEventExWithFlag(&external, ACL_EVENT_EXTERNAL));
    CODE(107000, aclrtCreateEventWithFlag(&external, ACL_EVENT_EXTERNAL | ACL_EVENT_SYNC));
    CODE(107000, aclrtCreateEventWithFlag(&external, 0));
    OK(aclrtCreateEventExWithFlag(&external, ACL_EVENT_SYNC));
    CODE(207000, aclrtResetEvent(external, stream));
    CODE(207000, aclrtQueryEvent(external, &status));
    OK(aclrtQueryEventStatus(external, &status));
    OK(aclrtDestroyEvent(event));
    CODE(107000, aclrtDestroyEvent(event));
    OK(aclrtDestroyStreamForce(stream));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
