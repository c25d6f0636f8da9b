//! From what was granted to one plan.

use super::{Flight, FlightRow, Scheduler, SchedulerEvent, Stage, Work};
use crate::fault::STRIKES_ISOLATE;
use crate::ids::SequenceId;
use crate::invariants;
use crate::kv::{Grant, Grants};
use crate::step::{Phase, ScheduledSequence, SequenceInit, StepPlan};
use crate::units::Millis;

impl Scheduler {
    /// Turns the answer to the reservation that is out into a plan; none when nothing was granted, or when
    /// the answer is to another reservation.
    pub fn commit(&mut self, grants: Grants, now: Millis) -> Option<StepPlan> {
        let expected = |step| grants.epoch == self.epoch && grants.step == step;
        let proposal = self.proposal.take_if(|proposal| expected(proposal.step))?;
        self.usage = grants.usage;
        for victim in &grants.preempted {
            self.preempt(*victim);
        }
        let mut plan = StepPlan {
            epoch: self.epoch,
            step: proposal.step,
            released: Vec::new(),
            admitted: Vec::new(),
            scheduled: Vec::with_capacity(grants.granted.len()),
        };
        let mut rows = Vec::with_capacity(grants.granted.len());
        for grant in grants.granted {
            self.schedule(grant, now, &mut plan, &mut rows);
        }
        if !rows.is_empty() {
            plan.released = std::mem::take(&mut self.on_executor);
            let rows_of = |row: &ScheduledSequence| (row.start.0, row.count.0);
            let work = plan.scheduled.iter().map(rows_of);
            let work = work.fold(Work::default(), |work, (start, count)| work.with(start, count));
            let prompts = plan.scheduled.iter().filter(|row| row.phase == Phase::Prefill);
            let prompt_tokens = prompts.map(|row| row.count.0).sum();
            self.in_flight.push_back(Flight { step: plan.step, rows, work, prompt_tokens });
            self.next_step = self.next_step.next();
        }
        for ended in proposal.ended {
            self.bury(ended);
        }
        // What was given back or taken away can make the next attempt succeed. If there was nothing, only
        // news can, which may have come while the reservation was out.
        self.changed |= !plan.scheduled.is_empty() || proposal.releases || !grants.preempted.is_empty();
        if plan.scheduled.is_empty() {
            self.trust(proposal.alone);
            return None;
        }
        debug_assert_eq!(
            invariants::plan_is_sound(&plan, self.config.step_budget, self.config.max_sequences),
            Ok(())
        );
        debug_assert_eq!(
            invariants::starts_in_order(
                &proposal.starts,
                &plan.admitted.iter().map(|init| init.sequence).collect::<Vec<_>>()
            ),
            Ok(())
        );
        Some(plan)
    }

    /// A suspect that cannot get a block while the others wait for it would stop everything: it is let back
    /// among them, one fault away from being alone again.
    fn trust(&mut self, suspect: Option<SequenceId>) {
        let Some(record) = suspect.and_then(|id| self.sequences.get_mut(&id)) else { return };
        if !self.changed && self.in_flight.is_empty() && record.is_suspect() && !record.ended {
            record.strikes = STRIKES_ISOLATE - 1;
            self.suspects -= 1;
            self.changed = true;
        }
    }

    fn schedule(&mut self, grant: Grant, now: Millis, plan: &mut StepPlan, rows: &mut Vec<FlightRow>) {
        let sequence = grant.sequence;
        let Some(record) = self.sequences.get_mut(&sequence) else {
            // Not one of ours: let the manager have its blocks back.
            self.holding_blocks.push(sequence);
            return;
        };
        if record.stage == Stage::Waiting {
            plan.admitted.push(SequenceInit {
                sequence,
                prompt: record.prompt.clone(),
                output: record.output.clone(),
                sampling: record.sampling.clone(),
            });
            record.stage = Stage::Running;
            record.on_executor = true;
            record.prefill = record.known();
            record.reported = record.prefill;
            record.stats.scheduled_at.get_or_insert(now);
            if record.output.is_empty() {
                record.stats.cached = grant.start;
            }
            if !record.ended {
                self.waiting.remove(&record.place);
                self.running.insert(record.place);
                self.waiting_prompt_tokens -= record.prompt.len() as u64;
            }
        }
        // Drafts are what is granted beyond all that is known; there may be room for some of them only.
        let drafts = record.take_drafts((grant.start + grant.count).0);
        // They are computed when they have turned out right.
        let end = (grant.start + grant.count).0 - drafts.len() as u32;
        let samples = end >= record.target();
        record.computed = end;
        if samples && !record.ended {
            record.pending += 1;
        }
        rows.push(FlightRow { sequence, samples, drafts: drafts.len() as u32 });
        let phase = match grant.start.0 >= record.prefill {
            true if drafts.is_empty() => Phase::Decode,
            true => Phase::Verify,
            false => Phase::Prefill,
        };
        plan.scheduled.push(ScheduledSequence {
            sequence,
            start: grant.start,
            count: grant.count,
            new_blocks: grant.new_blocks,
            phase,
            samples,
            drafts,
        });
    }

    fn preempt(&mut self, id: SequenceId) {
        let Some(record) = self.sequences.get_mut(&id) else { return };
        if record.on_executor {
            self.on_executor.push(id);
        }
        if !record.ended {
            record.stats.preemptions += 1;
            self.preemptions += 1;
            self.events.push(SchedulerEvent::Preempted { sequence: id });
        }
        self.suspend(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, StepId};
    use crate::scheduler::tests::{config, new};
    use crate::units::{Blocks, Tokens};

    #[test]
    fn answers_to_other_reservations_are_ignored() {
        let mut scheduler = Scheduler::new(config(Blocks(8)), Epoch(4));
        scheduler.admit(new(1, &[5, 6, 7], 4)).unwrap();
        let reservation = scheduler.propose().unwrap();
        let grant = Grant {
            sequence: SequenceId(1),
            start: Tokens::ZERO,
            count: Tokens(3),
            new_blocks: vec![crate::ids::BlockId(0)],
        };
        let good =
            Grants { epoch: Epoch(4), step: reservation.step, granted: vec![grant], ..Grants::default() };
        let older = Grants { epoch: Epoch(3), ..good.clone() };
        let other = Grants { step: StepId(9), ..good.clone() };
        assert_eq!(scheduler.commit(older, Millis(0)), None);
        assert_eq!(scheduler.commit(other, Millis(0)), None);
        assert!(scheduler.commit(good.clone(), Millis(0)).is_some());
        assert_eq!(scheduler.commit(good, Millis(0)), None);
    }
}
