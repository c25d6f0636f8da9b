/* A thread for each device; limits, memory and state of devices. Run with ACL_SIM_DEVICES=3. */
#include "check.h"

static void *on_one(void *argument)
{
    int32_t device = *(int32_t *)argument, current = -1, status = -1, least = -1, greatest = -1;
    int64_t memory = 0;
    uint32_t limit = 0;
    aclrtStream stream;
    aclrtUtilizationInfo use;
    int32_t *pinned = NULL;
    OK(aclrtSetDevice(device));
    OK(aclrtGetDevice(&current));
    TRUE(current == device);
    OK(aclrtQueryDeviceStatus(device, &status));
    TRUE(status == 0);
    OK(aclrtGetDeviceInfo((uint32_t)device, 301, &memory));
    TRUE(memory == (int64_t)2 << 30);
    OK(aclrtDeviceGetStreamPriorityRange(&least, &greatest));
    TRUE(least >= greatest);
    OK(aclrtSetDeviceResLimit(device, 0, 5));
    OK(aclrtGetDeviceResLimit(device, 0, &limit));
    TRUE(limit == 5);
    OK(aclrtResetDeviceResLimit(device));
    OK(aclrtGetDeviceResLimit(device, 0, &limit));
    TRUE(limit == 20);
    CODE(107000, aclrtSetDeviceResLimit(device, 0, 4000));
    OK(aclrtGetDeviceUtilizationRate(device, &use));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMallocHost((void **)&pinned, sizeof *pinned));
    *pinned = 100 + device;
    void *memory_of_device = on_device(pinned, sizeof *pinned);
    OK(aclrtSynchronizeStream(stream));
    TRUE(number_at(memory_of_device) == 100 + device);
    OK(aclrtFree(memory_of_device));
    OK(aclrtFreeHost(pinned));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDeviceForce(device));
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    int32_t ids[3] = {0, 1, 2};
    uint32_t count = 0;
    OK(aclInit(NULL));
    OK(aclrtGetDeviceCount(&count));
    TRUE(count == 3);
    for (int i = 0; i < 3; i++) {
        TRUE(pthread_create(&threads[i], NULL, on_one, &ids[i]) == 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(aclFinalize());
    return 0;
}
