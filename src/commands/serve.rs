//! `updraft serve`: from a configuration to a running server, and back down.
//!
//! Everything that can be wrong is found before the port opens, in the order in which it is cheap to find:
//! the port, the device, the checkpoint, the operators, the memory, the text side, the weights (those of an
//! NPU are loaded when its thread or process opens it). After that the server only ends by a signal or
//! because the engine has used up its restarts.

pub(super) mod factory;
pub(super) mod fit;
pub(super) mod hardware;
pub(super) mod logging;
pub(super) mod report;

mod assemble;
mod defaults;
mod lifetime;
mod machine;
mod measure;
mod memory_plan;
mod placement;
mod progress;
mod text_source;

use std::net::{TcpListener, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use updraft_actors::Placement;
use updraft_kernels::topology::Choice;
use updraft_text::TextModel;

use crate::config::{Config, Level, Loaded, Notice};
use fit::Fitted;
use hardware::{Hardware, Role};

pub use lifetime::Ended;

/// Threads of the async runtime: they only move bytes and messages.
const ASYNC_THREADS: usize = 2;

/// Serves until told to stop.
pub fn run(loaded: &Loaded) -> Result<()> {
    let started = Instant::now();
    logging::start();
    let config = &loaded.config;
    // Opened and closed again: a taken port should not cost the time that loading takes.
    drop(listen(config)?);

    let (hardware, choice) = Hardware::choose(config, Role::Server)?;
    say(&choice);
    loaded.notices_on(hardware.target()).for_each(say);
    let prepared = prepare(loaded, hardware)?;
    report::print(config, &prepared);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(ASYNC_THREADS)
        .thread_name("async")
        .enable_all()
        .build()
        .context("the async threads cannot be started")?;
    let outcome = runtime.block_on(lifetime::serve(config, prepared, started));
    // A stream that does not end must not keep the process.
    runtime.shutdown_background();
    outcome
}

fn say(notice: &Notice) {
    match notice.level {
        Level::Warning => tracing::warn!("{}", notice.text),
        Level::Note => tracing::info!("{}", notice.text),
    }
}

/// What a model becomes before it is served.
struct Prepared {
    fitted: Fitted,
    text: Arc<TextModel>,
    placement: Placement,
    team: Choice,
}

fn prepare(loaded: &Loaded, hardware: Hardware) -> Result<Prepared> {
    let config = &loaded.config;
    let fitted = Fitted::new(config, hardware)?;
    let architecture = &fitted.checkpoint.config.architecture;
    for key in &config.platform.unanswered {
        say(&key.answer(architecture));
    }
    let team = factory::team(config);
    let source = text_source::text_source(config, &fitted.checkpoint.text)?;
    // The vocabulary is built while the weights are packed.
    let (text, placement) = std::thread::scope(|scope| {
        let text = scope.spawn(|| TextModel::new(source));
        let placement = placement::placement(config, &fitted, &team, &loaded.arguments);
        (text.join(), placement)
    });
    let Ok(text) = text else { bail!("building the tokenizer failed inside the server") };
    Ok(Prepared { placement: placement?, text: Arc::new(text?), fitted, team })
}

/// The socket that will be served on.
fn listen(config: &Config) -> Result<TcpListener> {
    let (host, port) = (config.server.host.as_str(), config.server.port);
    let address = (host, port).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    let Some(address) = address else {
        bail!("--host {host:?} is no address of this machine; try 127.0.0.1 or 0.0.0.0")
    };
    let listener = TcpListener::bind(address).with_context(|| {
        format!("cannot listen on {address}; is another server running there? choose another --port")
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
