//! [`AscendDevice`]: one NPU with a program's weights and KV cache.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use updraft_core::Bytes;
use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::program::BufferId;
use updraft_core::recovery::RecoveryClass;
use updraft_core::step::StepInputs;

use super::codes;
use super::collective::Group;
use super::error::{self, Fault};
use super::graphs::{self, Captured, Streams};
use super::lower::{Model, Prepared};
use super::runtime::{Api, DeviceHandle, PinnedBuffer, Pool, Purpose, Stream as Queue, Workspace};
use super::step::{Padding, Staging};
use crate::inputs::Limits;
use crate::{Collective, Device, DeviceError, Graph, GraphCost, MemoryUse, Progress, Properties, Stream};

/// How often a wait for a step shows a sign of life.
const SLICE: Duration = Duration::from_millis(20);
/// How long the rest of a step that could not be started is waited for.
const SETTLE: Duration = Duration::from_millis(500);
/// One NPU. Lives and dies on the thread that opened it.
pub struct AscendDevice {
    // Streams go first: destroying them ends all work on what follows.
    pub(super) main: Queue,
    pub(super) update: Queue,
    pub(super) group: Option<Group>,
    pub(super) graphs: BTreeMap<GraphKey, Captured>,
    /// For kernels of token rows and of logit rows.
    pub(super) prepared: [Prepared; 2],
    pub(super) model: Model,
    pub(super) workspace: Workspace,
    pub(super) staging: Staging,
    pub(super) pool: Pool,
    pub(super) limits: Limits,
    pub(super) properties: Properties,
    /// Why some kinds of graphs are not there.
    pub(super) graph_limit: Option<String>,
    pub(super) progress: Progress,
    pub(super) running: Running,
    /// Rows of logits that the last step left.
    pub(super) logit_rows: usize,
    pub(super) api: Rc<Api>,
    pub(super) handle: DeviceHandle,
}

/// What is on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    Nothing,
    /// A step with so many rows of logits.
    Step(usize),
    /// The rest of a step that could not be started.
    Rest,
}

impl AscendDevice {
    /// Why the device does not capture every kind of graph, if it does not.
    #[must_use]
    pub fn graph_limit(&self) -> Option<&str> {
        self.graph_limit.as_deref()
    }

    /// The device's memory that nobody uses, and all of it.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn memory_info(&self) -> Result<(Bytes, Bytes), DeviceError> {
        let (free, total) = self.handle.memory()?;
        Ok((Bytes(free), Bytes(total)))
    }

    /// The first rows of a buffer of the program as the last step left them, for those who look for an error.
    ///
    /// # Errors
    /// When there are not so many rows, or the device refuses.
    pub fn peek(&self, buffer: BufferId, rows: usize) -> Result<Vec<f32>, DeviceError> {
        let Some((place, width)) = self.model.plan.place(buffer) else { return Ok(Vec::new()) };
        let memory = self.model.storage(place);
        let bytes = rows * width as usize * size_of::<u16>();
        if bytes > memory.bytes() {
            let max = memory.bytes() / (width as usize * size_of::<u16>());
            return Err(DeviceError::TooMany { what: "rows", actual: rows, max });
        }
        let mut host = PinnedBuffer::new(&self.api, bytes.next_multiple_of(size_of::<i32>()))?;
        self.main.download(memory, &host, bytes)?;
        self.main.synchronize()?;
        let pairs = host.integers().iter().flat_map(|pair| [*pair as u16, (*pair >> 16) as u16]);
        Ok(pairs.take(rows * width as usize).map(|bits| self.model.value(bits)).collect())
    }

    pub(super) fn streams(&self) -> Streams<'_> {
        let (model, main, update, workspace) = (&self.model, &self.main, &self.update, &self.workspace);
        Streams { model, main, update, workspace }
    }

    /// Refuses a step while another one is on the stream.
    fn begin(&mut self) -> Result<(), Fault> {
        if self.running == Running::Rest {
            self.settle();
        }
        if self.running == Running::Nothing {
            return Ok(());
        }
        let meaning = "the last step is still running; synchronise first".to_owned();
        let (device, code) = (&self.properties.name, codes::STREAM_NOT_COMPLETE);
        Err(error::own_fault(device, code, "step", meaning, RecoveryClass::Retry))
    }

    /// Waits a little for what a failed start has left on the stream.
    fn settle(&mut self) {
        // A fault of it is the failed start's own; the start has been reported.
        if !matches!(self.main.synchronize_for(SETTLE), Ok(false)) {
            self.running = Running::Nothing;
            self.workspace.settled();
        }
    }

    fn check(&self, inputs: &StepInputs) -> Result<(), DeviceError> {
        self.limits.check(inputs)?;
        let (actual, max) = (inputs.spans.len(), self.model.sizes.sequences);
        if actual > max {
            return Err(DeviceError::TooMany { what: "sequences", actual, max });
        }
        Ok(())
    }

    /// Runs `work` behind the upload of inputs, and fetches the logits behind it.
    fn start(
        &mut self,
        inputs: &StepInputs,
        padding: Padding,
        work: impl FnOnce(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), DeviceError> {
        self.logit_rows = 0;
        self.staging.fill(&self.model.sizes, inputs, padding);
        self.running = Running::Rest;
        let rows = inputs.logit_rows.len();
        let started = self
            .staging
            .upload(&self.model, &self.main)
            .and_then(|()| work(self))
            .and_then(|()| self.staging.download(&self.model, &self.main, rows));
        match started {
            Ok(()) => {
                self.running = Running::Step(rows);
                Ok(())
            }
            Err(fault) => {
                self.settle();
                Err(fault.into())
            }
        }
    }

    fn run_kernels(&mut self, kernels: std::ops::Range<usize>) -> Result<(), Fault> {
        let (model, main, update, workspace) = (&self.model, &self.main, &self.update, &self.workspace);
        let streams = Streams { model, main, update, workspace };
        streams.run(kernels, &self.staging.shape, &mut self.prepared)
    }

    fn captured_sizes(&self, key: GraphKey) -> Result<(), DeviceError> {
        let sizes = &self.model.sizes;
        let max = match key.kind {
            GraphKind::Decode => sizes.rows.min(sizes.logit_rows).min(sizes.sequences),
            GraphKind::Mixed | GraphKind::Piecewise => sizes.rows,
        };
        let actual = key.rows as usize;
        if actual == 0 || actual > max {
            return Err(DeviceError::TooMany { what: "rows of a graph", actual, max });
        }
        Ok(())
    }
}

impl Device for AscendDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory(&self) -> MemoryUse {
        let graphs = self.graphs.values().map(|captured| captured.graph.cost.bytes.0).sum();
        MemoryUse {
            weights: Bytes(self.pool.taken(Purpose::Weights)),
            kv: Bytes(self.pool.taken(Purpose::Kv)),
            activations: Bytes(self.pool.taken(Purpose::Activations) + self.workspace.bytes()),
            graphs: Bytes(graphs),
        }
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn stream(&mut self) -> &mut dyn Stream {
        self
    }

    fn logits(&self, row: usize) -> &[f32] {
        assert!(row < self.logit_rows, "logit row {row} of {}", self.logit_rows);
        self.staging.logits(row)
    }

    fn graph_cost(&self, key: GraphKey) -> GraphCost {
        let known = self.graphs.get(&key).map(|captured| captured.graph.cost);
        known.unwrap_or_else(|| graphs::estimate(&self.model, key))
    }

    fn repair(&mut self) -> Result<(), DeviceError> {
        self.logit_rows = 0;
        self.main = Queue::new(&self.api)?;
        self.update = Queue::new(&self.api)?;
        // The old streams are gone, and with them all that ran on graphs and workspaces.
        self.graphs.clear();
        self.workspace.settled();
        self.running = Running::Nothing;
        Ok(())
    }

    fn collective(&mut self) -> Option<&mut dyn Collective> {
        if self.group.is_some() { Some(self) } else { None }
    }
}

impl Stream for AscendDevice {
    fn enqueue(&mut self, inputs: &StepInputs) -> Result<(), DeviceError> {
        self.check(inputs)?;
        self.begin()?;
        let kernels = self.model.plan.kernels.len();
        self.start(inputs, Padding::None, |device| device.run_kernels(0..kernels))
    }

    fn capture(&mut self, key: GraphKey) -> Result<Graph, DeviceError> {
        if !self.properties.graph_kinds.contains(&key.kind) {
            return Err(DeviceError::GraphKind { device: self.properties.name.clone(), kind: key.kind });
        }
        self.captured_sizes(key)?;
        self.begin()?;
        self.graphs.remove(&key);
        let (free, streams) = (self.handle.memory()?.0, self.handle.streams_left());
        let mut captured = self.streams().capture(key).map_err(as_capture)?;
        let cost = &mut captured.graph.cost;
        cost.bytes = Bytes(free.saturating_sub(self.handle.memory()?.0));
        if let (Some(before), Some(after)) = (streams, self.handle.streams_left()) {
            // Others may have given some back meanwhile; no piece of a graph does without one.
            cost.streams = cost.streams.max(before.saturating_sub(after));
        }
        let graph = captured.graph;
        self.graphs.insert(key, captured);
        self.progress.tick();
        Ok(graph)
    }

    fn replay(&mut self, key: GraphKey, inputs: &StepInputs) -> Result<(), DeviceError> {
        if !self.graphs.contains_key(&key) {
            return Err(DeviceError::NoGraph(key));
        }
        self.check(inputs)?;
        let (actual, max) = (inputs.rows(), key.rows as usize);
        if actual > max {
            return Err(DeviceError::TooMany { what: "rows", actual, max });
        }
        let padding = match key.kind {
            GraphKind::Decode => {
                check_decode(inputs, max)?;
                Padding::Sequences(key.rows)
            }
            GraphKind::Mixed => Padding::OneSequence(key.rows),
            GraphKind::Piecewise => Padding::Unseen(key.rows),
        };
        self.begin()?;
        let rest = graphs::kernels(&self.model, key.kind)..self.model.plan.kernels.len();
        self.start(inputs, padding, |device| {
            let (model, main, update) = (&device.model, &device.main, &device.update);
            let streams = Streams { model, main, update, workspace: &device.workspace };
            if let Some(captured) = device.graphs.get(&key) {
                streams.replay(captured, &device.staging.shape, &mut device.prepared[0])?;
            }
            if rest.is_empty() { Ok(()) } else { device.run_kernels(rest) }
        })
    }

    fn forget(&mut self, key: GraphKey) {
        self.graphs.remove(&key);
    }

    fn synchronize(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        let Running::Step(rows) = self.running else { return Ok(()) };
        let begun = Instant::now();
        loop {
            let left = deadline.saturating_sub(begun.elapsed());
            match self.main.synchronize_for(left.min(SLICE)) {
                Ok(true) => break,
                Ok(false) if begun.elapsed() >= deadline => {
                    let code = codes::STREAM_SYNC_TIMEOUT;
                    let meaning = format!("the step is still running after {deadline:?}");
                    let class = RecoveryClass::WaitMore;
                    return Err(error::own_fault(&self.properties.name, code, "step", meaning, class).into());
                }
                Ok(false) => self.progress.tick(),
                Err(fault) => {
                    self.running = Running::Nothing;
                    self.workspace.settled();
                    return Err(fault.into());
                }
            }
        }
        self.running = Running::Nothing;
        self.logit_rows = rows;
        self.workspace.settled();
        self.progress.tick();
        Ok(())
    }
}

/// A capture that fails without saying why is a broken capture, not a broken process.
fn as_capture(mut fault: Fault) -> Fault {
    let unclear = codes::lookup(fault.code, None).class == RecoveryClass::Unclear;
    if unclear && fault.class == RecoveryClass::Process {
        fault.class = RecoveryClass::Graph;
    }
    fault
}

fn check_decode(inputs: &StepInputs, rows: usize) -> Result<(), DeviceError> {
    let longest = inputs.spans.iter().map(|span| span.row_count as usize).max().unwrap_or(0);
    if longest > 1 {
        return Err(DeviceError::TooMany {
            what: "rows of one sequence in a decode graph",
            actual: longest,
            max: 1,
        });
    }
    let logit_rows = inputs.logit_rows.len();
    if logit_rows > rows {
        return Err(DeviceError::TooMany { what: "logit rows", actual: logit_rows, max: rows });
    }
    Ok(())
}

impl std::fmt::Debug for AscendDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AscendDevice").field("name", &self.properties.name).finish_non_exhaustive()
    }
}
