//! The free blocks in the order in which they are given out, as a doubly linked list within two arrays.
//!
//! Every operation takes constant time, also taking a block out of the middle (a prefix hit does).

use crate::ids::BlockId;

/// Free blocks; the front goes first.
#[derive(Debug)]
pub(super) struct FreeList {
    /// For each block the one behind it. The entry behind the last block is the list's head.
    next: Vec<u32>,
    /// For each block the one before it.
    previous: Vec<u32>,
    len: u32,
}

impl FreeList {
    /// Blocks `0..count`, all free, ascending.
    pub(super) fn full(count: u32) -> Self {
        let nodes = count + 1;
        Self {
            next: (0..nodes).map(|node| (node + 1) % nodes).collect(),
            previous: (0..nodes).map(|node| (node + count) % nodes).collect(),
            len: count,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn pop_front(&mut self) -> Option<BlockId> {
        let first = BlockId(self.next[self.head() as usize]);
        (self.len > 0).then(|| {
            self.remove(first);
            first
        })
    }

    /// Given out next.
    pub(super) fn push_front(&mut self, block: BlockId) {
        self.insert_behind(self.head(), block);
    }

    /// Given out last.
    pub(super) fn push_back(&mut self, block: BlockId) {
        self.insert_behind(self.previous[self.head() as usize], block);
    }

    /// Takes a block out, which must be in the list.
    pub(super) fn remove(&mut self, block: BlockId) {
        let (before, behind) = (self.previous[block.0 as usize], self.next[block.0 as usize]);
        self.next[before as usize] = behind;
        self.previous[behind as usize] = before;
        self.len -= 1;
    }

    /// The blocks in the order in which they will be given out.
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let first = self.next[self.head() as usize];
        std::iter::successors(Some(first), |node| Some(self.next[*node as usize]))
            .take(self.len as usize)
            .map(BlockId)
    }

    fn head(&self) -> u32 {
        self.next.len() as u32 - 1
    }

    fn insert_behind(&mut self, before: u32, block: BlockId) {
        let behind = self.next[before as usize];
        self.next[before as usize] = block.0;
        self.previous[block.0 as usize] = before;
        self.next[block.0 as usize] = behind;
        self.previous[behind as usize] = block.0;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_pool_gives_nothing() {
        assert_eq!(FreeList::full(0).pop_front(), None);
    }

    proptest! {
        #[test]
        fn behaves_like_a_deque(
            count in 1_u32..20,
            actions in prop::collection::vec((0_u8..4, 0_usize..20), 0..200),
        ) {
            let mut list = FreeList::full(count);
            let mut model: VecDeque<BlockId> = (0..count).map(BlockId).collect();
            let mut out: Vec<BlockId> = Vec::new();
            for (action, at) in actions {
                match action {
                    0 => {
                        let block = list.pop_front();
                        prop_assert_eq!(block, model.pop_front());
                        out.extend(block);
                    }
                    1 if !model.is_empty() => {
                        let block = model.remove(at % model.len()).unwrap();
                        list.remove(block);
                        out.push(block);
                    }
                    2 | 3 if !out.is_empty() => {
                        let block = out.swap_remove(at % out.len());
                        if action == 2 {
                            list.push_front(block);
                            model.push_front(block);
                        } else {
                            list.push_back(block);
                            model.push_back(block);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert!(list.iter().eq(model.iter().copied()));
            }
        }
    }
}
