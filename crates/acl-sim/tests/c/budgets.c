/* Budgets run out with their codes, and come back.
 * Run with ACL_SIM_STREAMS=4 ACL_SIM_EVENTS=3 ACL_SIM_MEMORY_BYTES=4096. */
#include "check.h"

int main(void)
{
    aclrtStream streams[5];
    aclrtEvent events[4];
    aclmdlRI graphs[3];
    void *memory[3];
    uint32_t left = 99;
    size_t free_bytes = 0, total = 0;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    for (int i = 0; i < 3; i++) {
        OK(aclrtCreateEvent(&events[i]));
    }
    CODE(207007, aclrtCreateEvent(&events[3]));
    OK(aclrtDestroyEvent(events[0]));
    OK(aclrtCreateEvent(&events[0]));
    OK(aclrtGetEventAvailNum(&left));
    TRUE(left == 0);

    OK(aclrtMalloc(&memory[0], 2000, 0));
    CODE(207018, aclrtMalloc(&memory[1], 2048, 0));
    TRUE(strstr(aclGetRecentErrMsg(), "EL0004: ") != NULL);
    OK(aclrtGetMemInfo(1, &free_bytes, &total));
    TRUE(total == 4096 && free_bytes == 4096 - 2048);
    OK(aclrtMallocAlign32(&memory[1], 2048, 0));
    CODE(207018, aclrtMalloc(&memory[2], 1, 0));
    OK(aclrtFree(memory[0]));
    OK(aclrtMalloc(&memory[2], 1, 0));

    /* a graph keeps a stream for each stream it was captured with */
    OK(aclrtCreateStream(&streams[0]));
    OK(aclrtCreateStream(&streams[1]));
    for (int i = 0; i < 2; i++) {
        OK(aclmdlRICaptureBegin(streams[0], ACL_CAPTURE_RELAXED));
        OK(aclrtMemsetAsync(memory[1], 8, 0, 8, streams[0]));
        OK(aclmdlRICaptureEnd(streams[0], &graphs[i]));
    }
    OK(aclrtGetStreamAvailableNum(&left));
    TRUE(left == 0);
    CODE(207008, aclrtCreateStream(&streams[2]));
    CODE(207008, aclmdlRICaptureBegin(streams[0], ACL_CAPTURE_RELAXED));
    OK(aclmdlRIDestroy(graphs[1]));
    OK(aclmdlRICaptureBegin(streams[0], ACL_CAPTURE_RELAXED));
    OK(aclrtRecordEvent(events[0], streams[0]));
    CODE(207008, aclrtStreamWaitEvent(streams[1], events[0])); /* the second lane has none */
    CODE(507903, aclmdlRICaptureEnd(streams[0], &graphs[1]));
    OK(aclrtGetStreamAvailableNum(&left));
    TRUE(left == 1); /* a broken capture keeps nothing */
    OK(aclrtDestroyStream(streams[1]));
    OK(aclrtGetStreamAvailableNum(&left));
    TRUE(left == 2);
    OK(aclmdlRIExecuteAsync(graphs[0], streams[0]));
    OK(aclrtSynchronizeStream(streams[0]));
    OK(aclrtResetDeviceForce(0));
    OK(aclrtSetDevice(0));
    OK(aclrtGetStreamAvailableNum(&left));
    TRUE(left == 4);
    OK(aclrtGetEventAvailNum(&left));
    TRUE(left == 3);
    OK(aclrtGetMemInfo(1, &free_bytes, &total));
    TRUE(free_bytes == 4096);
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
