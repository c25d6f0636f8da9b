//! From an executor's result to events: tokens, ends, and what can no longer go on.

use super::events::{FailureCause, FinishReason, SchedulerEvent};
use super::{FlightRow, Scheduler, Stage};
use crate::ids::{SequenceId, TokenId};
use crate::step::{SequenceOutput, StepResult, TokenLogprobs};
use crate::units::{Millis, Tokens};

/// How fast sequences end while others wait: a moving average of the time between two ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    last_end: Option<Millis>,
    interval: Option<Millis>,
}

impl Scheduler {
    /// Takes in the result of the oldest step in flight. Any other result (of an older epoch, or repeated) is
    /// ignored; so are outputs of sequences that ended meanwhile.
    pub fn complete(&mut self, result: &StepResult, now: Millis) -> Vec<SchedulerEvent> {
        let due = self.in_flight.front().is_some_and(|flight| flight.step == result.step);
        if result.epoch != self.epoch || !due {
            return self.drain_events();
        }
        let Some(flight) = self.in_flight.pop_front() else { return self.drain_events() };
        self.changed = true;
        self.costs.observe(flight.work, flight.prompt_tokens, result.device_micros);
        let mut outputs = result.outputs.iter().peekable();
        for row in flight.rows {
            let output = outputs.next_if(|output| output.sequence == row.sequence);
            self.deliver(row, output, now);
        }
        self.drain_events()
    }

    fn deliver(&mut self, row: FlightRow, output: Option<&SequenceOutput>, now: Millis) {
        let sequence = row.sequence;
        let Some(record) = self.sequences.get_mut(&sequence).filter(|record| !record.ended) else { return };
        if let Some(output) = output
            && !output.prompt_logprobs.is_empty()
        {
            // A prompt that is computed again yields positions that were delivered before.
            let due = Tokens(record.next_prompt_logprob);
            let fresh = output.prompt_logprobs.iter().filter(|(position, _)| *position >= due);
            let entries: Vec<_> = fresh.cloned().collect();
            if let Some((last, _)) = entries.last() {
                record.next_prompt_logprob = last.0 + 1;
                self.events.push(SchedulerEvent::PromptLogprobs { sequence, entries });
            }
        }
        if !row.samples {
            return;
        }
        record.pending -= 1;
        let Some((output, token)) = output.and_then(|output| Some((output, output.token?))) else {
            let strikes = record.strikes;
            self.fail(sequence, strikes, FailureCause::NoToken);
            return;
        };
        let further = output.further.get(..row.drafts as usize).unwrap_or(&output.further);
        if record.stage == Stage::Running {
            record.computed += further.len() as u32;
        }
        let more = further.iter().map(|sampled| (sampled.token, &sampled.logprobs));
        for (token, logprobs) in std::iter::once((token, &output.logprobs)).chain(more) {
            if self.take_in(sequence, token, logprobs.clone(), now) {
                // What was sampled behind the end is nobody's.
                break;
            }
        }
    }

    /// One token of a sequence that is there; true when it is the last.
    fn take_in(
        &mut self,
        sequence: SequenceId,
        token: TokenId,
        logprobs: Option<Box<TokenLogprobs>>,
        now: Millis,
    ) -> bool {
        let Some(record) = self.sequences.get_mut(&sequence) else { return true };
        let was_suspect = record.is_suspect();
        let index = record.output.len() as u32;
        record.push(token, now);
        let (cached, end) = (record.stats.cached, record.end_reason());
        self.suspects -= u32::from(was_suspect && !record.is_suspect());
        self.events.push(SchedulerEvent::Token { sequence, token, index, logprobs, cached });
        if let Some(reason) = end {
            self.finish(sequence, reason, Some(now));
        }
        end.is_some()
    }

    /// The output is complete.
    pub(super) fn finish(&mut self, sequence: SequenceId, reason: FinishReason, now: Option<Millis>) {
        let Some(record) = self.sequences.get_mut(&sequence) else { return };
        record.stats.finished_at = now;
        let stats = record.stats;
        self.events.push(SchedulerEvent::Finished { sequence, reason, stats });
        self.end(sequence);
        if let Some(now) = now {
            self.pace.note_end(now, !self.waiting.is_empty());
        }
    }

    /// The sequence is given up.
    pub(super) fn fail(&mut self, sequence: SequenceId, strikes: u8, cause: FailureCause) {
        self.events.push(SchedulerEvent::Failed { sequence, strikes, cause });
        self.end(sequence);
    }
}

impl Pace {
    /// Weight of the past in the average.
    const MEMORY: u64 = 7;

    pub(super) fn interval(self) -> Option<Millis> {
        self.interval
    }

    /// Time in which nobody waited says nothing about the time a place in the queue takes.
    fn note_end(&mut self, now: Millis, others_wait: bool) {
        if let Some(last) = self.last_end {
            let gap = now - last;
            self.interval = Some(match self.interval {
                Some(average) => Millis((average.0 * Self::MEMORY + gap.0) / (Self::MEMORY + 1)),
                None => gap,
            });
        }
        self.last_end = others_wait.then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_leaves_idle_time_out() {
        let mut pace = Pace::default();
        pace.note_end(Millis(0), true);
        assert_eq!(pace.interval(), None);
        pace.note_end(Millis(80), true);
        assert_eq!(pace.interval(), Some(Millis(80)));
        pace.note_end(Millis(100), false);
        assert_eq!(pace.interval(), Some(Millis(72)));
        pace.note_end(Millis(100_000), true);
        assert_eq!(pace.interval(), Some(Millis(72)));
    }
}
