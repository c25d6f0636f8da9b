//! Made-up tensors of every storage type.

use crate::cpu_features::Isa;
use crate::matrix::{PackError, PackedMatrix, Precision};
use crate::tensor::{ElementType, TensorView};

/// A matrix in a checkpoint's form.
pub(super) struct Sample {
    element: ElementType,
    shape: [usize; 2],
    bytes: Vec<u8>,
}

impl Sample {
    /// Any integers under scales of about the same size; floats of about one.
    pub(super) fn new(element: ElementType, rows: usize, cols: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let bytes = TensorView::bytes_for(element, &[rows, cols]).unwrap();
        let mut sample = Self { element, shape: [rows, cols], bytes: vec![0; bytes] };
        for block in sample.bytes.chunks_exact_mut(element.block_bytes()) {
            block.fill_with(|| random.next() as u8);
            for (at, scale) in scales(element).into_iter().zip([0.02, -0.3]) {
                let value = scale * (random.number() + 1.5);
                write_float(element, &mut block[at..], value);
            }
        }
        sample
    }

    /// Every integer made of the same byte, under scales of one; K-quant groups have that byte as scale too.
    pub(super) fn constant(element: ElementType, rows: usize, cols: usize, byte: u8) -> Self {
        let mut sample = Self::new(element, rows, cols, 0);
        for block in sample.bytes.chunks_exact_mut(element.block_bytes()) {
            block.fill(byte);
            for at in scales(element) {
                write_float(element, &mut block[at..], 1.0);
            }
        }
        sample
    }

    /// Makes one value (or the last scale) of a row infinite.
    pub(super) fn spoil(&mut self, row: usize) {
        let row_bytes = self.bytes.len() / self.shape[0];
        let block = (row + 1) * row_bytes - self.element.block_bytes();
        if let Some(at) = scales(self.element).into_iter().last() {
            write_float(self.element, &mut self.bytes[block + at..], f32::INFINITY);
        }
    }

    pub(super) fn view(&self) -> TensorView<'_> {
        TensorView::new(self.element, &self.shape, &self.bytes).unwrap()
    }

    pub(super) fn pack(&self, precision: Precision) -> Result<PackedMatrix, PackError> {
        PackedMatrix::pack(&self.view(), precision)
    }

    pub(super) fn pack_for(&self, precision: Precision, isa: Isa) -> Result<PackedMatrix, PackError> {
        PackedMatrix::pack_for(&self.view(), precision, isa)
    }

    pub(super) fn rows(&self) -> usize {
        self.shape[0]
    }

    pub(super) fn cols(&self) -> usize {
        self.shape[1]
    }
}

/// Numbers between -1 and 1.
pub(super) fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    (0..len).map(|_| random.number()).collect()
}

/// Where a block holds floats.
fn scales(element: ElementType) -> Vec<usize> {
    match element {
        ElementType::Q4_1 | ElementType::Q5_1 | ElementType::Q4K | ElementType::Q5K => vec![0, 2],
        ElementType::Q6K => vec![208],
        _ => vec![0],
    }
}

fn write_float(element: ElementType, to: &mut [u8], value: f32) {
    match element {
        ElementType::F32 => to[..4].copy_from_slice(&value.to_le_bytes()),
        ElementType::BF16 => to[..2].copy_from_slice(&half::bf16::from_f32(value).to_le_bytes()),
        _ => to[..2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes()),
    }
}

/// A small generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Between -1 and 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
