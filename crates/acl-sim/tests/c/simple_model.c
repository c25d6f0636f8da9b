/* A graph of two operators, replayed on new data. */
#include "tensors.h"

int main(void)
{
    float one[4] = {1, 2, 3, 4}, two[4] = {2, 2, 2, 2}, out[4];
    float *pinned = NULL;
    aclrtContext context;
    aclrtStream stream;
    aclmdlRI graph = NULL;
    int32_t mode = ACL_CAPTURE_RELAXED;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMallocHost((void **)&pinned, sizeof out));
    void *a = on_device(one, sizeof one), *b = on_device(two, sizeof two);
    void *sum = on_device(NULL, sizeof out), *product = on_device(NULL, sizeof out);
    aclTensor *ta = floats(a, 4), *tb = floats(b, 4), *ts = floats(sum, 4), *tp = floats(product, 4);

    OK(aclmdlRICaptureThreadExchangeMode(&mode));
    TRUE(mode == ACL_CAPTURE_GLOBAL);
    OK(aclmdlRICaptureBegin(stream, ACL_CAPTURE_GLOBAL));
    add(ta, tb, 1.0f, ts, stream);
    multiply(ts, tb, tp, stream);
    OK(aclrtMemcpyAsync(pinned, sizeof out, product, sizeof out, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    OK(aclrtMemset(sum, sizeof out, 0, sizeof out)); /* this thread is relaxed */
    OK(aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRICaptureThreadExchangeMode(&mode));
    TRUE(mode == ACL_CAPTURE_RELAXED);

    OK(aclrtMemcpy(out, sizeof out, sum, sizeof out, ACL_MEMCPY_DEVICE_TO_HOST));
    TRUE(out[0] == 0); /* a capture computes nothing */
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < 4; i++) {
            one[i] = (float)(round * 10 + i);
        }
        OK(aclrtMemcpy(a, sizeof one, one, sizeof one, ACL_MEMCPY_HOST_TO_DEVICE));
        OK(aclmdlRIExecuteAsync(graph, stream));
        OK(aclrtSynchronizeStream(stream));
        for (int i = 0; i < 4; i++) {
            TRUE(pinned[i] == (one[i] + 2) * 2);
        }
    }
    OK(aclmdlRIDebugJsonPrint(graph, "/dev/null", 0));
    OK(aclmdlRIDestroy(graph));
    CODE(107017, aclmdlRIExecuteAsync(graph, stream));
    OK(aclDestroyTensor(ta));
    OK(aclrtFree(a));
    OK(aclrtDestroyStreamForce(stream));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
