//! The device thread: runs plans and captures between them, and does about faults what the ledger says.
//!
//! What it tells the keeper of the graphs goes into [`Station::answers`], in order, and may be delivered at
//! any time.

use std::collections::VecDeque;

use updraft_core::graphs::{Command, Dispatcher, EagerReason, GraphKey, GraphUse, Launched, RetireReason};
use updraft_core::invariants::launch_is_sound;
use updraft_core::recovery::{Action, Ledger, Moment, RecoveryClass};
use updraft_core::step::{StepKind, StepPlan, StepResult};
use updraft_core::{Bytes, Epoch, Millis, SequenceId};

use crate::dice::Dice;
use crate::totals::Totals;
use crate::toy::{Poisoned, Toy};

/// News for the keeper of the graphs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Captured { epoch: Epoch, key: GraphKey, cost: GraphUse },
    Failed { epoch: Epoch, key: GraphKey, class: RecoveryClass },
    Retired { epoch: Epoch, key: GraphKey, why: RetireReason },
    Voided { epoch: Epoch },
}

/// What becomes of a step.
pub(crate) enum Ran {
    Done {
        result: StepResult,
        rows: u32,
        decode_only: bool,
    },
    /// The life ended.
    Ended(End),
}

/// Why a life ended.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) action: Action,
    /// Whether the sequences of the step are blamed.
    pub(crate) blames: bool,
    /// Whether one of them deserves it.
    pub(crate) deserved: bool,
}

/// A trouble of the device, so many times in a row.
#[derive(Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) class: RecoveryClass,
    pub(crate) times: u32,
}

pub(crate) struct Station {
    pub(crate) toy: Toy,
    pub(crate) ledger: Ledger,
    pub(crate) answers: VecDeque<Answer>,
    pub(crate) commands: VecDeque<Command>,
    dispatcher: Dispatcher,
    trouble: Option<Trouble>,
}

impl Station {
    pub(crate) fn new(toy: Toy, ledger: Ledger, dispatcher: Dispatcher) -> Self {
        Self { toy, ledger, answers: VecDeque::new(), commands: VecDeque::new(), dispatcher, trouble: None }
    }

    pub(crate) fn arm(&mut self, trouble: Trouble) {
        self.trouble = Some(trouble);
    }

    /// Runs one plan to its end, or to the end of this life.
    pub(crate) fn run(
        &mut self,
        plan: &StepPlan,
        now: Millis,
        dice: &mut Dice,
        totals: &mut Totals,
        poison: impl Fn(SequenceId) -> Option<u32>,
    ) -> Ran {
        self.toy.prepare(plan);
        let rows: u32 = plan.scheduled.iter().map(|row| row.count.0).sum();
        let decode_only = plan.kind() == StepKind::Decode;
        let mut launched = match self.dispatcher.choose(rows, plan.kind()) {
            Ok(key) => Launched::Replayed { key, padded: key.rows - rows },
            Err(reason) => Launched::Eager(reason),
        };
        if let Launched::Replayed { key, .. } = launched
            && dice.percent(1)
        {
            // The comparison with the eager step goes wrong.
            totals.mismatches += 1;
            self.drop_graph(key, RetireReason::Mismatch);
            launched = Launched::Eager(EagerReason::Canary);
        }
        loop {
            launch_is_sound(launched, rows, decode_only, self.toy.graphs().iter().copied()).unwrap();
            let moment = match launched {
                Launched::Replayed { .. } => Moment::Replay,
                Launched::Eager(_) if plan.kind() == StepKind::Mixed => Moment::Prefill,
                Launched::Eager(_) => Moment::Decode,
            };
            let trouble = self.next_trouble();
            let computed = self.toy.compute(plan, launched, &poison);
            let (class, deserved) = match (trouble, computed) {
                (None, Ok(seen)) => {
                    self.ledger.step_succeeded(now);
                    totals.replays += u64::from(matches!(launched, Launched::Replayed { .. }));
                    let result = self.toy.finish(plan, &seen, launched);
                    return Ran::Done { result, rows, decode_only };
                }
                (Some(class), _) => (class, false),
                (None, Err(Poisoned)) => (RecoveryClass::Stream, true),
            };
            let action = self.ledger.decide_class(now, class, moment);
            totals.fault(class, moment, action);
            if action != Action::WaitMore {
                self.toy.spoil(plan, dice.below(1_000));
            }
            match (action, launched) {
                (Action::RetryInPlace | Action::WaitMore, _) => {}
                (Action::DropGraph, Launched::Replayed { key, .. }) => {
                    self.drop_graph(key, RetireReason::Fault);
                    launched = Launched::Eager(EagerReason::Fault);
                }
                (Action::DropGraph, _) => panic!("no graph to drop at {moment:?}"),
                (Action::RebuildStream, _) => {
                    self.rebuild_streams();
                    launched = Launched::Eager(EagerReason::Fault);
                }
                _ => return Ran::Ended(End { action, blames: class.blames_sequences(), deserved }),
            }
        }
    }

    /// Obeys the oldest command; gives the end of this life, if it comes to that.
    pub(crate) fn obey(&mut self, now: Millis, dice: &mut Dice, totals: &mut Totals) -> Option<End> {
        let epoch = self.toy.epoch;
        let key = match self.commands.pop_front()? {
            Command::Forget(key) => {
                totals.forgotten += 1;
                self.toy.drop_graph(key);
                self.dispatcher.forget(key);
                return None;
            }
            Command::Capture(key) => key,
        };
        let Some(class) = self.next_trouble() else {
            totals.captures += 1;
            self.toy.capture(key);
            self.dispatcher.ready(key);
            // Sometimes more than anybody thought.
            let bytes = Bytes(u64::from(key.rows) + dice.below(10).saturating_sub(6));
            self.answers.push_back(Answer::Captured { epoch, key, cost: GraphUse { bytes, streams: 1 } });
            return None;
        };
        totals.failed_captures += 1;
        let action = self.ledger.decide_class(now, class, Moment::Capture);
        totals.fault(class, Moment::Capture, action);
        if !action.is_in_place() {
            return Some(End { action, blames: false, deserved: false });
        }
        if action == Action::RebuildStream {
            self.rebuild_streams();
        }
        self.dispatcher.failed(key);
        self.answers.push_back(Answer::Failed { epoch, key, class });
        None
    }

    fn drop_graph(&mut self, key: GraphKey, why: RetireReason) {
        self.toy.drop_graph(key);
        self.dispatcher.failed(key);
        self.answers.push_back(Answer::Retired { epoch: self.toy.epoch, key, why });
    }

    fn rebuild_streams(&mut self) {
        self.toy.rebuild_streams();
        self.dispatcher.void();
        self.answers.push_back(Answer::Voided { epoch: self.toy.epoch });
    }

    fn next_trouble(&mut self) -> Option<RecoveryClass> {
        let trouble = self.trouble.as_mut()?;
        let class = trouble.class;
        trouble.times -= 1;
        if trouble.times == 0 {
            self.trouble = None;
        }
        Some(class)
    }
}
