/* A stream: order, query, synchronisation with a limit, destruction. */
#include "check.h"

int main(void)
{
    gate hold = GATE;
    aclrtContext context;
    aclrtStream stream;
    int32_t status = -1, zero = 0;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
    int32_t *number = on_device(&zero, sizeof zero);
    OK(aclrtStreamQuery(stream, &status));
    TRUE(status == 0);
    OK(aclrtLaunchHostFunc(stream, pass, &hold));
    OK(aclrtLaunchHostFunc(stream, increment, number));
    OK(aclrtLaunchHostFunc(stream, twice, number));
    OK(aclrtLaunchHostFunc(stream, increment, number));
    OK(aclrtStreamQuery(stream, &status));
    TRUE(status == 1);
    CODE(507046, aclrtSynchronizeStreamWithTimeout(stream, 20));
    TRUE(strstr(aclGetRecentErrMsg(), "EE1002: ") != NULL);
    CODE(507046, aclrtSynchronizeDeviceWithTimeout(20));
    CODE(107000, aclrtSynchronizeStreamWithTimeout(stream, 0));
    open_gate(&hold);
    OK(aclrtSynchronizeStreamWithTimeout(stream, -1));
    TRUE(number_at(number) == 3);
    OK(aclrtStreamQuery(stream, &status));
    TRUE(status == 0);
    OK(aclrtFree(number));
    OK(aclrtDestroyStreamForce(stream));
    CODE(107017, aclrtSynchronizeStream(stream));
    CODE(107017, aclrtDestroyStream(stream));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
