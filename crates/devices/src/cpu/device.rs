//! [`CpuDevice`]: one life of an executor on the CPU.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::program::{BufferId, Op, Rows};
use updraft_core::step::StepInputs;
use updraft_core::{Blocks, Bytes, Tokens};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::lanes::Simd;
use updraft_kernels::team::{Pinning, Team};

use super::division::Division;

use super::load::CpuModel;
use super::memory::{Memory, StepRows, kv_bytes_per_token};
use super::run::Run;
use crate::inputs::Limits;
use crate::{Device, DeviceError, Graph, GraphCost, MemoryUse, Progress, Properties, Stream};

/// Memory that graphs may take, all together.
const GRAPH_BYTES_MAX: Bytes = Bytes(256 << 20);

/// Sizes of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Compute threads, the caller of [`Stream::enqueue`] included. Zero counts as one.
    pub threads: usize,
    /// Where they run.
    pub pinning: Pinning,
    /// Blocks of the KV cache, in every layer.
    pub blocks: Blocks,
    /// Tokens in a block, a multiple of 16.
    pub block_size: Tokens,
    /// Type of keys and values in the cache.
    pub kv: KvType,
    /// Rows of a step, at most.
    pub max_rows: usize,
    /// Rows with logits of a step, at most.
    pub max_logit_rows: usize,
}

/// The CPU, with a thread team, a KV cache and activation buffers.
pub struct CpuDevice {
    model: Arc<CpuModel>,
    team: Team,
    simd: Simd,
    memory: Memory,
    limits: Limits,
    logits: BufferId,
    /// Rows of logits that the last step left.
    logit_rows: usize,
    /// How the attention of an eager step is divided.
    division: Division,
    /// What was resolved once for steps of so many rows.
    graphs: BTreeMap<GraphKey, Division>,
    properties: Properties,
    kv: Bytes,
    progress: Progress,
    host_time: Duration,
}

impl CpuDevice {
    /// Starts the threads and lays out all memory; no step allocates after this.
    ///
    /// # Errors
    /// When threads or the KV cache cannot be had, or the environment forces instructions that the machine lacks.
    pub fn new(model: Arc<CpuModel>, options: &CpuOptions) -> Result<Self, DeviceError> {
        // The team comes first: it may bind this thread, and memory lies on the node of the thread that first writes it.
        let team = Team::new(options.threads, &options.pinning)
            .map_err(|source| DeviceError::Threads { threads: options.threads, source })?;
        let memory = Memory::new(&model, options)?;
        let limits = Limits {
            rows: options.max_rows,
            logit_rows: options.max_logit_rows,
            blocks: options.blocks.0 as usize,
            block_size: options.block_size.0 as usize,
            tokens: table_rows(&model),
            positions: Limits::positions_of(model.program()),
        };
        // A loaded model has a logits buffer: its program was checked.
        let logits = model.program().logits.unwrap_or(BufferId(0));
        let properties = Properties {
            name: "cpu".to_owned(),
            hardware: "cpu".to_owned(),
            vocab: model.vocab(),
            graph_kinds: vec![GraphKind::Decode, GraphKind::Mixed],
            graph_budget: GraphCost { bytes: GRAPH_BYTES_MAX, streams: 0 },
            graph_name: "CPU graph",
        };
        let slots = u64::from(options.blocks.0) * u64::from(options.block_size.0);
        let kv = Bytes(kv_bytes_per_token(model.program(), options.kv).0 * slots);
        let (simd, progress) = (Simd::selected()?, Progress::default());
        let division = Division::new(&memory.shapes, team.threads(), options.max_rows);
        Ok(Self {
            model,
            team,
            simd,
            memory,
            limits,
            logits,
            logit_rows: 0,
            division,
            graphs: BTreeMap::new(),
            properties,
            kv,
            progress,
            host_time: Duration::ZERO,
        })
    }

    /// Memory of activations, if a step used all rows; less is taken as long as steps are smaller.
    #[must_use]
    pub fn activation_bytes(&self) -> Bytes {
        Bytes(self.memory.activation_bytes() as u64)
    }
}

impl Device for CpuDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse {
            weights: self.model.weight_bytes(),
            kv: self.kv,
            activations: self.activation_bytes(),
            graphs: Bytes(self.graphs.values().map(|division| division.bytes().0).sum()),
        }
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn stream(&mut self) -> &mut dyn Stream {
        self
    }

    fn graph_cost(&self, key: GraphKey) -> GraphCost {
        let shapes = &self.memory.shapes;
        GraphCost { bytes: Division::bytes_of(shapes, self.team.threads(), key.rows as usize), streams: 0 }
    }

    fn computes_padding(&self) -> bool {
        false
    }

    fn host_time(&self) -> Option<Duration> {
        Some(self.host_time)
    }

    fn repair(&mut self) -> Result<(), DeviceError> {
        self.graphs.clear();
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        assert!(row < self.logit_rows, "logit row {row} of {}", self.logit_rows);
        // SAFETY: the team only works while `enqueue` holds `&mut self`, so nobody writes now.
        unsafe { self.memory.buffer(self.logits).row(row) }
    }
}

/// The processor is its own stream: a step is done when it has been started.
impl Stream for CpuDevice {
    fn enqueue(&mut self, inputs: &StepInputs) -> Result<(), DeviceError> {
        let started = Instant::now();
        let rows = self.begin(inputs)?;
        let program = self.model.program();
        self.memory.ready(rows, |buffer| program.buffers[buffer].rows);
        self.division.plan(&self.memory);
        self.host_time = started.elapsed();
        self.compute(inputs, None);
        Ok(())
    }

    fn capture(&mut self, key: GraphKey) -> Result<Graph, DeviceError> {
        if key.rows as usize > self.limits.rows {
            let (actual, max) = (key.rows as usize, self.limits.rows);
            return Err(DeviceError::TooMany { what: "rows", actual, max });
        }
        let division = Division::new(&self.memory.shapes, self.team.threads(), key.rows as usize);
        let cost = GraphCost { bytes: division.bytes(), streams: 0 };
        let nodes = self.model.stages().order.len() as u32;
        self.graphs.insert(key, division);
        Ok(Graph { key, cost, nodes })
    }

    fn replay(&mut self, key: GraphKey, inputs: &StepInputs) -> Result<(), DeviceError> {
        if !self.graphs.contains_key(&key) {
            return Err(DeviceError::NoGraph(key));
        }
        if inputs.rows() > key.rows as usize {
            let (actual, max) = (inputs.rows(), key.rows as usize);
            return Err(DeviceError::TooMany { what: "rows", actual, max });
        }
        let started = Instant::now();
        let rows = self.begin(inputs)?;
        if !self.memory.is_ready_for(rows) {
            let program = self.model.program();
            self.memory.ready(rows, |buffer| program.buffers[buffer].rows);
        }
        if let Some(division) = self.graphs.get_mut(&key) {
            division.replan(&self.memory);
        }
        self.host_time = started.elapsed();
        self.compute(inputs, Some(key));
        Ok(())
    }

    fn forget(&mut self, key: GraphKey) {
        self.graphs.remove(&key);
    }

    fn synchronize(&mut self, _deadline: Duration) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl CpuDevice {
    /// Checks a step and takes over its inputs.
    fn begin(&mut self, inputs: &StepInputs) -> Result<StepRows, DeviceError> {
        self.limits.check(inputs)?;
        let program = self.model.program();
        self.memory.trim(self.logit_rows, |buffer| program.buffers[buffer].rows == Rows::Logits);
        // Stays at zero if a worker panics.
        self.logit_rows = 0;
        self.memory.refresh(inputs);
        Ok(StepRows::new(inputs))
    }

    /// Runs all stages, divided as the graph says, or as was planned for this step alone.
    fn compute(&mut self, inputs: &StepInputs, graph: Option<GraphKey>) {
        let division = graph.and_then(|key| self.graphs.get(&key)).unwrap_or(&self.division);
        let (simd, progress) = (self.simd, &self.progress);
        let plans = division.plans();
        let run = Run { model: &self.model, memory: &self.memory, inputs, simd, plans, progress };
        self.team.run(|worker| run.stages(worker));
        self.logit_rows = inputs.logit_rows.len();
    }
}

impl std::fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuDevice").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Token ids that every embedding table of the model has a row for.
fn table_rows(model: &CpuModel) -> usize {
    let tables = model.program().ops.iter().filter_map(|op| match op {
        Op::Embed { table, .. } => model.matrix(*table),
        _ => None,
    });
    tables.map(updraft_kernels::matrix::PackedMatrix::rows).min().unwrap_or(usize::MAX)
}
