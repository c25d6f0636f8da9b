//! Dividing a loop among workers by a shared counter.
//!
//! One atomic holds the number of the loop and the next free item, so that a new loop needs no reset and no
//! barrier: the first worker to reach it takes the counter over, which it can only do once the loop before has
//! no item left to give.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The loop being divided, `loop number << 32 | next item`, alone on its cache line.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct LoopCounter(AtomicU64);

impl LoopCounter {
    /// Forgets all loops. Only while no worker runs.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(super) fn shares(&self, id: u32, items: usize, grain: usize) -> Shares<'_> {
        debug_assert!(u32::try_from(items).is_ok(), "a shared loop counts its items in 32 bits");
        Shares { counter: self, id, items: items as u32, grain: grain.max(1) as u32 }
    }
}

/// The pieces of a loop that fall to one worker: an iterator over ranges of items.
#[derive(Debug)]
pub struct Shares<'team> {
    counter: &'team LoopCounter,
    id: u32,
    items: u32,
    grain: u32,
}

impl Iterator for Shares<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let counter = &self.counter.0;
        // No ordering is needed: the counter only hands out numbers, barriers publish the data.
        let mut seen = counter.load(Ordering::Relaxed);
        loop {
            let (id, next) = ((seen >> 32) as u32, seen as u32);
            if id > self.id {
                return None;
            }
            let start = if id == self.id { next } else { 0 };
            if start >= self.items {
                return None;
            }
            let end = start.saturating_add(self.grain).min(self.items);
            let claimed = u64::from(self.id) << 32 | u64::from(end);
            match counter.compare_exchange_weak(seen, claimed, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(start as usize..end as usize),
                Err(now) => seen = now,
            }
        }
    }
}
