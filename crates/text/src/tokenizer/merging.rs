//! Merging of adjacent symbols, best pair first: the loop that byte pair encoding and SentencePiece share.
//!
//! Takes `n log n` steps for `n` symbols, whatever the text.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stretch of text that is one token, or may become part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Token, or what the caller uses for "none".
    pub id: u32,
    /// First byte in the text.
    pub start: u32,
    /// Bytes; 0 once merged into the symbol before it.
    pub len: u32,
}

/// What a pair of symbols merges into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merge {
    /// Smaller goes first; among equals, the leftmost pair.
    pub priority: u32,
    /// Token of both together.
    pub id: u32,
}

/// A merge that was possible when it was found; void when either side has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    priority: u32,
    left: u32,
    right: u32,
    left_len: u32,
    right_len: u32,
    id: u32,
}

/// Working memory, reusable between texts.
#[derive(Debug, Default)]
pub(super) struct Merger {
    /// The symbols; set them before [`Merger::run`], read those with a length after it.
    pub symbols: Vec<Symbol>,
    next: Vec<u32>,
    previous: Vec<u32>,
    queue: BinaryHeap<Reverse<Pending>>,
}

const NONE: u32 = u32::MAX;

impl Merger {
    /// Merges until `find` knows no pair any more.
    pub(super) fn run(&mut self, find: impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        let count = self.symbols.len() as u32;
        self.queue.clear();
        self.previous.clear();
        self.previous.extend((0..count).map(|at| at.wrapping_sub(1)));
        self.next.clear();
        self.next.extend((1..=count).map(|at| if at == count { NONE } else { at }));
        for right in 1..count {
            self.consider(right - 1, right, &find);
        }
        while let Some(Reverse(pending)) = self.queue.pop() {
            if self.symbol(pending.left).is_none_or(|left| left.len != pending.left_len)
                || self.symbol(pending.right).is_none_or(|right| right.len != pending.right_len)
            {
                continue;
            }
            self.join(pending);
            let (before, after) = (get(&self.previous, pending.left), get(&self.next, pending.left));
            self.consider(before, pending.left, &find);
            self.consider(pending.left, after, &find);
        }
    }

    /// The symbols that are left, in order.
    pub(super) fn merged(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.len > 0)
    }

    fn consider(&mut self, left: u32, right: u32, find: &impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        let (Some(one), Some(two)) = (self.symbol(left), self.symbol(right)) else { return };
        if let Some(Merge { priority, id }) = find(one, two) {
            let (left_len, right_len) = (one.len, two.len);
            self.queue.push(Reverse(Pending { priority, left, right, left_len, right_len, id }));
        }
    }

    fn join(&mut self, pending: Pending) {
        let after = get(&self.next, pending.right);
        if let Some(right) = self.symbols.get_mut(pending.right as usize) {
            right.len = 0;
        }
        if let Some(left) = self.symbols.get_mut(pending.left as usize) {
            left.len += pending.right_len;
            left.id = pending.id;
        }
        set(&mut self.next, pending.left, after);
        set(&mut self.previous, after, pending.left);
    }

    fn symbol(&self, at: u32) -> Option<&Symbol> {
        self.symbols.get(at as usize)
    }
}

fn get(links: &[u32], at: u32) -> u32 {
    links.get(at as usize).copied().unwrap_or(NONE)
}

fn set(links: &mut [u32], at: u32, to: u32) {
    if let Some(link) = links.get_mut(at as usize) {
        *link = to;
    }
}
