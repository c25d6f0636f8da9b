//! Tensors as they lie in a checkpoint: bytes with an element type and a shape, and their plain meaning.
//!
//! This module owns the definition of every storage type (block length, block size, how a block becomes
//! numbers). [`TensorView::dequantize_row`] is the plain reference that all fast paths are tested against; it
//! is written for clearness. It knows nothing of files: where the bytes come from is the business of a
//! [`TensorSource`].

mod dequantize;

pub(crate) use dequantize::six_bit_scales;
#[cfg(test)]
mod tests;

use thiserror::Error;

/// How the numbers of a tensor are stored. The quantised types are those of the GGUF format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "the names that GGUF files and their users write")]
pub enum ElementType {
    /// IEEE single precision, little-endian.
    F32,
    /// IEEE half precision, little-endian.
    F16,
    /// The upper half of a single, little-endian.
    BF16,
    /// 32 values: scale, 4 bits each, zero point 8.
    Q4_0,
    /// 32 values: scale, minimum, 4 bits each.
    Q4_1,
    /// 32 values: scale, 5 bits each, zero point 16.
    Q5_0,
    /// 32 values: scale, minimum, 5 bits each.
    Q5_1,
    /// 32 values: scale, 8 bits each, signed.
    Q8_0,
    /// 256 values: 8 groups with 6-bit scale and minimum under a common scale, 4 bits each.
    Q4K,
    /// 256 values: as [`ElementType::Q4K`] with 5 bits each.
    Q5K,
    /// 256 values: 16 groups with an 8-bit scale under a common scale, 6 bits each, zero point 32.
    Q6K,
}

impl ElementType {
    /// Every storage type.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Values in one block; a row holds a whole number of blocks. 1 for floats.
    #[must_use]
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// The usual name, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// True for the types whose values are small integers under a scale.
    #[must_use]
    pub const fn is_quantized(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }
}

impl std::fmt::Display for ElementType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes are not the tensor they are said to be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TensorError {
    /// The byte count contradicts shape and element type.
    #[error("a {element} tensor of shape {shape:?} takes {expected} bytes, but there are {actual}")]
    WrongLength {
        /// The storage type.
        element: ElementType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes that it would take.
        expected: usize,
        /// Bytes that there are.
        actual: usize,
    },
    /// A row is no whole number of blocks.
    #[error("rows of {cols} values cannot be stored as {element} in blocks of {}", .element.block_len())]
    BrokenBlock {
        /// The storage type.
        element: ElementType,
        /// Length of a row.
        cols: usize,
    },
    /// The number of values does not fit this machine.
    #[error("the shape {shape:?} has more values than this machine can address")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// A row was asked for that is not there.
    #[error("row {row} was asked for, but the tensor has {rows}")]
    NoSuchRow {
        /// The row.
        row: usize,
        /// Rows that there are.
        rows: usize,
    },
    /// The destination of a row has another length than the row.
    #[error("a row has {cols} values, but the destination holds {actual}")]
    WrongDestination {
        /// Length of a row.
        cols: usize,
        /// Length of the destination.
        actual: usize,
    },
}

/// Borrowed tensor bytes as they lie in a checkpoint.
///
/// The last dimension is contiguous; all dimensions before it are rows. A tensor without dimensions is
/// one value.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// How values are stored.
    pub element: ElementType,
    /// `[out, in]` for a matrix, `[n]` for a vector.
    pub shape: &'a [usize],
    /// Row-major storage, of exactly the length that the shape takes.
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A view whose length has been checked.
    pub fn new(element: ElementType, shape: &'a [usize], bytes: &'a [u8]) -> Result<Self, TensorError> {
        let view = Self { element, shape, bytes };
        view.check()?;
        Ok(view)
    }

    /// Bytes that a tensor takes, or why it cannot exist.
    pub fn bytes_for(element: ElementType, shape: &[usize]) -> Result<usize, TensorError> {
        let cols = shape.last().copied().unwrap_or(1);
        if !cols.is_multiple_of(element.block_len()) {
            return Err(TensorError::BrokenBlock { element, cols });
        }
        shape
            .iter()
            .try_fold(1_usize, |product, &length| product.checked_mul(length))
            .map(|values| values / element.block_len())
            .and_then(|blocks| blocks.checked_mul(element.block_bytes()))
            .ok_or_else(|| TensorError::TooLarge { shape: shape.to_vec() })
    }

    /// Length of the last dimension.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all dimensions but the last.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// Confirms that shape, element type and length agree (the fields are public, so a view may lie).
    pub fn check(&self) -> Result<(), TensorError> {
        let expected = Self::bytes_for(self.element, self.shape)?;
        if expected == self.bytes.len() {
            return Ok(());
        }
        Err(TensorError::WrongLength {
            element: self.element,
            shape: self.shape.to_vec(),
            expected,
            actual: self.bytes.len(),
        })
    }

    /// All values, in row-major order.
    pub fn to_f32(&self) -> Result<Vec<f32>, TensorError> {
        self.check()?;
        let mut values = vec![0.0; self.rows() * self.cols()];
        dequantize::blocks(self.element, self.bytes, &mut values);
        Ok(values)
    }

    /// The values of one row; `out` has exactly the length of a row.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) -> Result<(), TensorError> {
        self.check()?;
        let (rows, cols) = (self.rows(), self.cols());
        if out.len() != cols {
            return Err(TensorError::WrongDestination { cols, actual: out.len() });
        }
        let row_bytes = cols / self.element.block_len() * self.element.block_bytes();
        let bytes = (row < rows)
            .then(|| self.bytes.get(row * row_bytes..(row + 1) * row_bytes))
            .flatten()
            .ok_or(TensorError::NoSuchRow { row, rows })?;
        dequantize::blocks(self.element, bytes, out);
        Ok(())
    }
}

/// Where a device takes its weights from, by the names of the checkpoint.
pub trait TensorSource: Sync {
    /// The tensor of that name, if the checkpoint has it.
    fn tensor(&self, name: &str) -> Option<TensorView<'_>>;

    /// Tells that the bytes of this tensor will not be read again soon, so that their memory can be given
    /// back.
    fn release(&self, name: &str);

    /// The file that holds the tensor (or should), for messages.
    fn file_of(&self, name: &str) -> String;
}
