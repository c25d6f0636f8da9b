//! From a fault to what is done about it, with a memory: what did not help is not done for ever.
//!
//! Three layers, from the mildest. Within a step, it is run again, waited for, or run without its graph.
//! Within a life, the streams are made anew. Otherwise the life ends. Each has a bound, behind which the next
//! stronger one stands:
//!
//! - what is done in place counts until a step succeeds or a life begins;
//! - ends of lives count until a step succeeds when the life is [`RecoveryPolicy::calm`] old;
//! - damaged memory counts within [`RecoveryPolicy::memory_window`], however well things go in between.
//!
//! A fault that the work may have caused, in a life that has computed something, is not held against the
//! device: a request that kills every life it meets would otherwise put it out of service.
//!
//! Always: while nothing succeeds, what is done never gets milder (within a life, and from life to life), and
//! any sequence of faults ends a life after a bounded number of them. Dropping a graph that could not be
//! captured is outside of all this: it harms nothing, and [`crate::graphs::Lifecycles`] bounds it.
//!
//! Refuses to know: clocks, devices. A ledger is a plain value; whoever starts the next life passes it on.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Action, DeviceFault, Moment, RecoveryClass};
use crate::units::Millis;

/// How often something is done before the next stronger is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryPolicy {
    /// Times that a step is run again as it is.
    pub retries: u32,
    /// Times that a step is waited for once more.
    pub waits: u32,
    /// Graphs that are dropped at replays.
    pub drops: u32,
    /// Times that streams are made anew within a life.
    pub stream_rebuilds: u32,
    /// Lives that are begun anew.
    pub group_rebuilds: u32,
    /// Processes that are started anew.
    pub process_restarts: u32,
    /// With so many faults of the device's memory within the window, it is taken out of service.
    pub memory_faults: u32,
    /// Length of that window.
    pub memory_window: Millis,
    /// A life that is this old and computes is a good one.
    pub calm: Millis,
    /// Wait before the first retry; each further one in a row doubles it.
    pub first_pause: Millis,
    /// Wait at most.
    pub longest_pause: Millis,
}

/// What has been done about the faults of one device. One that takes its place begins with a new ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    policy: RecoveryPolicy,
    in_place: InPlace,
    endings: Endings,
    /// When the present life began; the latest end before that.
    life_began: Option<Millis>,
    /// Whether a step succeeded in this life.
    computed: bool,
    /// Latest faults of the device's memory, as many as it takes to retire it.
    memory_faults: VecDeque<Millis>,
    retired: bool,
}

/// What was done since a step succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct InPlace {
    retries: u32,
    waits: u32,
    drops: u32,
    stream_rebuilds: u32,
}

/// Lives that ended since there was a good one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Endings {
    group_rebuilds: u32,
    process_restarts: u32,
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        Self {
            retries: 3,
            waits: 1,
            drops: 2,
            stream_rebuilds: 2,
            group_rebuilds: 3,
            process_restarts: 2,
            memory_faults: 2,
            memory_window: Millis(3_600_000),
            calm: Millis(10_000),
            first_pause: Millis(5),
            longest_pause: Millis(500),
        }
    }
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub fn new(policy: RecoveryPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// What to do about a fault at `now`; it is taken as done. Times never run backwards.
    pub fn decide(&mut self, now: Millis, fault: &DeviceFault, moment: Moment) -> Action {
        self.decide_class(now, fault.class, moment)
    }

    /// The same for a fault of which only the class is known: a process that is gone without a word is
    /// [`RecoveryClass::Process`].
    pub fn decide_class(&mut self, now: Millis, class: RecoveryClass, moment: Moment) -> Action {
        if self.retired {
            return Action::RetireDevice;
        }
        if class == RecoveryClass::DeviceMemory && self.memory_is_bad(now) {
            return self.take(Action::RetireDevice, now);
        }
        let first = mildest(class, moment);
        if first == Action::DropGraph && moment == Moment::Capture {
            return first;
        }
        let mut action = first.max(self.floor(first));
        let innocent = class.blames_sequences() && self.computed;
        while !(self.may(action) || innocent && action == Action::RebuildGroup) {
            action = stronger(action);
        }
        if innocent && !action.is_in_place() {
            self.life_ends(now);
            return Action::RebuildGroup;
        }
        // A wrong call of ours is no reason to do without a device that works.
        if class == RecoveryClass::Call {
            action = action.min(Action::RestartProcess);
        }
        self.take(action, now)
    }

    /// How long to wait before a [`Action::RetryInPlace`] that was just decided.
    #[must_use]
    pub fn pause(&self) -> Millis {
        let doublings = self.in_place.retries.saturating_sub(1).min(32);
        Millis(self.policy.first_pause.0.saturating_mul(1 << doublings)).min(self.policy.longest_pause)
    }

    /// A step succeeded.
    pub fn step_succeeded(&mut self, now: Millis) {
        self.in_place = InPlace::default();
        self.computed = true;
        if self.life_began.is_none_or(|began| now - began >= self.policy.calm) {
            self.endings = Endings::default();
        }
    }

    /// A new life of the device began: it is open and has its weights.
    pub fn began_life(&mut self, now: Millis) {
        self.in_place = InPlace::default();
        self.life_ends(now);
    }

    /// Whether the device is out of service. For good: nothing but [`Action::RetireDevice`] follows.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Notes a fault of the device's memory; whether there have been too many.
    fn memory_is_bad(&mut self, now: Millis) -> bool {
        self.memory_faults.push_back(now);
        while self.memory_faults.front().is_some_and(|first| now - *first >= self.policy.memory_window) {
            self.memory_faults.pop_front();
        }
        self.memory_faults.len() >= self.policy.memory_faults as usize
    }

    /// While nothing succeeds, nothing milder than what was done last.
    fn floor(&self, first: Action) -> Action {
        if first.is_in_place() {
            return if self.in_place.stream_rebuilds > 0 { Action::RebuildStream } else { first };
        }
        if self.endings.process_restarts > 0 { Action::RestartProcess } else { first }
    }

    fn may(&self, action: Action) -> bool {
        let (policy, done, ended) = (&self.policy, &self.in_place, &self.endings);
        match action {
            Action::RetryInPlace => done.retries < policy.retries,
            Action::WaitMore => done.waits < policy.waits,
            Action::DropGraph => done.drops < policy.drops,
            Action::RebuildStream => done.stream_rebuilds < policy.stream_rebuilds,
            Action::RebuildGroup => {
                ended.process_restarts == 0 && ended.group_rebuilds < policy.group_rebuilds
            }
            Action::RestartProcess => ended.process_restarts < policy.process_restarts,
            Action::RetireDevice => true,
        }
    }

    fn take(&mut self, action: Action, now: Millis) -> Action {
        match action {
            Action::RetryInPlace => self.in_place.retries += 1,
            Action::WaitMore => self.in_place.waits += 1,
            Action::DropGraph => self.in_place.drops += 1,
            Action::RebuildStream => self.in_place.stream_rebuilds += 1,
            Action::RebuildGroup => self.endings.group_rebuilds += 1,
            Action::RestartProcess => {
                self.endings.process_restarts = self.endings.process_restarts.saturating_add(1);
            }
            Action::RetireDevice => self.retired = true,
        }
        if !action.is_in_place() {
            self.life_ends(now);
        }
        action
    }

    /// What comes next has computed nothing yet.
    fn life_ends(&mut self, now: Millis) {
        self.computed = false;
        self.life_began = Some(now);
    }
}

/// The least that can help.
fn mildest(class: RecoveryClass, moment: Moment) -> Action {
    use Moment::{Capture, Decode, Open, Prefill, Replay};
    use RecoveryClass as Class;
    match (class, moment) {
        (Class::Environment | Class::Unsupported, Open) => Action::RetireDevice,
        (Class::Process | Class::Unclear, _) => Action::RestartProcess,
        // There is nothing yet that could be kept; and what these faults leave cannot be trusted.
        (_, Open) | (Class::Device | Class::DeviceMemory | Class::Remote, _) => Action::RebuildGroup,
        (
            Class::Call
            | Class::Environment
            | Class::Unsupported
            | Class::Memory
            | Class::Retry
            | Class::Graph
            | Class::GraphDead,
            Capture,
        )
        | (Class::Environment | Class::Unsupported | Class::Graph | Class::GraphDead, Replay) => {
            Action::DropGraph
        }
        (Class::Call, _) | (Class::Environment | Class::Unsupported, Prefill | Decode) => {
            Action::RebuildGroup
        }
        (Class::Memory | Class::Retry, _) => Action::RetryInPlace,
        // A capture is nothing that could be waited for: it runs nothing.
        (Class::WaitMore, Capture) | (Class::Graph | Class::GraphDead | Class::Stream, _) => {
            Action::RebuildStream
        }
        (Class::WaitMore, _) => Action::WaitMore,
    }
}

/// What comes after something that did not help.
fn stronger(action: Action) -> Action {
    match action {
        Action::RetryInPlace | Action::WaitMore | Action::DropGraph => Action::RebuildStream,
        Action::RebuildStream => Action::RebuildGroup,
        Action::RebuildGroup => Action::RestartProcess,
        Action::RestartProcess | Action::RetireDevice => Action::RetireDevice,
    }
}

#[cfg(test)]
mod tests;
