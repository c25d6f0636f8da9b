/* Contexts: what is current, what belongs to whom, what a fresh thread has. */
#include "check.h"

static aclrtContext shared;

static void *other_thread(void *argument)
{
    aclrtContext found = NULL;
    (void)argument;
    CODE(107002, aclrtGetCurrentContext(&found));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&found));
    TRUE(found == shared);
    OK(aclrtResetDevice(0));
    return NULL;
}

int main(void)
{
    aclrtContext own = NULL, found = NULL;
    aclrtStream in_default, in_own, standard = NULL;
    aclrtEvent event;
    uint32_t cores = 0;
    pthread_t thread;
    OK(aclInit(NULL));
    CODE(107002, aclrtGetCurrentContext(&found));
    OK(aclrtSetDevice(0));
    OK(aclrtGetCurrentContext(&shared));
    TRUE(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    pthread_join(thread, NULL);
    OK(aclrtGetCurrentContext(&found));
    TRUE(found == shared); /* one of two references is left */
    OK(aclrtCreateStream(&in_default));
    OK(aclrtCtxGetCurrentDefaultStream(&standard));
    TRUE(standard != NULL && standard != in_default);
    OK(aclrtSynchronizeStream(standard));
    OK(aclrtGetResInCurrentThread(0, &cores));
    TRUE(cores == 20);

    OK(aclrtCreateContext(&own, 0));
    OK(aclrtGetCurrentContext(&found));
    TRUE(found == own && own != shared);
    CODE(107003, aclrtSynchronizeStream(in_default));
    OK(aclrtCreateStream(&in_own));
    OK(aclrtCreateEvent(&event));
    OK(aclrtSetCurrentContext(shared));
    CODE(107003, aclrtRecordEvent(event, in_default));
    CODE(107003, aclrtSynchronizeStream(in_own));
    OK(aclrtSynchronizeStream(in_default));
    OK(aclrtSetCurrentContext(own));
    OK(aclrtDestroyContext(own));
    CODE(107002, aclrtGetCurrentContext(&found));
    CODE(107000, aclrtSetCurrentContext(own));
    OK(aclrtSetCurrentContext(shared));
    CODE(107017, aclrtSynchronizeStream(in_own));
    OK(aclrtResetDeviceForce(0));
    CODE(107002, aclrtSynchronizeStream(in_default));
    OK(aclFinalize());
    return 0;
}
