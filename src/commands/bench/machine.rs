//! `updraft bench machine`: the limits that no model on this machine can pass.
//!
//! A decode step is bound by how fast weights are read, a prefill by how fast numbers are multiplied. Both
//! are measured inside the process, with the instruction set that kernels would use, on one thread and on
//! all. Rounds go over everything in turn, so that a slow moment of the machine does not fall on one figure
//! alone; a figure is the median of its rounds.

mod measure;
mod report;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use updraft_kernels::machine::Probe;
use updraft_kernels::topology::{Binding, Machine};

use measure::{Measure, Task};
use report::Report;

/// Rounds unless said otherwise: enough for a median that one disturbance does not move.
const RUNS: u32 = 7;
/// Rounds, at most.
const RUNS_MAX: i64 = 1000;
/// Memory that is read, unless said otherwise: far more than any cache.
const MEMORY_MIB: u64 = 1024;
/// Memory that is read, at most.
const MEMORY_MIB_MAX: u64 = 1 << 20;
/// Threads, at most.
const THREADS_MAX: i64 = 1024;

/// Options of `updraft bench machine`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MachineOptions {
    /// Threads that work together. Default: as many as `updraft serve` uses.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=THREADS_MAX))]
    pub threads: Option<u32>,

    /// Rounds; each figure is the median of them.
    #[arg(
        long, value_name = "N", default_value_t = RUNS, value_parser = value_parser!(u32).range(1..=RUNS_MAX)
    )]
    pub runs: u32,

    /// Memory to read, in MiB: should be far more than the caches hold.
    #[arg(
        long, value_name = "MIB", default_value_t = MEMORY_MIB,
        value_parser = value_parser!(u64).range(1..=MEMORY_MIB_MAX)
    )]
    pub memory_mib: u64,

    /// File to write the figures to, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  updraft bench machine                            about ten seconds, on all cores
  updraft bench machine --threads 4 --runs 15      four threads, steadier figures
  updraft bench machine --json limits.json         for other programs
  UPDRAFT_KERNELS=avx2 updraft bench machine       as if the machine had no more than AVX2

Measure with nothing else running: a busy neighbour takes bandwidth and cores.";

/// Measures and prints a table.
pub fn run(options: &MachineOptions) -> Result<()> {
    let probe = Probe::selected()?;
    // A file that cannot be written should be known before measuring, not after.
    let json = options.json.as_ref().map(|path| {
        let file = std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()));
        file.map(|file| (path, file))
    });
    let json = json.transpose()?;
    let report = measured(options, probe)?;
    write!(std::io::stdout(), "{report}")?;
    if let Some((path, mut file)) = json {
        serde_json::to_writer_pretty(&mut file, &report)?;
        writeln!(file).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn measured(options: &MachineOptions, probe: Probe) -> Result<Report> {
    let wanted = options.threads.map(|threads| threads as usize);
    let threads = Machine::current().choose(wanted, Binding::Never).threads;
    let tasks = Task::all(probe, threads, options.memory_mib << 20);
    let mut measure = Measure::new(probe, threads, options.memory_mib << 20)?;
    let bar = bar(u64::from(options.runs) * tasks.len() as u64);
    let rows = measure.rows(&tasks, options.runs, &|| bar.inc(1));
    bar.finish_and_clear();
    Ok(Report::new(probe.isa().name(), threads, options.runs, rows))
}

/// A bar on a terminal, nothing elsewhere: it is done before anybody reads a log.
fn bar(total: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    // The template is a constant; were it broken, the bar would show its own.
    if let Ok(style) = ProgressStyle::with_template("measuring {bar:40} {percent} % {elapsed}") {
        bar.set_style(style);
    }
    bar
}
