//! How devices are made: once at the start, and again after every loss of one.
//!
//! Always holds: on the CPU weights are packed once and shared by all lives of the executor; on an NPU each
//! life loads them anew from the checkpoint's files, because the memory of a device that failed is not
//! trusted.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use updraft_actors::DeviceFactory;
use updraft_core::program::Program;
use updraft_core::recovery::{DeviceFault, RecoveryClass};
use updraft_devices::ascend::{AscendDevice, AscendOptions, Compute, OpenError};
use updraft_devices::cpu::{CpuDevice, CpuModel, CpuOptions, LoadError, LoadOptions};
use updraft_devices::{Device, DeviceError};
use updraft_kernels::team::Pinning;
use updraft_kernels::topology::{Choice, Machine};
use updraft_models::Checkpoint;

use super::assemble::logit_rows;
use super::fit::{Fitted, Types};
use super::hardware::{Hardware, Npu};
use super::measure::Shape;
use super::progress::Progress;
use crate::config::Config;

/// Threads that compute, and where. Depends on the processor that the caller runs on, so it is asked once.
pub(in crate::commands) fn team(config: &Config) -> Choice {
    let device = &config.device;
    Machine::current().choose(device.threads.map(|threads| threads as usize), device.thread_binding.into())
}

/// Makes devices of what was fitted. Nothing is loaded before the first one is asked for.
pub(in crate::commands) fn factory(config: &Config, fitted: &Fitted, team: &Choice) -> DeviceFactory {
    let sizes = Sizes::of(config, team);
    match (&fitted.hardware, fitted.types) {
        (Hardware::Ascend(npu), Types::Ascend(compute)) => ascend(npu, compute, fitted, &sizes),
        (_, Types::Cpu(shape)) => cpu(Weights::new(fitted, shape, &sizes), shape, sizes),
        // Types are chosen by the hardware.
        (Hardware::Cpu, Types::Ascend(_)) => Arc::new(|_| Err(refusal("cpu", "it has types of an NPU"))),
    }
}

/// The same, with weights that are packed now, so that what is wrong with them is found before serving.
pub(super) fn loaded_factory(
    config: &Config,
    fitted: &Fitted,
    team: &Choice,
) -> Result<DeviceFactory, LoadError> {
    match fitted.types {
        Types::Cpu(shape) => {
            let sizes = Sizes::of(config, team);
            let weights = Weights::new(fitted, shape, &sizes);
            weights.take()?;
            Ok(cpu(weights, shape, sizes))
        }
        Types::Ascend(_) => Ok(factory(config, fitted, team)),
    }
}

/// Sizes of a step.
struct Sizes {
    threads: usize,
    pinning: Pinning,
    max_sequences: usize,
    max_logit_rows: usize,
}

impl Sizes {
    fn of(config: &Config, team: &Choice) -> Self {
        Self {
            threads: team.threads,
            pinning: team.pinning.clone(),
            max_sequences: config.scheduling.max_num_seqs as usize,
            max_logit_rows: logit_rows(config),
        }
    }
}

/// Packed weights of the CPU, or what it takes to pack them.
struct Weights {
    state: Mutex<State>,
    options: LoadOptions,
    pinning: Pinning,
    total: u64,
    plan: super::memory_plan::MemoryPlan,
}

enum State {
    Files(Arc<Checkpoint>, Program),
    Packed(Arc<CpuModel>),
}

impl Weights {
    fn new(fitted: &Fitted, shape: Shape, sizes: &Sizes) -> Self {
        Self {
            state: Mutex::new(State::Files(Arc::clone(&fitted.checkpoint), fitted.program.clone())),
            options: LoadOptions { precision: shape.precision, threads: sizes.threads },
            pinning: sizes.pinning.clone(),
            total: fitted.plan.weights.0,
            plan: fitted.plan.clone(),
        }
    }

    /// The packed weights; packs them the first time. The files are let go then.
    fn take(&self) -> Result<Arc<CpuModel>, LoadError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let model = match &*state {
            State::Packed(model) => return Ok(Arc::clone(model)),
            State::Files(checkpoint, program) => {
                let progress = Progress::new(self.total);
                let load = || {
                    // Memory lies on the node of the thread that first writes it.
                    self.pinning.bind_caller();
                    CpuModel::load(program.clone(), checkpoint.as_ref(), &self.options, &|loaded| {
                        progress.reached(loaded.bytes.0);
                    })
                };
                // A thread of its own: the caller's threads to come must not inherit where it is bound.
                let model = std::thread::scope(|scope| scope.spawn(load).join());
                let model = model.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                progress.finish();
                model?
            }
        };
        *state = State::Packed(Arc::clone(&model));
        Ok(model)
    }
}

fn cpu(weights: Weights, shape: Shape, sizes: Sizes) -> DeviceFactory {
    let plan = &weights.plan;
    let options = CpuOptions {
        threads: sizes.threads,
        pinning: sizes.pinning,
        blocks: plan.blocks,
        block_size: plan.block_size,
        kv: shape.kv,
        max_rows: plan.step_budget.0 as usize,
        max_logit_rows: sizes.max_logit_rows,
    };
    Arc::new(move |_ordinal| {
        let model = weights.take().map_err(|error| refusal("cpu", &error.to_string()))?;
        Ok(Box::new(CpuDevice::new(model, &options)?) as Box<dyn Device>)
    })
}

fn ascend(npu: &Npu, compute: Compute, fitted: &Fitted, sizes: &Sizes) -> DeviceFactory {
    let plan = &fitted.plan;
    let options = AscendOptions {
        ordinal: 0,
        compute,
        blocks: plan.blocks,
        block_size: plan.block_size,
        max_rows: plan.step_budget.0 as usize,
        max_logit_rows: sizes.max_logit_rows,
        max_sequences: sizes.max_sequences,
        max_model_len: plan.max_model_len.0 as usize,
        avoid: Vec::new(),
    };
    let (library, checkpoint) = (Arc::clone(&npu.library), Arc::clone(&fitted.checkpoint));
    let (program, total) = (fitted.program.clone(), plan.weights.0);
    Arc::new(move |ordinal| {
        let options = AscendOptions { ordinal, ..options.clone() };
        let progress = Progress::new(total);
        let opened = AscendDevice::open(&library, &program, checkpoint.as_ref(), &options, &|loaded| {
            progress.reached(loaded.bytes.0);
        });
        progress.finish();
        let device = opened.map_err(|error| match error {
            OpenError::Device(error) => error,
            error => refusal(&format!("ascend:{ordinal}"), &error.to_string()),
        })?;
        if let Some(limit) = device.graph_limit() {
            tracing::warn!("ascend:{ordinal}: {limit}");
        }
        Ok(Box::new(device) as Box<dyn Device>)
    })
}

/// A device that cannot be made here, whatever is done about it.
fn refusal(device: &str, why: &str) -> DeviceError {
    DeviceError::Fault(Box::new(DeviceFault {
        device: device.to_owned(),
        code: 0,
        name: Cow::Borrowed("cannot be opened"),
        meaning: Cow::Owned(why.to_owned()),
        class: RecoveryClass::Environment,
        operator: None,
        text: String::new(),
    }))
}
