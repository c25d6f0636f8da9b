//! Work shared between two threads when there is enough of it.
//!
//! Always holds: threads share out items, never a reduction.
//!
//! Refuses to know: what an item is.

use std::ops::Range;

/// Multiply-adds below which a second thread costs more than it saves.
pub const WORTHWHILE: usize = 2_500_000;

/// Threads of one kernel at most.
const THREADS: usize = 2;

/// Runs `part` over `0..items`, on two threads if `work` (multiply-adds in all) is worth it.
pub fn split(items: usize, work: usize, part: impl Fn(Range<usize>) + Sync) {
    if work < WORTHWHILE || items < THREADS {
        part(0..items);
        return;
    }
    let half = items.div_ceil(THREADS);
    std::thread::scope(|scope| {
        scope.spawn(|| part(0..half));
        part(half..items);
    });
}
