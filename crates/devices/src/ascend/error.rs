//! Faults of an Ascend device, and why one cannot be opened.

use updraft_core::recovery::{DeviceFault, RecoveryClass};

use thiserror::Error;

use super::codes;
use super::library::{Chip, LibraryError, Version};
use super::operators::MissingOperator;
use crate::DeviceError;
use crate::cpu::LoadError;

/// A fault, behind a pointer because it is rare and large.
pub(super) type Fault = Box<DeviceFault>;

/// Why a device cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// CANN cannot be loaded.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The installation lacks an operator that the program needs.
    #[error(transparent)]
    MissingOperator(#[from] MissingOperator),
    /// The weights cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The program asks for something that this backend does not do.
    #[error("this model does not run on Ascend devices yet: {0}; serve it on the CPU device")]
    Unsupported(String),
    /// The options cannot be met.
    #[error("{0}")]
    Options(String),
    /// The chip does not compute in the type that was asked for.
    #[error("{} does not compute in {compute}; use float16", chip.name())]
    Compute {
        /// The chip.
        chip: Chip,
        /// What was asked for.
        compute: &'static str,
    },
    /// The device refuses.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        Self::Device(fault.into())
    }
}

/// Makes a fault of a status.
pub(super) fn fault(
    device: &str,
    status: i32,
    operator: &str,
    text: String,
    version: Option<&Version>,
) -> Fault {
    let code = codes::lookup(status, version);
    let class = codes::classify(&code, &text);
    let (name, meaning) = (code.name, code.meaning);
    Box::new(DeviceFault {
        device: device.to_owned(),
        code: status,
        name,
        meaning,
        class,
        operator: Some(operator.to_owned()),
        text,
    })
}

/// A fault that this side finds before the library does.
pub(super) fn own_fault(
    device: &str,
    status: i32,
    operator: &str,
    meaning: String,
    class: RecoveryClass,
) -> Fault {
    let name = codes::lookup(status, None).name;
    let operator = Some(operator.to_owned());
    Box::new(DeviceFault {
        device: device.to_owned(),
        code: status,
        name,
        meaning: meaning.into(),
        class,
        operator,
        text: String::new(),
    })
}
