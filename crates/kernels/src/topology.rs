//! The processors that a team may run on, and how many of them it takes.
//!
//! [`Machine`] says what there is: hardware threads, the cores and memory nodes they belong to, and how much of
//! their time this process is given. [`Machine::choose`] is the decision, from these figures alone. Always holds: a
//! team has a thread at least; nothing that cannot be read makes this fail, it only makes the choice coarser.
//! Refuses to know: what the team computes.

mod choose;
mod parse;
mod read;
#[cfg(test)]
mod tests;

pub use choose::{Binding, Choice, Reason};

/// What is known of the machine before threads are started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Hardware threads that this process may run on, ascending; empty when the system does not say.
    pub processors: Vec<Processor>,
    /// As many processors' worth of time as the process may use, at least 1: fewer than there are when a quota says so
    /// (a CPU limit of a container), rounded down.
    pub parallelism: usize,
    /// Whether the process was given processors of its own (by `taskset`, a cpuset, or a cluster's CPU manager): then
    /// nobody is in the way of a thread that stays where it is.
    pub restricted: bool,
    /// The hardware thread that the process runs on at the moment.
    pub here: Option<usize>,
}

/// One hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Its number.
    pub id: usize,
    /// The lowest number among the hardware threads of its core.
    pub core: usize,
    /// Its memory node.
    pub node: usize,
}

impl Machine {
    /// This machine, as the calling thread may use it.
    #[must_use]
    pub fn current() -> Self {
        let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
        let (allowed, here) = (crate::team::allowed_cpus(), crate::team::current_cpu());
        // The limits of control groups, old and new and at every level, are in the standard library's figure.
        Self::described(&allowed, here, parallelism, &read::system_file)
    }
}
