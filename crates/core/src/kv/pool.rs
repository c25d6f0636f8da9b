//! The blocks themselves: who counts on each, which can be found by its content, which is given out next.
//!
//! A free block keeps its content and can be found until it is given to other tokens: a full one by the hash of its
//! content, one that is not full as an end ([`super::ends`]). Free blocks with a findable content go out last, least
//! recently used first; the others first.

use std::collections::HashMap;

use super::ends::Ends;
use super::free_list::FreeList;
use super::hash::BlockHash;
use crate::ids::{BlockId, TokenId};

/// All blocks of one KV cache.
#[derive(Debug)]
pub(super) struct BlockPool {
    blocks: Vec<BlockState>,
    free: FreeList,
    found_by: HashMap<BlockHash, BlockId>,
    ends: Ends,
}

#[derive(Clone, Copy, Debug, Default)]
struct BlockState {
    /// Tables that hold the block; free at zero.
    references: u32,
    /// Present while the block can be found.
    hash: Option<BlockHash>,
    /// Present while the block is an end: the place that it continues.
    end_of: Option<BlockHash>,
}

impl BlockPool {
    pub(super) fn new(count: u32) -> Self {
        Self {
            blocks: vec![BlockState::default(); count as usize],
            free: FreeList::full(count),
            found_by: HashMap::new(),
            ends: Ends::default(),
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.blocks.len() as u32
    }

    pub(super) fn free(&self) -> u32 {
        self.free.len()
    }

    pub(super) fn is_free(&self, block: BlockId) -> bool {
        self.blocks[block.0 as usize].references == 0
    }

    /// Gives out one block, with the hash by which it can no longer be found.
    pub(super) fn take(&mut self) -> Option<(BlockId, Option<BlockHash>)> {
        let block = self.free.pop_front()?;
        let state = &mut self.blocks[block.0 as usize];
        state.references = 1;
        let evicted = state.hash.take();
        if let Some(hash) = evicted {
            self.found_by.remove(&hash);
        }
        self.forget_end(block);
        Some((block, evicted))
    }

    /// One more table holds this block.
    pub(super) fn share(&mut self, block: BlockId) {
        let state = &mut self.blocks[block.0 as usize];
        if state.references == 0 {
            self.free.remove(block);
        }
        state.references += 1;
    }

    /// One table less holds this block. A chain is given back from its end, so that its end goes out first.
    pub(super) fn give_back(&mut self, block: BlockId) {
        let state = &mut self.blocks[block.0 as usize];
        debug_assert!(state.references > 0, "block {block} is given back but nobody holds it");
        state.references = state.references.saturating_sub(1);
        if state.references > 0 {
            return;
        }
        if state.hash.is_some() || state.end_of.is_some() {
            self.free.push_back(block);
        } else {
            self.free.push_front(block);
        }
    }

    /// The block with this content.
    pub(super) fn find(&self, hash: &BlockHash) -> Option<BlockId> {
        self.found_by.get(hash).copied()
    }

    /// Lets a block be found, unless another one with the same content can be already: then this one stays
    /// private, so that block tables only ever grow at their end.
    pub(super) fn publish(&mut self, block: BlockId, hash: BlockHash) -> bool {
        let std::collections::hash_map::Entry::Vacant(entry) = self.found_by.entry(hash) else {
            return false;
        };
        entry.insert(block);
        self.blocks[block.0 as usize].hash = Some(hash);
        true
    }

    /// Makes a block an end, whose owner is about to give it back: the last one who holds it.
    pub(super) fn keep_end(&mut self, block: BlockId, place: BlockHash, tokens: Box<[TokenId]>) {
        let state = &mut self.blocks[block.0 as usize];
        debug_assert!(
            state.references == 1 && state.hash.is_none(),
            "block {block} is shared and cannot be an end"
        );
        state.end_of = Some(place);
        if let Some(lost) = self.ends.keep(place, block, tokens) {
            debug_assert!(self.is_free(lost), "block {lost} was an end but somebody holds it");
            self.blocks[lost.0 as usize].end_of = None;
            self.free.remove(lost);
            self.free.push_front(lost);
        }
    }

    /// The longest end in a place that `tokens` begins with, and its length.
    pub(super) fn find_end(&self, place: &BlockHash, tokens: &[TokenId]) -> Option<(BlockId, u32)> {
        self.ends.longest(place, tokens)
    }

    /// An end gets its new owner and is none any more.
    pub(super) fn take_over(&mut self, block: BlockId) {
        self.forget_end(block);
        self.share(block);
    }

    fn forget_end(&mut self, block: BlockId) {
        if let Some(place) = self.blocks[block.0 as usize].end_of.take() {
            self.ends.forget(&place, block);
        }
    }

    /// Tables that hold each block.
    pub(super) fn references(&self) -> Vec<u32> {
        self.blocks.iter().map(|state| state.references).collect()
    }

    /// Free blocks, first to go first.
    pub(super) fn free_blocks(&self) -> Vec<BlockId> {
        self.free.iter().collect()
    }

    /// For each findable content the block it leads to, and whether that block carries the same hash.
    pub(super) fn published(&self) -> impl Iterator<Item = (BlockId, bool)> + '_ {
        self.found_by.iter().map(|(hash, block)| (*block, self.blocks[block.0 as usize].hash == Some(*hash)))
    }

    /// For each end its block, and whether that block is free, says the same and holds nothing else to be found; and
    /// for each block that says it is one, whether there is such an end.
    pub(super) fn ends(&self) -> impl Iterator<Item = (BlockId, bool)> + '_ {
        let kept = self.ends.iter().map(|(place, block)| {
            let state = &self.blocks[block.0 as usize];
            (block, state.references == 0 && state.end_of == Some(place) && state.hash.is_none())
        });
        let said = self.blocks.iter().zip(0..).filter_map(|(state, block)| {
            let (place, block) = (state.end_of?, BlockId(block));
            Some((block, self.ends.iter().any(|end| end == (place, block))))
        });
        kept.chain(said)
    }
}
