/* Failures of tasks in both modes. Run with the rule `operator=memset code=507015 nth=2 times=2`. */
#include "check.h"

static int heard, streams;

static void listen(aclrtExceptionInfo *info)
{
    int ours = aclrtGetDeviceIdFromExceptionInfo(info) == 0;
    heard += ours && aclrtGetErrorCodeFromExceptionInfo(info) == 507015;
}

static void count_streams(aclrtStream stream, int32_t state, void *argument)
{
    TRUE(stream != NULL && argument == &streams);
    streams += state == 1 ? 1 : -1;
}

int main(void)
{
    gate hold = GATE;
    aclrtContext context;
    aclrtStream stream, other, aborted;
    int32_t zero = 0;
    OK(aclInit(NULL));
    OK(aclrtRegStreamStateCallback("count", count_streams, &streams));
    OK(aclrtSetExceptionInfoCallback(listen));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&other));
    TRUE(streams == 2);
    int32_t *number = on_device(&zero, sizeof zero);
    void *scratch = on_device(NULL, 64);

    /* continue: the rest runs, the synchronisation tells once */
    OK(aclrtMemsetAsync(scratch, 64, 1, 64, stream));
    OK(aclrtLaunchHostFunc(stream, increment, number));
    OK(aclrtMemsetAsync(scratch, 64, 2, 64, stream));
    OK(aclrtLaunchHostFunc(stream, increment, number));
    CODE(507015, aclrtSynchronizeStream(stream));
    const char *text = aclGetRecentErrMsg();
    TRUE(strstr(text, "507015") != NULL && strstr(text, "memset") != NULL);
    OK(aclrtSynchronizeStream(stream));
    TRUE(number_at(number) == 2);
    TRUE(heard == 1);

    /* stop: nothing after the failure runs, and no stream of the context takes anything any more */
    OK(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
    OK(aclrtLaunchHostFunc(stream, pass, &hold));
    OK(aclrtMemsetAsync(scratch, 64, 3, 64, stream));
    OK(aclrtLaunchHostFunc(stream, increment, number));
    open_gate(&hold);
    CODE(507015, aclrtSynchronizeStream(stream));
    TRUE(number_at(number) == 2);
    CODE(507015, aclrtLaunchHostFunc(other, increment, number));
    CODE(507015, aclrtSynchronizeStream(other));
    OK(aclrtFree(number));
    OK(aclrtDestroyStreamForce(stream));
    OK(aclrtDestroyContext(context));

    /* a new context is well; an aborted stream drops what waits */
    gate never = GATE;
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStreamWithConfig(&aborted, 0, 0x20));
    number = on_device(&zero, sizeof zero);
    OK(aclrtLaunchHostFunc(aborted, pass, &never));
    OK(aclrtLaunchHostFunc(aborted, increment, number));
    OK(aclrtStreamAbort(aborted));
    open_gate(&never);
    OK(aclrtSynchronizeStream(aborted));
    TRUE(number_at(number) == 0);
    OK(aclrtLaunchHostFunc(aborted, increment, number));
    OK(aclrtSynchronizeStream(aborted));
    TRUE(number_at(number) == 1);
    OK(aclrtStreamStop(aborted));
    OK(aclrtDestroyStreamForce(aborted));
    TRUE(streams == 1); /* `other` went with its context */
    OK(aclrtRegStreamStateCallback("count", NULL, NULL));
    OK(aclrtSetExceptionInfoCallback(NULL));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
