//! `updraft bench`: measurements of the machine, one file each.
//!
//! Refuses to know models and servers: what those reach is measured from outside, by a client.

pub mod machine;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Options of `updraft bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchOptions {
    /// What is measured.
    #[command(subcommand)]
    pub what: Measurement,
}

/// What can be measured.
#[derive(Clone, Debug, Subcommand)]
pub enum Measurement {
    /// Measure what this machine can do at best: read bandwidth and peak arithmetic.
    Machine(machine::MachineOptions),
}

/// Measures and prints.
pub fn run(options: &BenchOptions) -> Result<()> {
    match &options.what {
        Measurement::Machine(options) => machine::run(options),
    }
}
