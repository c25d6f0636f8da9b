//! Communicators: made by all ranks together, destroyed one by one, suspended and resumed around a recovery.
//!
//! Always holds: a communicator that was destroyed is found out; making one returns only when all its ranks
//! are there, or after `HCCL_CONNECT_TIMEOUT`.
//!
//! Refuses to know: collectives.

use std::ffi::c_char;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use super::hub::{Broken, Key, Limit};
use super::link::Link;
use super::result::{PARA, PTR, REMOTE, RUNTIME, SUCCESS, SUSPENDING, TCP_CONNECT, TIMEOUT};
use super::root;
use crate::launch::{current_device, report};
use crate::tensor::handle::{self, Handle};

/// Bytes of a communicator's name, with the zero at its end.
const NAME_BYTES: usize = 128;
/// Ranks of a communicator at most.
const MAX_RANKS: u32 = 1024;
/// Seconds that ranks wait for one another when a communicator is made, unless the environment says
/// otherwise.
const CONNECT_SECONDS: u64 = 120;
/// Seconds that a collective waits for a rank, unless the environment says otherwise.
const EXECUTE_SECONDS: u64 = 1836;

/// What a communicator is, shared with the work it launched.
pub struct Shared {
    /// This rank.
    pub rank: u32,
    /// All ranks.
    pub ranks: u32,
    /// The way to the others.
    pub link: Link,
    /// Limit of a collective; none for ever.
    pub patience: Option<Duration>,
    name: String,
    place: u64,
    generation: AtomicU64,
    sequence: AtomicU64,
    suspended: AtomicBool,
    failure: AtomicI32,
}

/// What an `HcclComm` holds.
pub struct Communicator(Arc<Shared>);
crate::handle_kind!(Communicator, 0x6863_636c_636f_6d6d);

/// An `HcclComm`.
pub type Comm = *mut Handle<Communicator>;

impl Shared {
    /// The key of this rank's next collective.
    pub fn next(&self) -> Key {
        let generation = self.generation.load(Ordering::SeqCst);
        Key { generation, sequence: self.sequence.fetch_add(1, Ordering::SeqCst) }
    }

    /// How often it was resumed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Notes a failure for `HcclGetCommAsyncError`.
    pub fn fail(&self, result: i32) {
        self.failure.store(result, Ordering::SeqCst);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        root::leave(self.place);
    }
}

/// The communicator behind a handle.
pub fn find(comm: Comm) -> Result<Arc<Shared>, i32> {
    match handle::get(comm) {
        Some(comm) if comm.0.suspended.load(Ordering::SeqCst) => Err(SUSPENDING),
        Some(comm) => Ok(Arc::clone(&comm.0)),
        None => {
            report(107_000, "the communicator is null, or was destroyed");
            Err(PTR)
        }
    }
}

fn seconds(name: &str, otherwise: u64) -> Option<Duration> {
    let value = std::env::var(name).ok().and_then(|value| value.trim().parse().ok()).unwrap_or(otherwise);
    (value > 0).then(|| Duration::from_secs(value))
}

fn make(place: u64, link: Link, ranks: u32, rank: u32, name: String) -> Shared {
    Shared {
        rank,
        ranks,
        link,
        patience: seconds("HCCL_EXEC_TIMEOUT", EXECUTE_SECONDS),
        name,
        place,
        generation: AtomicU64::new(0),
        sequence: AtomicU64::new(1),
        suspended: AtomicBool::new(false),
        failure: AtomicI32::new(SUCCESS),
    }
}

/// # Safety
/// `comm` must be writable.
unsafe fn init(ranks: u32, info: *const u8, rank: u32, name: Option<String>, comm: *mut Comm) -> i32 {
    if comm.is_null() {
        return PTR;
    }
    if ranks == 0 || ranks > MAX_RANKS || rank >= ranks {
        report(107_000, &format!("HcclCommInitRootInfo: rank {rank} of {ranks} ranks; at most {MAX_RANKS}"));
        return PARA;
    }
    let (place, path) = match root::parse(info) {
        Ok(found) => found,
        Err(result) => return result,
    };
    if current_device().is_err() {
        return RUNTIME;
    }
    let link = root::join(place, path);
    let shared = make(place, link, ranks, rank, name.unwrap_or_else(|| format!("acl-sim-{place:x}")));
    let limit = Limit::within(seconds("HCCL_CONNECT_TIMEOUT", CONNECT_SECONDS), || false);
    let key = Key { generation: 0, sequence: 0 };
    let result = match shared.link.exchange(key, ranks, rank, Arc::from(ranks.to_le_bytes()), &limit) {
        Ok(all) if all.iter().all(|part| **part == ranks.to_le_bytes()) => SUCCESS,
        Ok(_) => PARA,
        Err(Broken::TimedOut) => TIMEOUT,
        Err(Broken::Lost) => TCP_CONNECT,
        Err(Broken::Cancelled) => REMOTE,
    };
    if result != SUCCESS {
        report(507_000, &format!("HcclCommInitRootInfo: rank {rank} of {ranks} did not meet the others"));
        return result;
    }
    // SAFETY: passed on.
    unsafe { comm.write(handle::create(Communicator(Arc::new(shared)))) };
    SUCCESS
}

/// Makes a communicator together with the other ranks of the root information.
#[unsafe(no_mangle)]
pub extern "C" fn HcclCommInitRootInfo(ranks: u32, info: *const u8, rank: u32, comm: *mut Comm) -> i32 {
    // SAFETY: the caller lends a place for the handle.
    unsafe { init(ranks, info, rank, None, comm) }
}

/// As [`HcclCommInitRootInfo`], with a configuration, of which the name is used.
#[unsafe(no_mangle)]
pub extern "C" fn HcclCommInitRootInfoConfig(
    ranks: u32,
    info: *const u8,
    rank: u32,
    config: *const u8,
    comm: *mut Comm,
) -> i32 {
    if config.is_null() {
        return PTR;
    }
    // SAFETY: the caller lends a whole `HcclCommConfig`, whose name is 128 bytes from the 32nd on.
    let name = unsafe { std::slice::from_raw_parts(config.add(32), NAME_BYTES) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    let name = std::str::from_utf8(&name[..end]).ok().filter(|name| !name.is_empty()).map(ToOwned::to_owned);
    // SAFETY: the caller lends a place for the handle.
    unsafe { init(ranks, info, rank, name, comm) }
}

/// Makes the communicators of all ranks at once, for several devices of one process.
#[unsafe(no_mangle)]
pub extern "C" fn HcclCommInitAll(count: u32, devices: *const i32, comms: *mut Comm) -> i32 {
    if devices.is_null() || comms.is_null() {
        return PTR;
    }
    if count == 0 || count > MAX_RANKS {
        return PARA;
    }
    let place = root::private();
    for rank in 0..count {
        let link = root::join(place, std::path::PathBuf::new());
        let shared = make(place, link, count, rank, format!("acl-sim-{place:x}"));
        // SAFETY: the caller lends a place for each handle.
        unsafe { comms.add(rank as usize).write(handle::create(Communicator(Arc::new(shared)))) };
    }
    SUCCESS
}

/// Destroys a communicator. Work that was launched with it keeps what it needs until it ran.
#[unsafe(no_mangle)]
pub extern "C" fn HcclCommDestroy(comm: Comm) -> i32 {
    if handle::destroy(comm).is_some() { SUCCESS } else { PTR }
}

/// Stops accepting collectives.
#[unsafe(no_mangle)]
pub extern "C" fn HcclCommSuspend(comm: Comm) -> i32 {
    handle::get(comm).map_or(PTR, |comm| {
        comm.0.suspended.store(true, Ordering::SeqCst);
        SUCCESS
    })
}

/// Accepts collectives again, from a clean beginning; every rank must do it.
#[unsafe(no_mangle)]
pub extern "C" fn HcclCommResume(comm: Comm) -> i32 {
    handle::get(comm).map_or(PTR, |comm| {
        comm.0.generation.fetch_add(1, Ordering::SeqCst);
        comm.0.sequence.store(1, Ordering::SeqCst);
        comm.0.failure.store(SUCCESS, Ordering::SeqCst);
        comm.0.suspended.store(false, Ordering::SeqCst);
        SUCCESS
    })
}

fn tell<T>(comm: Comm, out: *mut T, of: impl Fn(&Shared) -> T) -> i32 {
    match handle::get(comm) {
        Some(comm) if !out.is_null() => {
            // SAFETY: not null, and the caller's to write.
            unsafe { out.write(of(&comm.0)) };
            SUCCESS
        }
        _ => PTR,
    }
}

/// How many ranks there are.
#[unsafe(no_mangle)]
pub extern "C" fn HcclGetRankSize(comm: Comm, size: *mut u32) -> i32 {
    tell(comm, size, |comm| comm.ranks)
}

/// Which rank this is.
#[unsafe(no_mangle)]
pub extern "C" fn HcclGetRankId(comm: Comm, rank: *mut u32) -> i32 {
    tell(comm, rank, |comm| comm.rank)
}

/// What went wrong in a collective since it was made or resumed.
#[unsafe(no_mangle)]
pub extern "C" fn HcclGetCommAsyncError(comm: Comm, result: *mut i32) -> i32 {
    tell(comm, result, |comm| comm.failure.load(Ordering::SeqCst))
}

/// The name, which fused operators take as their group.
#[unsafe(no_mangle)]
pub extern "C" fn HcclGetCommName(comm: Comm, name: *mut c_char) -> i32 {
    match handle::get(comm) {
        Some(comm) if !name.is_null() => {
            let length = comm.0.name.len().min(NAME_BYTES - 1);
            // SAFETY: the caller lends 128 bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(comm.0.name.as_ptr().cast(), name, length);
                name.add(length).write(0);
            }
            SUCCESS
        }
        _ => PTR,
    }
}

/// Bits of what a configuration may hold: none beyond version 5.
#[unsafe(no_mangle)]
pub extern "C" fn HcclGetCommConfigCapability() -> u32 {
    0
}
