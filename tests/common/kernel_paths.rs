//! Runs the tests of a binary once more for each instruction set that the machine has besides its fastest one.
//!
//! An instruction set is chosen once a process, so each gets a process: the same binary, with the choice forced.
//! A set that the machine lacks cannot be tested on it, which is said on standard error and is no failure.

use std::io::Write as _;
use std::process::Command;

use updraft_kernels::cpu_features::{Isa, KERNELS_VARIABLE};

/// Runs the tests of this binary whose name contains one of `tests(isa)` (all if there is none) with each set forced
/// but the default. `this` is the caller's own name, which is left out. Does nothing in a process in which a set is
/// forced already.
///
/// # Panics
/// When a run fails, or finds no test; the message names the set.
pub(crate) fn run_again_on_each(this: &str, tests: impl Fn(Isa) -> &'static [&'static str]) {
    if std::env::var_os(KERNELS_VARIABLE).is_some_and(|forced| !forced.is_empty()) {
        return;
    }
    let available = Isa::available();
    let lacking: Vec<_> =
        Isa::ALL.iter().filter(|isa| !available.contains(isa)).map(|isa| isa.name()).collect();
    if !lacking.is_empty() {
        // Unlike `eprintln`, this is seen although the test passes.
        let _ = writeln!(std::io::stderr(), "{this}: not tested, this machine lacks {}", lacking.join(", "));
    }
    let default = available.last().copied();
    let failed: Vec<_> = available
        .into_iter()
        .filter(|isa| Some(*isa) != default)
        .filter_map(|isa| run(this, isa, tests(isa)).err())
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn run(this: &str, isa: Isa, tests: &[&str]) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("{isa}: {error}"))?;
    let output = Command::new(program)
        .args(tests)
        .args(["--skip", this])
        .env(KERNELS_VARIABLE, isa.name())
        .output()
        .map_err(|error| format!("{isa}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found_some = text.contains("test result: ok.") && !text.contains("ok. 0 passed");
    if output.status.success() && found_some {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("with {KERNELS_VARIABLE}={isa} ({}):\n{text}{errors}", output.status))
}
