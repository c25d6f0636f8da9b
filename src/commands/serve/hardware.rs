//! Which device is used, and what it offers.
//!
//! Always holds: what was asked for is used or the server does not start; what `auto` chose is said, and why.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use updraft_devices::ascend::{AscendFacts, Chip, Compute, Library, LibraryError, SearchPath, facts};

use crate::config::device::{DeviceKind, Target};
use crate::config::memory::KvCacheType;
use crate::config::model::ComputeType;
use crate::config::{Config, Notice};

/// The device that is asked for its facts: those that this process sees are numbered from here.
const FIRST_ORDINAL: u32 = 0;

/// The kind of device that is used.
#[derive(Clone, Debug)]
pub(in crate::commands) enum Hardware {
    /// The processor.
    Cpu,
    /// Ascend NPUs.
    Ascend(Npu),
}

/// Ascend NPUs.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Npu {
    /// CANN.
    pub(in crate::commands) library: Arc<Library>,
    /// What the first device is; not asked by a child process, which is told all that follows from it.
    pub(in crate::commands) facts: Option<AscendFacts>,
}

/// Who asks for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Role {
    /// The server, which plans.
    Server,
    /// A child process, which drives one device and follows a plan.
    Child,
}

impl Hardware {
    /// The device that is asked for, or the best one; with the line that says so.
    pub(in crate::commands) fn choose(config: &Config, role: Role) -> Result<(Self, Notice)> {
        let note = |text: &str| Notice::note(text.to_owned());
        match config.device.device {
            DeviceKind::Cpu => Ok((Self::Cpu, note("device: CPU, as asked for"))),
            DeviceKind::Ascend => {
                let npu = Npu::find(config, role).context("--device ascend cannot be used")?;
                Ok((Self::Ascend(npu), note("device: Ascend NPU, as asked for")))
            }
            DeviceKind::Auto => Ok(match Npu::find(config, role) {
                Ok(npu) => (Self::Ascend(npu), note("device: Ascend NPU, because CANN shows one")),
                Err(error) => (Self::Cpu, why_not(&error)),
            }),
        }
    }

    /// Its kind.
    pub(in crate::commands) fn target(&self) -> Target {
        match self {
            Self::Cpu => Target::Cpu,
            Self::Ascend(_) => Target::Ascend,
        }
    }

    /// Numbers of the devices that may be used; the first one is.
    pub(in crate::commands) fn ordinals(&self) -> Vec<u32> {
        match self {
            Self::Ascend(Npu { facts: Some(facts), .. }) => (FIRST_ORDINAL..facts.devices.max(1)).collect(),
            _ => vec![FIRST_ORDINAL],
        }
    }
}

impl Npu {
    fn find(config: &Config, role: Role) -> Result<Self> {
        let search = SearchPath::from_environment(config.device.cann_path.as_deref());
        let library = Library::load(&search).map_err(|error| match error {
            // A folder that was named is the only one that is searched.
            error @ LibraryError::Open { .. } if config.device.cann_path.is_none() => {
                let folders: Vec<_> =
                    search.folders().iter().map(|folder| folder.display().to_string()).collect();
                let searched = folders.join(", ");
                anyhow::anyhow!(
                    "{error}, or name the folder with --cann-path; searched {searched} and the loader's path"
                )
            }
            error => anyhow::Error::from(error),
        })?;
        let facts = match role {
            Role::Server => Some(facts(&library, FIRST_ORDINAL)?),
            Role::Child => None,
        };
        Ok(Self { library, facts })
    }

    /// The chip's family, if it is known.
    pub(in crate::commands) fn chip(&self) -> Option<Chip> {
        self.facts.as_ref().and_then(|facts| facts.chip)
    }

    /// The type to compute in, from what was asked for, what the checkpoint has and what the chip can.
    pub(in crate::commands) fn compute(&self, config: &Config, stored_dtype: &str) -> Result<Compute> {
        let lacks_bf16 = self.chip().is_some_and(|chip| !chip.has_bf16());
        compute(config.model.dtype, config.memory.kv_cache_dtype, stored_dtype, lacks_bf16)
    }
}

/// Options that one NPU cannot honour.
pub(in crate::commands) fn check_groups(config: &Config) -> Result<()> {
    for (option, size) in [
        ("tensor-parallel-size", config.device.tensor_parallel_size),
        ("pipeline-parallel-size", config.device.pipeline_parallel_size),
    ] {
        if size > 1 {
            bail!(
                "--{option} {size} is not possible yet: one NPU runs the whole model; leave it out (other \
                 NPUs are spares that take over when the first one fails)"
            );
        }
    }
    Ok(())
}

fn compute(asked: ComputeType, kv: KvCacheType, stored_dtype: &str, lacks_bf16: bool) -> Result<Compute> {
    let compute = match asked {
        ComputeType::Float32 => {
            bail!(
                "--dtype float32 is not possible on an NPU, which computes in 16 bits; leave it out, or use \
                 bfloat16 or float16"
            )
        }
        ComputeType::Float16 => Compute::F16,
        ComputeType::Auto if lacks_bf16 || stored_dtype == "float16" => Compute::F16,
        ComputeType::Bfloat16 | ComputeType::Auto => Compute::Bf16,
    };
    match (kv, compute) {
        (KvCacheType::Auto, _)
        | (KvCacheType::Float16, Compute::F16)
        | (KvCacheType::Bfloat16, Compute::Bf16) => Ok(compute),
        (kv, compute) => bail!(
            "--kv-cache-dtype {kv} is not possible on an NPU that computes in {}: the cache has the same \
             type; leave it out, or set --dtype too",
            compute.as_str()
        ),
    }
}

/// The line about a machine without an NPU. That nothing is installed is no reason to worry; that what is
/// installed cannot be used is one.
fn why_not(error: &anyhow::Error) -> Notice {
    match error.to_string().split_once("; tried") {
        Some((first, _)) => Notice::note(format!("device: CPU, because there is no CANN here ({first})")),
        None => Notice::warning(format!("device: CPU, because no NPU can be used: {error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Level;

    #[test]
    fn the_type_follows_the_checkpoint_and_the_chip() {
        let auto = |stored, lacks| compute(ComputeType::Auto, KvCacheType::Auto, stored, lacks).unwrap();
        assert_eq!(auto("bfloat16", false), Compute::Bf16);
        assert_eq!(auto("Q4_1", false), Compute::Bf16);
        assert_eq!(auto("float16", false), Compute::F16);
        assert_eq!(auto("bfloat16", true), Compute::F16);
        let refused = |dtype, kv| compute(dtype, kv, "bfloat16", false).unwrap_err().to_string();
        assert!(refused(ComputeType::Float32, KvCacheType::Auto).contains("16 bits"));
        let message = refused(ComputeType::Auto, KvCacheType::Float16);
        assert!(message.contains("--kv-cache-dtype float16") && message.contains("bfloat16"), "{message}");
        assert!(compute(ComputeType::Float16, KvCacheType::Float16, "bfloat16", false).is_ok());
    }

    #[test]
    fn only_an_npu_that_cannot_be_used_is_a_warning() {
        let note = why_not(&anyhow::anyhow!("cannot open CANN's runtime library; tried a; b. Install CANN"));
        assert!(note.text.contains("no CANN here") && !note.text.contains("tried"), "{note:?}");
        assert_eq!(note.level, Level::Note);
        let warning = why_not(&anyhow::anyhow!("status 507033"));
        assert!(warning.text.contains("507033"));
        assert_eq!(warning.level, Level::Warning);
    }
}
