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
/// How long the rest of a step that failed is waited for.
const SETTLE: Duration = Duration::from_millis(500);
/// How often: a fault of the rest ends a wait, and says nothing about what is behind it.
const SETTLE_TRIES: u32 = 3;
/// One NPU. Lives and dies on the thread that opened it.
pub struct AscendDevice {
    // Streams go first: destroying them ends all work on what follows.
    pub(super) main: Queue,
    pub(super) update: Queue,
    pub(super) group: Option<Group>,
    pub(super) graphs: BTreeMap<GraphKey, Captured>,
    /// Forgotten while they may still have been running; they go when nothing runs any more.
    pub(super) forgotten: Vec<Captured>,
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
    /// The graph of the step that runs.
    pub(super) replaying: Option<GraphKey>,
    /// Why the last step failed, if it did.
    pub(super) failed: Option<Fault>,
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
    /// What is left of a step that failed, or could not be started.
    Rest,
}

impl AscendDevice {
    /// Why the device does not capture every kind of graph, if it does not.
    #[must_use]
    pub fn graph_limit(&self) -> Option<&str> {
        self.graph_limit.as_deref()
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
        Streams { model, main, update, workspace, progress: &self.progress }
    }

    /// Refuses a step while another one is on the stream.
    fn begin(&mut self) -> Result<(), Fault> {
        match self.running {
            Running::Nothing => Ok(()),
            Running::Rest => self.settle(),
            Running::Step(_) => {
                let meaning = "the last step is still running; synchronise first".to_owned();
                let (device, code) = (&self.properties.name, codes::STREAM_NOT_COMPLETE);
                Err(error::own_fault(device, code, "step", meaning, RecoveryClass::Retry))
            }
        }
    }

    /// Waits a little for what a failed step has left on the stream. An error when it does not end: then only a new
    /// stream helps.
    fn settle(&mut self) -> Result<(), Fault> {
        let mut last = None;
        for _ in 0..SETTLE_TRIES {
            match self.main.synchronize_for(SETTLE) {
                Ok(true) => {
                    self.idle();
                    return Ok(());
                }
                Ok(false) => break,
                Err(fault) => last = Some(fault),
            }
        }
        Err(last.unwrap_or_else(|| {
            let meaning =
                "what a failed step has left is still running; give the device new streams".to_owned();
            let (device, code) = (&self.properties.name, codes::STREAM_NOT_COMPLETE);
            error::own_fault(device, code, "step", meaning, RecoveryClass::Stream)
        }))
    }

    /// Nothing runs any more: what was kept for it can go.
    fn idle(&mut self) {
        self.running = Running::Nothing;
        self.forgotten.clear();
        self.workspace.settled();
    }

    /// Keeps the fault of a step for whoever synchronises again, and says it.
    fn fail(&mut self, fault: Fault) -> DeviceError {
        self.running = Running::Rest;
        self.failed = Some(fault.clone());
        fault.into()
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
        self.failed = None;
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
                let error = self.fail(fault);
                // The start's own fault says more than one of its rest; what does not end now is met again.
                self.settle().ok();
                Err(error)
            }
        }
    }

    fn run_kernels(&mut self, kernels: std::ops::Range<usize>) -> Result<(), Fault> {
        let (model, main, update, workspace) = (&self.model, &self.main, &self.update, &self.workspace);
        let streams = Streams { model, main, update, workspace, progress: &self.progress };
        streams.run(kernels, &self.staging.shape, &mut self.prepared)
    }

    fn captured_sizes(&self, key: GraphKey) -> Result<(), DeviceError> {
        let sizes = &self.model.sizes;
        let max = match key.kind {
            GraphKind::Decode => sizes.decode_rows(),
            GraphKind::Mixed | GraphKind::Piecewise => sizes.graph_rows(),
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
        self.idle();
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
            let (workspace, progress) = (&device.workspace, &device.progress);
            let streams = Streams { model, main, update, workspace, progress };
            if let Some(captured) = device.graphs.get(&key) {
                streams.replay(captured, &device.staging.shape, &mut device.prepared[0])?;
            }
            if rest.is_empty() { Ok(()) } else { device.run_kernels(rest) }
        })?;
        self.replaying = Some(key);
        Ok(())
    }

    fn forget(&mut self, key: GraphKey) {
        let Some(graph) = self.graphs.remove(&key) else { return };
        if self.running == Running::Rest {
            // One that does not end is met again by the next step.
            self.settle().ok();
        }
        // A graph that runs cannot be destroyed, and what it has baked in must stay.
        if self.running != Running::Nothing {
            self.forgotten.push(graph);
        }
    }

    fn synchronize(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        let Running::Step(rows) = self.running else {
            // A step that failed did not end well because somebody asks again.
            return self.failed.clone().map_or(Ok(()), |fault| Err(fault.into()));
        };
        let begun = Instant::now();
        // While the device computes, the host has time to get ready for the step that most likely follows.
        if let Some(captured) = self.replaying.take().and_then(|key| self.graphs.get(&key)) {
            self.streams().foresee(captured, &self.staging.shape);
        }
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
                // Work behind the fault may go on.
                Err(fault) => return Err(self.fail(fault)),
            }
        }
        self.idle();
        self.logit_rows = rows;
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
