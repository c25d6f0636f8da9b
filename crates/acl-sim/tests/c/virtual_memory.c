/* Reserve, map, grow, unmap: the way a pool uses virtual memory. */
#include "check.h"

int main(void)
{
    size_t granule = 0, before = 0, during = 0, after = 0, total = 0;
    void *base = NULL;
    aclrtDrvMemHandle first, second;
    aclrtPhysicalMemProp wish;
    memset(&wish, 0, sizeof wish);
    wish.location.type = 1;
    TRUE(sizeof wish == 32 && sizeof(aclrtPtrAttributes) == 28 && sizeof(aclrtErrorInfo) == 2576);
    TRUE(sizeof(aclrtUtilizationInfo) == 24 && sizeof(aclrtMemUsageInfo) == 112);
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtMemGetAllocationGranularity(&wish, 1, &granule));
    TRUE(granule > 0);
    OK(aclrtReserveMemAddress(&base, granule << 14, 0, NULL, 1)); /* addresses cost nothing */
    OK(aclrtGetMemInfo(1, &before, &total));
    OK(aclrtMallocPhysical(&first, granule, &wish, 0));
    OK(aclrtMallocPhysical(&second, 2 * granule, &wish, 0));
    OK(aclrtGetMemInfo(1, &during, &total));
    TRUE(before - during == 3 * granule);
    OK(aclrtMapMem(base, granule, 0, first, 0));
    OK(aclrtMapMem((char *)base + granule, 2 * granule, 0, second, 0));
    CODE(107000, aclrtMapMem(base, granule, 0, second, 0));
    /* one buffer across both pieces */
    OK(aclrtMemset((char *)base + granule - 8, 16, 9, 16));
    TRUE(number_at((char *)base + granule + 4) == 0x09090909);
    CODE(107000, aclrtMemset((char *)base + 3 * granule - 8, 16, 9, 16));
    CODE(107000, aclrtReleaseMemAddress(base));
    OK(aclrtUnmapMem(base));
    CODE(107000, aclrtUnmapMem(base));
    OK(aclrtFreePhysical(second)); /* still mapped: it lives until it is unmapped */
    TRUE(number_at((char *)base + granule + 4) == 0x09090909);
    OK(aclrtUnmapMem((char *)base + granule));
    OK(aclrtFreePhysical(first));
    CODE(107000, aclrtFreePhysical(first));
    OK(aclrtReleaseMemAddress(base));
    OK(aclrtGetMemInfo(1, &after, &total));
    TRUE(after == before);
    CODE(207018, aclrtMallocPhysical(&first, (size_t)1 << 40, &wish, 0));
    OK(aclrtResetDeviceForce(0));
    OK(aclFinalize());
    return 0;
}
