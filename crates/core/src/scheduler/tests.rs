//! Scheduler and block manager together, one subject a file.

mod harness;
mod latency;
mod loss;
mod overlap;
mod planning;
mod preemption;
mod speculation;

pub(super) use harness::{config, new};
