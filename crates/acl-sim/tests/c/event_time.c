/* Time stamps of events. */
#include "check.h"

static void nap(void *argument)
{
    (void)argument;
    usleep(20000);
}

int main(void)
{
    aclrtContext context;
    aclrtStream stream;
    aclrtEvent start, end, timeless;
    float ms = -1;
    uint64_t first = 0, second = 0;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateEvent(&start));
    OK(aclrtCreateEventWithFlag(&end, ACL_EVENT_TIME_LINE));
    OK(aclrtCreateEventWithFlag(&timeless, ACL_EVENT_SYNC));
    CODE(107006, aclrtEventElapsedTime(&ms, start, end)); /* not recorded */
    OK(aclrtRecordEvent(start, stream));
    OK(aclrtLaunchHostFunc(stream, nap, NULL));
    OK(aclrtRecordEvent(end, stream));
    OK(aclrtRecordEvent(timeless, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtEventElapsedTime(&ms, start, end));
    TRUE(ms >= 20.0f);
    CODE(107007, aclrtEventElapsedTime(&ms, end, start));
    CODE(107006, aclrtEventElapsedTime(&ms, start, timeless));
    OK(aclrtEventGetTimestamp(start, &first));
    OK(aclrtEventGetTimestamp(end, &second));
    TRUE(second >= first + 20000);
    OK(aclrtDestroyEvent(start));
    OK(aclrtDestroyEvent(end));
    OK(aclrtDestroyStreamForce(stream));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
