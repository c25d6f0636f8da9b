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
use updraft_models::Checkpoint;

use super::assemble::logit_rows;
use super::fit::{Fitted, Types};
use super::hardware::{Hardware, Npu};
use super::machine;
use super::measure::Shape;
use super::progress::Progress;
use crate::config::Config;

/// Threads that compute.
pub(in crate::commands) fn threads(config: &Config) -> usize {
    config.device.threads.unwrap_or_else(machine::cores) as usize
}

/// Makes devices of what was fitted. Nothing is loaded before the first one is asked for.
pub(in crate::commands) fn factory(config: &Config, fitted: &Fitted) -> DeviceFactory {
    let sizes = Sizes::of(config);
    match (&fitted.hardware, fitted.types) {
        (Hardware::Ascend(npu), Types::Ascend(compute)) => ascend(npu, compute, fitted, sizes),
        (_, Types::Cpu(shape)) => cpu(Weights::new(fitted, shape, sizes.threads), shape, sizes),
        // Types are chosen by the hardware.
        (Hardware::Cpu, Types::Ascend(_)) => Arc::new(|_| Err(refusal("cpu", "it has types of an NPU"))),
    }
}

/// The same, with weights that are packed now, so that what is wrong with them is found before serving.
pub(super) fn loaded_factory(config: &Config, fitted: &Fitted) -> Result<DeviceFactory, LoadError> {
    let sizes = Sizes::of(config);
    match fitted.types {
        Types::Cpu(shape) => {
            let weights = Weights::new(fitted, shape, sizes.threads);
            weights.take()?;
            Ok(cpu(weights, shape, sizes))
        }
        Types::Ascend(_) => Ok(factory(config, fitted)),
    }
}

/// Sizes of a step.
#[derive(Clone, Copy)]
struct Sizes {
    threads: usize,
    max_sequences: usize,
    max_logit_rows: usize,
}

impl Sizes {
    fn of(config: &Config) -> Self {
        Self {
            threads: threads(config),
            max_sequences: config.scheduling.max_num_seqs as usize,
            max_logit_rows: logit_rows(config),
        }
    }
}

/// Packed weights of the CPU, or what it takes to pack them.
struct Weights {
    state: Mutex<State>,
    options: LoadOptions,
    total: u64,
    plan: super::memory_plan::MemoryPlan,
}

enum State {
    Files(Arc<Checkpoint>, Program),
    Packed(Arc<CpuModel>),
}

impl Weights {
    fn new(fitted: &Fitted, shape: Shape, threads: usize) -> Self {
        Self {
            state: Mutex::new(State::Files(Arc::clone(&fitted.checkpoint), fitted.program.clone())),
            options: LoadOptions { precision: shape.precision, threads },
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
                let model = CpuModel::load(program.clone(), checkpoint.as_ref(), &self.options, &|loaded| {
                    progress.reached(loaded.bytes.0);
                });
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

fn ascend(npu: &Npu, compute: Compute, fitted: &Fitted, sizes: Sizes) -> DeviceFactory {
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
