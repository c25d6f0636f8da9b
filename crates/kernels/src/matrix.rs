//! Weight matrices, packed for products with many input rows at once or with a single one.
//!
//! A matrix is cut into tiles of 16 output rows, interleaved so that one lane of a register is one output
//! row. A result is then a sum along one lane, in the order of the columns, whatever the number of input
//! rows: bit for bit the same alone, in a batch, and with the tiles spread over threads in any way. Results
//! differ (in the last bits) between instruction sets only.
//!
//! Weights keep the width they have in the checkpoint. This module refuses to know where they come from or
//! what they are for.

mod accurate;
mod blocks;
mod float;
mod integer;
mod job;
mod output;
mod pack;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tile_unit;
pub(crate) mod vectors;

use std::ops::Range;

use thiserror::Error;

pub use output::OutputRows;

use crate::activations::{Activations, InputForm};
use crate::cpu_features::{Isa, IsaError};
use crate::memory::AlignedVec;
use crate::tensor::{ElementType, TensorError, TensorView};
#[cfg(target_arch = "x86_64")]
use crate::tile_unit::TileUnit;
use blocks::{
    IntegerBlock, Q4_0Block, Q4_1Block, Q4KBlock, Q5_0Block, Q5_1Block, Q5KBlock, Q6KBlock, Q8_0Block,
};
use float::{FloatColumn, FloatProduct, Halves, Singles, UpperHalves};
use integer::QuantizedProduct;
use job::{Job, tile_of};
#[cfg(target_arch = "x86_64")]
use tile_unit::{PairedColumns, TiledProduct};
use vectors::{TILE, dispatch};

/// How products with integer weights are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Input stays in single precision; integer weights become singles on the way.
    Float32,
    /// Input of integer weights is quantised to 8 bits for each 32 values.
    Auto,
}

/// Why a tensor cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PackError {
    /// Its bytes are not what they are said to be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// It has not two dimensions, or one of them is zero.
    #[error("a matrix has two dimensions above zero, but this tensor has the shape {shape:?}")]
    NotAMatrix {
        /// The shape.
        shape: Vec<usize>,
    },
    /// It holds values that are infinite or not numbers.
    #[error("row {row} holds a value that is infinite or not a number; the file is damaged")]
    NotFinite {
        /// The first such row.
        row: usize,
    },
    /// The environment forces an instruction set that cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
}

/// A weight matrix `[rows, cols]`, ready for products: `out = input * matrix^T`.
#[derive(Debug)]
pub struct PackedMatrix {
    rows: usize,
    cols: usize,
    precision: Precision,
    isa: Isa,
    storage: Storage,
}

/// The tiles of a matrix, one after the other.
#[derive(Debug)]
enum Storage {
    F32(AlignedVec<Singles>),
    F16(AlignedVec<Halves>),
    BF16(AlignedVec<UpperHalves>),
    /// The same for the matrix unit.
    #[cfg(target_arch = "x86_64")]
    Pairs(PairedColumns),
    Q4_0(AlignedVec<Q4_0Block>),
    Q4_1(AlignedVec<Q4_1Block>),
    Q5_0(AlignedVec<Q5_0Block>),
    Q5_1(AlignedVec<Q5_1Block>),
    Q8_0(AlignedVec<Q8_0Block>),
    Q4K(AlignedVec<Q4KBlock>),
    Q5K(AlignedVec<Q5KBlock>),
    Q6K(AlignedVec<Q6KBlock>),
}

/// Does one of three things with the content of a storage: with float columns, integer blocks or pairs of columns.
macro_rules! with_storage {
    (
        $storage:expr,
        floats($columns:ident) => $float:expr,
        integers($blocks:ident) => $integer:expr,
        pairs($pairs:ident) => $pair:expr
    ) => {
        match $storage {
            #[cfg(target_arch = "x86_64")]
            Storage::Pairs($pairs) => $pair,
            Storage::F32($columns) => $float,
            Storage::F16($columns) => $float,
            Storage::BF16($columns) => $float,
            Storage::Q4_0($blocks) => $integer,
            Storage::Q4_1($blocks) => $integer,
            Storage::Q5_0($blocks) => $integer,
            Storage::Q5_1($blocks) => $integer,
            Storage::Q8_0($blocks) => $integer,
            Storage::Q4K($blocks) => $integer,
            Storage::Q5K($blocks) => $integer,
            Storage::Q6K($blocks) => $integer,
        }
    };
}

impl PackedMatrix {
    /// Packs a tensor of two dimensions. Every value is looked at, so a matrix that exists has finite values
    /// only.
    pub fn pack(view: &TensorView<'_>, precision: Precision) -> Result<Self, PackError> {
        Self::pack_for(view, precision, Isa::selected()?)
    }

    fn pack_for(view: &TensorView<'_>, precision: Precision, isa: Isa) -> Result<Self, PackError> {
        view.check()?;
        let (rows, cols) = match *view.shape {
            [rows, cols] if rows > 0 && cols > 0 => (rows, cols),
            _ => return Err(PackError::NotAMatrix { shape: view.shape.to_vec() }),
        };
        let storage = match view.element {
            ElementType::F32 => Storage::F32(pack::floats(view)?),
            ElementType::F16 => Storage::F16(pack::floats(view)?),
            #[cfg(target_arch = "x86_64")]
            ElementType::BF16 if let Some(unit) = TileUnit::for_isa(isa) => {
                Storage::Pairs(PairedColumns::pack(unit, view)?)
            }
            ElementType::BF16 => Storage::BF16(pack::floats(view)?),
            ElementType::Q4_0 => Storage::Q4_0(pack::integers(view)?),
            ElementType::Q4_1 => Storage::Q4_1(pack::integers(view)?),
            ElementType::Q5_0 => Storage::Q5_0(pack::integers(view)?),
            ElementType::Q5_1 => Storage::Q5_1(pack::integers(view)?),
            ElementType::Q8_0 => Storage::Q8_0(pack::integers(view)?),
            ElementType::Q4K => Storage::Q4K(pack::integers(view)?),
            ElementType::Q5K => Storage::Q5K(pack::integers(view)?),
            ElementType::Q6K => Storage::Q6K(pack::integers(view)?),
        };
        Ok(Self { rows, cols, precision, isa, storage })
    }

    /// Output rows: columns of a result.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: length of an input row.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Memory that the weights take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        with_storage!(&self.storage,
            floats(columns) => columns.bytes(),
            integers(blocks) => blocks.bytes(),
            pairs(pairs) => pairs.bytes()
        )
    }

    /// Tiles of 16 output rows (the last one may have fewer): the unit by which work is split.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    /// The form in which products read their input.
    #[must_use]
    pub fn input_form(&self) -> InputForm {
        with_storage!(&self.storage,
            floats(_columns) => InputForm::FLOAT,
            integers(_blocks) => match self.precision {
                Precision::Auto => InputForm::QUANTIZED,
                Precision::Float32 => InputForm::FLOAT,
            },
            pairs(_pairs) => InputForm::SPLIT
        )
    }

    /// The values of one row, exactly as the checkpoint has them. For tables that are shared with the output
    /// product.
    ///
    /// # Panics
    /// If there is no such row, or `out` is not as long as a row.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.cols, "row {row} into {} values", out.len());
        let (tile, lane, tiles) = (row / TILE, row % TILE, self.tiles());
        with_storage!(&self.storage,
            floats(columns) => {
                for (out, column) in out.iter_mut().zip(tile_of(columns, tiles, tile)) {
                    *out = column.value(lane);
                }
            },
            integers(blocks) => accurate::row_values(tile_of(blocks, tiles, tile), lane, out),
            pairs(pairs) => pairs.row_values(tiles, row, out)
        );
    }

    /// Computes the given tiles of the product for every input row: for each row `r` of `input`, the columns
    /// `16 * tile .. 16 * (tile + 1)` (as far as they exist) of row `r` of `out`, plus the bias.
    ///
    /// # Panics
    /// If the input has another length or not the form of [`PackedMatrix::input_form`], if there are fewer tiles or biases, or if `out` is too small.
    pub fn multiply(
        &self,
        input: &Activations,
        bias: Option<&[f32]>,
        tiles: Range<usize>,
        out: &OutputRows<'_>,
    ) {
        assert_eq!(input.cols(), self.cols, "length of input rows");
        assert!(tiles.end <= self.tiles(), "tile {} of {}", tiles.end, self.tiles());
        assert!(bias.is_none_or(|bias| bias.len() == self.rows), "length of the bias");
        assert!(out.holds(input.rows(), self.rows), "room for the results");
        assert!(input.form().serves(self.input_form()), "form of the input");
        let job = Job { matrix_rows: self.rows, tiles, bias, input, out };
        with_storage!(&self.storage,
            floats(columns) => self.multiply_floats(columns, job),
            integers(blocks) => self.multiply_integers(blocks, job),
            pairs(pairs) => pairs.multiply(self.isa, self.tiles(), job)
        );
    }

    /// The whole product on the calling thread: row `r` of the result starts at `out[r * stride]`.
    ///
    /// # Panics
    /// As [`PackedMatrix::multiply`].
    pub fn multiply_all(&self, input: &Activations, bias: Option<&[f32]>, out: &mut [f32], stride: usize) {
        // SAFETY: the rows are not shared with another thread.
        let out = unsafe { OutputRows::new(out, stride) };
        self.multiply(input, bias, 0..self.tiles(), &out);
    }

    fn multiply_floats<W: FloatColumn>(&self, columns: &[W], job: Job<'_>) {
        dispatch(self.isa, FloatProduct { columns, first: 0, tiles: self.tiles(), job });
    }

    fn multiply_integers<B: IntegerBlock>(&self, blocks: &[B], job: Job<'_>) {
        let tiles = self.tiles();
        match self.precision {
            #[cfg(target_arch = "x86_64")]
            Precision::Auto if let Some(unit) = TileUnit::for_isa(self.isa) => {
                TiledProduct::run(unit, self.isa, QuantizedProduct { blocks, tiles, job });
            }
            Precision::Auto => dispatch(self.isa, QuantizedProduct { blocks, tiles, job }),
            Precision::Float32 => accurate::product(self.isa, blocks, tiles, &job),
        }
    }
}
