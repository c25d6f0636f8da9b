//! What happened in one run or in several: a simulation in which nothing happens proves nothing.

use std::collections::BTreeMap;

use updraft_core::recovery::{Action, Moment, RecoveryClass};

use crate::dice::mix;

#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) finished: u64,
    pub(crate) cancelled: u64,
    pub(crate) poisoned: u64,
    /// Innocent sequences that were given up because faults of the device hit them again and again.
    pub(crate) unlucky: u64,
    /// Ended because no device was left.
    pub(crate) stranded: u64,
    pub(crate) preemptions: u64,
    pub(crate) losses: u64,
    pub(crate) scheduler_losses: u64,
    pub(crate) late_rows: u64,
    pub(crate) drafted: u64,
    pub(crate) accepted: u64,
    pub(crate) stale_results: u64,
    pub(crate) stale_answers: u64,
    pub(crate) prefix_hits: u64,
    pub(crate) steps: u64,
    /// Steps that could have held more of a prompt, but for the time that streams would have waited.
    pub(crate) held_back: u64,
    pub(crate) replays: u64,
    pub(crate) captures: u64,
    pub(crate) failed_captures: u64,
    pub(crate) forgotten: u64,
    pub(crate) proposed: u64,
    pub(crate) mismatches: u64,
    pub(crate) hangs: u64,
    pub(crate) spares_used: u64,
    pub(crate) full_channels: u64,
    pub(crate) faults: BTreeMap<(&'static str, &'static str), u64>,
    pub(crate) actions: BTreeMap<&'static str, u64>,
    /// Longest time, in steps, that an open sequence got nothing.
    pub(crate) longest_wait: u64,
    /// A hash of everything that happened, in order.
    pub(crate) trace: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Self) {
        self.finished += other.finished;
        self.cancelled += other.cancelled;
        self.poisoned += other.poisoned;
        self.unlucky += other.unlucky;
        self.stranded += other.stranded;
        self.preemptions += other.preemptions;
        self.losses += other.losses;
        self.scheduler_losses += other.scheduler_losses;
        self.late_rows += other.late_rows;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
        self.stale_results += other.stale_results;
        self.stale_answers += other.stale_answers;
        self.prefix_hits += other.prefix_hits;
        self.steps += other.steps;
        self.held_back += other.held_back;
        self.replays += other.replays;
        self.captures += other.captures;
        self.failed_captures += other.failed_captures;
        self.forgotten += other.forgotten;
        self.proposed += other.proposed;
        self.mismatches += other.mismatches;
        self.hangs += other.hangs;
        self.spares_used += other.spares_used;
        self.full_channels += other.full_channels;
        other.faults.into_iter().for_each(|(what, count)| *self.faults.entry(what).or_default() += count);
        other.actions.into_iter().for_each(|(what, count)| *self.actions.entry(what).or_default() += count);
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.trace ^= other.trace;
    }

    /// Something happened that must happen again, at the same place, with the same seed.
    pub(crate) fn note(&mut self, what: u64) {
        self.trace = mix(self.trace, what);
    }

    pub(crate) fn fault(&mut self, class: RecoveryClass, moment: Moment, action: Action) {
        *self.faults.entry((class.as_str(), moment.as_str())).or_default() += 1;
        *self.actions.entry(action.as_str()).or_default() += 1;
        self.note(mix(class as u64, mix(moment as u64, action as u64)));
    }
}
