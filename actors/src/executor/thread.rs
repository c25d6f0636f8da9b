//! The device thread: the only place where a model computes.
//!
//! It takes plans in order from a bounded queue, runs them, samples, and casts the result. When anything in
//! it panics or its device reports an error, it says so to its actor and ends; when its actor is gone, its
//! queue closes and it ends too. Its device is dropped here, on the thread that used it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use ractor::ActorRef;
use updraft_core::sampling::{Scratch, token_logprobs};
use updraft_core::step::{SequenceOutput, StepInputs, StepPlan, StepResult};
use updraft_core::{Epoch, Tokens};
use updraft_devices::Device;

use super::batch::{self, Sequences};
use super::{ExecutorArgs, ExecutorMsg, ExecutorParts};
use crate::scheduler::SchedulerMsg;
use crate::supervisor::{EngineMsg, Mailbox};

/// Plans in the queue at most. Two are in flight in one epoch; the rest is room for the void plans of
/// epochs that ended meanwhile.
const QUEUE_MAX: usize = 16;

/// One plan and who wants to hear of it.
pub(super) struct Work {
    pub plan: StepPlan,
    pub reply_to: ActorRef<SchedulerMsg>,
}

/// The actor's end of the thread.
pub(crate) struct DeviceThread {
    queue: flume::Sender<Work>,
}

/// The thread cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ThreadError {
    #[error("the device thread could not be started: {0}")]
    Spawn(#[from] std::io::Error),
    #[error("the device thread has ended")]
    Ended,
    #[error("{QUEUE_MAX} plans wait for the device, more than the scheduler may have in flight")]
    Overrun,
}

impl DeviceThread {
    pub(super) fn start(args: ExecutorArgs, actor: ActorRef<ExecutorMsg>) -> Result<Self, ThreadError> {
        let (queue, plans) = flume::bounded(QUEUE_MAX);
        std::thread::Builder::new().name("device-0".to_owned()).spawn(move || {
            let detail = match catch_unwind(AssertUnwindSafe(|| drive(&args, &plans))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(panic) => panic_text(panic.as_ref()),
            };
            // An actor that is gone needs no word.
            let _ = actor.cast(ExecutorMsg::DeviceLost { detail });
        })?;
        Ok(Self { queue })
    }

    pub(super) fn submit(&self, work: Work) -> Result<(), ThreadError> {
        self.queue.try_send(work).map_err(|error| match error {
            flume::TrySendError::Full(_) => ThreadError::Overrun,
            flume::TrySendError::Disconnected(_) => ThreadError::Ended,
        })
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "the device thread panicked".to_owned())
}

fn drive(args: &ExecutorArgs, plans: &flume::Receiver<Work>) -> Result<(), String> {
    let (parts, clock) = (&args.parts, &args.clock);
    let device = (parts.factory)()?;
    // A supervisor that is gone is replaced, and so is this executor.
    let _ = args.supervisor.cast(EngineMsg::DeviceUp(Arc::clone(clock)));
    let mut driver = Driver {
        device,
        epoch: Epoch::default(),
        ended: Instant::now(),
        sequences: Sequences::new(),
        inputs: StepInputs::default(),
        scratch: Scratch::default(),
        block_size: parts.block_size,
    };
    while let Ok(Work { plan, reply_to }) = plans.recv() {
        if clock.is_retired() {
            return Ok(());
        }
        if plan.epoch < driver.epoch {
            parts.board.count_stale();
            continue;
        }
        driver.enter(plan.epoch);
        clock.step_started();
        let result = driver.step(plan, parts)?;
        clock.step_ended();
        parts.board.count_step();
        // A scheduler that is gone is replaced in a new epoch, which voids this result anyway.
        if reply_to.cast(SchedulerMsg::StepDone(result)).is_ok() {
            parts.board.mailboxes().sent(Mailbox::Scheduler);
        }
    }
    Ok(())
}

struct Driver {
    device: Box<dyn Device>,
    epoch: Epoch,
    ended: Instant,
    sequences: Sequences,
    inputs: StepInputs,
    scratch: Scratch,
    block_size: Tokens,
}

impl Driver {
    /// A newer epoch voids all that was known: its block tables start from nothing.
    fn enter(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.sequences.clear();
            self.epoch = epoch;
        }
    }

    fn step(&mut self, mut plan: StepPlan, parts: &ExecutorParts) -> Result<StepResult, String> {
        let started = Instant::now();
        let vocab = self.device.vocab();
        batch::apply(&mut plan, &mut self.sequences, vocab).map_err(|error| error.to_string())?;
        batch::assemble(&plan, &self.sequences, self.block_size, &mut self.inputs)
            .map_err(|error| error.to_string())?;
        parts.drills.check(&plan, |token| {
            plan.scheduled
                .iter()
                .filter_map(|row| self.sequences.get(&row.sequence))
                .any(|sequence| sequence.tokens.iter().take(sequence.prompt_len).any(|known| *known == token))
        });
        self.device.run(&self.inputs).map_err(|error| error.to_string())?;
        let mut result = StepResult {
            epoch: plan.epoch,
            step: plan.step,
            outputs: Vec::with_capacity(plan.scheduled.len()),
            device_micros: 0,
            gap_micros: started.duration_since(self.ended).as_micros() as u64,
        };
        self.sample(&plan, &mut result);
        self.ended = Instant::now();
        result.device_micros = self.ended.duration_since(started).as_micros() as u64;
        Ok(result)
    }

    /// Turns logit rows into tokens and log-probabilities, in the order `batch::assemble` asked for them.
    fn sample(&mut self, plan: &StepPlan, result: &mut StepResult) {
        let mut logit_row = 0;
        for row in &plan.scheduled {
            let Some(known) = self.sequences.get_mut(&row.sequence) else { continue };
            let mut output = SequenceOutput {
                sequence: row.sequence,
                token: None,
                logprobs: None,
                prompt_logprobs: Vec::new(),
            };
            for position in batch::prompt_logprob_rows(row, known) {
                if let (Some(token), Some(top)) =
                    (known.tokens.get(position as usize + 1), known.sampling.prompt_logprobs)
                {
                    let logits = self.device.logits(logit_row);
                    // A position that has no usable logits has no entry; the sampled token will say why.
                    if let Ok(entry) = token_logprobs(logits, *token, top as usize, &mut self.scratch) {
                        output.prompt_logprobs.push((Tokens(position + 1), entry));
                    }
                }
                logit_row += 1;
            }
            if row.samples {
                match known.sampler.sample(self.device.logits(logit_row), &mut self.scratch) {
                    Ok(sampled) => {
                        known.push(sampled.token);
                        output.token = Some(sampled.token);
                        output.logprobs = sampled.logprobs;
                    }
                    Err(_) => {
                        // The scheduler ends a sequence whose row brings no token; the step after this one
                        // may be planned already and needs some token here.
                        known.push(0);
                    }
                }
                logit_row += 1;
            }
            if output.token.is_some() || !output.prompt_logprobs.is_empty() {
                result.outputs.push(output);
            }
        }
    }
}
