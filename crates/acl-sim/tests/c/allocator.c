/* The allocator plug-in. */
#include "check.h"

static int pool;

static void *take(void *object, size_t size)
{
    (void)object;
    return malloc(size);
}

static void give(void *object, void *block)
{
    (void)object;
    free(block);
}

static void *advise(void *object, size_t size, void *near)
{
    (void)near;
    return take(object, size);
}

static void *address(void *block)
{
    return block;
}

static aclError ask(aclrtStream stream, void **f)
{
    return aclrtAllocatorGetByStream(stream, &f[0], &f[1], &f[2], &f[3], &f[4], &f[5]);
}

int main(void)
{
    aclrtContext context;
    aclrtStream stream;
    void *found[6];
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    void *description = aclrtAllocatorCreateDesc();
    CODE(107000, aclrtAllocatorRegister(stream, description));
    OK(aclrtAllocatorSetObjToDesc(description, &pool));
    OK(aclrtAllocatorSetAllocFuncToDesc(description, (void *)take));
    OK(aclrtAllocatorSetFreeFuncToDesc(description, (void *)give));
    OK(aclrtAllocatorSetAllocAdviseFuncToDesc(description, (void *)advise));
    OK(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(description, (void *)address));
    OK(aclrtAllocatorRegister(stream, description));
    OK(ask(stream, found));
    TRUE(found[0] == description && found[1] == &pool);
    TRUE(found[2] == (void *)take && found[5] == (void *)address);
    OK(aclrtAllocatorUnregister(stream));
    CODE(107000, ask(stream, found));
    OK(aclrtAllocatorDestroyDesc(description));
    CODE(107000, aclrtAllocatorDestroyDesc(description));
    OK(aclrtDestroyStream(stream));
    OK(aclrtDestroyContext(context));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
