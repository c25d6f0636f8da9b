//! Filling constants: weights in the compute type, in the order that kernels want, and tables of angles.

use updraft_core::Bytes;
use updraft_core::program::{Program, RopeId, WeightRole};
use updraft_kernels::matrix::PackError;
use updraft_kernels::tensor::{ElementType, TensorSource, TensorView};

use super::Compute;
use super::plan::{Constant, HeadOrder, Part};
use crate::ascend::error::OpenError;
use crate::ascend::runtime::{Pool, Purpose, Slice};
use crate::cpu::{LoadError, Loaded, find};

/// Bytes that are converted at a time.
const CHUNK: usize = 8 << 20;

/// A constant on the device with its shape: `[rows, cols]`, or `[1, values]`.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    pub(super) memory: Slice,
    pub(super) shape: [i64; 2],
}

/// Where weights come from and go to.
pub(super) struct Filling<'a> {
    pub(super) program: &'a Program,
    pub(super) source: &'a dyn TensorSource,
    pub(super) compute: Compute,
    /// Rows of tables of angles.
    pub(super) positions: usize,
    pub(super) progress: &'a dyn Fn(Loaded),
}

impl Filling<'_> {
    pub(super) fn fill(&self, constants: &[Constant], pool: &mut Pool) -> Result<Vec<Filled>, OpenError> {
        let total = constants.iter().map(|constant| self.source_bytes(constant)).sum();
        let mut bytes = 0;
        let mut filled = Vec::with_capacity(constants.len());
        for constant in constants {
            filled.push(match constant {
                Constant::Weights { parts, offset } => self.weights(parts, *offset, pool)?,
                Constant::Cos { rope, head_dim } => self.angles(*rope, *head_dim, f64::cos, 1.0, pool)?,
                Constant::Sin { rope, head_dim } => self.angles(*rope, *head_dim, f64::sin, 0.0, pool)?,
            });
            bytes += self.source_bytes(constant);
            (self.progress)(Loaded { bytes: Bytes(bytes), total: Bytes(total) });
        }
        Ok(filled)
    }

    /// Bytes of the checkpoint behind a constant.
    fn source_bytes(&self, constant: &Constant) -> u64 {
        let Constant::Weights { parts, .. } = constant else { return 0 };
        let names = parts.iter().map(|part| &self.program.weights[part.weight.0 as usize].name);
        names.filter_map(|name| self.source.tensor(name)).map(|view| view.bytes.len() as u64).sum()
    }

    fn weights(&self, parts: &[Part], offset: f32, pool: &mut Pool) -> Result<Filled, OpenError> {
        let specs: Vec<_> = parts.iter().map(|part| &self.program.weights[part.weight.0 as usize]).collect();
        let is_vector = specs.iter().all(|spec| spec.role == WeightRole::Vector);
        let first = |spec: &[u32]| i64::from(spec.first().copied().unwrap_or(0));
        let outer: i64 = specs.iter().map(|spec| first(&spec.shape)).sum();
        let cols = specs.first().and_then(|spec| spec.shape.get(1)).map_or(1, |cols| i64::from(*cols));
        let memory = pool.take(Purpose::Weights, (outer * cols) as usize * size_of::<u16>())?;
        let mut at = 0;
        for (part, spec) in parts.iter().zip(specs) {
            let view = find(self.source, spec)?;
            at += self.part(&view, part, &spec.name, offset, &memory.skip(at))?;
            self.source.release(&spec.name);
        }
        let shape = if is_vector { [1, outer] } else { [outer, cols] };
        Ok(Filled { memory, shape })
    }

    /// Converts one tensor to the beginning of `to`; returns how many bytes it took.
    fn part(
        &self,
        view: &TensorView<'_>,
        part: &Part,
        name: &str,
        offset: f32,
        to: &Slice,
    ) -> Result<usize, OpenError> {
        let cannot = |source: PackError| {
            let (tensor, file) = (name.to_owned(), self.source.file_of(name));
            OpenError::Load(match source {
                PackError::NotFinite { row } => LoadError::NotFinite { tensor, file, row },
                source => LoadError::Tensor { tensor, file, source },
            })
        };
        view.check().map_err(|error| cannot(PackError::Tensor(error)))?;
        // A vector is one row of the checkpoint, but its values are reordered as a matrix's rows are.
        if view.shape.len() < 2 {
            let values = view.to_f32().map_err(|error| cannot(PackError::Tensor(error)))?;
            let value = |row: usize| values[source_row(row, part.order.as_ref())] + offset;
            let bits: Vec<u16> = (0..values.len()).map(|row| self.compute.bits(value(row))).collect();
            if !bits.iter().all(|bits| self.compute.is_finite(*bits)) {
                return Err(cannot(PackError::NotFinite { row: 0 }));
            }
            to.write(0, as_bytes(&bits))?;
            return Ok(size_of_val(bits.as_slice()));
        }
        let (rows, cols) = (view.rows(), view.cols());
        let rows_at_once = (CHUNK / (cols * size_of::<u16>())).max(1);
        let mut bits: Vec<u16> = Vec::with_capacity(rows_at_once.min(rows) * cols);
        let mut row_values = vec![0.0_f32; cols];
        let mut written = 0;
        for row in 0..rows {
            let from = source_row(row, part.order.as_ref());
            let start = bits.len();
            if let Some(bytes) = self.same_bits(view, from) {
                bits.extend(bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])));
            } else {
                view.dequantize_row(from, &mut row_values)
                    .map_err(|error| cannot(PackError::Tensor(error)))?;
                bits.extend(row_values.iter().map(|value| self.compute.bits(value + offset)));
            }
            if !bits[start..].iter().all(|bits| self.compute.is_finite(*bits)) {
                return Err(cannot(PackError::NotFinite { row: from }));
            }
            if bits.len() >= rows_at_once * cols || row + 1 == rows {
                to.write(written, as_bytes(&bits))?;
                written += size_of_val(bits.as_slice());
                bits.clear();
            }
        }
        Ok(written)
    }

    /// The bytes of a row that is stored in the compute type already.
    fn same_bits<'v>(&self, view: &TensorView<'v>, row: usize) -> Option<&'v [u8]> {
        let same = matches!(
            (view.element, self.compute),
            (ElementType::BF16, Compute::Bf16) | (ElementType::F16, Compute::F16)
        );
        let bytes = view.cols() * size_of::<u16>();
        if same { view.bytes.get(row * bytes..(row + 1) * bytes) } else { None }
    }

    /// A row of cosines or sines for every position: both halves of a head turn by the same angles, and what is not
    /// rotated by none.
    fn angles(
        &self,
        rope: RopeId,
        head_dim: u32,
        function: fn(f64) -> f64,
        unturned: f32,
        pool: &mut Pool,
    ) -> Result<Filled, OpenError> {
        let spec = &self.program.ropes[rope.0 as usize];
        let (cols, half) = (head_dim as usize, head_dim as usize / 2);
        let memory = pool.take(Purpose::Weights, self.positions * cols * size_of::<u16>())?;
        let rows_at_once = (CHUNK / (cols * size_of::<u16>())).max(1);
        let mut bits: Vec<u16> = Vec::new();
        let mut written = 0;
        for position in 0..self.positions {
            let turned = spec.inverse_frequencies.iter().map(|frequency| {
                let angle = position as f64 * f64::from(*frequency);
                (function(angle) * f64::from(spec.factor)) as f32
            });
            let start = bits.len();
            bits.extend(turned.map(|value| self.compute.bits(value)));
            bits.resize(start + half, self.compute.bits(unturned));
            bits.extend_from_within(start..);
            if bits.len() >= rows_at_once * cols || position + 1 == self.positions {
                memory.write(written, as_bytes(&bits))?;
                written += size_of_val(bits.as_slice());
                bits.clear();
            }
        }
        Ok(Filled { memory, shape: [self.positions as i64, i64::from(head_dim)] })
    }
}

/// The row of the checkpoint that belongs at a place.
fn source_row(row: usize, order: Option<&HeadOrder>) -> usize {
    order.map_or(row, |order| {
        let (head, value) = (row / order.len(), row % order.len());
        head * order.len() + order[value] as usize
    })
}

fn as_bytes(bits: &[u16]) -> &[u8] {
    // SAFETY: any bits are bytes, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(bits.as_ptr().cast(), size_of_val(bits)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_reordered_within_each_head() {
        let order: HeadOrder = [0, 2, 1, 3].into();
        let rows: Vec<_> = (0..8).map(|row| source_row(row, Some(&order))).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(source_row(5, None), 5);
    }
}
