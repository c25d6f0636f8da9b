/* The C ABI of the simulated CANN: what a program declares to call it.
 *
 * Written for the programs in `tests/c`. Programs that were written for the real library bring its own
 * headers, whose functions have the same names and the same arguments; handles are `void *` there too.
 */
#ifndef ACL_SIM_H
#define ACL_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t aclError;
typedef int32_t aclnnStatus;
typedef void *aclrtContext;
typedef void *aclrtStream;
typedef void *aclrtEvent;
typedef void *aclrtNotify;
typedef void *aclmdlRI;
typedef void *aclrtTaskGrp;
typedef void *aclrtDrvMemHandle;
typedef struct aclrtExceptionInfo aclrtExceptionInfo;

typedef void (*aclrtHostFunc)(void *);
typedef void (*aclrtExceptionInfoCallback)(aclrtExceptionInfo *);
typedef void (*aclrtStreamStateCallback)(aclrtStream, int32_t, void *);
typedef void (*aclrtDeviceStateCallback)(int32_t, int32_t, void *);

enum { ACL_FLOAT = 0, ACL_FLOAT16 = 1, ACL_INT8 = 2, ACL_INT32 = 3, ACL_INT64 = 9, ACL_BF16 = 27 };
enum { ACL_FORMAT_ND = 2 };
enum { ACL_MEM_MALLOC_HUGE_FIRST = 0 };
enum {
    ACL_MEMCPY_HOST_TO_HOST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_MEMCPY_DEVICE_TO_HOST,
    ACL_MEMCPY_DEVICE_TO_DEVICE
};
enum { ACL_CONTINUE_ON_FAILURE, ACL_STOP_ON_FAILURE };
enum { ACL_EVENT_SYNC = 1, ACL_EVENT_TIME_LINE = 8, ACL_EVENT_EXTERNAL = 0x20 };
enum { ACL_EVENT_RECORD_EXTERNAL = 1, ACL_EVENT_WAIT_EXTERNAL = 1 };
enum { ACL_CAPTURE_GLOBAL, ACL_CAPTURE_THREAD_LOCAL, ACL_CAPTURE_RELAXED };
enum { ACL_CAPTURE_STATUS_NONE, ACL_CAPTURE_STATUS_ACTIVE, ACL_CAPTURE_STATUS_INVALIDATED };
enum { ACL_REDUCE_SUM = 10, ACL_REDUCE_MAX = 11, ACL_REDUCE_MIN = 12 };

typedef struct {
    int32_t cube, vector, ai_cpu, memory;
    void *extend;
} aclrtUtilizationInfo;

typedef struct {
    char name[32];
    uint64_t current, peak, reserved[8];
} aclrtMemUsageInfo;

typedef struct {
    uint32_t id;
    int32_t type;
} aclrtMemLocation;

typedef struct {
    aclrtMemLocation location;
    uint32_t page_size, reserved[4];
} aclrtPtrAttributes;

typedef struct {
    int32_t handle_type, allocation_type, attribute;
    aclrtMemLocation location;
    uint64_t reserved;
} aclrtPhysicalMemProp;

typedef struct {
    void *address;
    size_t length, reserved[14];
} aclrtMemUceInfo;

typedef struct {
    uint8_t repairable, detailed, reserved[2];
    int32_t type;
    size_t count;
    aclrtMemUceInfo ranges[20];
} aclrtErrorInfo;

typedef struct {
    uint32_t words[4];
} aclrtStreamAttrValue;

typedef struct {
    char version[128], major[64], minor[64], release[64], patch[64], reserved[128];
} aclCANNPackageVersion;

/* `aclInit` and `aclFinalize`, and time limits of the whole process. */
aclError aclInit(const char *config);
aclError aclFinalize(void);
aclError aclFinalizeReference(uint64_t *count);
aclError aclrtSetOpWaitTimeout(uint32_t seconds);
aclError aclrtSetOpExecuteTimeOut(uint32_t seconds);
aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t ms);
aclError aclrtSetOpExecuteTimeOutV2(uint64_t us, uint64_t *actual);
aclError aclrtGetOpExecuteTimeout(uint32_t *ms);
aclError aclrtGetOpTimeOutInterval(uint64_t *us);

/* Versions, names and abilities of the installation. */
aclError aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch);
aclError aclsysGetCANNVersion(int32_t package, aclCANNPackageVersion *out);
aclError aclsysGetVersionStr(char *package, char *out);
aclError aclsysGetVersionNum(char *package, int32_t *out);
const char *aclrtGetSocName(void);
aclError aclrtCheckArchCompatibility(const char *soc, int32_t *compatible);
aclError aclGetCannAttributeList(const int32_t **list, size_t *count);
aclError aclGetCannAttribute(int32_t ability, int32_t *value);

/* Devices: setting, counting, asking, and peers. */
aclError aclrtSetDevice(int32_t device);
aclError aclrtResetDevice(int32_t device);
aclError aclrtResetDeviceForce(int32_t device);
aclError aclrtGetDevice(int32_t *device);
aclError aclrtGetDeviceCount(uint32_t *count);
aclError aclrtGetRunMode(int32_t *mode);
aclError aclrtQueryDeviceStatus(int32_t device, int32_t *status);
aclError aclrtGetDeviceUtilizationRate(int32_t device, aclrtUtilizationInfo *info);
aclError aclrtSynchronizeDevice(void);
aclError aclrtSynchronizeDeviceWithTimeout(int32_t ms);
aclError aclGetDeviceCapability(uint32_t device, int32_t what, int64_t *value);
aclError aclrtGetDeviceCapability(int32_t device, int32_t feature, int32_t *value);
aclError aclrtGetDeviceInfo(uint32_t device, int32_t attribute, int64_t *value);
aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer);
aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags);
aclError aclrtDeviceDisablePeerAccess(int32_t peer);
aclError aclrtDevicePeerAccessStatus(int32_t device, int32_t peer, int32_t *status);
aclError aclrtGetDevicesTopo(uint32_t device, uint32_t other, uint64_t *bits);
aclError aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t *logic);
aclError aclrtGetUserDevIdByLogicDevId(int32_t logic, int32_t *user);
aclError aclrtGetLogicDevIdByPhyDevId(int32_t physical, int32_t *logic);
aclError aclrtGetPhyDevIdByLogicDevId(int32_t logic, int32_t *physical);
aclError aclrtDeviceGetUuid(int32_t device, uint8_t (*uuid)[16]);
aclError aclrtDeviceGetPCIBusId(int32_t device, char *buffer, int32_t room);
aclError aclrtDeviceGetBareTgid(int32_t *process);
aclError aclrtRegDeviceStateCallback(const char *name, aclrtDeviceStateCallback function, void *argument);

/* Contexts. */
aclError aclrtCreateContext(void **handle, int32_t device);
aclError aclrtDestroyContext(void *handle);
aclError aclrtSetCurrentContext(void *handle);
aclError aclrtGetCurrentContext(void **handle);
aclError aclrtCtxGetCurrentDefaultStream(void **stream);
aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active);
aclError aclrtSetSysParamOpt(int32_t option, int64_t value);
aclError aclrtGetSysParamOpt(int32_t option, int64_t *value);
aclError aclrtCtxSetSysParamOpt(int32_t option, int64_t value);
aclError aclrtCtxGetSysParamOpt(int32_t option, int64_t *value);

/* Streams. */
aclError aclrtCreateStream(void **out);
aclError aclrtCreateStreamWithConfig(void **out, uint32_t priority, uint32_t flags);
aclError aclrtDestroyStream(void *handle);
aclError aclrtDestroyStreamForce(void *handle);
aclError aclrtSynchronizeStream(void *handle);
aclError aclrtSynchronizeStreamWithTimeout(void *handle, int32_t ms);
aclError aclrtStreamQuery(void *handle, int32_t *status);
aclError aclrtStreamGetId(void *handle, int32_t *id);
aclError aclrtStreamGetFlags(void *handle, uint32_t *flags);
aclError aclrtStreamGetPriority(void *handle, uint32_t *priority);
aclError aclrtDeviceGetStreamPriorityRange(int32_t *least, int32_t *greatest);
aclError aclrtSetStreamFailureMode(void *handle, uint64_t mode);
aclError aclrtStreamAbort(void *handle);
aclError aclrtStreamStop(void *handle);
aclError aclrtGetStreamAvailableNum(uint32_t *count);
aclError aclrtRegStreamStateCallback(const char *name, aclrtStreamStateCallback function, void *argument);
aclError aclrtPersistentTaskClean(void *handle);

/* Stream attributes, and streams made from a description. */
aclError aclrtSetStreamAttribute(void *handle, int32_t attribute, const aclrtStreamAttrValue *value);
aclError aclrtGetStreamAttribute(void *handle, int32_t attribute, aclrtStreamAttrValue *value);
aclError aclrtSetStreamOverflowSwitch(void *handle, uint32_t flag);
aclError aclrtGetStreamOverflowSwitch(void *handle, uint32_t *flag);
void *aclrtCreateStreamConfigHandle(void);
aclError aclrtDestroyStreamConfigHandle(void *handle);
aclError aclrtSetStreamConfigOpt(void *handle, int32_t entry, const void *value, size_t size);
aclError aclrtCreateStreamV2(void **out, const void *handle);

/* Limits of cores: kept and told; arithmetic here is the same with any number of cores. */
aclError aclrtSetDeviceResLimit(int32_t device, int32_t number, uint32_t value);
aclError aclrtGetDeviceResLimit(int32_t device, int32_t number, uint32_t *value);
aclError aclrtResetDeviceResLimit(int32_t device);
aclError aclrtSetStreamResLimit(void *handle, int32_t number, uint32_t value);
aclError aclrtGetStreamResLimit(void *handle, int32_t number, uint32_t *value);
aclError aclrtResetStreamResLimit(void *handle);
aclError aclrtUseStreamResInCurrentThread(void *handle);
aclError aclrtUnuseStreamResInCurrentThread(void *handle);
aclError aclrtGetResInCurrentThread(int32_t number, uint32_t *value);

/* Events. */
aclError aclrtCreateEvent(void **out);
aclError aclrtCreateEventWithFlag(void **out, uint32_t flags);
aclError aclrtCreateEventExWithFlag(void **out, uint32_t flags);
aclError aclrtDestroyEvent(void *handle);
aclError aclrtRecordEvent(void *event, void *stream);
aclError aclrtRecordEventWithFlag(void *event, void *stream, uint32_t flag);
aclError aclrtResetEvent(void *event, void *stream);
aclError aclrtStreamWaitEvent(void *stream, void *event);
aclError aclrtStreamWaitEventWithTimeout(void *stream, void *event, int32_t ms);
aclError aclrtStreamWaitEventWithFlag(void *stream, void *event, int32_t ms, uint32_t flag);
aclError aclrtQueryEvent(void *event, int32_t *status);
aclError aclrtQueryEventStatus(void *event, int32_t *status);
aclError aclrtQueryEventWaitStatus(void *event, int32_t *status);
aclError aclrtSynchronizeEvent(void *event);
aclError aclrtSynchronizeEventWithTimeout(void *event, int32_t ms);
aclError aclrtEventElapsedTime(float *ms, void *start, void *end);
aclError aclrtEventGetTimestamp(void *event, uint64_t *us);
aclError aclrtGetEventId(void *event, uint32_t *id);
aclError aclrtGetEventAvailNum(uint32_t *count);
aclError aclrtIpcGetEventHandle(void *event, void *handle);

/* Notifies: flags between streams. */
aclError aclrtCreateNotify(void **out, uint64_t flags);
aclError aclrtDestroyNotify(void *handle);
aclError aclrtRecordNotify(void *notify, void *stream);
aclError aclrtWaitAndResetNotify(void *notify, void *stream, uint32_t ms);
aclError aclrtGetNotifyId(void *notify, uint32_t *id);

/* Memory: device, pinned, registered, and questions about it. */
aclError aclrtMalloc(void **out, size_t size, int32_t policy);
aclError aclrtMallocAlign32(void **out, size_t size, int32_t policy);
aclError aclrtMallocCached(void **out, size_t size, int32_t policy);
aclError aclrtMallocWithCfg(void **out, size_t size, int32_t policy, void *config);
aclError aclrtFree(void *pointer);
aclError aclrtFreeWithDevSync(void *pointer);
aclError aclrtMallocHost(void **out, size_t size);
aclError aclrtMallocHostWithCfg(void **out, uint64_t size, void *config);
aclError aclrtFreeHost(void *pointer);
aclError aclrtFreeHostWithDevSync(void *pointer);
aclError aclrtHostRegister(void *pointer, uint64_t size, int32_t kind, void **device);
aclError aclrtHostRegisterV2(void *pointer, uint64_t size, uint32_t flags);
aclError aclrtHostGetDevicePointer(void *host, void **device, uint32_t flags);
aclError aclrtHostUnregister(void *pointer);
aclError aclrtGetMemInfo(int32_t attribute, size_t *free, size_t *total);
aclError aclrtGetMemUsageInfo(int32_t device, aclrtMemUsageInfo *infos, size_t room, size_t *got);
aclError aclrtPointerGetAttributes(const void *pointer, aclrtPtrAttributes *attributes);
aclError aclrtMemFlush(void *pointer, size_t size);
aclError aclrtMemInvalidate(void *pointer, size_t size);

/* Virtual memory management. */
aclError aclrtReserveMemAddress(void **out, size_t size, size_t alignment, void *expected, uint64_t flags);
aclError aclrtReleaseMemAddress(void *pointer);
aclError aclrtMallocPhysical(void **out, size_t size, const aclrtPhysicalMemProp *property, uint64_t flags);
aclError aclrtFreePhysical(void *handle);
aclError aclrtMapMem(void *pointer, size_t size, size_t offset, void *handle, uint64_t flags);
aclError aclrtUnmapMem(void *pointer);
aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp *property, int32_t option,
    size_t *granularity);
aclError aclrtMemExportToShareableHandle(void *handle, int32_t kind, uint64_t flags, uint64_t *out);
aclError aclrtMemImportFromShareableHandle(uint64_t shared, int32_t device, void **out);
aclError aclrtMemSetPidToShareableHandle(uint64_t shared, int32_t *pids, size_t count);

/* Copies and fills. */
aclError aclrtMemcpy(void *dst, size_t max, const void *src, size_t bytes, int32_t kind);
aclError aclrtMemcpyAsync(void *dst, size_t max, const void *src, size_t bytes, int32_t kind, void *stream);
aclError aclrtMemcpyAsyncWithCondition(void *dst, size_t max, const void *src, size_t bytes, int32_t kind,
    void *stream);
aclError aclrtMemcpy2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
    size_t height, int32_t kind);
aclError aclrtMemcpy2dAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
    size_t height, int32_t kind, void *stream);
aclError aclrtMemset(void *dst, size_t max, int32_t value, size_t bytes);
aclError aclrtMemsetAsync(void *dst, size_t max, int32_t value, size_t bytes, void *stream);
aclError aclrtMemcpyBatch(void **dsts, size_t *maxs, void **srcs, size_t *sizes, size_t count,
    void *attributes, size_t *indexes, size_t attribute_count, size_t *failed);
aclError aclrtMemcpyBatchAsync(void **dsts, size_t *maxs, void **srcs, size_t *sizes, size_t count,
    void *attributes, size_t *indexes, size_t attribute_count, size_t *failed, void *stream);

/* Tasks that are no operators: host functions, reductions, values in memory, overflow status. */
aclError aclrtLaunchHostFunc(void *handle, aclrtHostFunc function, void *argument);
aclError aclrtReduceAsync(void *dst, const void *src, uint64_t bytes, int32_t kind, int32_t data_type,
    void *handle, void *reserved);
aclError aclrtValueWrite(void *pointer, uint64_t value, uint32_t flag, void *handle);
aclError aclrtValueWait(void *pointer, uint64_t value, uint32_t flag, void *handle);
aclError aclrtCmoAsync(void *src, size_t bytes, int32_t kind, void *handle);
aclError aclrtSetDeviceSatMode(int32_t mode);
aclError aclrtGetDeviceSatMode(int32_t *mode);
aclError aclrtGetOverflowStatus(void *out, size_t bytes, void *handle);
aclError aclrtResetOverflowStatus(void *handle);

/* Functions of the program that run on a thread of the program: subscribe, launch, process. */
aclError aclrtSubscribeReport(uint64_t thread, void *handle);
aclError aclrtUnSubscribeReport(uint64_t thread, void *handle);
aclError aclrtLaunchCallback(aclrtHostFunc function, void *argument, int32_t block, void *handle);
aclError aclrtProcessReport(int32_t ms);

/* Capture and replay of graphs. */
aclError aclmdlRICaptureBegin(void *handle, int32_t mode);
aclError aclmdlRICaptureGetInfo(void *handle, int32_t *status, void **model);
aclError aclmdlRICaptureEnd(void *handle, void **model);
aclError aclmdlRICaptureThreadExchangeMode(int32_t *mode);
aclError aclmdlRIExecuteAsync(void *model, void *handle);
aclError aclmdlRIExecute(void *model, int32_t ms);
aclError aclmdlRIDestroy(void *model);
aclError aclmdlRIDebugPrint(void *model);
aclError aclmdlRIDebugJsonPrint(void *model, const char *path, uint32_t flags);
aclError aclmdlRISetName(void *model, const char *name);
aclError aclmdlRIGetName(void *model, uint32_t room, char *name);
aclError aclmdlRIGetId(void *model, uint32_t *id);

/* Task groups in captures, and their update. */
aclError aclmdlRICaptureTaskGrpBegin(void *handle);
aclError aclmdlRICaptureTaskGrpEnd(void *handle, void **group);
aclError aclmdlRICaptureTaskUpdateBegin(void *handle, void *group);
aclError aclmdlRICaptureTaskUpdateEnd(void *handle);

/* What went wrong: last errors, recent text, exceptions. */
const char *aclGetRecentErrMsg(void);
aclError aclrtGetLastError(int32_t level);
aclError aclrtPeekAtLastError(int32_t level);
aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback);
uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo *info);
uint32_t aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo *info);
uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo *info);
uint32_t aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo *info);
uint32_t aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo *info);

/* What is left to do after a device failed: abort, look, repair. */
aclError aclrtDeviceTaskAbort(int32_t device, uint32_t ms);
aclError aclrtSetDeviceTaskAbortCallback(const char *name, void *function, void *argument);
aclError aclrtGetMemUceInfo(int32_t device, aclrtMemUceInfo *infos, size_t room, size_t *got);
aclError aclrtMemUceRepair(int32_t device, aclrtMemUceInfo *infos, size_t count);
aclError aclrtGetErrorVerbose(int32_t device, aclrtErrorInfo *info);
aclError aclrtRepairError(int32_t device, const aclrtErrorInfo *info);

/* The allocator plug-in: descriptions of the program's allocators, one a stream. */
void *aclrtAllocatorCreateDesc(void);
aclError aclrtAllocatorDestroyDesc(void *handle);
aclError aclrtAllocatorSetObjToDesc(void *handle, void *object);
aclError aclrtAllocatorSetAllocFuncToDesc(void *handle, void *function);
aclError aclrtAllocatorSetFreeFuncToDesc(void *handle, void *function);
aclError aclrtAllocatorSetAllocAdviseFuncToDesc(void *handle, void *function);
aclError aclrtAllocatorSetGetAddrFromBlockFuncToDesc(void *handle, void *function);
aclError aclrtAllocatorRegister(void *stream, void *handle);
aclError aclrtAllocatorUnregister(void *stream);
aclError aclrtAllocatorGetByStream(void *stream, void **description, void **object, void **alloc,
    void **free, void **advise, void **address);

/* Data buffers, sizes of types, and half floats. */
void *aclCreateDataBuffer(void *data, size_t size);
aclError aclDestroyDataBuffer(const void *buffer);
aclError aclUpdateDataBuffer(void *buffer, void *data, size_t size);
void *aclGetDataBufferAddr(const void *buffer);
size_t aclGetDataBufferSizeV2(const void *buffer);
uint32_t aclGetDataBufferSize(const void *buffer);
size_t aclDataTypeSize(int32_t data_type);
float aclFloat16ToFloat(uint16_t value);
uint16_t aclFloatToFloat16(float value);
/* Tensors and the operators that the test programs use. */
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclOpExecutor aclOpExecutor;

aclTensor *aclCreateTensor(const int64_t *dims, uint64_t n, int32_t type, const int64_t *strides,
    int64_t offset, int32_t format, const int64_t *storage_dims, uint64_t storage_n, void *data);
aclnnStatus aclDestroyTensor(const aclTensor *tensor);
aclScalar *aclCreateScalar(void *value, int32_t type);
aclnnStatus aclDestroyScalar(const aclScalar *scalar);
aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor *self, const aclTensor *other, const aclScalar *alpha,
    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnAdd(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);
aclnnStatus aclnnMulGetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,
    uint64_t *workspace_size, aclOpExecutor **executor);
aclnnStatus aclnnMul(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
