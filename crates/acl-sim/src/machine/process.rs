//! What belongs to the process: initialisation, and options that hold for everything.

use std::ffi::{CString, c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::refusal::{Answer, Refusal, report};
use super::table::lock;
use super::{codes, faults, machine};
use crate::settings::settings;

/// Registered callbacks of one kind that a process may have.
const CALLBACKS_MAX: usize = 64;

static REFERENCES: AtomicU64 = AtomicU64::new(0);
static WAIT_SECONDS: AtomicU32 = AtomicU32::new(0);
/// The per-kernel limit in milliseconds: kept and told, never enforced.
pub static EXECUTE_MS: AtomicU32 = AtomicU32::new(1_091_000);

/// Initialises, or counts one more reference.
pub fn initialise(config: Option<&str>) -> Answer {
    if let Some(path) = config.filter(|path| !path.is_empty()) {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Refusal::new(codes::INVALID_FILE, format!("{path} cannot be read: {error}")))?;
        if !text.trim_start().starts_with('{') {
            return Refusal::answer(codes::INVALID_FILE, format!("{path} is no JSON object"));
        }
    }
    machine();
    for complaint in &settings().complaints {
        report(codes::INVALID_PARAM, complaint);
    }
    if let Some(error) = faults::script_error() {
        return Refusal::answer(codes::INVALID_PARAM, format!("the fault script is wrong: {error}"));
    }
    let before = REFERENCES.fetch_add(1, Ordering::Relaxed);
    if before > 0 && !settings().counts_initialisations() {
        REFERENCES.store(before, Ordering::Relaxed);
        return Refusal::answer(codes::REPEAT_INITIALIZE, "aclInit was called before; call it once");
    }
    Ok(())
}

/// Drops all references.
pub fn finalise() -> Answer {
    if REFERENCES.swap(0, Ordering::Relaxed) == 0 {
        return Refusal::answer(codes::REPEAT_FINALIZE, "nothing is initialised; call aclInit first");
    }
    Ok(())
}

/// Drops one reference and tells how many are left.
pub fn finalise_one() -> Answer<u64> {
    let before = REFERENCES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
    match before {
        Ok(before) => Ok(before - 1),
        Err(_) => Refusal::answer(codes::REPEAT_FINALIZE, "nothing is initialised; call aclInit first"),
    }
}

/// Limits waits of streams for events, in seconds; 0 is no limit.
pub fn set_wait_seconds(seconds: u32) {
    WAIT_SECONDS.store(seconds, Ordering::Relaxed);
}

/// The limit of waits.
pub fn wait_limit() -> Option<Duration> {
    match WAIT_SECONDS.load(Ordering::Relaxed) {
        0 => None,
        seconds => Some(Duration::from_secs(u64::from(seconds))),
    }
}

/// A function that hears about the states of one kind of thing.
#[derive(Clone)]
struct Listener {
    name: CString,
    function: usize,
    argument: usize,
}

/// Registered functions by name.
pub struct Listeners {
    known: Mutex<Vec<Listener>>,
}

/// Who hears about streams.
pub static STREAM_LISTENERS: Listeners = Listeners { known: Mutex::new(Vec::new()) };
/// Who hears about devices.
pub static DEVICE_LISTENERS: Listeners = Listeners { known: Mutex::new(Vec::new()) };

/// A function that hears about a stream.
pub type StreamListener = extern "C" fn(*mut c_void, i32, *mut c_void);
/// A function that hears about a device.
pub type DeviceListener = extern "C" fn(i32, i32, *mut c_void);

impl Listeners {
    /// Registers a function (its address), or removes the one of that name when it is null.
    pub fn register(&self, name: *const c_char, function: usize, argument: *mut c_void) -> Answer {
        if name.is_null() {
            return Refusal::answer(codes::PARAM_INVALID, "a callback needs a name");
        }
        // SAFETY: the name is not null, and the caller of the ABI vouches that it ends.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_owned();
        let mut known = lock(&self.known);
        known.retain(|listener| listener.name != name);
        if function == 0 {
            return Ok(());
        }
        if known.len() >= CALLBACKS_MAX {
            let detail = format!("{CALLBACKS_MAX} callbacks are registered already; remove some");
            return Refusal::answer(codes::PARAM_INVALID, detail);
        }
        known.push(Listener { name, function, argument: argument as usize });
        Ok(())
    }

    fn each(&self, mut tell: impl FnMut(usize, *mut c_void)) {
        for listener in lock(&self.known).clone() {
            tell(listener.function, listener.argument as *mut c_void);
        }
    }
}

/// Tells of a stream that was made (1) or ends (2).
pub fn tell_stream(stream: usize, state: i32) {
    STREAM_LISTENERS.each(|function, argument| {
        // SAFETY: only `StreamListener`s are registered there.
        let function = unsafe { std::mem::transmute::<usize, StreamListener>(function) };
        function(stream as *mut c_void, state, argument);
    });
}

/// Tells of a device that is being set (0, 1) or reset (2, 3).
pub fn tell_device(device: i32, state: i32) {
    DEVICE_LISTENERS.each(|function, argument| {
        // SAFETY: only `DeviceListener`s are registered there.
        let function = unsafe { std::mem::transmute::<usize, DeviceListener>(function) };
        function(device, state, argument);
    });
}
