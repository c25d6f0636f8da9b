//! What the manager knows of one sequence: its blocks, its tokens and how far it is computed.

use std::sync::Arc;

use super::hash::{BlockContent, BlockHash};
use crate::ids::{BlockId, TokenId};
use crate::units::Tokens;

/// The first tokens of a sequence with the hashes of their full blocks.
///
/// A sequence that waits for blocks asks again every step; its hashes are computed once.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) tokens: Arc<[TokenId]>,
    pub(super) salt: Option<Arc<str>>,
    pub(super) hashes: Vec<BlockHash>,
}

/// One sequence that holds blocks.
#[derive(Debug)]
pub(super) struct Table {
    /// Its blocks, in order of position.
    pub(super) blocks: Vec<BlockId>,
    /// Positions that are computed once all granted steps have run, drafts included until it is known better.
    pub(super) computed: u32,
    /// Leading blocks that were offered to others (or came from them).
    pub(super) offered: usize,
    opening: Opening,
    appended: Vec<TokenId>,
}

impl Opening {
    /// With `hashed` false, nothing of the sequence can be shared.
    pub(super) fn new(
        tokens: Arc<[TokenId]>,
        salt: Option<Arc<str>>,
        block_size: Tokens,
        hashed: bool,
    ) -> Self {
        let mut opening = Self { tokens, salt, hashes: Vec::new() };
        if hashed {
            let tokens = Arc::clone(&opening.tokens);
            for block in tokens.chunks_exact(block_size.0 as usize) {
                opening.push_hash(block);
            }
        }
        opening
    }

    /// The name of everything before a block, all of whose blocks are hashed. Of the first block that is the salt alone.
    pub(super) fn place(&self, block: usize) -> Option<BlockHash> {
        match block.checked_sub(1) {
            Some(before) => self.hashes.get(before).copied(),
            None => Some(BlockContent { salt: self.salt.as_deref(), ..BlockContent::default() }.hash()),
        }
    }

    fn push_hash(&mut self, tokens: &[TokenId]) {
        let parent = self.hashes.last().copied();
        // The salt enters the chain once; adapters and images are not served yet, so none are named.
        let salt = if parent.is_none() { self.salt.as_deref() } else { None };
        self.hashes.push(BlockContent { parent, tokens, salt, ..BlockContent::default() }.hash());
    }
}

impl Table {
    /// A sequence whose first `shared` blocks are full ones from the prefix cache.
    pub(super) fn new(opening: Opening, blocks: Vec<BlockId>, shared: usize, computed: u32) -> Self {
        Self { blocks, computed, offered: shared, opening, appended: Vec::new() }
    }

    /// Takes in tokens that became known.
    pub(super) fn append(&mut self, tokens: &[TokenId]) {
        self.appended.extend_from_slice(tokens);
    }

    /// Known tokens.
    pub(super) fn known(&self) -> u32 {
        (self.opening.tokens.len() + self.appended.len()) as u32
    }

    /// Blocks from the front whose tokens are all known and all computed (or granted).
    pub(super) fn complete_blocks(&self, block_size: Tokens) -> usize {
        (self.known().min(self.computed) / block_size.0) as usize
    }

    /// The block that is neither full nor empty once all that is known is computed: its place, itself and its tokens.
    pub(super) fn end(&self, block_size: Tokens) -> Option<(BlockHash, BlockId, Box<[TokenId]>)> {
        let index = self.complete_blocks(block_size);
        let count = self.known().min(self.computed) % block_size.0;
        // Complete blocks that were not offered have no hash yet, so the place has no name.
        if count == 0 || self.offered != index {
            return None;
        }
        let mut tokens = Vec::with_capacity(block_size.0 as usize);
        self.extend_with_tokens(index, block_size, &mut tokens);
        tokens.truncate(count as usize);
        Some((self.opening.place(index)?, *self.blocks.get(index)?, tokens.into_boxed_slice()))
    }

    /// The hash of the block before this one.
    pub(super) fn parent(&self, block: usize) -> Option<BlockHash> {
        block.checked_sub(1).and_then(|before| self.opening.hashes.get(before)).copied()
    }

    /// The hash of one complete block. Blocks are asked for in order.
    pub(super) fn hash(&mut self, block: usize, block_size: Tokens) -> Option<BlockHash> {
        if block == self.opening.hashes.len() {
            let mut tokens = Vec::with_capacity(block_size.0 as usize);
            self.extend_with_tokens(block, block_size, &mut tokens);
            self.opening.push_hash(&tokens);
        }
        self.opening.hashes.get(block).copied()
    }

    /// Adds the tokens of one block to `out`.
    pub(super) fn extend_with_tokens(&self, block: usize, block_size: Tokens, out: &mut Vec<TokenId>) {
        let first = block * block_size.0 as usize;
        let tokens = self.opening.tokens.iter().chain(&self.appended);
        // Skipping within a chain of two slices takes constant time.
        out.extend(tokens.skip(first).take(block_size.0 as usize));
    }
}
