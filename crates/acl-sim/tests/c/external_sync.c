/* Events between graphs and streams, in the three directions. */
#include "check.h"

enum { BYTES = 32 };

int main(void)
{
    int32_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    gate hold = GATE;
    aclrtContext context;
    aclrtStream inside, outside;
    aclrtEvent event;
    aclmdlRI waits, records;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&inside));
    OK(aclrtCreateStream(&outside));
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    void *src = on_device(values, BYTES), *mid = on_device(NULL, BYTES), *dst = on_device(NULL, BYTES);

    OK(aclmdlRICaptureBegin(inside, ACL_CAPTURE_RELAXED));
    OK(aclrtStreamWaitEventWithFlag(inside, event, -1, ACL_EVENT_WAIT_EXTERNAL));
    OK(aclrtMemcpyAsync(dst, BYTES, mid, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, inside));
    OK(aclmdlRICaptureEnd(inside, &waits));
    OK(aclmdlRICaptureBegin(inside, ACL_CAPTURE_RELAXED));
    OK(aclrtMemcpyAsync(mid, BYTES, src, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, inside));
    OK(aclrtRecordEventWithFlag(event, inside, ACL_EVENT_RECORD_EXTERNAL));
    OK(aclmdlRICaptureEnd(inside, &records));

    /* a stream records, a graph waits */
    OK(aclrtLaunchHostFunc(outside, pass, &hold));
    OK(aclrtMemsetAsync(mid, BYTES, 1, BYTES, outside));
    OK(aclrtRecordEvent(event, outside));
    OK(aclmdlRIExecuteAsync(waits, inside));
    CODE(107037, aclmdlRIDestroy(waits));
    CODE(507046, aclrtSynchronizeStreamWithTimeout(inside, 20));
    open_gate(&hold);
    OK(aclrtSynchronizeStream(inside));
    TRUE(number_at(dst) == 0x01010101);

    /* a graph records, a stream waits */
    OK(aclmdlRIExecuteAsync(records, inside));
    OK(aclrtStreamWaitEvent(outside, event));
    OK(aclrtMemcpyAsync(out, BYTES, mid, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, outside));
    TRUE(memcmp(out, values, BYTES) == 0);

    /* a graph records, another waits */
    gate again = GATE;
    values[0] = 42;
    OK(aclrtMemcpy(src, BYTES, values, BYTES, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclrtLaunchHostFunc(inside, pass, &again));
    OK(aclmdlRIExecuteAsync(records, inside));
    OK(aclmdlRIExecuteAsync(waits, outside));
    CODE(507046, aclrtSynchronizeStreamWithTimeout(outside, 20));
    open_gate(&again);
    OK(aclrtSynchronizeStream(outside));
    TRUE(number_at(dst) == 42);
    OK(aclrtSynchronizeStream(inside));
    OK(aclmdlRIDestroy(waits));
    OK(aclmdlRIDestroy(records));
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyStream(inside));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
