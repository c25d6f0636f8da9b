/* A copy from one device to another. */
#include "check.h"

int main(void)
{
    uint32_t count = 0;
    int32_t can = 0, status = -1, value = 77;
    OK(aclInit(NULL));
    OK(aclrtGetDeviceCount(&count));
    TRUE(count == 2);
    OK(aclrtDeviceCanAccessPeer(&can, 0, 1));
    TRUE(can == 1);
    OK(aclrtDeviceCanAccessPeer(&can, 1, 1));
    TRUE(can == 0);
    OK(aclrtSetDevice(0));
    void *first = on_device(&value, sizeof value);
    OK(aclrtDeviceEnablePeerAccess(1, 0));
    OK(aclrtDevicePeerAccessStatus(0, 1, &status));
    TRUE(status == 1);
    CODE(107000, aclrtDeviceEnablePeerAccess(0, 0));
    CODE(107001, aclrtDeviceEnablePeerAccess(5, 0));
    OK(aclrtSetDevice(1));
    OK(aclrtDeviceEnablePeerAccess(0, 0));
    void *second = on_device(NULL, sizeof value);
    OK(aclrtMemset(second, sizeof value, 0, sizeof value));
    OK(aclrtMemcpy(second, sizeof value, first, sizeof value, ACL_MEMCPY_DEVICE_TO_DEVICE));
    OK(aclrtSynchronizeDevice());
    TRUE(number_at(second) == 77);
    OK(aclrtFree(second));
    OK(aclrtDeviceDisablePeerAccess(0));
    OK(aclrtResetDeviceForce(1));
    OK(aclrtSetDevice(0));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
