//! Root information: how ranks find their meeting place.
//!
//! Always holds: a meeting place is known by a number that no other process uses; its socket lies in the
//! temporary folder and is taken away with the last communicator of its process.
//!
//! Refuses to know: collectives.

use std::collections::HashMap;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::hub::Hub;
use super::link::{Link, Service};
use super::result::{PARA, PTR, SUCCESS, SYSCALL};
use crate::launch::report;

/// Bytes of an `HcclRootInfo`.
pub const ROOT_INFO_BYTES: usize = 4108;

/// What root information of this library begins with.
const MARK: &[u8; 8] = b"ACLSIMHC";

/// How long the last communicator waits for answers that are on their way to other processes.
const DRAIN: Duration = Duration::from_secs(5);

/// A meeting place of this process.
struct Place {
    hub: Arc<Hub>,
    service: Arc<Service>,
    path: Option<PathBuf>,
    communicators: usize,
}

static PLACES: Mutex<Option<HashMap<u64, Place>>> = Mutex::new(None);
static NUMBER: AtomicU32 = AtomicU32::new(1);

fn places() -> MutexGuard<'static, Option<HashMap<u64, Place>>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number() -> u64 {
    u64::from(std::process::id()) << 32 | u64::from(NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Makes a meeting place for ranks of this process alone.
#[must_use]
pub fn private() -> u64 {
    let id = number();
    let place = Place { hub: Arc::default(), service: Arc::default(), path: None, communicators: 0 };
    places().get_or_insert_default().insert(id, place);
    id
}

/// Makes a meeting place and tells how to find it.
#[unsafe(no_mangle)]
pub extern "C" fn HcclGetRootInfo(info: *mut u8) -> i32 {
    if info.is_null() {
        return PTR;
    }
    let id = number();
    let path = std::env::temp_dir().join(format!("acl-sim-hccl-{id:x}.sock"));
    let place =
        Place { hub: Arc::default(), service: Arc::default(), path: Some(path.clone()), communicators: 0 };
    let listening = UnixListener::bind(&path).and_then(|socket| place.service.listen(socket, &place.hub));
    if let Err(error) = listening {
        report(507_000, &format!("HcclGetRootInfo: no socket at {}: {error}", path.display()));
        return SYSCALL;
    }
    places().get_or_insert_default().insert(id, place);
    let text = path.as_os_str().as_encoded_bytes();
    let mut bytes = MARK.to_vec();
    bytes.extend(id.to_le_bytes());
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text);
    bytes.resize(ROOT_INFO_BYTES, 0);
    // SAFETY: the caller lends a whole `HcclRootInfo`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), info, ROOT_INFO_BYTES) };
    SUCCESS
}

/// The meeting place of root information: its number and where it is.
pub fn parse(info: *const u8) -> Result<(u64, PathBuf), i32> {
    if info.is_null() {
        return Err(PTR);
    }
    // SAFETY: the caller lends a whole `HcclRootInfo`.
    let bytes = unsafe { std::slice::from_raw_parts(info, ROOT_INFO_BYTES) };
    let word =
        |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    let length = word(16).unwrap_or(0) as u32 as usize;
    let text = bytes.get(20..20 + length).and_then(|text| std::str::from_utf8(text).ok());
    if let (true, Some(id), Some(path)) = (bytes.starts_with(MARK), word(8), text) {
        return Ok((id, PathBuf::from(path)));
    }
    report(107_000, "HcclCommInitRootInfo: this is no root information of HcclGetRootInfo");
    Err(PARA)
}

/// A way to a meeting place, counted until [`leave`].
#[must_use]
pub fn join(id: u64, path: PathBuf) -> Link {
    let mut places = places();
    match places.get_or_insert_default().get_mut(&id) {
        Some(place) => {
            place.communicators += 1;
            Link::Here(Arc::clone(&place.hub))
        }
        None => Link::There { path, stream: Mutex::new(None) },
    }
}

/// Gives a way up. With the last one of this process the meeting place closes.
pub fn leave(id: u64) {
    let closed = {
        let mut places = places();
        let Some(all) = places.as_mut() else { return };
        let Some(place) = all.get_mut(&id) else { return };
        place.communicators = place.communicators.saturating_sub(1);
        if place.communicators > 0 {
            return;
        }
        all.remove(&id)
    };
    let Some(place) = closed else { return };
    let deadline = Instant::now() + DRAIN;
    while place.service.is_busy() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(path) = place.path {
        // A file that is gone already is as good as one taken away.
        let _ = std::fs::remove_file(path);
    }
}
