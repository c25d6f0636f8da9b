//! What is said about a configuration before serving: options that change nothing here.

use std::collections::BTreeSet;

use super::Config;

/// One line about the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub level: Level,
    /// The line.
    pub text: String,
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What was asked for is the case anyway.
    Note,
    /// What was asked for has no effect.
    Warning,
}

impl Notice {
    /// A line about something that has no effect.
    #[must_use]
    pub fn warning(text: String) -> Self {
        Self { level: Level::Warning, text }
    }

    /// A line about something that is the case anyway.
    #[must_use]
    pub fn note(text: String) -> Self {
        Self { level: Level::Note, text }
    }
}

/// One warning for each option in `given` (field names) that only means something on another device.
#[must_use]
pub fn device_only(config: &Config, given: &BTreeSet<String>) -> Vec<Notice> {
    let device = &config.device;
    let one_process = "the CPU is served by one process that uses all cores (see --threads)";
    let mut warnings = Vec::new();
    let mut warn = |field: &str, applies: bool, value: String, why: &str| {
        if applies && given.contains(field) {
            let option = field.replace('_', "-");
            warnings.push(Notice::warning(format!("--{option}{value} has no effect on the CPU: {why}")));
        }
    };
    for (field, size) in [
        ("tensor_parallel_size", device.tensor_parallel_size),
        ("pipeline_parallel_size", device.pipeline_parallel_size),
        ("data_parallel_size", device.data_parallel_size),
    ] {
        warn(field, size > 1, format!(" {size}"), one_process);
    }
    let scheme = config.model.quantization.as_deref().unwrap_or_default();
    warn(
        "quantization",
        true,
        format!(" {scheme}"),
        "weights are used in the form the checkpoint stores them in, quantised or not",
    );
    warn(
        "gpu_memory_utilization",
        true,
        format!(" {}", config.memory.gpu_memory_utilization),
        "set the size of the KV cache with --kv-cache-memory-bytes",
    );
    warn("enforce_eager", device.enforce_eager, String::new(), "every operation runs by itself there anyway");
    warn("compilation_config", true, String::new(), "no graphs are captured there");
    warn("additional_config", true, String::new(), "it speaks to a device's platform");
    warnings
}
