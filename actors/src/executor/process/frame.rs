//! What travels between an executor and its child process.

use serde::{Deserialize, Serialize};

use crate::executor::report::{DeviceEvent, Order, Setup};
use crate::supervisor::Doing;

/// From the executor to its child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToChild {
    /// Open the device. The first frame, once.
    Open {
        /// What to open.
        setup: Box<Setup>,
        /// Whether an earlier child still sits there.
        is_crowded: bool,
    },
    /// Do something.
    Order(Order),
    /// Finish what was ordered, and end.
    Bye,
}

/// From the child to its executor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromChild {
    /// Something happened on the device thread.
    Event(DeviceEvent),
    /// The child lives.
    Beat {
        /// The device's progress counter.
        progress: u64,
        /// What the device thread is doing, if anything.
        doing: Option<Doing>,
    },
}
