/* Functions of the program in a stream: on the stream's thread, and on a subscribed one. */
#include "check.h"

static volatile int running = 1;
static pthread_t server;

static void *serve(void *argument)
{
    OK(aclrtSetCurrentContext(argument));
    while (running) {
        int code = aclrtProcessReport(10);
        TRUE(code == 0 || code == 107012 || code == 507012);
        if (code != 0) {
            usleep(1000);
        }
    }
    return NULL;
}

static void on_server(void *argument)
{
    TRUE(pthread_equal(pthread_self(), server));
    increment(argument);
}

int main(void)
{
    aclrtContext context;
    aclrtStream stream;
    int32_t zero = 0;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    int32_t *number = on_device(&zero, sizeof zero);
    OK(aclrtLaunchHostFunc(stream, increment, number));
    OK(aclrtSynchronizeStream(stream));
    TRUE(number_at(number) == 1);
    CODE(107000, aclrtLaunchHostFunc(stream, NULL, number));

    CODE(107011, aclrtLaunchCallback(increment, number, 1, stream));
    TRUE(pthread_create(&server, NULL, serve, context) == 0);
    OK(aclrtSubscribeReport((uint64_t)server, stream));
    CODE(107011, aclrtSubscribeReport((uint64_t)server, stream));
    OK(aclrtLaunchCallback(on_server, number, 1, stream)); /* blocks the stream */
    OK(aclrtLaunchHostFunc(stream, twice, number));
    OK(aclrtSynchronizeStream(stream));
    TRUE(number_at(number) == 4);
    OK(aclrtUnSubscribeReport((uint64_t)server, stream));
    running = 0;
    pthread_join(server, NULL);
    OK(aclrtFree(number));
    OK(aclrtDestroyStreamForce(stream));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
