//! `updraft executor`: a child process of the server that drives one device. Started by the server, never by
//! hand.
//!
//! It reads the same arguments as `updraft serve`, fits the same checkpoint, and then does what the server
//! says through its standard input. Always holds: it ends when the server does.

use anyhow::Result;
use updraft_actors::executor_child;

use super::serve::fit::Fitted;
use super::serve::hardware::{Hardware, Role};
use super::serve::{factory, logging, report};
use crate::config::Loaded;

/// The word for it on the command line.
pub(in crate::commands) const WORD: &str = "executor";

/// Drives a device until the server has no more use for it.
pub(in crate::commands) fn run(loaded: &Loaded) -> Result<()> {
    logging::start();
    let config = &loaded.config;
    let socket = executor_child::socket()?;
    // What is said about the configuration, the server has said.
    let (hardware, _) = Hardware::choose(config, Role::Child)?;
    let fitted = Fitted::new(config, hardware)?;
    let team = factory::team(config);
    if matches!(fitted.hardware, Hardware::Cpu) {
        tracing::info!("{}", report::threads(&team));
    }
    Ok(executor_child::serve(socket, factory::factory(config, &fitted, &team))?)
}
