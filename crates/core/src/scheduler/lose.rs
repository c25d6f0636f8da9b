//! What a lost executor or block table means: everyone waits again with the tokens produced so far, and
//! whoever is present at too many losses in a row is given up alone.

use super::events::{Blame, FailureCause, SchedulerEvent};
use super::{Flight, Scheduler};
use crate::fault::{STRIKES_MAX, TOKENS_TO_CLEAR};
use crate::ids::{Epoch, SequenceId, StepId};
use crate::kv::KvUsage;

impl Scheduler {
    /// Moves on to a new epoch. Steps in flight and the reservation that is out are void, no block is held
    /// any more. An epoch that is not newer is ignored.
    ///
    /// Results that arrived before the loss must be passed to [`Scheduler::complete`] first, or the blame
    /// falls on the wrong step.
    pub fn lose(&mut self, new_epoch: Epoch, blame: Blame) -> Vec<SchedulerEvent> {
        if new_epoch <= self.epoch {
            return self.drain_events();
        }
        let struck = self.struck(blame);
        self.epoch = new_epoch;
        self.next_step = StepId(0);
        self.in_flight.clear();
        let ended = self.proposal.take().map(|proposal| proposal.ended).unwrap_or_default();
        for sequence in ended {
            self.sequences.remove(&sequence);
        }
        let running: Vec<SequenceId> = self.running().collect();
        for sequence in running {
            self.suspend(sequence);
        }
        for record in self.sequences.values_mut() {
            record.pending = 0;
        }
        for sequence in struck {
            self.strike(sequence);
        }
        // Whoever had blocks of the old epoch has none; nobody needs to be told.
        self.holding_blocks.clear();
        self.on_executor.clear();
        self.changed = true;
        self.usage = KvUsage { used: 0, ..self.usage };
        self.drain_events()
    }

    /// Sequences the loss is held against.
    fn struck(&self, blame: Blame) -> Vec<SequenceId> {
        let flight: Option<&Flight> = match blame {
            Blame::Nobody => None,
            Blame::OldestStep => self.in_flight.front(),
            Blame::Step(step) => self.in_flight.iter().find(|flight| flight.step == step),
        };
        flight.map(|flight| flight.rows.iter().map(|row| row.sequence).collect()).unwrap_or_default()
    }

    fn strike(&mut self, sequence: SequenceId) {
        let Some(record) = self.sequences.get_mut(&sequence) else { return };
        let was_suspect = record.is_suspect();
        record.strikes = record.strikes.saturating_add(1);
        record.probation = TOKENS_TO_CLEAR;
        let strikes = record.strikes;
        self.suspects += u32::from(record.is_suspect() && !was_suspect);
        if strikes >= STRIKES_MAX {
            self.fail(sequence, strikes, FailureCause::Faults);
        } else {
            self.events.push(SchedulerEvent::Struck { sequence, strikes });
        }
    }
}
