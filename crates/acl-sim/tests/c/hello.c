/* The smallest program with an operator: out = self + 2 * other. */
#include "tensors.h"

int main(void)
{
    float self[4] = {1, 2, 3, 4}, other[4] = {10, 20, 30, 40}, out[4] = {0};
    aclrtStream stream;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    void *a = on_device(self, sizeof self), *b = on_device(other, sizeof other);
    void *c = on_device(NULL, sizeof out);
    void *buffer = aclCreateDataBuffer(a, sizeof self);
    TRUE(aclGetDataBufferAddr(buffer) == a && aclGetDataBufferSizeV2(buffer) == sizeof self);
    aclTensor *ta = floats(a, 4), *tb = floats(b, 4), *tc = floats(c, 4);
    add(ta, tb, 2.0f, tc, stream);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(out, sizeof out, c, sizeof out, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < 4; i++) {
        TRUE(out[i] == self[i] + 2 * other[i]);
    }
    OK(aclDestroyTensor(ta));
    OK(aclDestroyTensor(tb));
    OK(aclDestroyTensor(tc));
    OK(aclDestroyDataBuffer(buffer));
    CODE(107000, aclDestroyDataBuffer(buffer));
    OK(aclrtFree(a));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
