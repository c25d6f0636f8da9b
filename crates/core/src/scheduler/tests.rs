//! Scheduler and block manager together, one subject a file.

mod harness;
mod loss;
mod overlap;
mod planning;
mod preemption;
mod speculation;

pub(super) use harness::{config, new};
