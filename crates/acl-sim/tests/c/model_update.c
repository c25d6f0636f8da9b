/* A graph whose second operator gets new arguments while the graph already runs. */
#include "tensors.h"

int main(void)
{
    float one[2] = {1, 2}, two[2] = {10, 20}, out[2];
    aclrtContext context;
    aclrtStream stream, updates;
    aclrtEvent ready;
    aclmdlRI graph;
    aclrtTaskGrp group = NULL, nested = NULL;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&updates));
    OK(aclrtCreateEventWithFlag(&ready, ACL_EVENT_EXTERNAL));
    void *a = on_device(one, sizeof one), *b = on_device(two, sizeof two), *c = on_device(NULL, sizeof out);
    void *d = on_device(NULL, sizeof out);
    aclTensor *ta = floats(a, 2), *tb = floats(b, 2), *tc = floats(c, 2), *td = floats(d, 2);

    OK(aclmdlRICaptureBegin(stream, ACL_CAPTURE_RELAXED));
    add(ta, tb, 1.0f, tc, stream);
    OK(aclrtStreamWaitEvent(stream, ready));
    OK(aclrtResetEvent(ready, stream));
    OK(aclmdlRICaptureTaskGrpBegin(stream));
    add(tc, tb, 1.0f, td, stream);
    OK(aclmdlRICaptureTaskGrpEnd(stream, &group));
    CODE(107017, aclmdlRICaptureTaskUpdateBegin(updates, group)); /* there is no graph yet */
    OK(aclmdlRICaptureEnd(stream, &graph));

    for (int round = 0; round < 20; round++) {
        float alpha = round == 0 ? 1.0f : (float)round;
        OK(aclmdlRIExecuteAsync(graph, stream));
        if (round > 0) {
            OK(aclmdlRICaptureTaskUpdateBegin(updates, group));
            CODE(107033, aclmdlRICaptureTaskUpdateBegin(updates, group));
            add(tc, tb, alpha, td, updates);
            OK(aclmdlRICaptureTaskUpdateEnd(updates));
        }
        CODE(507046, aclrtSynchronizeStreamWithTimeout(stream, 1)); /* it waits for the event */
        OK(aclrtRecordEvent(ready, updates));
        OK(aclrtSynchronizeStream(updates));
        OK(aclrtSynchronizeStream(stream));
        OK(aclrtMemcpy(out, sizeof out, d, sizeof out, ACL_MEMCPY_DEVICE_TO_HOST));
        TRUE(out[0] == 11 + alpha * 10 && out[1] == 22 + alpha * 20);
    }
    CODE(107033, aclmdlRICaptureTaskUpdateEnd(updates));
    OK(aclmdlRICaptureTaskUpdateBegin(updates, group));
    CODE(507009, aclrtMemsetAsync(d, 8, 0, 8, updates));
    CODE(107040, aclmdlRICaptureTaskUpdateEnd(updates)); /* nothing was updated */

    /* wrong nesting breaks the capture */
    OK(aclmdlRICaptureBegin(stream, ACL_CAPTURE_RELAXED));
    CODE(107033, aclmdlRICaptureTaskGrpEnd(stream, &nested));
    CODE(507903, aclmdlRICaptureEnd(stream, &graph));
    TRUE(graph == NULL);
    OK(aclmdlRICaptureBegin(stream, ACL_CAPTURE_RELAXED));
    OK(aclmdlRICaptureTaskGrpBegin(stream));
    CODE(507009, aclrtMemsetAsync(d, 8, 0, 8, stream));
    CODE(507903, aclmdlRICaptureEnd(stream, &graph));
    OK(aclmdlRICaptureBegin(stream, ACL_CAPTURE_RELAXED));
    OK(aclmdlRICaptureTaskGrpBegin(stream));
    CODE(107034, aclmdlRICaptureEnd(stream, &graph));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
