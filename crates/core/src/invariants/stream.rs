//! What a client may rely on: every accepted sequence ends exactly once, its tokens in order; and what an
//! executor may rely on: epochs rise, steps count up.

use std::collections::HashMap;
use std::sync::Arc;

use super::Violation;
use crate::ids::{Epoch, SequenceId, StepId, TokenId};
use crate::scheduler::SchedulerEvent;

/// Follows the sequences from acceptance to their end.
#[derive(Clone, Debug, Default)]
pub struct StreamLedger {
    open: HashMap<SequenceId, Open>,
}

/// An open sequence.
#[derive(Clone, Debug, Default)]
struct Open {
    /// Output tokens so far.
    due: u32,
    /// All output tokens it produces alone, when known.
    expected: Option<Arc<[TokenId]>>,
}

/// Follows the plans of one executor group.
#[derive(Clone, Debug, Default)]
pub struct StepOrder {
    epoch: Epoch,
    step: Option<StepId>,
}

impl StreamLedger {
    /// A sequence was accepted.
    pub fn accept(&mut self, sequence: SequenceId) -> Result<(), Violation> {
        match self.open.insert(sequence, Open::default()) {
            None => Ok(()),
            Some(_) => Err(Violation::AcceptedTwice { sequence }),
        }
    }

    /// A sequence was accepted that produces these tokens when nothing disturbs it.
    pub fn accept_expecting(
        &mut self,
        sequence: SequenceId,
        expected: Arc<[TokenId]>,
    ) -> Result<(), Violation> {
        self.accept(sequence)?;
        self.open.insert(sequence, Open { due: 0, expected: Some(expected) });
        Ok(())
    }

    /// A sequence was cancelled: that is its end.
    pub fn cancel(&mut self, sequence: SequenceId) -> Result<(), Violation> {
        self.close(sequence)
    }

    /// The scheduler said something.
    pub fn observe(&mut self, event: &SchedulerEvent) -> Result<(), Violation> {
        match event {
            SchedulerEvent::Token { sequence, index, token, .. } => {
                let (sequence, index, got) = (*sequence, *index, *token);
                let open = self.open.get_mut(&sequence).ok_or(Violation::NotOpen { sequence })?;
                if open.due != index {
                    return Err(Violation::TokenOutOfOrder { sequence, expected: open.due, got: index });
                }
                open.due += 1;
                let Some(tokens) = &open.expected else { return Ok(()) };
                let expected = tokens.get(index as usize).copied();
                if expected == Some(got) {
                    Ok(())
                } else {
                    Err(Violation::WrongToken { sequence, index, got, expected })
                }
            }
            SchedulerEvent::Finished { sequence, .. } | SchedulerEvent::Failed { sequence, .. } => {
                self.close(*sequence)
            }
            other if self.open.contains_key(&other.sequence()) => Ok(()),
            other => Err(Violation::NotOpen { sequence: other.sequence() }),
        }
    }

    /// Nothing is open any more.
    pub fn all_ended(&self) -> Result<(), Violation> {
        match self.open.keys().min() {
            None => Ok(()),
            Some(sequence) => Err(Violation::NeverEnded { sequence: *sequence }),
        }
    }

    fn close(&mut self, sequence: SequenceId) -> Result<(), Violation> {
        self.open.remove(&sequence).map(|_| ()).ok_or(Violation::NotOpen { sequence })
    }
}

impl StepOrder {
    /// A plan reached the executor.
    pub fn observe(&mut self, epoch: Epoch, step: StepId) -> Result<(), Violation> {
        let due = if epoch == self.epoch { self.step.map_or(StepId(0), StepId::next) } else { StepId(0) };
        if epoch < self.epoch || step != due {
            return Err(Violation::StepOutOfOrder {
                epoch,
                step,
                last_epoch: self.epoch,
                last_step: self.step,
            });
        }
        self.epoch = epoch;
        self.step = Some(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tokens;

    fn token(sequence: u64, index: u32) -> SchedulerEvent {
        SchedulerEvent::Token {
            sequence: SequenceId(sequence),
            token: 5,
            index,
            logprobs: None,
            cached: Tokens::ZERO,
        }
    }

    #[test]
    fn a_ledger_sees_lost_repeated_and_late_tokens() {
        let mut ledger = StreamLedger::default();
        ledger.accept(SequenceId(1)).unwrap();
        assert!(ledger.accept(SequenceId(1)).is_err());
        ledger.observe(&token(1, 0)).unwrap();
        assert!(ledger.observe(&token(1, 0)).is_err());
        assert!(ledger.observe(&token(1, 2)).is_err());
        assert!(ledger.all_ended().is_err());
        ledger.cancel(SequenceId(1)).unwrap();
        assert!(ledger.cancel(SequenceId(1)).is_err());
        assert!(ledger.observe(&token(1, 1)).is_err());
        assert_eq!(ledger.all_ended(), Ok(()));
    }

    #[test]
    fn a_ledger_sees_wrong_tokens() {
        let mut ledger = StreamLedger::default();
        ledger.accept_expecting(SequenceId(1), [5, 6].into()).unwrap();
        ledger.observe(&token(1, 0)).unwrap();
        let wrong = Violation::WrongToken { sequence: SequenceId(1), index: 1, got: 5, expected: Some(6) };
        assert_eq!(ledger.observe(&token(1, 1)), Err(wrong));
        assert!(matches!(ledger.observe(&token(1, 2)), Err(Violation::WrongToken { expected: None, .. })));
    }

    #[test]
    fn steps_count_up_and_epochs_only_rise() {
        let mut order = StepOrder::default();
        order.observe(Epoch(3), StepId(0)).unwrap();
        order.observe(Epoch(3), StepId(1)).unwrap();
        assert!(order.observe(Epoch(3), StepId(3)).is_err());
        order.observe(Epoch(4), StepId(0)).unwrap();
        assert!(order.observe(Epoch(3), StepId(2)).is_err());
    }
}
