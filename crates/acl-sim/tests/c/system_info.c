/* Versions, types, half floats. Run with ACL_SIM_VERSION=8.5.1. */
#include "check.h"

int main(void)
{
    int32_t mode, number = 0;
    char version[128], runtime[] = "runtime", unknown[] = "kitchen";
    OK(aclInit(NULL));
    CODE(100002, aclInit(NULL)); /* this release counts no references */
    OK(aclrtGetRunMode(&mode));
    OK(aclsysGetVersionStr(runtime, version));
    TRUE(strcmp(version, "8.5.1") == 0);
    OK(aclsysGetVersionNum(runtime, &number));
    TRUE(number == 80501000);
    CODE(107000, aclsysGetVersionNum(unknown, &number));
    aclCANNPackageVersion parts;
    OK(aclsysGetCANNVersion(0, &parts));
    TRUE(sizeof parts == 512 && strcmp(parts.major, "8") == 0 && strcmp(parts.minor, "5") == 0);
    TRUE(aclDataTypeSize(ACL_FLOAT) == 4 && aclDataTypeSize(ACL_BF16) == 2);
    TRUE(aclDataTypeSize(ACL_INT64) == 8);
    TRUE(aclFloatToFloat16(1.0f) == 0x3c00 && aclFloat16ToFloat(0xc000) == -2.0f);
    TRUE(aclFloatToFloat16(65536.0f) == 0x7c00);
    OK(aclFinalize());
    return 0;
}
