//! The subcommands of `updraft`, one file each, and how their outcome becomes an exit code.
//!
//! Always holds: a failure ends in one message of one or two lines on standard error and a non-zero code,
//! never in a backtrace.

pub mod bench;
pub mod chat;
pub mod serve;

mod executor;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::{self, Config, ConfigError, Environment, reference};

/// The command did not do what it was asked.
const EXIT_FAILED: u8 = 1;
/// The command line or configuration cannot be understood.
const EXIT_USAGE: u8 = 2;

/// Serves large language models over the OpenAI API, and talks to them.
#[derive(Parser)]
#[command(name = "updraft", version, max_term_width = 100, after_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a model over the OpenAI API.
    #[command(after_help = config::EXAMPLES)]
    Serve(Box<Config>),
    /// Talk to a running server from the terminal.
    Chat(chat::ChatOptions),
    /// Measure what this machine can do at best.
    Bench(bench::BenchOptions),
    /// Print the reference page of the configuration.
    #[command(hide = true)]
    ConfigReference,
}

const EXAMPLES: &str = "\
Examples:
  updraft serve ~/models/Qwen3-0.6B        serve a model on port 8000
  updraft chat                             talk to it
  updraft bench machine                    read bandwidth and peak arithmetic of this machine
  updraft serve --help                     every option";

/// Runs the command line (its first item is the program's name).
#[must_use]
pub fn run(line: Vec<String>) -> ExitCode {
    // `serve` reads its arguments itself: file and environment stand behind them.
    let command = line.get(1).map(String::as_str);
    if let (Some(command @ ("serve" | executor::WORD)), Some(arguments)) = (command, line.get(2..)) {
        return match config::load(arguments, &Environment::of_process()) {
            Ok(loaded) if command == executor::WORD => end_at_once(executor::run(&loaded)),
            Ok(loaded) => finish(serve::run(&loaded)),
            Err(ConfigError::Help(help)) => print_help(&help),
            Err(error) => complain(&error.to_string(), EXIT_USAGE),
        };
    }
    let parsed =
        Cli::command().try_get_matches_from(line).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed.map(|cli| cli.command) {
        Ok(Command::Chat(options)) => finish(chat::run(&options)),
        Ok(Command::Bench(options)) => finish(bench::run(&options)),
        Ok(Command::ConfigReference) => {
            finish(std::io::stdout().write_all(reference::page().as_bytes()).map_err(anyhow::Error::from))
        }
        // An option stands before the word `serve`; there are none that could.
        Ok(Command::Serve(_)) => {
            complain("options of serve come after the word: `updraft serve MODEL ...`", EXIT_USAGE)
        }
        Err(error) if error.use_stderr() => {
            // Nothing can be done about a terminal that is gone.
            let _ = error.print();
            ExitCode::from(EXIT_USAGE)
        }
        Err(help) => print_help(&help),
    }
}

/// Ends the process without waiting for threads: that of a device may hang.
fn end_at_once(outcome: anyhow::Result<()>) -> ! {
    let code = outcome.map_or_else(
        |error| {
            complain(&format!("{error:#}"), EXIT_FAILED);
            EXIT_FAILED
        },
        |()| 0,
    );
    std::process::exit(code.into())
}

fn print_help(help: &clap::Error) -> ExitCode {
    // A reader such as `head` may have enough before the end.
    let _ = help.print();
    ExitCode::SUCCESS
}

fn finish(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.downcast_ref::<serve::Ended>().map_or(EXIT_FAILED, |ended| ended.exit_code());
            complain(&format!("{error:#}"), code)
        }
    }
}

fn complain(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {message}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        config::command().debug_assert();
    }
}
