/* Last errors, recent text, and the description of a healthy device. */
#include "check.h"

int main(void)
{
    int32_t mode = -1;
    aclrtErrorInfo info;
    OK(aclInit(NULL));
    OK(aclrtGetRunMode(&mode));
    TRUE(mode == 1);
    TRUE(aclGetRecentErrMsg() == NULL);
    TRUE(aclrtPeekAtLastError(0) == 0);
    CODE(107001, aclrtSetDevice(4711));
    TRUE(aclrtPeekAtLastError(0) == 107001);
    TRUE(aclrtGetLastError(0) == 107001);
    TRUE(aclrtGetLastError(0) == 0);
    const char *text = aclGetRecentErrMsg();
    TRUE(text != NULL && strncmp(text, "EE9999: Inner Error!", 20) == 0);
    TRUE(strstr(text, "107001") != NULL && strstr(text, "4711") != NULL);
    TRUE(aclGetRecentErrMsg() == NULL);
    CODE(107002, aclrtSynchronizeDevice());
    OK(aclrtSetDevice(0));
    memset(&info, 0xff, sizeof info);
    OK(aclrtGetErrorVerbose(0, &info));
    TRUE(info.type == 0 && info.repairable == 0 && info.count == 0);
    CODE(107000, aclrtGetErrorVerbose(0, NULL));
    OK(aclrtResetDeviceForce(0));
    CODE(107002, aclrtResetDevice(0));
    OK(aclFinalize());
    CODE(100037, aclFinalize());
    return 0;
}
