//! Links to the other devices of a group, over CANN's collective library.

use std::ffi::CStr;
use std::rc::Rc;
use std::sync::Arc;

use updraft_core::Rank;
use updraft_core::program::BufferId;
use updraft_core::recovery::{DeviceFault, RecoveryClass};

use super::device::AscendDevice;
use super::error::{Fault, own_fault};
use super::library::{HcclComm, Library, RootInfo};
use super::operators::DataType;
use super::runtime::Api;
use crate::{Collective, DeviceError};

/// `HCCL_REDUCE_SUM`.
const SUM: i32 = 0;
/// `HCCL_DATA_TYPE_FP16`.
const HALF: i32 = 3;
/// `HCCL_DATA_TYPE_BFP16`.
const BRAIN: i32 = 11;
/// The interface is not installed.
const NOT_INSTALLED: i32 = 200_001;

/// Where the ranks of a group meet: made by one of them, handed to all.
#[derive(Clone)]
pub struct MeetingPoint(RootInfo);

/// A device's place in a group.
#[derive(Debug)]
pub(super) struct Group {
    api: Rc<Api>,
    communicator: HcclComm,
    rank: Rank,
    size: u32,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(functions) = &self.api.library.collectives {
            // SAFETY: a live communicator, given up here.
            unsafe { (functions.comm_destroy)(self.communicator) };
        }
    }
}

impl MeetingPoint {
    /// The point as bytes, to be sent to other processes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }

    /// A point that another process made.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(RootInfo(bytes)))
    }
}

impl std::fmt::Debug for MeetingPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MeetingPoint")
    }
}

impl AscendDevice {
    /// A place for a new group to meet; this device is of the group.
    ///
    /// # Errors
    /// When there is no collective library, or it refuses.
    pub fn meeting_point(&self) -> Result<MeetingPoint, DeviceError> {
        let api = &self.api;
        let functions = api.library.collectives.as_ref().ok_or_else(|| not_installed(api))?;
        let mut point = MeetingPoint(RootInfo([0; 4108]));
        // SAFETY: a place of the size that the header gives it.
        let status = unsafe { (functions.get_root_info)(&raw mut point.0) };
        check(api, status, "HcclGetRootInfo")?;
        Ok(point)
    }

    /// Joins a group; returns when all ranks have.
    ///
    /// # Errors
    /// When there is no collective library, a rank does not come, or a link cannot be made.
    pub fn join(&mut self, point: &MeetingPoint, rank: Rank, size: u32) -> Result<(), DeviceError> {
        let api = Rc::clone(&self.api);
        let functions = api.library.collectives.as_ref().ok_or_else(|| not_installed(&api))?;
        let mut communicator = std::ptr::null_mut();
        // SAFETY: a point of the size that the header gives it, and a place for a handle.
        let status = unsafe {
            (functions.comm_init_root_info)(size, &raw const point.0, rank.0, &raw mut communicator)
        };
        check(&api, status, "HcclCommInitRootInfo")?;
        self.group = Some(Group { api: Rc::clone(&api), communicator, rank, size });
        Ok(())
    }
}

impl Collective for AscendDevice {
    fn rank(&self) -> Rank {
        self.group.as_ref().map_or(Rank(0), |group| group.rank)
    }

    fn size(&self) -> u32 {
        self.group.as_ref().map_or(1, |group| group.size)
    }

    fn all_reduce(&mut self, buffer: BufferId, rows: u32) -> Result<(), DeviceError> {
        let (model, stream, group, api) = (&self.model, &self.main, self.group.as_ref(), &self.api);
        let functions = api.library.collectives.as_ref().ok_or_else(|| not_installed(api))?;
        let (Some(group), Some((place, width))) = (group, model.plan.place(buffer)) else {
            return Err(not_installed(api).into());
        };
        let memory = model.storage(place);
        let values = u64::from(rows) * u64::from(width);
        let max = memory.bytes() / size_of::<u16>() / width as usize;
        if rows as usize > max {
            return Err(DeviceError::TooMany { what: "rows", actual: rows as usize, max });
        }
        let data_type = if model.data_type() == DataType::F16 { HALF } else { BRAIN };
        // SAFETY: the values lie in one live storage, in place; communicator and stream are alive.
        let status = unsafe {
            let (at, communicator) = (memory.address(), group.communicator);
            (functions.all_reduce)(at, at, values, data_type, SUM, communicator, stream.handle())
        };
        check(api, status, "HcclAllReduce")?;
        Ok(())
    }
}

#[cold]
fn not_installed(api: &Api) -> Fault {
    let meaning = "there is no collective library, or no group was joined".to_owned();
    own_fault(&api.device, NOT_INSTALLED, "collective", meaning, RecoveryClass::Unsupported)
}

fn check(api: &Api, status: i32, call: &str) -> Result<(), Fault> {
    if status == 0 {
        return Ok(());
    }
    let text = api.library.recent_message();
    let text = if text.is_empty() { explain(&api.library, status) } else { text };
    Err(Box::new(DeviceFault {
        device: api.device.clone(),
        code: status,
        name: format!("HCCL {status}").into(),
        meaning: "a collective operation was refused".into(),
        class: class(status),
        operator: Some(call.to_owned()),
        text,
    }))
}

fn explain(library: &Arc<Library>, status: i32) -> String {
    let Some(explain) = library.collectives.as_ref().and_then(|functions| functions.get_error_string) else {
        return String::new();
    };
    // SAFETY: takes a number; a static string or null.
    let text = unsafe { explain(status) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and a C string by its interface.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What it takes to go on after an `HcclResult`.
fn class(status: i32) -> RecoveryClass {
    match status {
        1 | 2 | 6 => RecoveryClass::Call,
        3 | 24 => RecoveryClass::Memory,
        5 => RecoveryClass::Unsupported,
        20 => RecoveryClass::Retry,
        9 | 11..=14 | 19 | 21..=23 => RecoveryClass::Remote,
        _ => RecoveryClass::Process,
    }
}
