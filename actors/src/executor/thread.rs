//! The device thread: the only place where a model computes.
//!
//! It takes orders in turn from a bounded queue and says what came of them. When anything in it panics or its
//! device cannot go on, it says so and ends; when its owner is gone, its queue closes and it ends too. Its
//! device is opened and dropped here, on the thread that uses it.
//!
//! Refuses to know: who gives the orders and who listens, in this process or in another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::driver;
use super::report::{DeviceEvent, LifeEnd, Order, Setup};
use super::seat::Seated;
use super::{DeviceFactory, DrillSwitch};
use crate::supervisor::Life;

/// Orders in the queue at most. Two plans are in flight in one epoch and one capture; the rest is room for
/// the void plans of epochs that ended meanwhile.
pub(super) const QUEUE_MAX: usize = 32;

/// Where a device thread's events go.
pub(super) trait Outlet: Send + Sync {
    /// Passes an event on.
    fn deliver(&self, event: DeviceEvent);
}

/// What a device thread needs.
pub(super) struct Job {
    pub setup: Setup,
    pub factory: DeviceFactory,
    pub life: Arc<Life>,
    pub drills: DrillSwitch,
    pub outlet: Arc<dyn Outlet>,
}

/// The owner's end of the thread.
pub(super) struct DeviceThread {
    orders: flume::Sender<Order>,
    ended: flume::Receiver<()>,
}

/// A device thread or a child cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ThreadError {
    #[error("the device thread could not be started: {0}")]
    Spawn(#[from] std::io::Error),
    #[error("the device thread has ended")]
    Ended,
    #[error("{QUEUE_MAX} orders wait for the device, more than may be under way")]
    Overrun,
}

impl DeviceThread {
    pub(super) fn start(job: Job, seated: Seated) -> Result<Self, ThreadError> {
        let (orders, waiting) = flume::bounded(QUEUE_MAX);
        let (alive, ended) = flume::bounded(1);
        let name = format!("device-{}", job.setup.ordinal);
        std::thread::Builder::new().name(name).spawn(move || {
            let ended = run(&job, &waiting, seated.is_crowded());
            // The device is closed: the next life may begin before it is told of the end of this one.
            drop(seated);
            if let Err(end) = ended {
                job.outlet.deliver(DeviceEvent::Lost(end));
            }
            drop(alive);
        })?;
        Ok(Self { orders, ended })
    }

    pub(super) fn submit(&self, order: Order) -> Result<(), ThreadError> {
        submit(&self.orders, order)
    }

    /// Lets the thread end once its orders are done, and waits for it this long.
    pub(super) fn finish(self, wait_max: std::time::Duration) {
        drop(self.orders);
        // It says nothing more; what is awaited is that its end is dropped.
        let _ = self.ended.recv_timeout(wait_max);
    }
}

/// Puts an order in a queue, or says why not.
pub(super) fn submit(queue: &flume::Sender<Order>, order: Order) -> Result<(), ThreadError> {
    queue.try_send(order).map_err(|error| match error {
        flume::TrySendError::Full(_) => ThreadError::Overrun,
        flume::TrySendError::Disconnected(_) => ThreadError::Ended,
    })
}

fn run(job: &Job, orders: &flume::Receiver<Order>, crowded: bool) -> Result<(), Box<LifeEnd>> {
    match catch_unwind(AssertUnwindSafe(|| driver::drive(job, orders, crowded))) {
        Ok(outcome) => outcome,
        Err(panic) => Err(Box::new(LifeEnd::of(panic_text(panic.as_ref()), job.life.is_computing()))),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "the device thread panicked".to_owned())
}
