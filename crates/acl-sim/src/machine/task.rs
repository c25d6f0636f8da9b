//! What a stream can be told to do.
//!
//! Always holds: a task owns everything it needs; dropping it unrun leaves nobody waiting.

use std::sync::Arc;
use std::time::Duration;

use super::event::Event;
use super::graph::{Replay, Slot};
use crate::launch::Launch;

/// What kind of work a launch is: fault rules and captures tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// An operator.
    Kernel,
    /// A copy or a fill.
    Memcpy,
    /// Anything else: host functions, waits for values.
    Other,
}

/// One entry of a stream's queue.
pub enum Task {
    /// Runs a launch.
    Work(Class, Launch),
    /// Reaches a ticket of an event.
    Record(Arc<Event>, u64),
    /// Waits for a ticket.
    Wait(Arc<Event>, u64, Option<Duration>),
    /// Raises a flag.
    Raise(Arc<Event>),
    /// Waits for a flag, and lowers it if told to.
    AwaitFlag(Arc<Event>, bool, Option<Duration>),
    /// Lowers a flag.
    Lower(Arc<Event>),
    /// Gives a task of a graph new arguments.
    Update(Arc<Slot>, Launch),
    /// Runs a graph.
    Replay(Replay),
}

impl Task {
    /// Does the task if it is one that takes no time and cannot fail. Says whether it was.
    pub fn keep_books(&self) -> bool {
        match self {
            Self::Record(event, ticket) => event.reach(*ticket),
            Self::Raise(event) => event.raise(),
            Self::Lower(event) => event.lower(),
            Self::Update(slot, launch) => slot.set(launch.clone()),
            Self::Work(..) | Self::Wait(..) | Self::AwaitFlag(..) | Self::Replay(_) => return false,
        }
        true
    }

    /// The task will never run: those who wait for it go on.
    pub fn abandon(&self) {
        if let Self::Record(event, ticket) = self {
            event.reach(*ticket);
        }
    }
}
