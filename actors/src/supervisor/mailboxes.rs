//! How many messages wait before each actor of the step loop.
//!
//! Mailboxes cannot be asked for their length, so senders and receivers count. A count is a figure for
//! dashboards, not for decisions: a message lost with its actor is forgotten when the loss is noticed.

use std::sync::atomic::{AtomicI64, Ordering};

/// The actors whose mailboxes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mailbox {
    /// The intake.
    Intake,
    /// The scheduler.
    Scheduler,
    /// The KV block actor.
    KvBlocks,
    /// The executor.
    Executor,
}

const ALL: [(Mailbox, &str); 4] = [
    (Mailbox::Intake, "intake"),
    (Mailbox::Scheduler, "scheduler"),
    (Mailbox::KvBlocks, "kv_blocks"),
    (Mailbox::Executor, "executor"),
];

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Mailboxes([AtomicI64; ALL.len()]);

impl Mailboxes {
    pub(crate) fn sent(&self, to: Mailbox) {
        self.count(to, 1);
    }

    pub(crate) fn taken(&self, from: Mailbox) {
        self.count(from, -1);
    }

    pub(crate) fn lost(&self, all_of: Mailbox) {
        if let Some(count) = self.0.get(all_of as usize) {
            count.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn depths(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        ALL.iter().zip(&self.0).map(|((_, name), count)| {
            (*name, u64::try_from(count.load(Ordering::Relaxed)).unwrap_or_default())
        })
    }

    fn count(&self, mailbox: Mailbox, change: i64) {
        if let Some(count) = self.0.get(mailbox as usize) {
            count.fetch_add(change, Ordering::Relaxed);
        }
    }
}
