//! How the graphs of one device live: Wanted, Capturing, Ready, and Retired or Failed.
//!
//! The device is told what to do by [`Lifecycles::next`], one thing at a time, and answers with
//! [`Lifecycles::captured`], [`Lifecycles::capture_failed`] or [`Lifecycles::retired`]. The first graphs of a
//! plan are captured at once, all others in idle moments, and under load one in a while.
//!
//! Always: at most one capture is under way; a ready graph was captured in this life of the device; ready
//! graphs together stay within the budget. Answers of another life change nothing. What traffic there was
//! outlives the device.
//!
//! Refuses to know: clocks, devices. Time comes in; the same inputs give the same commands.

mod choose;
mod events;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use super::plan::{GraphBudget, GraphPlan, GraphUse};
use super::traffic::Histogram;
use super::{GraphKey, GraphMode};
use crate::ids::Epoch;
use crate::invariants::{GraphsView, Violation, graphs_are_sound};
use crate::recovery::RecoveryClass;
use crate::units::Millis;

pub use events::{BucketState, Command, GraphEvent, RetireReason};
pub use policy::LifecyclePolicy;

/// Events that wait for [`Lifecycles::drain_events`]; the oldest make room.
pub const EVENTS_MAX: usize = 1_024;

/// The graphs of one device.
#[derive(Clone, Debug, Default)]
pub struct Lifecycles {
    policy: LifecyclePolicy,
    traffic: Histogram,
    life: Option<Life>,
    /// Captures during which the device was lost, with failures in a row: what kills a device is not tried at
    /// once in each of its lives.
    deadly: BTreeMap<GraphKey, Trouble>,
    /// Last life there was.
    last_epoch: Option<Epoch>,
    events: VecDeque<GraphEvent>,
    dropped_events: u64,
    stale: u64,
}

/// One life of the device.
#[derive(Clone, Debug)]
struct Life {
    epoch: Epoch,
    plan: GraphPlan,
    /// May be less than the plan's.
    budget: GraphBudget,
    buckets: BTreeMap<GraphKey, Bucket>,
    /// Graphs that the device still has and nobody wants.
    to_forget: VecDeque<GraphKey>,
    idle_since: Option<Millis>,
    /// When the last capture began or ended.
    last_capture: Option<Millis>,
    /// Steps seen since the traffic was last looked at.
    unseen: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    state: BucketState,
    /// Failures in a row, of captures and replays.
    times: u32,
    /// Not of the plan.
    proposed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Trouble {
    times: u32,
    again: Option<Millis>,
}

impl Bucket {
    fn new(proposed: bool) -> Self {
        Self { state: BucketState::Wanted, times: 0, proposed }
    }
}

impl Trouble {
    /// A bucket of the plan whose capture killed the device before.
    fn bucket(self) -> Bucket {
        let Self { times, again } = self;
        let state = BucketState::Failed { class: RecoveryClass::Device, times, again };
        Bucket { state, times, proposed: false }
    }
}

impl Lifecycles {
    /// Without a device.
    #[must_use]
    pub fn new(policy: LifecyclePolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// A device is there, in a new life. An epoch that is not newer than the last one is ignored.
    pub fn device_up(&mut self, epoch: Epoch, plan: GraphPlan, now: Millis) {
        if self.last_epoch.is_some_and(|last| epoch <= last) {
            self.stale += 1;
            return;
        }
        self.device_lost(now);
        self.last_epoch = Some(epoch);
        let mut buckets: BTreeMap<GraphKey, Bucket> =
            plan.wanted().iter().map(|key| (*key, Bucket::new(false))).collect();
        for (key, trouble) in &self.deadly {
            if let Some(bucket) = buckets.get_mut(key) {
                *bucket = trouble.bucket();
            }
        }
        self.tell(GraphEvent::Planned {
            epoch,
            mode: plan.mode(),
            wanted: plan.wanted().len() as u32,
            dropped: plan.dropped().len() as u32,
        });
        self.life = Some(Life {
            epoch,
            budget: plan.budget(),
            plan,
            buckets,
            to_forget: VecDeque::new(),
            idle_since: None,
            last_capture: None,
            unseen: 0,
        });
        self.check();
    }

    /// The device is gone with all its graphs.
    pub fn device_lost(&mut self, now: Millis) {
        let Some(life) = self.life.take() else { return };
        let graphs = life.ready().count() as u32;
        for (key, bucket) in &life.buckets {
            if bucket.state == BucketState::Capturing {
                let times = bucket.times + 1;
                let again = self.policy.again(now, times);
                self.deadly.insert(*key, Trouble { times, again });
                self.tell(GraphEvent::Failed { key: *key, class: RecoveryClass::Device, times, again });
            }
        }
        self.tell(GraphEvent::Voided { graphs });
    }

    /// All graphs are void, but the life goes on (the streams are new ones). A capture that is under way will
    /// be answered after this.
    pub fn voided(&mut self, epoch: Epoch) {
        let Some(life) = self.alive(epoch) else { return };
        let mut graphs = 0;
        for bucket in life.buckets.values_mut() {
            if matches!(bucket.state, BucketState::Ready { .. }) {
                bucket.state = BucketState::Wanted;
                graphs += 1;
            }
        }
        life.to_forget.clear();
        self.tell(GraphEvent::Voided { graphs });
        self.check();
    }

    /// There was a step.
    pub fn observe(&mut self, rows: u32, decode_only: bool) {
        self.traffic.observe(rows, decode_only);
        if let Some(life) = &mut self.life {
            life.unseen += 1;
        }
    }

    /// There is nothing to run.
    pub fn idle(&mut self, now: Millis) {
        if let Some(life) = &mut self.life {
            life.idle_since.get_or_insert(now);
        }
    }

    /// There are steps to run.
    pub fn busy(&mut self) {
        if let Some(life) = &mut self.life {
            life.idle_since = None;
        }
    }

    /// The device has captured a graph.
    pub fn captured(&mut self, epoch: Epoch, key: GraphKey, cost: GraphUse, micros: u64, now: Millis) {
        let Some(life) = self.alive(epoch) else { return };
        let (total, graphs) = (life.used() + cost, life.ready().count() + 1);
        let fits = life.budget.holds(total, graphs);
        let state = life.buckets.get(&key).map(|bucket| bucket.state);
        if state != Some(BucketState::Capturing) {
            // Nobody asked for it, so nobody would ever drop it.
            if !matches!(state, Some(BucketState::Ready { .. })) {
                life.to_forget.push_back(key);
            }
            self.stale += 1;
            return;
        }
        life.last_capture = Some(now);
        life.plan.learn(key, cost);
        if fits {
            life.set(key, BucketState::Ready { epoch, cost, micros, since: now });
            self.deadly.remove(&key);
            self.tell(GraphEvent::Captured { key, cost, micros });
        } else {
            let (why, again) = (RetireReason::OverBudget, None);
            life.set(key, BucketState::Retired { why, again });
            life.to_forget.push_back(key);
            self.tell(GraphEvent::Retired { key, why, again });
        }
        self.check();
    }

    /// The device could not capture a graph. A shortage means that all graphs together may take no more than
    /// they do.
    pub fn capture_failed(&mut self, epoch: Epoch, key: GraphKey, class: RecoveryClass, now: Millis) {
        let policy = self.policy.clone();
        let Some(life) = self.alive(epoch) else { return };
        let Some(bucket) = life.buckets.get_mut(&key).filter(|bucket| bucket.state == BucketState::Capturing)
        else {
            self.stale += 1;
            return;
        };
        bucket.times += 1;
        let times = bucket.times;
        // What the device cannot do it will not be able to do later.
        let hopeless = class == RecoveryClass::Unsupported;
        let again = policy.again(now, times).filter(|_| !hopeless);
        bucket.state = BucketState::Failed { class, times, again };
        life.last_capture = Some(now);
        let shrunk = (class == RecoveryClass::Memory).then(|| life.shrink());
        self.tell(GraphEvent::Failed { key, class, times, again });
        if let Some(budget) = shrunk {
            self.tell(GraphEvent::Shrunk(budget));
        }
        self.check();
    }

    /// The device has dropped a graph by itself.
    pub fn retired(&mut self, epoch: Epoch, key: GraphKey, why: RetireReason, now: Millis) {
        let policy = self.policy.clone();
        let Some(life) = self.alive(epoch) else { return };
        let Some(bucket) = life.buckets.get_mut(&key) else {
            self.stale += 1;
            return;
        };
        let BucketState::Ready { since, .. } = bucket.state else {
            self.stale += 1;
            return;
        };
        if now - since >= policy.calm {
            bucket.times = 0;
        }
        bucket.times += u32::from(why == RetireReason::Fault);
        let again = policy.again(now, bucket.times).filter(|_| why == RetireReason::Fault);
        bucket.state = BucketState::Retired { why, again };
        self.tell(GraphEvent::Retired { key, why, again });
        self.check();
    }

    /// What the device is to do now, if anything. `idle`: there is nothing to run.
    pub fn next(&mut self, now: Millis, idle: bool) -> Option<Command> {
        if idle {
            self.idle(now);
        } else {
            self.busy();
        }
        let command = self.decide(now)?;
        if let (Command::Capture(key), Some(life)) = (command, &mut self.life) {
            life.set(key, BucketState::Capturing);
            life.last_capture = Some(now);
            self.tell(GraphEvent::Capturing(key));
        }
        self.check();
        Some(command)
    }

    /// Whether the first graphs of the plan are captured, have failed or find no room: nothing keeps the
    /// device from serving. Also true without a device.
    #[must_use]
    pub fn first_set_done(&self) -> bool {
        let Some(life) = &self.life else { return true };
        life.plan.first().iter().all(|key| match life.buckets.get(key).map(|bucket| bucket.state) {
            Some(BucketState::Wanted) => !life.fits(*key),
            Some(BucketState::Capturing) => false,
            _ => true,
        })
    }

    /// The life of the device that is there.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.life.as_ref().map(|life| life.epoch)
    }

    /// The plan of the device that is there.
    #[must_use]
    pub fn plan(&self) -> Option<&GraphPlan> {
        self.life.as_ref().map(|life| &life.plan)
    }

    /// What steps there were, for the next plan.
    #[must_use]
    pub fn traffic(&self) -> &Histogram {
        &self.traffic
    }

    /// All buckets, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (GraphKey, BucketState)> + '_ {
        self.life.iter().flat_map(|life| life.buckets.iter().map(|(key, bucket)| (*key, bucket.state)))
    }

    /// What the ready graphs take.
    #[must_use]
    pub fn used(&self) -> GraphUse {
        self.life.as_ref().map(Life::used).unwrap_or_default()
    }

    /// What graphs may take at the moment.
    #[must_use]
    pub fn budget(&self) -> Option<GraphBudget> {
        self.life.as_ref().map(|life| life.budget)
    }

    /// Answers so far that came too late or that nobody had asked for.
    #[must_use]
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// All that happened since the last call.
    pub fn drain_events(&mut self) -> Vec<GraphEvent> {
        std::mem::take(&mut self.events).into()
    }

    /// Events that were not fetched in time.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.dropped_events
    }

    /// Whether the books are in order.
    ///
    /// # Errors
    /// The broken rule.
    pub fn audit(&self) -> Result<(), Violation> {
        let Some(life) = &self.life else { return Ok(()) };
        let buckets: Vec<(GraphKey, BucketState)> = self.buckets().collect();
        graphs_are_sound(&GraphsView { epoch: life.epoch, budget: life.budget, buckets: &buckets })
    }

    fn check(&self) {
        debug_assert_eq!(self.audit(), Ok(()));
    }

    fn tell(&mut self, event: GraphEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.dropped_events += 1;
        }
        self.events.push_back(event);
    }

    /// The life an answer is about, if it is the present one.
    fn alive(&mut self, epoch: Epoch) -> Option<&mut Life> {
        let alive = self.life.as_ref().is_some_and(|life| life.epoch == epoch);
        self.stale += u64::from(!alive);
        self.life.as_mut().filter(|_| alive)
    }
}

impl Life {
    fn ready(&self) -> impl Iterator<Item = (GraphKey, GraphUse)> + '_ {
        self.buckets.iter().filter_map(|(key, bucket)| match bucket.state {
            BucketState::Ready { cost, .. } => Some((*key, cost)),
            _ => None,
        })
    }

    fn used(&self) -> GraphUse {
        self.ready().map(|(_, cost)| cost).sum()
    }

    fn mode(&self) -> GraphMode {
        self.plan.mode()
    }

    fn set(&mut self, key: GraphKey, state: BucketState) {
        if let Some(bucket) = self.buckets.get_mut(&key) {
            bucket.state = state;
        }
    }

    /// No more than what there is.
    fn shrink(&mut self) -> GraphBudget {
        let used = self.used();
        self.budget.bytes = self.budget.bytes.min(used.bytes);
        self.budget.streams = self.budget.streams.min(used.streams);
        self.budget
    }
}
