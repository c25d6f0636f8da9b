//! What a device is and has left, for planning before it is opened.

use std::rc::Rc;
use std::sync::Arc;

use updraft_core::Bytes;
use updraft_core::program::Program;

use super::error::OpenError;
use super::library::{Chip, Library, Version};
use super::lower::Plan;
use super::operators::Installed;
use super::runtime::{Api, DeviceHandle, start};

/// Facts about one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AscendFacts {
    /// Devices that this process sees.
    pub devices: u32,
    /// The chip, as the runtime calls it.
    pub soc: String,
    /// Its family, if it is a known one.
    pub chip: Option<Chip>,
    /// Release of CANN, if it can be asked.
    pub version: Option<Version>,
    /// Memory that nobody uses.
    pub memory_free: Bytes,
    /// All memory.
    pub memory_total: Bytes,
}

/// Asks a device for its facts.
///
/// # Errors
/// When CANN does not start or the device cannot be used.
pub fn facts(library: &Arc<Library>, ordinal: u32) -> Result<AscendFacts, OpenError> {
    start(library)?;
    let api = Rc::new(Api { library: Arc::clone(library), device: format!("ascend:{ordinal}") });
    let mut devices = 0;
    // SAFETY: a place for one number.
    let status = unsafe { (library.runtime.get_device_count)(&raw mut devices) };
    api.check(status, "aclrtGetDeviceCount")?;
    let device = DeviceHandle::open(&api, ordinal)?;
    let (free, total) = device.memory()?;
    let soc = device.soc();
    Ok(AscendFacts {
        devices,
        chip: Chip::from_soc(&soc),
        soc,
        version: library.version().cloned(),
        memory_free: Bytes(free),
        memory_total: Bytes(total),
    })
}

/// Whether a program can run on such a chip with what is installed: the same question that opening a device asks, but
/// without a device.
///
/// # Errors
/// The operator that is missing, or what the program asks for and this backend does not do.
pub fn check_program(library: &Arc<Library>, program: &Program, chip: Option<Chip>) -> Result<(), OpenError> {
    let has = |name: &str| library.has_operator(name);
    Plan::of(program, &Installed { has: &has, chip, version: library.version() }).map(|_| ())
}
