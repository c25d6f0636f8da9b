/* What the installation and the chip can do. */
#include "check.h"

int main(void)
{
    const int32_t *list = NULL;
    size_t count = 0;
    int32_t value = -1, fits = -1, feature = -1;
    int64_t cores = 0;
    char cann[] = "CANN", version[128];
    uint64_t references = 9;
    OK(aclInit(NULL));
    OK(aclInit(NULL));
    OK(aclFinalizeReference(&references));
    TRUE(references == 1);
    OK(aclrtSetDevice(0));
    OK(aclGetCannAttributeList(&list, &count));
    TRUE(count == 3);
    for (size_t i = 0; i < count; i++) {
        OK(aclGetCannAttribute(list[i], &value));
        TRUE(value == 1);
    }
    CODE(107000, aclGetCannAttribute(99, &value));
    TRUE(strcmp(aclrtGetSocName(), "Ascend910B3") == 0);
    OK(aclrtCheckArchCompatibility("Ascend910B1", &fits));
    TRUE(fits == 1);
    OK(aclrtCheckArchCompatibility("Ascend310P3", &fits));
    TRUE(fits == 0);
    OK(aclrtGetDeviceCapability(0, 1, &feature));
    TRUE(feature == 1);
    OK(aclGetDeviceCapability(0, 0, &cores));
    TRUE(cores == 20);
    OK(aclsysGetVersionStr(cann, version));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
