//! What is said about a configuration before serving: options that change nothing here.

use std::collections::BTreeSet;

use super::Config;
use super::device::{Target, ThreadBinding};

/// One line about the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub level: Level,
    /// The line.
    pub text: String,
    /// The only kind of device that it is said for; none: for all.
    pub on: Option<Target>,
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
        Self { level: Level::Warning, text, on: None }
    }

    /// A line about something that is the case anyway.
    #[must_use]
    pub fn note(text: String) -> Self {
        Self { level: Level::Note, text, on: None }
    }

    /// The same, said only when serving on such a device.
    #[must_use]
    pub fn on(self, target: Target) -> Self {
        Self { on: Some(target), ..self }
    }

    /// Whether it is said when serving on such a device.
    #[must_use]
    pub fn concerns(&self, target: Target) -> bool {
        self.on.is_none_or(|on| on == target)
    }
}

/// One warning for each option in `given` (field names) that only means something on another device, or nothing yet.
#[must_use]
pub fn by_device(config: &Config, given: &BTreeSet<String>) -> Vec<Notice> {
    let device = &config.device;
    let mut warnings = Vec::new();
    let mut warn = |field: &str, applies: bool, target: Target, value: String, why: &str| {
        if applies && given.contains(field) {
            let place = match target {
                Target::Cpu => "on the CPU",
                Target::Ascend => "on an NPU",
            };
            let option = field.replace('_', "-");
            let text = format!("--{option}{value} has no effect {place}: {why}");
            warnings.push(Notice::warning(text).on(target));
        }
    };
    let one_process = "the CPU is served by one process that uses all cores (see --threads)";
    for (field, size) in [
        ("tensor_parallel_size", device.tensor_parallel_size),
        ("pipeline_parallel_size", device.pipeline_parallel_size),
        ("data_parallel_size", device.data_parallel_size),
    ] {
        warn(field, size > 1, Target::Cpu, format!(" {size}"), one_process);
    }
    warn(
        "data_parallel_size",
        device.data_parallel_size > 1,
        Target::Ascend,
        format!(" {}", device.data_parallel_size),
        "start one server for each device behind a balancer",
    );
    let scheme = config.model.quantization.as_deref().unwrap_or_default();
    let stored = "weights are used in the form the checkpoint stores them in, quantised or not";
    warn("quantization", true, Target::Cpu, format!(" {scheme}"), stored);
    warn(
        "quantization",
        true,
        Target::Ascend,
        format!(" {scheme}"),
        "weights are used as they are stored; W8A8 checkpoints in the layout of ModelSlim are not read yet",
    );
    warn(
        "gpu_memory_utilization",
        true,
        Target::Cpu,
        format!(" {}", config.memory.gpu_memory_utilization),
        "set the size of the KV cache with --kv-cache-memory-bytes",
    );
    let binds = device.thread_binding != ThreadBinding::Auto;
    warn(
        "thread_binding",
        binds,
        Target::Ascend,
        String::new(),
        "it is about threads that compute the model",
    );
    warn("cann_path", true, Target::Cpu, String::new(), "it is only used for Ascend NPUs");
    warnings
}
