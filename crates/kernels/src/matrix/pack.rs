//! From a checkpoint's rows to tiles.
//!
//! Every row of the matrix is read once, in order. Rows that fill up the last tile stay zero.

use super::PackError;
use super::blocks::IntegerBlock;
use super::float::FloatColumn;
use super::vectors::TILE;
use crate::activations::GROUP;
use crate::memory::AlignedVec;
use crate::tensor::TensorView;

/// Columns that are transposed together: their part of a tile fits the first-level cache.
const STRETCH: usize = 128;

/// Packs a matrix of integer blocks. The view has been checked and is of the block's type.
pub(super) fn integers<B: IntegerBlock>(view: &TensorView<'_>) -> Result<AlignedVec<B>, PackError> {
    let per_row = view.cols() / (B::GROUPS * GROUP);
    let mut blocks = AlignedVec::<B>::zeroed(view.rows().div_ceil(TILE) * per_row).with_large_pages();
    let mut rows = view.bytes.chunks_exact(per_row * B::STORED_BYTES).enumerate();
    for tile in blocks.chunks_exact_mut(per_row) {
        for (lane, (row, stored)) in rows.by_ref().take(TILE).enumerate() {
            let mut finite = true;
            for (block, stored) in tile.iter_mut().zip(stored.chunks_exact(B::STORED_BYTES)) {
                finite &= block.set_row(lane, stored);
            }
            if !finite {
                return Err(PackError::NotFinite { row });
            }
        }
    }
    Ok(blocks)
}

/// Packs a matrix of floats. The view has been checked and is of the column's type.
pub(super) fn floats<W: FloatColumn>(view: &TensorView<'_>) -> Result<AlignedVec<W>, PackError> {
    let (cols, width) = (view.cols(), size_of::<W>() / TILE);
    let mut columns = AlignedVec::<W>::zeroed(view.rows().div_ceil(TILE) * cols).with_large_pages();
    let tiles = columns.chunks_exact_mut(cols).zip(view.bytes.chunks(cols * width * TILE));
    for (tile, (columns, stored)) in tiles.enumerate() {
        for (stretch, columns) in columns.chunks_mut(STRETCH).enumerate() {
            for (lane, stored) in stored.chunks_exact(cols * width).enumerate() {
                let stored = stored[stretch * STRETCH * width..].chunks_exact(width);
                let mut finite = true;
                for (column, stored) in columns.iter_mut().zip(stored) {
                    finite &= column.set_row(lane, stored);
                }
                if !finite {
                    return Err(PackError::NotFinite { row: tile * TILE + lane });
                }
            }
        }
    }
    Ok(columns)
}
