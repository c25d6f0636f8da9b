//! Blocks are neither lost nor held without being counted.

use super::Violation;
use crate::ids::{BlockId, SequenceId};

/// A block pool and its tables as plain data.
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    /// Reference count of each block.
    pub references: &'a [u32],
    /// The free list.
    pub free: &'a [BlockId],
    /// The blocks of each sequence that has some.
    pub tables: &'a [(SequenceId, &'a [BlockId])],
    /// For each content that can be found its block, and whether the block carries that content.
    pub published: &'a [(BlockId, bool)],
}

/// Each block is free exactly once and held by nobody, or not free and held by as many tables as are counted;
/// what can be found is there. A table that held a block twice would need a count of two, which no second
/// sequence explains, so that shows as well.
pub fn blocks_balance(pool: &PoolView<'_>) -> Result<(), Violation> {
    let mut held = vec![0_u32; pool.references.len()];
    let mut free = vec![0_u32; pool.references.len()];
    for block in pool.free {
        *free.get_mut(block.0 as usize).ok_or(Violation::NoSuchBlock { block: *block })? += 1;
    }
    for (sequence, blocks) in pool.tables {
        let mut own = blocks.to_vec();
        own.sort_unstable();
        if own.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Violation::Books { sequence: *sequence, why: "holds a block twice" });
        }
        for block in *blocks {
            *held.get_mut(block.0 as usize).ok_or(Violation::NoSuchBlock { block: *block })? += 1;
        }
    }
    for (index, ((tables, free), counted)) in held.iter().zip(&free).zip(pool.references).enumerate() {
        let block = BlockId(index as u32);
        if tables != counted {
            return Err(Violation::WrongCount { block, tables: *tables, counted: *counted });
        }
        if *free != u32::from(*tables == 0) {
            return Err(Violation::FreeListWrong { block, tables: *tables, free: *free });
        }
    }
    match pool.published.iter().find(|(_, carries)| !carries) {
        Some((block, _)) => Err(Violation::StaleContent { block: *block }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: BlockId = BlockId(0);
    const B: BlockId = BlockId(1);

    fn check(
        references: &[u32],
        free: &[BlockId],
        tables: &[(SequenceId, &[BlockId])],
    ) -> Result<(), Violation> {
        blocks_balance(&PoolView { references, free, tables, published: &[] })
    }

    #[test]
    fn tells_good_from_bad() {
        let (one, two) = (SequenceId(1), SequenceId(2));
        assert_eq!(check(&[2, 0], &[B], &[(one, &[A]), (two, &[A])]), Ok(()));
        assert!(matches!(
            check(&[1, 0], &[B], &[(one, &[A]), (two, &[A])]),
            Err(Violation::WrongCount { .. })
        ));
        assert!(matches!(check(&[1, 0], &[], &[(one, &[A])]), Err(Violation::FreeListWrong { .. })));
        assert!(matches!(check(&[1, 0], &[A, B], &[(one, &[A])]), Err(Violation::FreeListWrong { .. })));
        assert!(matches!(check(&[2, 0], &[B], &[(one, &[A, A])]), Err(Violation::Books { .. })));
        assert!(matches!(check(&[0], &[B], &[]), Err(Violation::NoSuchBlock { .. })));
        let stale = PoolView { references: &[0], free: &[A], tables: &[], published: &[(A, false)] };
        assert!(matches!(blocks_balance(&stale), Err(Violation::StaleContent { .. })));
    }
}
