//! Options about where the model runs.

use clap::{ArgAction, Args, ValueEnum};

use super::values::{self, JsonObject};

/// Where the model runs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceOptions {
    /// Device to run on.
    #[arg(long, value_name = "DEVICE", value_enum, default_value = "auto")]
    pub device: DeviceKind,

    /// Threads that compute. Default: one for each core this process may use.
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub threads: Option<u32>,

    /// Devices that share each layer.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count)]
    pub tensor_parallel_size: u32,

    /// Devices that the layers are spread over.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count)]
    pub pipeline_parallel_size: u32,

    /// Copies of the model that share the requests.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count)]
    pub data_parallel_size: u32,

    /// Run every operation by itself, without captured graphs. The CPU always does.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", action = ArgAction::Set, value_parser = values::switch)]
    pub enforce_eager: bool,

    /// Settings for captured graphs. Have no effect on the CPU.
    #[arg(long, value_name = "JSON", value_parser = values::json_object)]
    pub compilation_config: Option<JsonObject>,

    /// Settings of the device's platform (such as `ascend_config`). Have no effect on the CPU.
    #[arg(long, value_name = "JSON", value_parser = values::json_object)]
    pub additional_config: Option<JsonObject>,
}

/// Kinds of device this build can serve on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// The best one there is.
    Auto,
    /// The processor.
    Cpu,
}
