//! `updraft serve`: from a configuration to a running server, and back down.
//!
//! Everything that can be wrong is found before the port opens, in the order in which it is cheap to find:
//! the port, the checkpoint, the memory, the text side, the weights. After that the server only ends by a
//! signal or because the engine has used up its restarts.

mod assemble;
mod defaults;
mod lifetime;
mod logging;
mod machine;
mod measure;
mod memory_plan;
mod progress;
mod report;
mod text_source;

use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use updraft_core::Tokens;
use updraft_devices::cpu::CpuModel;
use updraft_models::{Checkpoint, OpenOptions};
use updraft_text::TextModel;

use crate::config::model::LoadFormat;
use crate::config::values::ContextLength;
use crate::config::{Config, Level, Loaded};
use memory_plan::MemoryPlan;
use progress::Progress;

pub use lifetime::Ended;

/// Threads of the async runtime: they only move bytes and messages.
const ASYNC_THREADS: usize = 2;

/// Serves until told to stop.
pub fn run(loaded: &Loaded) -> Result<()> {
    let started = Instant::now();
    logging::start();
    for notice in &loaded.notices {
        match notice.level {
            Level::Warning => tracing::warn!("{}", notice.text),
            Level::Note => tracing::info!("{}", notice.text),
        }
    }
    let config = &loaded.config;
    // Opened and closed again: a taken port should not cost the time that loading takes.
    drop(listen(config)?);

    let prepared = prepare(config)?;
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

/// What a model becomes before it is served.
struct Prepared {
    checkpoint: Checkpoint,
    model: Arc<CpuModel>,
    text: Arc<TextModel>,
    plan: MemoryPlan,
    shape: measure::Shape,
    threads: usize,
}

fn prepare(config: &Config) -> Result<Prepared> {
    let path = expanded(config.model_name());
    check_format(config.model.load_format, &path)?;
    let max_model_len = match config.model.max_model_len {
        Some(ContextLength::Tokens(tokens)) => Some(Tokens(tokens)),
        Some(ContextLength::Auto) | None => None,
    };
    let options = OpenOptions {
        max_model_len,
        download_dir: config.model.download_dir.clone(),
        revision: config.model.revision.clone(),
    };
    let checkpoint = Checkpoint::open(&path, &options)?;
    let shape = measure::shape(config, &checkpoint);
    let plan = memory_plan::plan(config, &measure::facts(&checkpoint, shape))?;
    let threads = config.device.threads.unwrap_or_else(machine::cores) as usize;

    let source = text_source::text_source(config, &checkpoint.text)?;
    // The vocabulary is built while the weights are packed.
    let (text, model) = std::thread::scope(|scope| {
        let text = scope.spawn(|| TextModel::new(source));
        let model = load(&checkpoint, &plan, shape, threads);
        (text.join(), model)
    });
    let Ok(text) = text else { bail!("building the tokenizer failed inside the server") };
    Ok(Prepared { model: model?, text: Arc::new(text?), checkpoint, plan, shape, threads })
}

fn load(
    checkpoint: &Checkpoint,
    plan: &MemoryPlan,
    shape: measure::Shape,
    threads: usize,
) -> Result<Arc<CpuModel>> {
    let progress = Progress::new(plan.weights.0);
    let options = assemble::load_options(shape, threads);
    let model = CpuModel::load(checkpoint.program.clone(), checkpoint, &options, &|loaded| {
        progress.reached(loaded.bytes.0);
    });
    progress.finish();
    Ok(model?)
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

fn check_format(wanted: LoadFormat, path: &Path) -> Result<()> {
    match wanted {
        LoadFormat::Gguf if path.is_dir() => {
            bail!("--load-format gguf, but {} is a folder; give the .gguf file", path.display())
        }
        LoadFormat::Safetensors if path.is_file() => {
            bail!("--load-format safetensors, but {} is a file; give its folder", path.display())
        }
        _ => Ok(()),
    }
}

/// `~/` at the beginning becomes the home folder; shells do this for flags, but not in files.
fn expanded(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}
