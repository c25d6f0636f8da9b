//! A plan with memory: everything that a step's kernels read and write, and the kernels that are prepared already.

use std::rc::Rc;

use updraft_core::Bytes;
use updraft_core::graphs::LARGEST_BUCKET;
use updraft_core::program::{Program, Rows};

use super::attention::{MASK_BYTES, causal_mask};
use super::kernels::{Ready, prepare};
use super::plan::{Constant, ConstantId, Kernel, Plan, StorageId};
use super::weights::{Filled, Filling};
use super::{Attention, Compute};
use crate::MemoryUse;
use crate::ascend::error::{Fault, OpenError};
use crate::ascend::operators::{DataType, Operators, Scalar, Tensor, TensorList};
use crate::ascend::runtime::{Api, Pool, Purpose, Slice};
use crate::cpu::Loaded;
use updraft_kernels::tensor::TensorSource;

/// Different numbers of rows whose calls are kept; the one that was not used for the longest time makes room.
const KEPT_ROW_COUNTS: usize = 32;
/// Integers that begin a piece of the packed row inputs on an aligned address.
const ALIGNED_INTEGERS: usize = 16;
/// Rows of a graph, at most: each of them may be nobody's, and then takes a slot of the cache that is nobody else's.
const GRAPH_ROWS_MAX: usize = LARGEST_BUCKET as usize;

/// Sizes that a device is made for.
#[derive(Clone, Copy, Debug)]
pub(in crate::ascend) struct Sizes {
    pub(in crate::ascend) rows: usize,
    pub(in crate::ascend) logit_rows: usize,
    pub(in crate::ascend) sequences: usize,
    /// Blocks of the cache that sequences use.
    pub(in crate::ascend) blocks: usize,
    pub(in crate::ascend) block_size: usize,
    /// Tokens of a sequence, at most.
    pub(in crate::ascend) positions: usize,
}

impl Sizes {
    /// Rows of a graph, at most.
    pub(in crate::ascend) fn graph_rows(&self) -> usize {
        self.rows.min(GRAPH_ROWS_MAX)
    }

    /// Rows of a graph whose rows all are sequences with logits. There may be more than sequences in a step.
    pub(in crate::ascend) fn decode_rows(&self) -> usize {
        self.graph_rows().min(self.logit_rows)
    }

    /// Blocks that rows of nobody write to, each row to a slot of its own.
    fn spare_blocks(&self) -> usize {
        self.graph_rows().div_ceil(self.block_size)
    }

    /// Blocks with those that rows of nobody write to; these are the last ones.
    pub(in crate::ascend) fn all_blocks(&self) -> usize {
        self.blocks + self.spare_blocks()
    }

    /// Blocks of the longest sequence, which may be that of rows of nobody.
    pub(in crate::ascend) fn table_stride(&self) -> usize {
        self.positions.div_ceil(self.block_size).max(self.spare_blocks()).max(1)
    }

    /// Sequences of a step with those that rows of nobody make up: one, or one for each row.
    pub(in crate::ascend) fn table_rows(&self) -> usize {
        (self.sequences + 1).max(self.decode_rows())
    }

    /// Integers of the packed inputs of so many rows.
    pub(in crate::ascend) fn packed(rows: usize) -> usize {
        3 * rows.next_multiple_of(ALIGNED_INTEGERS)
    }
}

/// Where kernels find a step's inputs on the device.
#[derive(Debug)]
pub(in crate::ascend) struct InputAddresses {
    /// Tokens, positions and slots, one behind the other for the rows there are.
    pub(in crate::ascend) rows: Slice,
    pub(in crate::ascend) logit_rows: Slice,
    pub(in crate::ascend) tables: Slice,
}

impl InputAddresses {
    fn piece(&self, rows: u32, index: usize) -> Slice {
        self.rows.skip(index * (rows as usize).next_multiple_of(ALIGNED_INTEGERS) * size_of::<i32>())
    }

    pub(super) fn tokens(&self, rows: u32) -> Slice {
        self.piece(rows, 0)
    }

    pub(super) fn positions(&self, rows: u32) -> Slice {
        self.piece(rows, 1)
    }

    pub(super) fn slots(&self, rows: u32) -> Slice {
        self.piece(rows, 2)
    }
}

/// Keys and values of a layer.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) key: Slice,
    pub(super) value: Slice,
    pub(super) key_list: TensorList,
    pub(super) value_list: TensorList,
}

/// A plan with memory.
#[derive(Debug)]
pub(in crate::ascend) struct Model {
    pub(in crate::ascend) plan: Plan,
    pub(in crate::ascend) operators: Operators,
    pub(super) compute: Compute,
    pub(in crate::ascend) sizes: Sizes,
    storages: Vec<Slice>,
    constants: Vec<Filled>,
    pub(super) caches: Vec<Cache>,
    pub(in crate::ascend) inputs: InputAddresses,
    pub(super) mask: Tensor,
    pub(super) one: Scalar,
}

impl Plan {
    /// The memory of a model of this plan.
    pub(in crate::ascend) fn footprint(&self, program: &Program, sizes: &Sizes) -> MemoryUse {
        let half = size_of::<u16>() as u64;
        let elements = |shape: &[u32]| shape.iter().map(|size| u64::from(*size)).product::<u64>();
        let weights = self.constants.iter().map(|constant| match constant {
            Constant::Weights { parts, .. } => {
                let shapes = parts.iter().map(|part| &program.weights[part.weight.0 as usize].shape);
                shapes.map(|shape| elements(shape)).sum::<u64>() * half
            }
            Constant::Cos { head_dim, .. } | Constant::Sin { head_dim, .. } => {
                sizes.positions as u64 * u64::from(*head_dim) * half
            }
        });
        let storages = self.storages.iter().map(|spec| {
            let rows = if spec.rows == Rows::Tokens { sizes.rows } else { sizes.logit_rows };
            let value = if spec.single { size_of::<f32>() } else { size_of::<u16>() };
            (rows * spec.width as usize * value) as u64
        });
        let integers =
            Sizes::packed(sizes.rows) + sizes.logit_rows + sizes.table_rows() * sizes.table_stride();
        let slots = (sizes.all_blocks() * sizes.block_size) as u64;
        let layers = program.kv_layers.iter();
        let kv = layers.map(|layer| 2 * slots * u64::from(layer.kv_heads * layer.head_dim) * half);
        MemoryUse {
            weights: Bytes(weights.sum()),
            kv: Bytes(kv.sum()),
            activations: Bytes(
                storages.sum::<u64>() + (integers * size_of::<i32>()) as u64 + MASK_BYTES as u64,
            ),
            graphs: Bytes(0),
        }
    }
}

impl Model {
    /// Lays out memory and loads weights.
    #[allow(clippy::too_many_arguments, reason = "each is another thing to make a model from")]
    pub(in crate::ascend) fn load(
        operators: Operators,
        plan: Plan,
        program: &Program,
        source: &dyn TensorSource,
        compute: Compute,
        sizes: Sizes,
        pool: &mut Pool,
        progress: &dyn Fn(Loaded),
    ) -> Result<Self, OpenError> {
        let api = Rc::clone(operators.api());
        let filling = Filling { program, source, compute, positions: sizes.positions, progress };
        let constants = filling.fill(&plan.constants, pool)?;
        let storages = plan.storages.iter().map(|spec| {
            let rows = if spec.rows == Rows::Tokens { sizes.rows } else { sizes.logit_rows };
            let value = if spec.single { size_of::<f32>() } else { size_of::<u16>() };
            let slice = pool.take(Purpose::Activations, rows.max(1) * spec.width as usize * value)?;
            // Rows that a graph computes for nobody read what no step has written yet.
            slice.zero().map(|()| slice)
        });
        let storages = storages.collect::<Result<_, Fault>>()?;
        let caches = program.kv_layers.iter().map(|layer| {
            let values = sizes.all_blocks() * sizes.block_size * (layer.kv_heads * layer.head_dim) as usize;
            let dims = [
                sizes.all_blocks() as i64,
                sizes.block_size as i64,
                i64::from(layer.kv_heads * layer.head_dim),
            ];
            let mut half = || -> Result<(Slice, TensorList), Fault> {
                let memory = pool.take(Purpose::Kv, values * size_of::<u16>())?;
                // Kernels read whole blocks and drop what is behind a sequence's end, which must be numbers for that.
                memory.zero()?;
                let list = TensorList::of_one(&api, compute.data_type(), &memory, &dims)?;
                Ok((memory, list))
            };
            let ((key, key_list), (value, value_list)) = (half()?, half()?);
            let (kv_heads, head_dim) = (layer.kv_heads, layer.head_dim);
            Ok(Cache { kv_heads, head_dim, key, value, key_list, value_list })
        });
        let caches = caches.collect::<Result<_, Fault>>()?;
        let mut integers = |count: usize| pool.take(Purpose::Activations, count.max(1) * size_of::<i32>());
        let inputs = InputAddresses {
            rows: integers(Sizes::packed(sizes.rows))?,
            logit_rows: integers(sizes.logit_rows)?,
            tables: integers(sizes.table_rows() * sizes.table_stride())?,
        };
        let mask = causal_mask(&api, pool)?;
        let one = Scalar::new(&api, 1.0)?;
        Ok(Self { plan, operators, compute, sizes, storages, constants, caches, inputs, mask, one })
    }

    pub(in crate::ascend) fn api(&self) -> &Rc<Api> {
        self.operators.api()
    }

    pub(in crate::ascend) fn storage(&self, id: StorageId) -> &Slice {
        &self.storages[id.0]
    }

    pub(in crate::ascend) fn data_type(&self) -> DataType {
        self.compute.data_type()
    }

    /// What bits of the compute type mean.
    pub(in crate::ascend) fn value(&self, bits: u16) -> f32 {
        self.compute.value(bits)
    }

    /// Where the logits lie as singles.
    pub(in crate::ascend) fn logits(&self) -> Option<&Slice> {
        self.plan.logits.map(|id| self.storage(id))
    }

    pub(super) fn constant(&self, id: ConstantId) -> &Filled {
        &self.constants[id.0]
    }

    pub(super) fn head_dim(&self, layer: u32) -> u32 {
        self.caches[layer as usize].head_dim
    }

    /// Prepares a kernel for a number of rows.
    pub(in crate::ascend) fn prepare(&self, kernel: usize, rows: u32) -> Result<Ready, Fault> {
        prepare(self, &self.plan.kernels[kernel], rows)
    }

    /// Which rows a kernel works on.
    pub(in crate::ascend) fn rows_of(&self, kernel: usize) -> Rows {
        self.plan.rows(&self.plan.kernels[kernel])
    }

    pub(in crate::ascend) fn attention(&self, kernel: usize) -> Option<&Attention> {
        match &self.plan.kernels[kernel] {
            Kernel::Attention(attention) => Some(attention),
            _ => None,
        }
    }

    /// Tokens that the embedding table has rows for.
    pub(in crate::ascend) fn token_limit(&self) -> usize {
        let tables = self.plan.kernels.iter().filter_map(|kernel| match kernel {
            Kernel::Embed { table, .. } => Some(self.constant(*table).shape[0] as usize),
            _ => None,
        });
        tables.min().unwrap_or(usize::MAX)
    }
}

/// Kernels that are prepared already, by number of rows.
#[derive(Debug, Default)]
pub(in crate::ascend) struct Prepared {
    entries: Vec<Entry>,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    rows: u32,
    used: u64,
    kernels: Vec<Option<Ready>>,
}

impl Prepared {
    /// A kernel for this many rows, prepared now if it is not yet, or is used up.
    pub(in crate::ascend) fn get(
        &mut self,
        model: &Model,
        kernel: usize,
        rows: u32,
    ) -> Result<&Ready, Fault> {
        let at = self.entry(model.plan.kernels.len(), rows);
        let place = &mut self.entries[at].kernels[kernel];
        let used_up = matches!(place, Some(Ready::Call(call)) if call.is_used_up());
        if used_up {
            *place = None;
        }
        match place {
            Some(ready) => Ok(ready),
            None => Ok(place.insert(model.prepare(kernel, rows)?)),
        }
    }

    fn entry(&mut self, kernels: usize, rows: u32) -> usize {
        self.uses += 1;
        let known = self.entries.iter().position(|entry| entry.rows == rows);
        let at = known.unwrap_or_else(|| {
            if self.entries.len() >= KEPT_ROW_COUNTS {
                let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.used);
                if let Some((oldest, _)) = oldest {
                    self.entries.swap_remove(oldest);
                }
            }
            let kernels = (0..kernels).map(|_| None).collect();
            self.entries.push(Entry { rows, used: 0, kernels });
            self.entries.len() - 1
        });
        self.entries[at].used = self.uses;
        at
    }
}
