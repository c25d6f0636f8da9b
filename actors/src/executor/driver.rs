//! The device thread's work: opens the device, then takes orders in turn until its life is over.

use std::time::Instant;

use updraft_core::graphs::Histogram;
use updraft_core::recovery::{Action, Moment, RecoveryClass};
use updraft_core::sampling::{Scratch, token_logprobs};
use updraft_core::step::{SequenceOutput, StepInputs, StepPlan, StepResult};
use updraft_core::{Epoch, Tokens};
use updraft_devices::DeviceError;

use super::batch::{self, Sequences};
use super::canary::Canary;
use super::graphs::{self, Inventory};
use super::launch::{Launcher, Outcome};
use super::report::{Clock, DeviceEvent, DeviceReport, LifeEnd, Order};
use super::thread::Job;
use crate::supervisor::Doing;

/// Opens the device and works until there are no more orders. `crowded`: the thread of an earlier life may
/// still hold the device.
pub(super) fn drive(job: &Job, orders: &flume::Receiver<Order>, crowded: bool) -> Outcome<()> {
    let started = Instant::now();
    let mut driver = Driver::open(job, crowded)?;
    let properties = driver.launcher.device.properties();
    job.outlet.deliver(DeviceEvent::Up(Box::new(DeviceReport {
        name: properties.name.clone(),
        hardware: properties.hardware.clone(),
        graph_name: properties.graph_name.to_owned(),
        open_micros: started.elapsed().as_micros() as u64,
        inventory: driver.launcher.inventory.clone(),
    })));
    driver.launcher.tell_recovered(job.outlet.as_ref());
    while let Ok(order) = orders.recv() {
        if job.life.is_retired() {
            return Ok(());
        }
        driver.take(order, job)?;
    }
    Ok(())
}

struct Driver {
    launcher: Launcher,
    epoch: Epoch,
    ended: Instant,
    sequences: Sequences,
    inputs: StepInputs,
    scratch: Scratch,
}

impl Driver {
    fn open(job: &Job, crowded: bool) -> Outcome<Self> {
        let setup = &job.setup;
        let clock = Clock::new(setup.now);
        let mut ledger = setup.ledger.clone();
        job.life.begin(Doing::Opening);
        let device = match (job.factory)(setup.ordinal) {
            Ok(device) => device,
            // Two lives do not fit, which says nothing about the device.
            Err(DeviceError::Fault(fault)) if crowded && fault.class == RecoveryClass::Memory => {
                return Err(LifeEnd::at_open_beside(*fault, ledger));
            }
            Err(DeviceError::Fault(fault)) => {
                let action = ledger.decide(clock.now(), &fault, Moment::Open).max(Action::RebuildGroup);
                return Err(LifeEnd::at_open(*fault, action, ledger));
            }
            Err(error) => return Err(Box::new(LifeEnd::not_made(error.to_string()))),
        };
        ledger.began_life(clock.now());
        job.life.watch(device.progress());
        let inventory = Inventory::of(device.as_ref(), &setup.graphs);
        let plan = inventory.plan(&setup.graphs, &Histogram::default());
        let mut launcher = Launcher {
            dispatcher: graphs::dispatcher(&plan),
            inventory,
            ledger,
            clock,
            canary: Canary::new(setup.verify_replay),
            deadline: setup.step_deadline,
            replayed: std::collections::BTreeSet::new(),
            troubles: Vec::new(),
            device,
        };
        job.life.begin(Doing::Upkeep);
        launcher.capture_first(&plan, &setup.graphs.deadly, job.outlet.as_ref())?;
        job.life.end();
        Ok(Self {
            launcher,
            epoch: Epoch::default(),
            ended: Instant::now(),
            sequences: Sequences::new(),
            inputs: StepInputs::default(),
            scratch: Scratch::default(),
        })
    }

    fn take(&mut self, order: Order, job: &Job) -> Outcome<()> {
        let outlet = job.outlet.as_ref();
        match order {
            Order::Plan(plan) if plan.epoch < self.epoch => outlet.deliver(DeviceEvent::Stale),
            Order::Plan(plan) => {
                self.enter(plan.epoch);
                job.life.begin(Doing::Step);
                let result = self.step(plan, job)?;
                job.life.end();
                outlet.deliver(DeviceEvent::StepDone(result));
            }
            Order::Capture(key) => {
                job.life.begin(Doing::Upkeep);
                outlet.deliver(DeviceEvent::Capturing(key));
                self.launcher.capture(key, Some(outlet))?;
                job.life.end();
                // The device was busy, not waiting for a plan.
                self.ended = Instant::now();
            }
            Order::Forget(key) => self.launcher.forget(key, outlet),
            Order::Inventory => {
                outlet.deliver(DeviceEvent::Inventory(Box::new(self.launcher.inventory.clone())));
            }
        }
        Ok(())
    }

    /// A newer epoch voids all that was known: its block tables start from nothing.
    fn enter(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.sequences.clear();
            self.epoch = epoch;
        }
    }

    fn step(&mut self, mut plan: StepPlan, job: &Job) -> Outcome<StepResult> {
        let started = Instant::now();
        let vocab = self.launcher.device.properties().vocab;
        let mistake = |error: batch::PlanError| Box::new(LifeEnd::of(error.to_string(), true));
        batch::apply(&mut plan, &mut self.sequences, vocab).map_err(mistake)?;
        batch::assemble(&plan, &self.sequences, job.setup.block_size, &mut self.inputs).map_err(mistake)?;
        job.drills.check(&plan, |token| {
            plan.scheduled
                .iter()
                .filter_map(|row| self.sequences.get(&row.sequence))
                .any(|sequence| sequence.tokens.iter().take(sequence.prompt_len).any(|known| *known == token))
        });
        let ran = self.launcher.run(&self.inputs, plan.kind(), job.outlet.as_ref())?;
        let mut result = StepResult {
            epoch: plan.epoch,
            step: plan.step,
            outputs: Vec::with_capacity(plan.scheduled.len()),
            device_micros: 0,
            gap_micros: started.saturating_duration_since(self.ended).as_micros() as u64,
            launch_micros: ran.launch_micros,
            launched: ran.launched,
        };
        self.sample(&plan, &mut result);
        self.ended = Instant::now();
        result.device_micros = self.ended.duration_since(started).as_micros() as u64;
        Ok(result)
    }

    /// Turns logit rows into tokens and log-probabilities, in the order `batch::assemble` asked for them.
    fn sample(&mut self, plan: &StepPlan, result: &mut StepResult) {
        let device = self.launcher.device.as_ref();
        let mut logit_row = 0;
        for row in &plan.scheduled {
            let Some(known) = self.sequences.get_mut(&row.sequence) else { continue };
            let mut output = SequenceOutput {
                sequence: row.sequence,
                token: None,
                logprobs: None,
                further: Vec::new(),
                prompt_logprobs: Vec::new(),
            };
            for position in batch::prompt_logprob_rows(row, known) {
                if let (Some(token), Some(top)) =
                    (known.tokens.get(position as usize + 1), known.sampling.prompt_logprobs)
                {
                    let logits = device.logits(logit_row);
                    // A position that has no usable logits has no entry; the sampled token will say why.
                    if let Ok(entry) = token_logprobs(logits, *token, top as usize, &mut self.scratch) {
                        output.prompt_logprobs.push((Tokens(position + 1), entry));
                    }
                }
                logit_row += 1;
            }
            if row.samples {
                let logits = |ahead| device.logits(logit_row + ahead);
                known.sample(row, logits, &mut self.scratch, &mut output);
                logit_row += 1 + row.drafts.len();
            }
            if output.token.is_some() || !output.prompt_logprobs.is_empty() {
                result.outputs.push(output);
            }
        }
    }
}
