//! What to do next: which bucket is captured, which one makes room, which ones the traffic asks for.

use super::super::buckets::LARGEST_BUCKET;
use super::super::plan::{GraphUse, kinds_of, most_useful};
use super::super::{GraphKey, GraphKind};
use super::events::{BucketState, Command, GraphEvent, RetireReason};
use super::{Bucket, Life, Lifecycles};
use crate::units::Millis;

/// No observed step needs it.
const NO_STEPS: u64 = 0;

impl Lifecycles {
    pub(super) fn decide(&mut self, now: Millis) -> Option<Command> {
        if let Some(key) = self.life.as_mut()?.to_forget.pop_front() {
            return Some(Command::Forget(key));
        }
        self.wake(now);
        self.propose();
        let life = self.life.as_ref()?;
        if life.buckets.values().any(|bucket| bucket.state == BucketState::Capturing) {
            return None;
        }
        if let Some(key) =
            life.plan.first().iter().copied().find(|key| life.is_wanted(*key) && life.fits(*key))
        {
            return Some(Command::Capture(key));
        }
        if !self.may_capture(life, now) {
            return None;
        }
        let (best, victim) = self.best(life)?;
        let Some(victim) = victim else { return Some(Command::Capture(best)) };
        self.retire_unused(victim);
        Some(Command::Forget(victim))
    }

    /// Captures beyond the first set begin in idle moments, or when the last one is long ago.
    fn may_capture(&self, life: &Life, now: Millis) -> bool {
        let idle = life.idle_since.is_some_and(|since| now - since >= self.policy.idle_settle);
        idle || life.last_capture.is_none_or(|last| now - last >= self.policy.busy_interval)
    }

    /// What is due again is wanted again.
    fn wake(&mut self, now: Millis) {
        let Some(life) = &self.life else { return };
        let due = |again: Option<Millis>| again.is_some_and(|again| again <= now);
        let adapts = life.plan.adapts();
        let awake: Vec<GraphKey> = life
            .buckets
            .iter()
            .filter(|(key, bucket)| match bucket.state {
                BucketState::Retired { why: RetireReason::Unused, .. } => {
                    adapts && self.steps_for(life, **key) > NO_STEPS
                }
                BucketState::Failed { again, .. } | BucketState::Retired { again, .. } => due(again),
                _ => false,
            })
            .map(|(key, _)| *key)
            .collect();
        for key in awake {
            if let Some(life) = &mut self.life {
                life.set(key, BucketState::Wanted);
            }
            self.tell(GraphEvent::Wanted(key));
        }
    }

    /// The most useful wanted bucket that fits, or that would fit in place of an unused one.
    fn best(&self, life: &Life) -> Option<(GraphKey, Option<GraphKey>)> {
        let have: Vec<GraphKey> = life.ready().map(|(key, _)| key).collect();
        let mut wanted: Vec<GraphKey> =
            life.buckets.keys().copied().filter(|key| life.is_wanted(*key)).collect();
        while let Some(best) = most_useful(life.mode(), &have, &wanted, &self.traffic) {
            if life.fits(best) {
                return Some((best, None));
            }
            if let Some(victim) = self.victim(life, best) {
                return Some((best, Some(victim)));
            }
            wanted.retain(|key| *key != best);
        }
        None
    }

    /// A ready graph that no step uses and in whose place `wanted`, which steps would use, fits. The first
    /// set stays, and so does the largest of each kind.
    fn victim(&self, life: &Life, wanted: GraphKey) -> Option<GraphKey> {
        let known = self.traffic.total() >= self.policy.unused_after;
        if !life.plan.adapts() || !known || self.steps_for(life, wanted) == NO_STEPS {
            return None;
        }
        let largest =
            |kind: GraphKind| life.ready().filter(|(key, _)| key.kind == kind).map(|(key, _)| key).max();
        life.ready().map(|(key, _)| key).find(|key| {
            !life.plan.first().contains(key)
                && largest(key.kind) != Some(*key)
                && self.steps_for(life, *key) == NO_STEPS
                && life.fits_in_place_of(wanted, Some(*key))
        })
    }

    fn retire_unused(&mut self, key: GraphKey) {
        let (why, again) = (RetireReason::Unused, None);
        if let Some(life) = &mut self.life {
            life.set(key, BucketState::Retired { why, again });
        }
        self.tell(GraphEvent::Retired { key, why, again });
    }

    /// Observed steps for which a bucket is, or would be, the smallest ready one.
    fn steps_for(&self, life: &Life, key: GraphKey) -> u64 {
        let below = life.ready().filter(|(other, _)| other.kind == key.kind && other.rows < key.rows);
        let below = below.map(|(other, _)| other.rows).max().unwrap_or(0);
        self.traffic.steps_between(life.mode(), key.kind, below, key.rows)
    }

    /// Once in a while, adds buckets for frequent numbers of rows that pad a lot.
    fn propose(&mut self) {
        let policy = &self.policy;
        let Some(life) = &mut self.life else { return };
        if life.unseen < policy.propose_every || !life.plan.adapts() {
            return;
        }
        life.unseen = 0;
        let total = self.traffic.total();
        let mut found = Vec::new();
        for kind in kinds_of(life.mode()) {
            if !life.plan.captures(kind) {
                continue;
            }
            for rows in 1..=life.plan.limits().bound(kind).min(LARGEST_BUCKET) {
                let steps = self.traffic.steps(life.mode(), kind, rows);
                let frequent = steps.saturating_mul(100) >= total.saturating_mul(policy.frequent_percent);
                if frequent && steps > NO_STEPS && life.pads(kind, rows) > policy.padded_percent {
                    found.push(GraphKey { kind, rows });
                }
            }
        }
        for key in found {
            if self.add_proposal(key) {
                self.tell(GraphEvent::Proposed(key));
            }
        }
    }

    fn add_proposal(&mut self, key: GraphKey) -> bool {
        let most = self.policy.proposals_max;
        let Some(life) = self.life.as_mut().filter(|_| !self.deadly.contains_key(&key)) else { return false };
        let is_idle = |bucket: &Bucket| {
            bucket.proposed
                && matches!(bucket.state, BucketState::Retired { .. } | BucketState::Failed { .. })
        };
        if life.buckets.values().filter(|bucket| bucket.proposed).count() >= most {
            let Some(old) = life.buckets.iter().find(|(_, bucket)| is_idle(bucket)).map(|(key, _)| *key)
            else {
                return false;
            };
            life.buckets.remove(&old);
        }
        let known = life.buckets.contains_key(&key);
        life.buckets.entry(key).or_insert(Bucket::new(true));
        !known
    }
}

impl Life {
    fn is_wanted(&self, key: GraphKey) -> bool {
        self.buckets.get(&key).is_some_and(|bucket| bucket.state == BucketState::Wanted)
    }

    /// Whether a graph fits beside those there are.
    pub(super) fn fits(&self, key: GraphKey) -> bool {
        self.fits_in_place_of(key, None)
    }

    fn fits_in_place_of(&self, key: GraphKey, victim: Option<GraphKey>) -> bool {
        let staying = || self.ready().filter(|(other, _)| Some(*other) != victim);
        let total: GraphUse = staying().map(|(_, cost)| cost).sum();
        self.budget.holds(total + self.plan.estimate(key), staying().count() + 1)
    }

    /// Padded rows of a step in percent of its bucket, once all that is wanted is there; all of it when it
    /// has none.
    fn pads(&self, kind: GraphKind, rows: u32) -> u32 {
        let usable = |bucket: &Bucket| {
            matches!(bucket.state, BucketState::Wanted | BucketState::Capturing | BucketState::Ready { .. })
        };
        let taking = self
            .buckets
            .iter()
            .filter(|(key, bucket)| key.kind == kind && key.rows >= rows && usable(bucket));
        let smallest = taking.map(|(key, _)| key.rows).min();
        smallest.map_or(100, |bucket| (bucket - rows) * 100 / bucket.max(1))
    }
}
