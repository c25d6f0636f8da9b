//! Where a device thread lives: in this process, or in a child.

use std::sync::Arc;

use updraft_devices::{Device, DeviceError};

use super::DrillSwitch;
use super::process::{ChildProcess, ChildSpec};
use super::relay::Relay;
use super::report::{Order, Setup};
use super::seat::Seats;
use super::thread::{DeviceThread, Job, ThreadError};

/// Makes the device with this number, for a new executor life. Called on the device thread, which owns the
/// result.
pub type DeviceFactory = Arc<dyn Fn(u32) -> Result<Box<dyn Device>, DeviceError> + Send + Sync>;

/// Where the device is driven.
#[derive(Clone)]
pub enum Placement {
    /// On a thread of this process.
    Thread(DeviceFactory),
    /// In a child process, which makes its device itself. One that hangs or crashes can be ended.
    Process(ChildSpec),
}

impl Placement {
    /// Whether the device has a process of its own.
    #[must_use]
    pub fn is_process(&self) -> bool {
        matches!(self, Self::Process(_))
    }
}

impl std::fmt::Debug for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Thread(_) => f.write_str("Thread"),
            Self::Process(spec) => f.debug_tuple("Process").field(spec).finish(),
        }
    }
}

/// What does the work of one life.
pub(super) enum Hands {
    Thread(DeviceThread),
    Process(ChildProcess),
}

impl Hands {
    pub(super) fn start(
        placement: Placement,
        seats: Seats,
        setup: Setup,
        drills: DrillSwitch,
        relay: &Arc<Relay>,
    ) -> Result<Self, ThreadError> {
        match placement {
            Placement::Thread(factory) => {
                let life = Arc::clone(&relay.life);
                let seated = seats.sit(setup.ordinal);
                let job = Job { setup, factory, life, drills, outlet: Arc::clone(relay) as _ };
                Ok(Self::Thread(DeviceThread::start(job, seated)?))
            }
            Placement::Process(spec) => {
                Ok(Self::Process(ChildProcess::start(spec, seats, setup, Arc::clone(relay))?))
            }
        }
    }

    pub(super) fn submit(&self, order: Order) -> Result<(), ThreadError> {
        match self {
            Self::Thread(thread) => thread.submit(order),
            Self::Process(child) => child.submit(order),
        }
    }
}
