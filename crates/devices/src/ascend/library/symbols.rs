//! The functions of CANN that are called, with their signatures.
//!
//! Handles are plain pointers here; `runtime` and `operators` give them owners.

use std::ffi::{CStr, c_char, c_void};

use super::Version;
use super::open::Group;

type Ptr = *mut c_void;
/// An operator call between its two phases.
pub(in crate::ascend) type Executor = Ptr;
/// A communicator.
pub(in crate::ascend) type HcclComm = Ptr;
/// The second phase of every operator: workspace, its size, executor, stream.
pub(in crate::ascend) type PhaseTwo = unsafe extern "C" fn(Ptr, u64, Executor, Ptr) -> i32;

/// The address that ranks of a group meet at.
#[repr(C)]
#[derive(Clone)]
pub(in crate::ascend) struct RootInfo(pub(in crate::ascend) [u8; 4108]);

macro_rules! functions {
    (
        $(#[$doc:meta])* $name:ident;
        required { $($(#[$rdoc:meta])* $field:ident = $symbol:literal ($($arg:ty),*) -> $result:ty;)* }
        optional { $($(#[$odoc:meta])* $ofield:ident = $osymbol:literal ($($oarg:ty),*) -> $oresult:ty;)* }
    ) => {
        $(#[$doc])*
        pub(in crate::ascend) struct $name {
            $($(#[$rdoc])* pub(in crate::ascend) $field: unsafe extern "C" fn($($arg),*) -> $result,)*
            $($(#[$odoc])* pub(in crate::ascend) $ofield: Option<unsafe extern "C" fn($($oarg),*) -> $oresult>,)*
        }

        impl $name {
            /// Finds all of them; names of required ones that are not there are added to `missing`.
            pub(super) fn find(group: &Group, missing: &mut Vec<&'static str>) -> Option<Self> {
                $(
                    let $field = function(group, concat!($symbol, "\0"));
                    if $field.is_none() {
                        missing.push($symbol);
                    }
                )*
                $(let $ofield = function(group, concat!($osymbol, "\0"));)*
                // SAFETY: the signatures are those of CANN's headers, which name a function the same way.
                unsafe {
                    Some(Self {
                        $($field: std::mem::transmute::<
                            *const c_void,
                            unsafe extern "C" fn($($arg),*) -> $result,
                        >($field?),)*
                        $($ofield: $ofield.map(|address| std::mem::transmute::<
                            *const c_void,
                            unsafe extern "C" fn($($oarg),*) -> $oresult,
                        >(address)),)*
                    })
                }
            }
        }
    };
}

fn function(group: &Group, name: &'static str) -> Option<*const c_void> {
    group.symbol(CStr::from_bytes_with_nul(name.as_bytes()).ok()?)
}

functions! {
    /// Device, streams, events, memory, graphs.
    Runtime;
    required {
        init = "aclInit"(*const c_char) -> i32;
        get_recent_err_msg = "aclGetRecentErrMsg"() -> *const c_char;
        set_device = "aclrtSetDevice"(i32) -> i32;
        reset_device = "aclrtResetDevice"(i32) -> i32;
        get_device_count = "aclrtGetDeviceCount"(*mut u32) -> i32;
        get_soc_name = "aclrtGetSocName"() -> *const c_char;
        get_mem_info = "aclrtGetMemInfo"(i32, *mut usize, *mut usize) -> i32;
        create_stream_with_config = "aclrtCreateStreamWithConfig"(*mut Ptr, u32, u32) -> i32;
        destroy_stream_force = "aclrtDestroyStreamForce"(Ptr) -> i32;
        synchronize_stream = "aclrtSynchronizeStream"(Ptr) -> i32;
        synchronize_stream_with_timeout = "aclrtSynchronizeStreamWithTimeout"(Ptr, i32) -> i32;
        stream_wait_event = "aclrtStreamWaitEvent"(Ptr, Ptr) -> i32;
        create_event_with_flag = "aclrtCreateEventWithFlag"(*mut Ptr, u32) -> i32;
        destroy_event = "aclrtDestroyEvent"(Ptr) -> i32;
        record_event = "aclrtRecordEvent"(Ptr, Ptr) -> i32;
        reset_event = "aclrtResetEvent"(Ptr, Ptr) -> i32;
        malloc = "aclrtMalloc"(*mut Ptr, usize, i32) -> i32;
        free = "aclrtFree"(Ptr) -> i32;
        malloc_host = "aclrtMallocHost"(*mut Ptr, usize) -> i32;
        free_host = "aclrtFreeHost"(Ptr) -> i32;
        memcpy = "aclrtMemcpy"(Ptr, usize, *const c_void, usize, i32) -> i32;
        memcpy_async = "aclrtMemcpyAsync"(Ptr, usize, *const c_void, usize, i32, Ptr) -> i32;
        memset = "aclrtMemset"(Ptr, usize, i32, usize) -> i32;
        capture_begin = "aclmdlRICaptureBegin"(Ptr, i32) -> i32;
        capture_end = "aclmdlRICaptureEnd"(Ptr, *mut Ptr) -> i32;
        graph_execute_async = "aclmdlRIExecuteAsync"(Ptr, Ptr) -> i32;
        graph_destroy = "aclmdlRIDestroy"(Ptr) -> i32;
        task_group_begin = "aclmdlRICaptureTaskGrpBegin"(Ptr) -> i32;
        task_group_end = "aclmdlRICaptureTaskGrpEnd"(Ptr, *mut Ptr) -> i32;
        task_update_begin = "aclmdlRICaptureTaskUpdateBegin"(Ptr, Ptr) -> i32;
        task_update_end = "aclmdlRICaptureTaskUpdateEnd"(Ptr) -> i32;
    }
    optional {
        get_cann_version = "aclsysGetCANNVersion"(i32, *mut PackageVersion) -> i32;
        get_version_str = "aclsysGetVersionStr"(*mut c_char, *mut c_char) -> i32;
        get_stream_available_num = "aclrtGetStreamAvailableNum"(*mut u32) -> i32;
    }
}

functions! {
    /// Tensor objects and executors.
    Tensors;
    required {
        create_tensor = "aclCreateTensor"(
            *const i64, u64, i32, *const i64, i64, i32, *const i64, u64, Ptr
        ) -> Ptr;
        destroy_tensor = "aclDestroyTensor"(*const c_void) -> i32;
        create_tensor_list = "aclCreateTensorList"(*const Ptr, u64) -> Ptr;
        destroy_tensor_list = "aclDestroyTensorList"(*const c_void) -> i32;
        create_scalar = "aclCreateScalar"(Ptr, i32) -> Ptr;
        destroy_scalar = "aclDestroyScalar"(*const c_void) -> i32;
        create_int_array = "aclCreateIntArray"(*const i64, u64) -> Ptr;
        destroy_int_array = "aclDestroyIntArray"(*const c_void) -> i32;
        set_repeatable = "aclSetAclOpExecutorRepeatable"(Executor) -> i32;
        destroy_executor = "aclDestroyAclOpExecutor"(Executor) -> i32;
    }
    optional {}
}

functions! {
    /// Communicators and collective operations.
    Collectives;
    required {
        get_root_info = "HcclGetRootInfo"(*mut RootInfo) -> i32;
        comm_init_root_info = "HcclCommInitRootInfo"(u32, *const RootInfo, u32, *mut HcclComm) -> i32;
        comm_destroy = "HcclCommDestroy"(HcclComm) -> i32;
        all_reduce = "HcclAllReduce"(Ptr, Ptr, u64, i32, i32, HcclComm, Ptr) -> i32;
    }
    optional {
        get_error_string = "HcclGetErrorString"(i32) -> *const c_char;
    }
}

/// `aclCANNPackageVersion`.
#[repr(C)]
pub(in crate::ascend) struct PackageVersion {
    version: [u8; 128],
    numbers: [u8; 256],
    reserved: [u8; 128],
}

/// `ACL_PKG_NAME_CANN`.
const PACKAGE_CANN: i32 = 0;
/// Room for a version's text, as large as any field of [`PackageVersion`].
const VERSION_BYTES: usize = 256;

impl Runtime {
    /// The release, by whichever query the installation has.
    pub(super) fn version(&self) -> Option<Version> {
        self.package_version().or_else(|| self.version_text())
    }

    fn package_version(&self) -> Option<Version> {
        let query = self.get_cann_version?;
        let mut out = PackageVersion { version: [0; 128], numbers: [0; 256], reserved: [0; 128] };
        // SAFETY: the structure has the size that the header gives it.
        let status = unsafe { query(PACKAGE_CANN, &raw mut out) };
        let text = CStr::from_bytes_until_nul(&out.version).ok()?;
        if status == 0 { Version::parse(text.to_str().ok()?) } else { None }
    }

    fn version_text(&self) -> Option<Version> {
        let query = self.get_version_str?;
        let mut name = *b"runtime\0";
        let mut out = [0_u8; VERSION_BYTES];
        // SAFETY: a C string in, and room for more than a version's text out.
        let status = unsafe { query(name.as_mut_ptr().cast(), out.as_mut_ptr().cast()) };
        let text = CStr::from_bytes_until_nul(&out).ok()?;
        if status == 0 { Version::parse(text.to_str().ok()?) } else { None }
    }
}
