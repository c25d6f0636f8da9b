//! Progress while weights are read: a bar on a terminal, a line every quarter elsewhere.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

/// Lines in a log that has no terminal.
const LINES: u64 = 4;
/// Below this a log needs no lines: it is done before anybody reads them.
const LINES_FROM_BYTES: u64 = 1 << 30;

/// Counts weights in bytes of the checkpoint. Shared by the threads that read them.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    total: u64,
    done: AtomicU64,
}

impl Progress {
    /// Nothing read yet of `total` bytes.
    pub(super) fn new(total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            // The template is a constant; were it broken, the bar would show its own.
            if let Ok(style) =
                ProgressStyle::with_template("loading {bar:40} {bytes}/{total_bytes} {elapsed}")
            {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, total, done: AtomicU64::new(0) }
    }

    /// Says how many bytes are read in all.
    pub(super) fn reached(&self, done: u64) {
        let before = self.done.fetch_max(done, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_position(done.max(before));
        } else if self.total >= LINES_FROM_BYTES {
            let quarter = |bytes: u64| bytes.saturating_mul(LINES) / self.total.max(1);
            if quarter(done) > quarter(before) {
                tracing::info!("loading: {} %", done.saturating_mul(100) / self.total.max(1));
            }
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
