//! Where the executor lives: on a thread of the server, or in a child process.
//!
//! A child is the same program with the same arguments behind another word; what the server has worked out
//! from the moment (free memory, the chip) follows as options, which win over those before them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use updraft_actors::{ChildSpec, Placement};
use updraft_kernels::topology::Choice;

use super::factory;
use super::fit::{Fitted, Types};
use crate::commands::executor;
use crate::config::Config;
use crate::config::device::{EXECUTOR_TIMEOUT_DEFAULT, Isolation, Target};
use crate::config::speculation::speculation_text;

/// Where the program that is running can be started again, even when its file has been replaced.
const RUNNING_PROGRAM: &str = "/proc/self/exe";
/// The CPU shows progress between parts of a step. The longest part, one layer's attention over a long prompt, takes
/// seconds on a small machine.
const STALL_AFTER_CPU: Duration = Duration::from_secs(30);
/// How long a step may take when nothing is said. The largest step of a large model on a slow CPU takes tens
/// of seconds.
const STEP_DEADLINE_CPU: Duration = Duration::from_secs(300);
/// The same on an NPU: far longer than any step, and short beside what a kernel that hangs costs everybody. A step that
/// is late is waited for twice.
const STEP_DEADLINE_NPU: Duration = Duration::from_secs(10);

/// Where the executor lives. In this process, weights are loaded now; a child loads them itself.
pub(super) fn placement(
    config: &Config,
    fitted: &Fitted,
    team: &Choice,
    arguments: &[String],
) -> Result<Placement> {
    match config.device.executor_isolation {
        Isolation::Thread => Ok(Placement::Thread(factory::loaded_factory(config, fitted, team)?)),
        Isolation::Process => Ok(Placement::Process(ChildSpec {
            program: program()?,
            arguments: child_arguments(arguments, &told(config, fitted)),
            environment: Vec::new(),
            silent_after: config.device.executor_timeout.unwrap_or(EXECUTOR_TIMEOUT_DEFAULT),
        })),
    }
}

/// How long a step may take.
pub(super) fn step_deadline(config: &Config, target: Target) -> Duration {
    config.device.step_deadline.unwrap_or(match target {
        Target::Cpu => STEP_DEADLINE_CPU,
        Target::Ascend => STEP_DEADLINE_NPU,
    })
}

/// How long a step may go without progress.
pub(super) fn stall_after(config: &Config, target: Target) -> Duration {
    config.device.executor_timeout.unwrap_or(match (config.device.executor_isolation, target) {
        (_, Target::Cpu) => STALL_AFTER_CPU,
        (Isolation::Process, Target::Ascend) => EXECUTOR_TIMEOUT_DEFAULT,
        (Isolation::Thread, Target::Ascend) => step_deadline(config, target),
    })
}

fn program() -> Result<PathBuf> {
    if Path::new(RUNNING_PROGRAM).exists() {
        return Ok(PathBuf::from(RUNNING_PROGRAM));
    }
    std::env::current_exe().context("the path of this program is not known, so no child can be started")
}

/// What a child has to be told: it must not measure again, and a configuration file may have changed since.
fn told(config: &Config, fitted: &Fitted) -> Vec<String> {
    let plan = &fitted.plan;
    let device = match fitted.types {
        Types::Cpu(_) => "--device=cpu",
        Types::Ascend(_) => "--device=ascend",
    };
    let mut told = vec![
        device.to_owned(),
        format!("--max-model-len={}", plan.max_model_len),
        format!("--block-size={}", plan.block_size),
        format!("--num-gpu-blocks-override={}", plan.blocks.0),
        format!("--max-num-batched-tokens={}", plan.step_budget),
        format!("--max-num-seqs={}", config.scheduling.max_num_seqs),
    ];
    if let Some(speculation) = &config.scheduling.speculative_config {
        told.push(format!("--speculative-config={}", speculation_text(speculation)));
    }
    if let Types::Ascend(compute) = fitted.types {
        told.push(format!("--dtype={}", compute.as_str()));
    }
    told
}

/// The server's arguments behind the word for a child, and what it is told behind them.
fn child_arguments(arguments: &[String], told: &[String]) -> Vec<String> {
    // What follows `--` is no option.
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (options, rest) = arguments.split_at(end);
    let word = std::iter::once(executor::WORD.to_owned());
    word.chain(options.iter().cloned()).chain(told.iter().cloned()).chain(rest.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, load};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn config(line: &str) -> Config {
        load(&words(line), &Environment::default()).unwrap().config
    }

    #[test]
    fn a_child_gets_the_same_arguments_and_what_was_worked_out() {
        let told = words("--device=cpu --max-model-len=64");
        let line = child_arguments(&words("--max-model-len auto --served-model-name a b -- m"), &told);
        assert_eq!(
            line.join(" "),
            "executor --max-model-len auto --served-model-name a b --device=cpu --max-model-len=64 -- m"
        );
        let read = load(&line[1..], &Environment::default()).unwrap().config;
        assert_eq!(read.model_name(), "m");
        assert_eq!(read.served_names(), ["a", "b"]);
        assert_eq!(read.model.max_model_len, Some(crate::config::values::ContextLength::Tokens(64)));
    }

    #[test]
    fn times_follow_device_and_isolation() {
        let stall = |line: &str, target| stall_after(&config(line), target).as_millis();
        assert_eq!(stall("m", Target::Cpu), 30_000);
        assert_eq!(stall("m", Target::Ascend), 10_000);
        assert_eq!(stall("m --step-deadline 7", Target::Ascend), 7_000);
        assert_eq!(stall("m --executor-timeout 2", Target::Cpu), 2_000);
        let process = "m --executor-isolation process";
        assert_eq!(stall(process, Target::Ascend), 1_500);
        assert_eq!(stall(process, Target::Cpu), 30_000);
        assert_eq!(stall(&format!("{process} --executor-timeout 4"), Target::Ascend), 4_000);
    }
}
