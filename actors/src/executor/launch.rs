//! Running one step on a device: from a graph or operation by operation, again if it must be, until its
//! results are there or this life of the device is over.
//!
//! A step may be run as often as one likes: it writes the same values to the same slots. So most faults are
//! mended right here, and the scheduler never hears of them. What is done about a fault is the ledger's
//! decision; this file does it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use updraft_core::graphs::{Dispatcher, EagerReason, GraphKey, Launched, RetireReason};
use updraft_core::recovery::{Action, DeviceFault, Ledger, Moment};
use updraft_core::step::{StepInputs, StepKind};
use updraft_devices::{Device, DeviceError};

use super::canary::Canary;
use super::graphs::Inventory;
use super::report::{Clock, DeviceEvent, LifeEnd, Trouble};
use super::thread::Outlet;
use crate::bus::{DeviceFaultRecord, GraphRecord};

/// Faults of one step at most. The ledger gets stronger with each, so this is never met; it bounds a mistake
/// in it.
const FAULTS_IN_A_STEP_MAX: usize = 32;

/// What goes on, or how the life ended.
pub(super) type Outcome<T> = Result<T, Box<LifeEnd>>;

/// A device and all that decides how its steps are run.
pub(super) struct Launcher {
    pub device: Box<dyn Device>,
    pub dispatcher: Dispatcher,
    pub inventory: Inventory,
    pub ledger: Ledger,
    pub clock: Clock,
    pub canary: Canary,
    pub deadline: Duration,
    /// Graphs that have been replayed at least once.
    pub replayed: BTreeSet<GraphKey>,
    /// Faults since everything was well, with the time they came.
    pub troubles: Vec<(Trouble, u64)>,
}

/// How a step was run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub launched: Launched,
    /// Time in which the host handed the work over, the last time it did.
    pub launch_micros: u64,
}

/// What is done next about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Launch(Result<GraphKey, EagerReason>),
    /// It is still running.
    Wait(Result<GraphKey, EagerReason>),
}

impl Launcher {
    /// Runs a step until its logits are there.
    pub(super) fn run(&mut self, inputs: &StepInputs, step: StepKind, outlet: &dyn Outlet) -> Outcome<Ran> {
        let rows = inputs.rows() as u32;
        let choice = self.dispatcher.choose(rows, step);
        let mut ran = self.run_as(choice, inputs, step, outlet)?;
        if let Launched::Replayed { key, .. } = ran.launched {
            if self.replayed.insert(key) {
                outlet.deliver(DeviceEvent::Graph(GraphRecord::FirstReplay { key }));
            }
            if self.canary.is_due() {
                ran = self.check(key, ran, inputs, step, outlet)?;
            }
        }
        self.tell_recovered(outlet);
        Ok(ran)
    }

    /// Computes a replayed step once more, eagerly, and compares.
    fn check(
        &mut self,
        key: GraphKey,
        replayed: Ran,
        inputs: &StepInputs,
        step: StepKind,
        outlet: &dyn Outlet,
    ) -> Outcome<Ran> {
        let rows = inputs.logit_rows.len();
        self.canary.keep(self.device.as_ref(), rows);
        let eager = self.run_as(Err(EagerReason::Canary), inputs, step, outlet)?;
        let same = self.canary.is_same(self.device.as_ref(), rows);
        outlet.deliver(DeviceEvent::Graph(GraphRecord::Checked { key, same }));
        if same {
            return Ok(replayed);
        }
        self.retire(key, RetireReason::Mismatch, outlet);
        Ok(eager)
    }

    fn run_as(
        &mut self,
        choice: Result<GraphKey, EagerReason>,
        inputs: &StepInputs,
        step: StepKind,
        outlet: &dyn Outlet,
    ) -> Outcome<Ran> {
        let mut next = Next::Launch(choice);
        let mut launch_micros = 0;
        for _ in 0..FAULTS_IN_A_STEP_MAX {
            let (Next::Launch(choice) | Next::Wait(choice)) = next;
            let handed_over = if matches!(next, Next::Wait(_)) {
                Ok(())
            } else {
                let (stream, started) = (self.device.stream(), Instant::now());
                let handed_over = match choice {
                    Ok(key) => stream.replay(key, inputs),
                    Err(_) => stream.enqueue(inputs),
                };
                launch_micros = started.elapsed().as_micros() as u64;
                handed_over
            };
            let is_running = handed_over.is_ok();
            let waiting = Instant::now();
            let done = handed_over.and_then(|()| self.device.stream().synchronize(self.deadline));
            // Only our own deadline leaves a step running. Any other fault has ended it, whatever its class.
            let is_running = is_running && waiting.elapsed() >= self.deadline;
            next = match done {
                Ok(()) => {
                    self.ledger.step_succeeded(self.clock.now());
                    let host = self.device.host_time().map(|time| time.as_micros() as u64);
                    let launched = self.launched(choice, inputs);
                    return Ok(Ran { launched, launch_micros: host.unwrap_or(launch_micros) });
                }
                Err(DeviceError::Fault(fault)) => match self.mend(choice, *fault, step, outlet)? {
                    Next::Wait(choice) if !is_running => self.again(choice),
                    next => next,
                },
                Err(DeviceError::NoGraph(key)) if choice.is_ok() => {
                    self.retire(key, RetireReason::Fault, outlet);
                    Next::Launch(Err(EagerReason::Fault))
                }
                Err(mistake) => return Err(Box::new(LifeEnd::of(mistake.to_string(), true))),
            };
        }
        Err(self.end_of_life("a step could not be mended in place", Action::RebuildGroup))
    }

    /// Does what the ledger says about a fault, as far as it can be done in place.
    fn mend(
        &mut self,
        choice: Result<GraphKey, EagerReason>,
        fault: DeviceFault,
        step: StepKind,
        outlet: &dyn Outlet,
    ) -> Outcome<Next> {
        let moment = match (choice, step) {
            (Ok(_), _) => Moment::Replay,
            (Err(_), StepKind::Mixed) => Moment::Prefill,
            (Err(_), StepKind::Decode | StepKind::Verify) => Moment::Decode,
        };
        match self.decide(fault, moment, |action| action)? {
            Action::WaitMore => Ok(Next::Wait(choice)),
            Action::DropGraph => {
                if let Ok(key) = choice {
                    self.retire(key, RetireReason::Fault, outlet);
                }
                Ok(Next::Launch(eagerly(choice)))
            }
            Action::RebuildStream => {
                self.rebuild_streams(Some(outlet))?;
                Ok(Next::Launch(eagerly(choice)))
            }
            _ => Ok(self.again(choice)),
        }
    }

    /// The step is run again as it is, after a pause.
    fn again(&self, choice: Result<GraphKey, EagerReason>) -> Next {
        std::thread::sleep(Duration::from_millis(self.ledger.pause().0));
        Next::Launch(choice)
    }

    /// Asks the ledger, notes the fault, and ends the life when it takes more than can be done in place.
    pub(super) fn decide(
        &mut self,
        fault: DeviceFault,
        moment: Moment,
        adapt: impl Fn(Action) -> Action,
    ) -> Outcome<Action> {
        let action = adapt(self.ledger.decide(self.clock.now(), &fault, moment));
        let detail = fault.to_string();
        self.note(fault, moment, action);
        if action.is_in_place() { Ok(action) } else { Err(self.end_of_life(&detail, action)) }
    }

    pub(super) fn note(&mut self, fault: DeviceFault, moment: Moment, action: Action) {
        self.troubles.push((Trouble { fault, moment, action, age_micros: 0 }, self.clock.micros()));
    }

    /// The end of this life, with all that is to be known of it. The latest fault says whom it blames.
    pub(super) fn end_of_life(&mut self, detail: &str, action: Action) -> Box<LifeEnd> {
        let now = self.clock.micros();
        let troubles: Vec<Trouble> = std::mem::take(&mut self.troubles)
            .into_iter()
            .map(|(trouble, at)| Trouble { age_micros: now.saturating_sub(at), ..trouble })
            .collect();
        let blames_sequences = troubles.last().is_some_and(|last| {
            // Opening and capturing are not done for anybody.
            last.fault.class.blames_sequences() && !matches!(last.moment, Moment::Open | Moment::Capture)
        });
        Box::new(LifeEnd {
            action,
            ledger: Some(self.ledger.clone()),
            troubles,
            ..LifeEnd::of(detail.to_owned(), blames_sequences)
        })
    }

    fn launched(&self, choice: Result<GraphKey, EagerReason>, inputs: &StepInputs) -> Launched {
        match choice {
            Ok(key) => {
                let spare = key.rows.saturating_sub(inputs.rows() as u32);
                Launched::Replayed { key, padded: if self.device.computes_padding() { spare } else { 0 } }
            }
            Err(reason) => Launched::Eager(reason),
        }
    }

    /// Everything is well again: says how long it took.
    pub(super) fn tell_recovered(&mut self, outlet: &dyn Outlet) {
        let now = self.clock.micros();
        for (trouble, at) in self.troubles.drain(..) {
            let Trouble { fault, moment, action, .. } = trouble;
            let recovered_micros = Some(now.saturating_sub(at));
            let record = DeviceFaultRecord { fault, moment, action, recovered_micros };
            outlet.deliver(DeviceEvent::Recovered(Box::new(record)));
        }
    }
}

/// The same step without a graph. What was to run eagerly anyway keeps its reason.
fn eagerly(choice: Result<GraphKey, EagerReason>) -> Result<GraphKey, EagerReason> {
    Err(choice.err().unwrap_or(EagerReason::Fault))
}
