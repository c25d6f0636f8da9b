/* Every act that a capture forbids gives its code, and the capture gives no graph. */
#include "check.h"

static aclrtStream stream, side, third;
static void *memory;
static aclmdlRI graph;

static void begin(int mode)
{
    int32_t status = -1;
    OK(aclmdlRICaptureBegin(stream, mode));
    OK(aclmdlRICaptureGetInfo(stream, &status, &graph));
    TRUE(status == ACL_CAPTURE_STATUS_ACTIVE && graph != NULL);
}

static void broken(void)
{
    int32_t status = -1;
    OK(aclmdlRICaptureGetInfo(stream, &status, NULL));
    TRUE(status == ACL_CAPTURE_STATUS_INVALIDATED);
    CODE(507903, aclrtMemsetAsync(memory, 8, 0, 8, stream));
    CODE(507903, aclmdlRICaptureEnd(stream, &graph));
    TRUE(graph == NULL);
    OK(aclmdlRICaptureGetInfo(stream, &status, NULL));
    TRUE(status == ACL_CAPTURE_STATUS_NONE);
    OK(aclrtMemsetAsync(memory, 8, 0, 8, stream)); /* the stream is usable again */
    OK(aclrtSynchronizeStream(stream));
}

static void *copy_elsewhere(void *expected)
{
    int32_t number = 1;
    OK(aclrtSetDevice(0));
    CODE(*(int *)expected, aclrtMemcpy(memory, 4, &number, 4, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclrtResetDevice(0));
    return NULL;
}

static void *end_elsewhere(void *expected)
{
    OK(aclrtSetDevice(0));
    CODE(*(int *)expected, aclmdlRICaptureEnd(stream, &graph));
    OK(aclrtResetDevice(0));
    return NULL;
}

static void elsewhere(void *(*act)(void *), int expected)
{
    pthread_t thread;
    TRUE(pthread_create(&thread, NULL, act, &expected) == 0);
    pthread_join(thread, NULL);
}

int main(void)
{
    aclrtEvent fork, join, eager, other;
    int32_t status, number = 7;
    void *pinned;
    aclmdlRI keep;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&side));
    OK(aclrtCreateStream(&third));
    OK(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
    OK(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
    OK(aclrtCreateEventExWithFlag(&eager, ACL_EVENT_SYNC));
    OK(aclrtCreateEventExWithFlag(&other, ACL_EVENT_SYNC));
    OK(aclrtMallocHost(&pinned, 64));
    memory = on_device(NULL, 64);

    CODE(107031, aclmdlRICaptureBegin(NULL, ACL_CAPTURE_GLOBAL));
    CODE(107000, aclmdlRICaptureBegin(stream, 3));
    CODE(107029, aclmdlRICaptureEnd(stream, &graph));
    CODE(107029, aclmdlRICaptureTaskGrpBegin(stream));

    /* looking at what is being captured */
    begin(ACL_CAPTURE_RELAXED);
    CODE(107027, aclrtSynchronizeStream(stream));
    TRUE(strstr(aclGetRecentErrMsg(), "EE1016: ") != NULL);
    broken();
    begin(ACL_CAPTURE_RELAXED);
    CODE(107027, aclrtStreamQuery(stream, &status));
    broken();
    begin(ACL_CAPTURE_RELAXED);
    CODE(107027, aclrtDestroyStream(stream));
    broken();
    begin(ACL_CAPTURE_RELAXED);
    CODE(107027, aclrtSynchronizeDevice());
    broken();
    begin(ACL_CAPTURE_RELAXED);
    CODE(107027, aclmdlRICaptureBegin(stream, ACL_CAPTURE_RELAXED));
    broken();
    begin(ACL_CAPTURE_RELAXED);
    OK(aclrtRecordEvent(fork, stream));
    CODE(107028, aclrtSynchronizeEvent(fork));
    broken();
    begin(ACL_CAPTURE_RELAXED);
    OK(aclrtRecordEvent(fork, stream));
    CODE(107028, aclrtQueryEventStatus(fork, &status));
    broken();
    OK(aclrtQueryEventStatus(fork, &status)); /* forgotten with its capture */

    /* blocking copies, by mode and thread */
    begin(ACL_CAPTURE_GLOBAL);
    CODE(107030, aclrtMemcpy(memory, 4, &number, 4, ACL_MEMCPY_HOST_TO_DEVICE));
    broken();
    begin(ACL_CAPTURE_GLOBAL);
    elsewhere(copy_elsewhere, 107030);
    broken();
    begin(ACL_CAPTURE_THREAD_LOCAL);
    elsewhere(copy_elsewhere, 0);
    CODE(107030, aclrtMemset(memory, 8, 0, 8));
    broken();
    begin(ACL_CAPTURE_RELAXED);
    OK(aclrtMemcpy(memory, 4, &number, 4, ACL_MEMCPY_HOST_TO_DEVICE));
    elsewhere(copy_elsewhere, 0);
    OK(aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRIDestroy(graph));

    /* pageable memory, the default stream, and a submission that fails */
    begin(ACL_CAPTURE_RELAXED);
    CODE(107030, aclrtMemcpyAsync(memory, 4, &number, 4, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    broken();
    begin(ACL_CAPTURE_RELAXED);
    CODE(107031, aclrtMemsetAsync(memory, 8, 0, 8, NULL));
    TRUE(strstr(aclGetRecentErrMsg(), "EE1017: ") != NULL);
    broken();
    begin(ACL_CAPTURE_RELAXED);
    CODE(107000, aclrtMemsetAsync(memory, 4, 0, 8, stream));
    broken();

    /* events that do not belong */
    OK(aclrtRecordEvent(eager, side));
    begin(ACL_CAPTURE_RELAXED);
    CODE(107024, aclrtStreamWaitEvent(stream, eager));
    broken();
    begin(ACL_CAPTURE_RELAXED);
    OK(aclmdlRICaptureBegin(third, ACL_CAPTURE_RELAXED));
    OK(aclrtRecordEvent(other, third));
    CODE(107032, aclrtStreamWaitEvent(stream, other));
    CODE(507903, aclmdlRICaptureEnd(third, &keep));
    broken();

    /* side streams: join and come back */
    begin(ACL_CAPTURE_RELAXED);
    OK(aclrtRecordEvent(fork, stream));
    OK(aclrtStreamWaitEvent(side, fork));
    OK(aclmdlRICaptureGetInfo(side, &status, NULL));
    TRUE(status == ACL_CAPTURE_STATUS_ACTIVE);
    OK(aclrtMemsetAsync(memory, 8, 3, 8, side));
    CODE(107025, aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRICaptureGetInfo(side, &status, NULL));
    TRUE(status == ACL_CAPTURE_STATUS_NONE);
    begin(ACL_CAPTURE_RELAXED);
    OK(aclrtRecordEvent(fork, stream));
    OK(aclrtStreamWaitEvent(side, fork));
    OK(aclrtRecordEvent(join, side));
    OK(aclrtStreamWaitEvent(stream, join));
    OK(aclrtMemsetAsync(memory, 8, 3, 8, side)); /* too late */
    CODE(107025, aclmdlRICaptureEnd(stream, &graph));
    begin(ACL_CAPTURE_RELAXED);
    OK(aclrtRecordEvent(fork, stream));
    OK(aclrtStreamWaitEvent(side, fork));
    CODE(107036, aclmdlRICaptureEnd(side, &graph));
    broken();

    /* through another side stream */
    begin(ACL_CAPTURE_GLOBAL);
    OK(aclrtMemsetAsync(memory, 8, 1, 8, stream));
    OK(aclrtRecordEvent(fork, stream));
    OK(aclrtStreamWaitEvent(side, fork));
    OK(aclrtRecordEvent(other, side));
    OK(aclrtStreamWaitEvent(third, other));
    OK(aclrtMemsetAsync(memory, 4, 2, 4, third));
    OK(aclrtMemcpyAsync((char *)memory + 8, 8, memory, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, third));
    OK(aclrtRecordEvent(join, third));
    OK(aclrtStreamWaitEvent(stream, join));
    OK(aclrtMemcpyAsync(pinned, 16, memory, 16, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    OK(aclmdlRICaptureEnd(stream, &keep));
    for (int round = 0; round < 50; round++) {
        memset(pinned, 0, 16);
        OK(aclmdlRIExecuteAsync(keep, side));
        OK(aclrtSynchronizeStream(side));
        TRUE(((int32_t *)pinned)[2] == 0x02020202 && ((int32_t *)pinned)[3] == 0x01010101);
    }
    begin(ACL_CAPTURE_RELAXED);
    CODE(107027, aclmdlRIExecuteAsync(keep, stream));
    broken();
    OK(aclmdlRIDestroy(keep));

    /* another thread may end a relaxed capture only */
    begin(ACL_CAPTURE_GLOBAL);
    elsewhere(end_elsewhere, 107038);
    broken();
    begin(ACL_CAPTURE_RELAXED);
    elsewhere(end_elsewhere, 0);
    OK(aclmdlRIDestroy(graph));

    OK(aclrtSynchronizeDevice());
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
