/* Reductions on a stream. */
#include "check.h"

int main(void)
{
    float into[4] = {1, 2, 3, 4}, more[4] = {4, 3, 2, 1}, out[4];
    aclrtStream stream;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    void *a = on_device(into, sizeof into), *b = on_device(more, sizeof more);
    OK(aclrtReduceAsync(a, b, sizeof into, ACL_REDUCE_SUM, ACL_FLOAT, stream, NULL));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(out, sizeof out, a, sizeof out, ACL_MEMCPY_DEVICE_TO_HOST));
    TRUE(out[0] == 5 && out[1] == 5 && out[2] == 5 && out[3] == 5);
    OK(aclrtReduceAsync(b, a, sizeof into, ACL_REDUCE_MIN, ACL_FLOAT, stream, NULL));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(out, sizeof out, b, sizeof out, ACL_MEMCPY_DEVICE_TO_HOST));
    TRUE(out[0] == 4 && out[3] == 1);
    CODE(107000, aclrtReduceAsync(a, b, sizeof into, 3, ACL_FLOAT, stream, NULL));
    CODE(107000, aclrtReduceAsync(a, b, 3, ACL_REDUCE_SUM, ACL_FLOAT, stream, NULL));
    CODE(207000, aclrtReduceAsync(a, b, sizeof into, ACL_REDUCE_SUM, 12, stream, NULL));
    OK(aclrtFree(a));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
