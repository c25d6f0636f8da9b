//! A checkpoint fitted to a device: opened, checked against what the device can do, and given its memory.
//!
//! The server and its child processes fit the same checkpoint the same way; a child is told the sizes that
//! depend on the moment (see `placement`). Refuses to know: text, HTTP, actors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use updraft_core::Tokens;
use updraft_core::program::{Level, Program, Report, optimise};
use updraft_devices::ascend::{self, Compute};
use updraft_models::{Checkpoint, OpenOptions};

use super::hardware::{Hardware, check_groups};
use super::measure::{self, Shape};
use super::memory_plan::{self, MemoryPlan};
use crate::config::Config;
use crate::config::model::LoadFormat;
use crate::config::values::ContextLength;

/// See the module page.
pub(in crate::commands) struct Fitted {
    /// The device.
    pub(in crate::commands) hardware: Hardware,
    /// The checkpoint.
    pub(in crate::commands) checkpoint: Arc<Checkpoint>,
    /// The step as the device gets it.
    pub(in crate::commands) program: Program,
    /// What the optimiser did, where it ran.
    pub(in crate::commands) optimised: Option<Report>,
    /// Types that are computed in.
    pub(in crate::commands) types: Types,
    /// Who gets how much memory.
    pub(in crate::commands) plan: MemoryPlan,
}

/// Types that a device computes in.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) enum Types {
    /// On the CPU.
    Cpu(Shape),
    /// On an NPU.
    Ascend(Compute),
}

impl Types {
    /// Type of the KV cache, as in configuration.
    pub(in crate::commands) fn kv_name(self) -> &'static str {
        match self {
            Self::Cpu(shape) => shape.kv.name(),
            Self::Ascend(compute) => compute.as_str(),
        }
    }
}

impl Fitted {
    /// Opens the checkpoint of a configuration and fits it to a device.
    pub(in crate::commands) fn new(config: &Config, hardware: Hardware) -> Result<Self> {
        let path = expanded(config.model_name());
        check_format(config.model.load_format, &path)?;
        let max_model_len = match config.model.max_model_len {
            Some(ContextLength::Tokens(tokens)) => Some(Tokens(tokens)),
            Some(ContextLength::Auto) | None => None,
        };
        let options = OpenOptions {
            max_model_len,
            download_dir: config.model.download_dir.clone(),
            revision: config.model.revision.clone(),
        };
        let checkpoint = Checkpoint::open(&path, &options)?;
        let (program, optimised, types, facts) = match &hardware {
            Hardware::Cpu => {
                let shape = measure::shape(config, &checkpoint);
                let facts = measure::facts(&checkpoint, shape);
                // The CPU takes fused operations apart again: it shares out single ones among its threads.
                (checkpoint.program.clone(), None, Types::Cpu(shape), facts)
            }
            Hardware::Ascend(npu) => {
                check_groups(config)?;
                let compute = npu.compute(config, &checkpoint.config.stored_dtype)?;
                let level = level(config.platform.optimiser_level);
                let (program, report) = optimise(&checkpoint.program, level);
                ascend::check_program(&npu.library, &program, npu.chip())?;
                let known = npu.facts.as_ref();
                let facts = measure::facts_on_an_npu(config, &checkpoint, &program, compute, known)?;
                (program, Some(report), Types::Ascend(compute), facts)
            }
        };
        let plan = memory_plan::plan(config, &facts)?;
        Ok(Self { hardware, checkpoint: Arc::new(checkpoint), program, optimised, types, plan })
    }
}

fn level(level: u8) -> Level {
    match level {
        0 => Level::Off,
        1 => Level::Norms,
        _ => Level::Full,
    }
}

fn check_format(wanted: LoadFormat, path: &Path) -> Result<()> {
    match wanted {
        LoadFormat::Gguf if path.is_dir() => {
            bail!("--load-format gguf, but {} is a folder; give the .gguf file", path.display())
        }
        LoadFormat::Safetensors if path.is_file() => {
            bail!("--load-format safetensors, but {} is a file; give its folder", path.display())
        }
        _ => Ok(()),
    }
}

/// `~/` at the beginning becomes the home folder; shells do this for flags, but not in files.
fn expanded(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}
