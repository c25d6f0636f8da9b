/* Two devices one after another, each with an operator; a device-wide wait. */
#include "tensors.h"

int main(void)
{
    float self[3] = {1, 2, 3}, out[3];
    OK(aclInit(NULL));
    for (int32_t device = 0; device < 2; device++) {
        aclrtStream stream;
        OK(aclrtSetDevice(device));
        OK(aclrtCreateStream(&stream));
        void *a = on_device(self, sizeof self), *b = on_device(NULL, sizeof out);
        aclTensor *ta = floats(a, 3), *tb = floats(b, 3);
        add(ta, ta, 1.0f, tb, stream);
        OK(aclrtSynchronizeDevice());
        OK(aclrtMemcpy(out, sizeof out, b, sizeof out, ACL_MEMCPY_DEVICE_TO_HOST));
        TRUE(out[0] == 2 && out[1] == 4 && out[2] == 6);
        OK(aclDestroyTensor(ta));
        OK(aclDestroyTensor(tb));
        OK(aclrtDestroyStream(stream));
        OK(aclrtResetDeviceForce(device));
    }
    OK(aclFinalize());
    return 0;
}
