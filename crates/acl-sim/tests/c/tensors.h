/* Tensors of float numbers, for the programs that call operators. */
#ifndef TENSORS_H
#define TENSORS_H

#include "check.h"

static inline aclTensor *floats(void *memory, int64_t count)
{
    int64_t dims[1] = {count}, strides[1] = {1};
    aclTensor *tensor = aclCreateTensor(dims, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, dims, 1, memory);
    TRUE(tensor != NULL);
    return tensor;
}

/* out = self + alpha * other */
static inline void add(
    const aclTensor *self, const aclTensor *other, float alpha, aclTensor *out, aclrtStream stream)
{
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    aclScalar *scale = aclCreateScalar(&alpha, ACL_FLOAT);
    void *workspace = NULL;
    OK(aclnnAddGetWorkspaceSize(self, other, scale, out, &size, &executor));
    if (size > 0) {
        workspace = on_device(NULL, size);
    }
    OK(aclnnAdd(workspace, size, executor, stream));
    OK(aclDestroyScalar(scale));
}

static inline void multiply(const aclTensor *self, const aclTensor *other, aclTensor *out, aclrtStream stream)
{
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    void *workspace = NULL;
    OK(aclnnMulGetWorkspaceSize(self, other, out, &size, &executor));
    if (size > 0) {
        workspace = on_device(NULL, size);
    }
    OK(aclnnMul(workspace, size, executor, stream));
}

#endif
