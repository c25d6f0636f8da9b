//! Connections: accepting them, bounding what each can cost, and letting them end.
//!
//! Every connection is a tracked task that owns its requests and streams. On shutdown nothing new is
//! accepted, idle connections close at once, and the others get a time to finish; what is left then hears
//! that the server stops, and is cut off if it does not listen.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::state::AppState;

/// A request's head that takes longer is not waited for; nor is the next request of an idle connection.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Headers of a request at most.
const HEADERS_MAX: usize = 100;
/// How long connections get to pass on the news that the server stops.
const FAREWELL: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted, mostly because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then for at most `grace` (and a moment) longer.
pub async fn serve(
    listener: TcpListener,
    state: Arc<AppState>,
    shutdown: CancellationToken,
    grace: Duration,
) -> std::io::Result<()> {
    let router = super::router(Arc::clone(&state));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let places = Arc::new(Semaphore::new(state.options.max_connections));
    let signals = Signals { shutdown: shutdown.clone(), cut: cut.clone() };
    while let Some((stream, place)) = accept(&listener, &places, &shutdown).await {
        connections.spawn(connection(stream, router.clone(), signals.clone(), place));
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(grace, connections.wait()).await.is_err() {
        state.stopping.cancel();
        if tokio::time::timeout(FAREWELL, connections.wait()).await.is_err() {
            tracing::warn!(connections = connections.len(), "closing connections that did not end in time");
            cut.cancel();
            connections.wait().await;
        }
    }
    Ok(())
}

#[derive(Clone)]
struct Signals {
    /// Finish what runs, start nothing new.
    shutdown: CancellationToken,
    /// End now.
    cut: CancellationToken,
}

/// The next connection; none once the server shuts down.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    shutdown: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let accepted = async {
        let place = Arc::clone(places).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((stream, place)),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        accepted = accepted => accepted,
    }
}

async fn connection(stream: TcpStream, router: Router, signals: Signals, _place: OwnedSemaphorePermit) {
    // Tokens are small and should not wait for more to fill a packet; a socket without the option still works.
    let _ = stream.set_nodelay(true);
    let mut settings = http1::Builder::new();
    settings
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(settings.serve_connection(TokioIo::new(stream), service));
    let mut is_draining = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = signals.shutdown.cancelled(), if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = signals.cut.cancelled() => return,
        }
    }
}
