//! The life of a running server: from the open port to the last stream.
//!
//! The first SIGTERM or Ctrl-C drains: readiness goes, new requests are refused, running ones get their
//! time. The second one, or a used-up restart budget, ends everything at once.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Instant;

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use updraft_actors::{EXIT_RESTARTS_EXHAUSTED, Engine};

use super::{Prepared, assemble, defaults, listen};
use crate::config::Config;
use crate::http::{self, AppState, Backend};

/// Ways to end that are neither success nor a failure to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// A second signal.
    #[error("stopped at once by a second signal; running requests were cut off")]
    SecondSignal(Stop),
    /// The engine failed for good.
    #[error("the engine failed more often than it may be restarted; see the lines above for the faults")]
    RestartsExhausted,
}

/// A signal that asks the server to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Ended {
    /// The exit code that says so.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            // What a shell reports for a process that a signal ended.
            Self::SecondSignal(Stop::Interrupt) => 128 + 2,
            Self::SecondSignal(Stop::Terminate) => 128 + 15,
            Self::RestartsExhausted => EXIT_RESTARTS_EXHAUSTED as u8,
        }
    }
}

/// Starts the engine, opens the port, and serves until told to stop.
pub(super) async fn serve(config: &Config, prepared: Prepared, started: Instant) -> Result<()> {
    let mut stops = Stops::watch()?;
    let names = config.served_names();
    let model_name = names.first().map_or_else(|| config.model_name(), String::as_str);
    let sampling = defaults::sampling(&config.generation, &prepared.fitted.checkpoint.text.generation)?;
    let engine = Engine::start(assemble::engine_options(config, &prepared, model_name)).await?;
    let parts = assemble::app_parts(config, &prepared, Backend::Engine(engine.clone()), sampling);
    // The vocabulary is built: only an NPU, which loads its weights anew in each life, still holds the files.
    drop(prepared);

    let listener = TcpListener::from_std(listen(config)?)?;
    let address = listener.local_addr().context("the port has no address")?;
    let seconds = started.elapsed().as_secs_f64();
    tracing::info!("serving {} at {} after {seconds:.2} s", names.join(", "), reachable(address));

    let close = CancellationToken::new();
    let grace = config.server.shutdown_timeout;
    let mut serving = pin!(http::serve(listener, AppState::new(parts), close.clone(), grace));
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        () = engine.exhausted() => return Err(failure(&engine)),
        _ = stops.next() => {}
    }

    let inside = engine.load().sequences;
    tracing::info!("stopping: {inside} running sequences get up to {} s to finish", grace.as_secs_f64());
    engine.begin_drain();
    close.cancel();
    let down = async {
        serving.await?;
        engine.stop().await;
        Ok(())
    };
    tokio::select! {
        outcome = down => outcome.inspect(|()| tracing::info!("stopped")),
        stop = stops.next() => Err(Ended::SecondSignal(stop).into()),
        () = engine.exhausted() => Err(failure(&engine)),
    }
}

/// Why the engine ended by itself: it never started, or failed too often.
fn failure(engine: &Engine) -> anyhow::Error {
    engine.failed_to_open().map_or_else(|| Ended::RestartsExhausted.into(), anyhow::Error::msg)
}

/// An address that can be pasted into a browser on this machine.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("http://127.0.0.1:{} (and every other address of this machine)", address.port())
    } else {
        format!("http://{address}")
    }
}

/// The signals that ask to stop.
struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    fn watch() -> Result<Self> {
        let watch = |kind| signal(kind).context("signals cannot be watched");
        Ok(Self { interrupt: watch(SignalKind::interrupt())?, terminate: watch(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
        }
    }
}
