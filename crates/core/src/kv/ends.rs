//! Ends: the last block of a sequence that is gone, where that block is not full.
//!
//! A block can be shared by its content only when it is full. An end cannot be shared, but it can be taken over: a
//! sequence that begins with all of its tokens becomes its owner and goes on writing behind them. So the next turn of a
//! conversation computes little more than what is new in it, whatever the size of a block.
//!
//! What always holds: the block of an end has no other content to be found by, and is free (or about to be given
//! back). Nothing here is promised to anyone; an end is lost when its block goes out or when newer ones push it out.

use std::collections::HashMap;

use super::hash::BlockHash;
use crate::ids::{BlockId, TokenId};

/// Ends kept behind the same beginning; sequences that share a long prompt leave one each.
const ENDS_IN_ONE_PLACE: usize = 16;

/// Ends by the place that they continue: the hash of everything before them.
#[derive(Debug, Default)]
pub(super) struct Ends {
    by_place: HashMap<BlockHash, Vec<End>>,
}

/// The tokens in one block that is not full.
#[derive(Debug)]
struct End {
    block: BlockId,
    tokens: Box<[TokenId]>,
}

impl Ends {
    /// Keeps an end and names the block that is none any more because of it: of an equal end, or the oldest of too many.
    pub(super) fn keep(
        &mut self,
        place: BlockHash,
        block: BlockId,
        tokens: Box<[TokenId]>,
    ) -> Option<BlockId> {
        let ends = self.by_place.entry(place).or_default();
        let equal = ends.iter().position(|end| end.tokens == tokens);
        let lost = equal.or((ends.len() >= ENDS_IN_ONE_PLACE).then_some(0));
        let lost = lost.map(|index| ends.remove(index).block);
        ends.push(End { block, tokens });
        lost
    }

    /// The longest end in a place that `tokens` begins with, and its length. Not a part of one: those who share only
    /// the beginning of a chat template would take each other's ends for a few tokens.
    pub(super) fn longest(&self, place: &BlockHash, tokens: &[TokenId]) -> Option<(BlockId, u32)> {
        let ends = self.by_place.get(place)?.iter().filter(|end| tokens.starts_with(&end.tokens));
        ends.max_by_key(|end| end.tokens.len()).map(|end| (end.block, end.tokens.len() as u32))
    }

    /// Forgets the end in this block.
    pub(super) fn forget(&mut self, place: &BlockHash, block: BlockId) {
        let Some(ends) = self.by_place.get_mut(place) else { return };
        ends.retain(|end| end.block != block);
        if ends.is_empty() {
            self.by_place.remove(place);
        }
    }

    /// Every end's place and block.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockHash, BlockId)> + '_ {
        self.by_place.iter().flat_map(|(place, ends)| ends.iter().map(|end| (*place, end.block)))
    }
}
