/* Faults of the script, one case a run: the first argument names it. */
#include "check.h"

static aclrtStream stream;
static void *memory;
static int waited = -1;

static void *synchronise(void *context)
{
    OK(aclrtSetCurrentContext(context));
    waited = aclrtSynchronizeStream(stream);
    return NULL;
}

static aclmdlRI capture_two(void)
{
    aclmdlRI graph = NULL;
    OK(aclmdlRICaptureBegin(stream, ACL_CAPTURE_RELAXED));
    OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
    OK(aclrtMemsetAsync(memory, 64, 2, 64, stream));
    OK(aclmdlRICaptureEnd(stream, &graph));
    return graph;
}

int main(int count, char **names)
{
    const char *name = count > 1 ? names[1] : "";
    aclmdlRI graph = NULL;
    if (strcmp(name, "script") == 0) {
        CODE(100000, aclInit(NULL));
        TRUE(strstr(aclGetRecentErrMsg(), "line 2") != NULL);
        return 0;
    }
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    if (strcmp(name, "malloc") == 0) { /* operator=malloc nth=2 code=207001 */
        memory = on_device(NULL, 64);
        CODE(207001, aclrtMalloc(&memory, 64, 0));
        memory = on_device(NULL, 64);
        return 0;
    }
    memory = on_device(NULL, 64);
    OK(aclrtMemset(memory, 64, 0, 64));
    if (strcmp(name, "replay") == 0) { /* operator=memset phase=replay nth=2 code=507035 */
        graph = capture_two();
        OK(aclmdlRIExecuteAsync(graph, stream));
        CODE(507011, aclrtSynchronizeStream(stream));
        TRUE(strstr(aclGetRecentErrMsg(), "code 507035") != NULL);
        TRUE(number_at(memory) == 0x01010101); /* the first node ran */
        OK(aclmdlRIExecuteAsync(graph, stream));
        OK(aclrtSynchronizeStream(stream));
        TRUE(number_at(memory) == 0x02020202);
    } else if (strcmp(name, "capture") == 0) { /* operator=memset phase=capture nth=2 code=507000 */
        OK(aclmdlRICaptureBegin(stream, ACL_CAPTURE_RELAXED));
        OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
        CODE(507000, aclrtMemsetAsync(memory, 64, 2, 64, stream));
        CODE(507903, aclmdlRICaptureEnd(stream, &graph));
        graph = capture_two();
    } else if (strcmp(name, "begin") == 0) { /* operator=capture code=207008 */
        CODE(207008, aclmdlRICaptureBegin(stream, ACL_CAPTURE_RELAXED));
        graph = capture_two();
    } else if (strcmp(name, "corrupt") == 0) { /* operator=memset phase=eager nth=2 corrupt */
        OK(aclrtMemsetAsync(memory, 64, 0, 64, stream));
        OK(aclrtSynchronizeStream(stream));
        TRUE(number_at(memory) == 0x40);
    } else if (strcmp(name, "hang") == 0) { /* operator=memset nth=2 hang */
        pthread_t thread;
        aclrtContext context;
        OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
        OK(aclrtMemsetAsync(memory, 64, 2, 64, stream));
        CODE(507046, aclrtSynchronizeStreamWithTimeout(stream, 30));
        OK(aclrtGetCurrentContext(&context));
        TRUE(pthread_create(&thread, NULL, synchronise, context) == 0);
        usleep(30000);
        OK(aclrtStreamAbort(stream));
        pthread_join(thread, NULL);
        TRUE(waited == 107023);
        OK(aclrtSynchronizeStream(stream));
        TRUE(number_at(memory) == 0); /* the hung one and the one behind it never ran */
        OK(aclrtMemsetAsync(memory, 64, 3, 64, stream));
        OK(aclrtSynchronizeStream(stream));
        TRUE(number_at(memory) == 0x03030303);
    } else if (strcmp(name, "abort") == 0) { /* operator=memset nth=2 hang */
        pthread_t thread;
        aclrtContext context;
        aclrtErrorInfo info;
        OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
        OK(aclrtGetCurrentContext(&context));
        TRUE(pthread_create(&thread, NULL, synchronise, context) == 0);
        usleep(30000);
        OK(aclrtDeviceTaskAbort(0, 0));
        pthread_join(thread, NULL);
        TRUE(waited == 107022);
        CODE(107022, aclrtMemsetAsync(memory, 64, 2, 64, stream));
        OK(aclrtGetErrorVerbose(0, &info));
        OK(aclrtRepairError(0, &info));
        OK(aclrtMemsetAsync(memory, 64, 2, 64, stream));
        OK(aclrtSynchronizeStream(stream));
        TRUE(number_at(memory) == 0x02020202);
    } else if (strcmp(name, "memory") == 0) { /* operator=memset nth=2 code=507053 */
        aclrtErrorInfo info;
        aclrtMemUceInfo range;
        size_t ranges = 0;
        OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
        CODE(507053, aclrtSynchronizeStream(stream));
        CODE(507053, aclrtSynchronizeStream(stream)); /* the context remembers */
        OK(aclrtGetMemUceInfo(0, &range, 1, &ranges));
        TRUE(ranges == 1 && range.address == memory && range.length == 64);
        OK(aclrtGetErrorVerbose(0, &info));
        TRUE(info.type == 1 && info.repairable == 1 && info.count == 1 && info.ranges[0].address == memory);
        OK(aclrtDeviceTaskAbort(0, 1000));
        OK(aclrtRepairError(0, &info));
        OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
        OK(aclrtSynchronizeStream(stream));
        OK(aclrtGetMemUceInfo(0, &range, 1, &ranges));
        TRUE(ranges == 0);
    } else if (strcmp(name, "dead") == 0) { /* operator=sync nth=2 dead=2 code=507010 */
        int32_t status = -1;
        OK(aclrtSynchronizeStream(stream));
        CODE(507010, aclrtSynchronizeStream(stream));
        CODE(507010, aclrtMalloc(&memory, 64, 0));
        CODE(507010, aclrtMemsetAsync(memory, 64, 1, 64, stream));
        OK(aclrtQueryDeviceStatus(0, &status));
        TRUE(status == 1);
        OK(aclrtResetDeviceForce(0));
        CODE(507010, aclrtSetDevice(0));
        OK(aclrtResetDeviceForce(0));
        OK(aclrtSetDevice(0));
        OK(aclrtSynchronizeDevice());
    } else if (strcmp(name, "heartbeat") == 0) { /* operator=memset nth=2 code=507010 */
        OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
        int code = aclrtSynchronizeStream(stream);
        TRUE(code == 507899); /* by the time it is told, the device is down */
        CODE(507899, aclrtMalloc(&memory, 64, 0));
        OK(aclrtResetDeviceForce(0));
        OK(aclrtSetDevice(0));
    } else if (strcmp(name, "other") == 0) { /* device=1 operator=any code=507015 always */
        OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
        OK(aclrtSynchronizeStream(stream));
    } else if (strcmp(name, "reset") == 0) { /* operator=memset nth=2 hang: a reset ends it */
        OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
        OK(aclrtResetDeviceForce(0));
        OK(aclrtSetDevice(0));
        OK(aclrtCreateStream(&stream));
        OK(aclrtSynchronizeStream(stream));
    } else if (strcmp(name, "control") == 0) { /* rules come through the socket while this waits for one */
        int code = 0;
        for (int i = 0; i < 5000 && code == 0; i++) {
            OK(aclrtMemsetAsync(memory, 64, 1, 64, stream));
            code = aclrtSynchronizeStream(stream);
            usleep(2000);
        }
        TRUE(code == 507014);
    } else {
        fprintf(stderr, "no case is called %s\n", name);
        return 2;
    }
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
