/* Values in memory between streams, overflow switches, cache operations. */
#include "check.h"

int main(void)
{
    aclrtStream first, second;
    uint64_t zero = 0;
    uint32_t flag = 9;
    int32_t mode = -1, number = 0;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&first));
    OK(aclrtCreateStream(&second));
    void *value = on_device(&zero, sizeof zero);
    int32_t *count = on_device(&number, sizeof number);
    OK(aclrtValueWait(value, 3, 1, second));
    OK(aclrtLaunchHostFunc(second, increment, count));
    CODE(507046, aclrtSynchronizeStreamWithTimeout(second, 20));
    OK(aclrtValueWrite(value, 3, 0, first));
    OK(aclrtSynchronizeStream(second));
    TRUE(number_at(count) == 1);
    CODE(107000, aclrtValueWait(value, 3, 9, second));
    CODE(107000, aclrtValueWrite((char *)value + 4, 3, 0, first));
    OK(aclrtCmoAsync(value, sizeof zero, 0, first));
    OK(aclrtSetDeviceSatMode(0));
    OK(aclrtGetDeviceSatMode(&mode));
    TRUE(mode == 0);
    OK(aclrtSetStreamOverflowSwitch(first, 1));
    OK(aclrtGetStreamOverflowSwitch(first, &flag));
    TRUE(flag == 1);
    OK(aclrtGetOverflowStatus(value, sizeof zero, first));
    OK(aclrtResetOverflowStatus(first));
    OK(aclrtSynchronizeStream(first));
    TRUE(number_at(value) == 0);
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
