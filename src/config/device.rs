//! Options about where the model runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use updraft_kernels::topology::Binding;

use super::values::{self, JsonObject};

/// How long an executor in a process of its own may be silent before it is replaced, when nothing is said.
pub const EXECUTOR_TIMEOUT_DEFAULT: Duration = Duration::from_millis(1500);

/// Where the model runs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceOptions {
    /// Device to run on. `auto`: an Ascend NPU when CANN can be loaded and shows one, else the CPU.
    #[arg(long, value_name = "DEVICE", value_enum, default_value = "auto")]
    pub device: DeviceKind,

    /// Folder of the CANN toolkit, such as /usr/local/Ascend/ascend-toolkit/latest. Default: what
    /// `ASCEND_HOME_PATH` or `ASCEND_TOOLKIT_HOME` say (`set_env.sh` sets them), then the usual folders.
    #[arg(long, value_name = "DIR")]
    pub cann_path: Option<PathBuf>,

    /// Where the executor lives that owns the device. `process`: a child process, so that a driver that hangs
    /// or crashes ends only the child, which is replaced; its streams go on.
    #[arg(long, value_name = "WHERE", value_enum, default_value = "thread")]
    pub executor_isolation: Isolation,

    /// Seconds of silence of an executor in a child process, or without progress in a step, after which it is
    /// replaced. Default: 1.5 with `--executor-isolation process`; for progress in a step 30 on the CPU, and
    /// `--step-deadline` on an NPU in the server's own process.
    #[arg(long, value_name = "SECONDS", value_parser = values::positive_seconds)]
    pub executor_timeout: Option<Duration>,

    /// Seconds that the device may take for one step. Default: 300 on the CPU, 10 on an NPU. A step
    /// that is late is waited for twice before it is given up and run again on new streams.
    #[arg(long, value_name = "SECONDS", value_parser = values::positive_seconds)]
    pub step_deadline: Option<Duration>,

    /// Compute every N-th step that was replayed from a graph a second time without it and compare the logits
    /// bit for bit; a graph that differs is retired. 0: never.
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::count_or_zero)]
    pub verify_replay: u32,

    /// Threads that compute. Default: one for each core this process may use, and no more than a CPU quota (of a
    /// container) has whole processors. Two hardware threads of one core count as one.
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub threads: Option<u32>,

    /// Whether these threads are bound to processors. `auto`: one to a core when the process may use only some
    /// processors (`taskset`, a cpuset) and has no CPU quota, since such processors are taken to be its own (say `none` when
    /// several programs share them); all of them to one memory node when there are several and
    /// one has a core for each. `none`: never, `cores`: always one to a core.
    #[arg(long, value_name = "HOW", value_enum, default_value = "auto")]
    pub thread_binding: ThreadBinding,

    /// Devices that share each layer.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count)]
    pub tensor_parallel_size: u32,

    /// Devices that the layers are spread over.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count)]
    pub pipeline_parallel_size: u32,

    /// Copies of the model that share the requests.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count)]
    pub data_parallel_size: u32,

    /// Run every operation by itself, without captured graphs: the same as `cudagraph_mode` NONE.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", action = ArgAction::Set, value_parser = values::switch)]
    pub enforce_eager: bool,

    /// Rows that graphs are captured for, such as `1 2 4 8 16`. Default: 1, 2, 4, then multiples of 8 below
    /// 256, then of 16, up to `--max-num-seqs` and at most 512, as far as the device's budget goes.
    #[arg(long, value_name = "N", num_args = 1.., value_parser = values::count)]
    pub cudagraph_capture_sizes: Vec<u32>,

    /// The largest number of rows that a graph is captured for; larger steps run operation by operation.
    #[arg(long, value_name = "N", value_parser = values::count)]
    pub max_cudagraph_capture_size: Option<u32>,

    /// Settings for captured graphs, such as `{"cudagraph_mode": "FULL_DECODE_ONLY"}`; the keys are listed
    /// below.
    #[arg(long, value_name = "JSON", value_parser = values::json_object)]
    pub compilation_config: Option<JsonObject>,

    /// Settings of the device's platform: a JSON object, or the path of a JSON, TOML or YAML file with one.
    /// Holds the keys of vllm-ascend, and a table `ascend_config` (or `ascend`); all are listed below.
    #[arg(long, value_name = "JSON", value_parser = values::object_or_file)]
    pub additional_config: Option<JsonObject>,
}

/// Kinds of device that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// The best one there is.
    Auto,
    /// The processor.
    Cpu,
    /// An Ascend NPU.
    #[value(alias = "npu")]
    Ascend,
}

/// Whether compute threads are bound to processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThreadBinding {
    /// Where it helps and is in nobody's way.
    Auto,
    /// Never.
    None,
    /// One thread to a core.
    Cores,
}

impl From<ThreadBinding> for Binding {
    fn from(wish: ThreadBinding) -> Self {
        match wish {
            ThreadBinding::Auto => Self::Auto,
            ThreadBinding::None => Self::Never,
            ThreadBinding::Cores => Self::Cores,
        }
    }
}

/// Where an executor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Isolation {
    /// On a thread of the server.
    Thread,
    /// In a child process.
    Process,
}

/// The kind of device that is used in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The processor.
    Cpu,
    /// An Ascend NPU.
    Ascend,
}
