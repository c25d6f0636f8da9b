//! The `updraft` binary. Everything is in the library; this only hands over the arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    updraft::commands::run(std::env::args().collect())
}
