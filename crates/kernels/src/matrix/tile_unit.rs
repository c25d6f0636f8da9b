//! Products in the processor's matrix unit: of half-width floats, where every product goes through it, and of integers,
//! where it takes over for many rows what vectors do for few, with the same results.

mod halves;
mod integers;

pub(super) use halves::PairedColumns;
pub(super) use integers::TiledProduct;
