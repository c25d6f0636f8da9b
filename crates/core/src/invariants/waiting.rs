//! Nobody is left out for ever: how many steps go by in which an open sequence gets nothing.
//!
//! Steps are counted, never time, so a bound holds on any machine.

use std::collections::HashMap;

use super::Violation;
use crate::ids::SequenceId;
use crate::scheduler::SchedulerEvent;

/// Follows how long sequences wait.
#[derive(Clone, Debug)]
pub struct Waiting {
    bound: u64,
    /// Steps so far.
    steps: u64,
    /// For each open sequence the step at which it last got something.
    since: HashMap<SequenceId, u64>,
    longest: u64,
}

impl Waiting {
    /// No sequence may go without a token for more than `bound` steps.
    #[must_use]
    pub fn new(bound: u64) -> Self {
        Self { bound, steps: 0, since: HashMap::new(), longest: 0 }
    }

    /// A sequence was accepted.
    pub fn accept(&mut self, sequence: SequenceId) {
        self.since.insert(sequence, self.steps);
    }

    /// A sequence ended without the scheduler saying so: it was cancelled.
    pub fn end(&mut self, sequence: SequenceId) {
        self.since.remove(&sequence);
    }

    /// The scheduler said something.
    pub fn observe(&mut self, event: &SchedulerEvent) {
        match event {
            SchedulerEvent::Token { sequence, .. } => {
                if let Some(since) = self.since.get_mut(sequence) {
                    self.longest = self.longest.max(self.steps - *since);
                    *since = self.steps;
                }
            }
            SchedulerEvent::Finished { sequence, .. } | SchedulerEvent::Failed { sequence, .. } => {
                self.end(*sequence);
            }
            SchedulerEvent::PromptLogprobs { .. }
            | SchedulerEvent::Preempted { .. }
            | SchedulerEvent::Struck { .. } => {}
        }
    }

    /// The executor finished a step, and all its events were observed.
    pub fn step(&mut self) -> Result<(), Violation> {
        self.steps += 1;
        let longest = self.since.iter().min_by_key(|(sequence, since)| (**since, **sequence));
        match longest {
            Some((sequence, since)) if self.steps - since > self.bound => {
                Err(Violation::Starved { sequence: *sequence, steps: self.steps - since })
            }
            _ => Ok(()),
        }
    }

    /// The longest time, in steps, after which a sequence got something.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tokens;

    #[test]
    fn tells_who_starves() {
        let [one, two] = [1, 2].map(SequenceId);
        let token = |sequence| SchedulerEvent::Token {
            sequence,
            token: 5,
            index: 0,
            logprobs: None,
            cached: Tokens::ZERO,
        };
        let mut waiting = Waiting::new(2);
        waiting.accept(one);
        waiting.step().unwrap();
        waiting.accept(two);
        waiting.step().unwrap();
        waiting.observe(&token(one));
        waiting.step().unwrap();
        assert_eq!(waiting.longest(), 2);
        assert_eq!(waiting.step(), Err(Violation::Starved { sequence: two, steps: 3 }));
        waiting.end(two);
        assert_eq!(waiting.step(), Err(Violation::Starved { sequence: one, steps: 3 }));
    }
}
