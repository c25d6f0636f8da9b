/* Copies in all directions, synchronous and on a stream; what is refused. */
#include "check.h"

enum { BYTES = 100000 };

int main(void)
{
    aclrtStream stream;
    unsigned char *from = NULL, *to = NULL, *pageable = malloc(BYTES);
    size_t free_before = 0, free_after = 0, total = 0;
    aclrtPtrAttributes where;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMallocHost((void **)&from, BYTES));
    OK(aclrtMallocHost((void **)&to, BYTES));
    TRUE((uintptr_t)from % 64 == 0);
    for (int i = 0; i < BYTES; i++) {
        from[i] = (unsigned char)(i * 7);
    }
    OK(aclrtMemcpy(to, BYTES, from, BYTES, ACL_MEMCPY_HOST_TO_HOST));
    TRUE(memcmp(from, to, BYTES) == 0);
    CODE(207000, aclrtMemcpyAsync(to, BYTES, from, BYTES, ACL_MEMCPY_HOST_TO_HOST, stream));

    OK(aclrtGetMemInfo(1, &free_before, &total));
    void *first = on_device(NULL, BYTES), *second = on_device(NULL, BYTES);
    OK(aclrtGetMemInfo(1, &free_after, &total));
    TRUE(free_before - free_after == 2 * (BYTES + 32)); /* a multiple of 32 already, and 32 more */
    TRUE((uintptr_t)first % 64 == 0);
    OK(aclrtPointerGetAttributes(first, &where));
    TRUE(where.location.type == 1 && where.location.id == 0);
    OK(aclrtPointerGetAttributes(from, &where));
    TRUE(where.location.type == 0);
    OK(aclrtPointerGetAttributes(pageable, &where));
    TRUE(where.location.type == 2);

    memset(to, 0, BYTES);
    OK(aclrtMemcpyAsync(first, BYTES, from, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    OK(aclrtMemcpyAsync(second, BYTES, first, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
    OK(aclrtMemcpyAsync(to, BYTES, second, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    OK(aclrtSynchronizeStream(stream));
    TRUE(memcmp(from, to, BYTES) == 0);

    /* pageable memory makes it synchronous, behind what the stream already had */
    OK(aclrtMemsetAsync(second, BYTES, 5, BYTES, stream));
    OK(aclrtMemcpyAsync(pageable, BYTES, second, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    TRUE(pageable[0] == 5 && pageable[BYTES - 1] == 5);

    /* three rows of ten bytes out of rows of a hundred */
    memset(to, 0, BYTES);
    OK(aclrtMemcpy2d(to, 10, first, 100, 10, 3, ACL_MEMCPY_DEVICE_TO_HOST));
    TRUE(memcmp(to + 20, from + 200, 10) == 0 && to[30] == 0);
    OK(aclrtMemcpy2dAsync(second, 100, first, 100, 10, 3, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
    OK(aclrtSynchronizeStream(stream));
    TRUE(number_at((char *)second + 10) == 0x05050505);

    CODE(107000, aclrtMemcpy(first, 10, from, 11, ACL_MEMCPY_HOST_TO_DEVICE));
    CODE(107000, aclrtMemcpy(first, BYTES, from, 0, ACL_MEMCPY_HOST_TO_DEVICE));
    CODE(107000, aclrtMemcpy(first, 2 * BYTES, from, BYTES + 200, ACL_MEMCPY_HOST_TO_DEVICE));
    CODE(107000, aclrtMemset((char *)first + BYTES, 64, 0, 64));
    CODE(107000, aclrtMalloc(&second, 0, 0));
    CODE(107018, aclrtMalloc(&second, 8, 77));
    CODE(107000, aclrtFree(NULL));
    CODE(107000, aclrtFree((char *)first + 1));
    CODE(107000, aclrtFree(pageable));
    OK(aclrtFree(first));
    CODE(107000, aclrtFree(first));
    OK(aclrtFreeHost(from));
    CODE(107000, aclrtFreeHost(from));
    OK(aclrtDestroyStreamForce(stream));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    free(pageable);
    return 0;
}
