//! Captured steps.
//!
//! A full graph holds a whole step. Attention takes the lengths of sequences as host arrays, which a capture bakes in;
//! so each attention stands in a task group of its own, and before a replay gets to it, a second stream gives it the
//! step's lengths. Attentions wait for that in batches, each behind one event: the first batch is one attention, so that
//! the device starts at once, and each further one is twice as large, since the device is busy with the one before while
//! the host updates it. The calls of a next decode step are planned while the one before is computed, so that a replay only
//! hands them over. Piecewise graphs end before each attention, which runs eagerly.
//!
//! Promises: what a graph has baked in (tensors, workspace, events) lives as long as the graph; a capture that fails
//! leaves a stream that does not capture; an update that fails half-way does not leave the graph waiting.

use std::cell::RefCell;
use std::time::Duration;

use updraft_core::Bytes;
use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::program::Rows;
use updraft_core::recovery::RecoveryClass;

use super::codes;
use super::error::{self, Fault};
use super::lower::{AttentionStep, AttentionTensors, Model, Prepared, Ready};
use super::operators::Call;
use super::runtime::{Event, GraphHandle, Slice, Stream, TaskGroup, Workspace, capture};
use super::step::Shape;
use crate::{Graph, GraphCost, Progress};

/// What a graph is thought to take for each of its operations before one was measured.
const KERNEL_BYTES: u64 = 4 << 10;

/// Attentions behind one event, at most.
const LARGEST_BATCH: usize = 8;

/// How long the device is given for the one update that is tried at the opening.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// One captured step.
#[derive(Debug)]
pub(super) struct Captured {
    /// What the next step needs if it goes on where the last one stopped. Goes first: it refers to the rest.
    foreseen: RefCell<Option<Foreseen>>,
    pieces: Vec<Piece>,
    pub(super) graph: Graph,
    /// Scratch memory that its operations were captured with.
    workspace: Option<Slice>,
    /// Calls that were captured, with their tensors.
    calls: Vec<Call>,
}

impl Drop for Captured {
    fn drop(&mut self) {
        let mut still_running = false;
        for Piece { graph, batches, .. } in self.pieces.drain(..) {
            if !graph.destroy() {
                still_running = true;
                std::mem::forget(batches);
            }
        }
        if still_running {
            // The device may still use all of it, so it is lost to this process.
            std::mem::forget(self.workspace.take());
            std::mem::forget(std::mem::take(&mut self.calls));
        }
    }
}

/// Attention calls of a step that has not come yet, planned while the one before was running.
#[derive(Debug)]
struct Foreseen {
    calls: Vec<Call>,
    /// What the calls refer to.
    _step: AttentionStep,
    lengths: Vec<i64>,
    lengths_kv: Vec<i64>,
    stride: usize,
}

/// Where the attention calls of a replay come from.
enum Source<'a> {
    Foreseen(std::slice::Iter<'a, Call>),
    Planned(AttentionStep),
}

/// A part of a step.
#[derive(Debug)]
struct Piece {
    graph: GraphHandle,
    /// Attentions inside, in order.
    batches: Vec<Batch>,
    /// The attention behind it, which runs eagerly.
    then: Option<usize>,
}

/// Attentions inside a graph that are updated together.
#[derive(Debug)]
struct Batch {
    /// What the graph waits for before the first of them.
    event: Event,
    updates: Vec<Update>,
    /// How many there may be.
    room: usize,
}

/// An attention inside a graph.
#[derive(Debug)]
struct Update {
    kernel: usize,
    tensors: AttentionTensors,
    group: TaskGroup,
}

/// The two streams of a device with what their operations share.
pub(super) struct Streams<'a> {
    pub(super) model: &'a Model,
    pub(super) main: &'a Stream,
    /// Changes operations of graphs that run on the other one.
    pub(super) update: &'a Stream,
    pub(super) workspace: &'a Workspace,
    /// Advances with each operation that was handed over: the first call of an operator may load it for seconds.
    pub(super) progress: &'a Progress,
}

/// The kernels of a graph of this kind.
pub(super) fn kernels(model: &Model, kind: GraphKind) -> usize {
    match kind {
        GraphKind::Decode => model.plan.kernels.len(),
        GraphKind::Mixed | GraphKind::Piecewise => model.plan.tail,
    }
}

/// What a graph will take, before it is captured.
pub(super) fn estimate(model: &Model, key: GraphKey) -> GraphCost {
    let kernels = kernels(model, key.kind);
    let attentions = (0..kernels).filter(|kernel| model.attention(*kernel).is_some()).count();
    let streams = if key.kind == GraphKind::Piecewise { attentions + 1 } else { 1 };
    GraphCost { bytes: Bytes(kernels as u64 * KERNEL_BYTES), streams: streams as u32 }
}

impl Foreseen {
    fn fits(&self, shape: &Shape) -> bool {
        self.lengths_kv == shape.lengths_kv && self.lengths == shape.lengths && self.stride == shape.stride
    }
}

impl Streams<'_> {
    /// Records the step of a key. Everything is planned before the recording begins.
    pub(super) fn capture(&self, key: GraphKey) -> Result<Captured, Fault> {
        let model = self.model;
        let largest = self.largest_step(key)?;
        let mut calls = Vec::new();
        let mut workspace = 0;
        for kernel in 0..kernels(model, key.kind) {
            let planned = match (model.prepare(kernel, key.rows)?, model.attention(kernel), &largest) {
                // Inside a graph, attention is captured for the largest lengths: they decide about the workspace.
                (Ready::Attention(tensors), Some(attention), Some(step)) => {
                    let call = tensors.call(model, attention, step)?;
                    Planned::Attention(tensors, call)
                }
                (Ready::Attention(_), ..) => Planned::Gap,
                (Ready::Call(call), ..) => Planned::Call(call),
            };
            if let Planned::Call(call) | Planned::Attention(_, call) = &planned {
                workspace = workspace.max(call.workspace());
            }
            calls.push((kernel, planned));
            self.progress.tick();
        }
        let workspace = self.workspace.lend(workspace)?;
        self.record(key, calls, workspace)
    }

    fn record(
        &self,
        key: GraphKey,
        calls: Vec<(usize, Planned)>,
        workspace: Option<Slice>,
    ) -> Result<Captured, Fault> {
        let (mut pieces, mut kept) = (Vec::new(), Vec::new());
        let nodes = calls.len() as u32;
        let mut rest = calls.into_iter().peekable();
        while rest.peek().is_some() {
            let mut batches: Vec<Batch> = Vec::new();
            let mut then = None;
            let graph = capture(self.main, || {
                for (kernel, planned) in rest.by_ref() {
                    self.progress.tick();
                    match planned {
                        Planned::Call(call) => {
                            call.launch_in(workspace.as_ref(), self.main)?;
                            kept.push(call);
                        }
                        Planned::Gap => {
                            then = Some(kernel);
                            break;
                        }
                        Planned::Attention(tensors, call) => {
                            let batch = self.batch(&mut batches)?;
                            let group = TaskGroup::record(self.main, || {
                                call.launch_in(workspace.as_ref(), self.main)
                            })?;
                            batch.updates.push(Update { kernel, tensors, group });
                        }
                    }
                }
                Ok(())
            })?;
            pieces.push(Piece { graph, batches, then });
        }
        let graph = Graph { key, cost: estimate(self.model, key), nodes };
        Ok(Captured { foreseen: RefCell::default(), pieces, graph, workspace, calls: kept })
    }

    /// The batch that the next captured attention belongs to; a new one begins with a wait for its event.
    fn batch<'b>(&self, batches: &'b mut Vec<Batch>) -> Result<&'b mut Batch, Fault> {
        let room = match batches.last() {
            Some(last) if last.updates.len() < last.room => None,
            Some(last) => Some((2 * last.room).min(LARGEST_BATCH)),
            None => Some(1),
        };
        if let Some(room) = room {
            let event = Event::external(self.model.api())?;
            self.main.wait(&event)?;
            self.main.reset(&event)?;
            batches.push(Batch { event, updates: Vec::with_capacity(room), room });
        }
        let at = batches.len() - 1;
        Ok(&mut batches[at])
    }

    /// The longest sequences that a full graph has to be ready for.
    fn largest_step(&self, key: GraphKey) -> Result<Option<AttentionStep>, Fault> {
        let sizes = &self.model.sizes;
        let sequences = match key.kind {
            GraphKind::Decode => key.rows as usize,
            // Rows of nobody are one sequence more.
            GraphKind::Mixed => (key.rows as usize).min(sizes.sequences + 1),
            GraphKind::Piecewise => return Ok(None),
        };
        let mut lengths: Vec<i64> = (1..=sequences as i64).collect();
        if let Some(last) = lengths.last_mut() {
            *last = i64::from(key.rows);
        }
        let longest = sizes.positions.max(key.rows as usize);
        let lengths_kv = vec![longest as i64; sequences];
        let decodes = key.kind == GraphKind::Decode;
        AttentionStep::new(self.model, &lengths, &lengths_kv, sizes.table_stride(), decodes).map(Some)
    }

    /// Puts a captured step, whose inputs were uploaded, onto the stream.
    pub(super) fn replay(
        &self,
        captured: &Captured,
        shape: &Shape,
        prepared: &mut Prepared,
    ) -> Result<(), Fault> {
        let decodes = captured.graph.key.kind == GraphKind::Decode
            || captured.graph.key.kind == GraphKind::Piecewise && shape.decodes;
        let foreseen = captured.foreseen.take().filter(|foreseen| foreseen.fits(shape));
        let mut source = match &foreseen {
            Some(foreseen) => Source::Foreseen(foreseen.calls.iter()),
            None => Source::Planned(self.step(shape, decodes)?),
        };
        for piece in &captured.pieces {
            piece.graph.execute(self.main)?;
            self.progress.tick();
            self.update(piece, &mut source, captured.workspace.as_ref())?;
            if let (Some(kernel), Source::Planned(step)) = (piece.then, &source) {
                self.attend(kernel, shape.seen, step, prepared)?;
            }
        }
        Ok(())
    }

    /// Plans the attention calls of the next step, if the one that is running decodes and every sequence goes on by one
    /// token. Nothing is lost when the next step is another one.
    pub(super) fn foresee(&self, captured: &Captured, shape: &Shape) {
        if captured.graph.key.kind != GraphKind::Decode {
            return;
        }
        let real = shape.lengths_kv.iter().take(shape.sequences).map(|length| length + 1);
        let nobody = shape.lengths_kv.iter().skip(shape.sequences).copied();
        let lengths_kv: Vec<i64> = real.chain(nobody).collect();
        let fits = lengths_kv.iter().all(|length| *length <= self.model.sizes.positions as i64);
        if fits {
            // A refusal comes again, and is heard, when the step is there.
            *captured.foreseen.borrow_mut() = self.plan(captured, shape, lengths_kv).ok();
        }
    }

    fn plan(&self, captured: &Captured, shape: &Shape, lengths_kv: Vec<i64>) -> Result<Foreseen, Fault> {
        let step = AttentionStep::new(self.model, &shape.lengths, &lengths_kv, shape.stride, true)?;
        let batches = captured.pieces.iter().flat_map(|piece| &piece.batches);
        let calls = batches
            .flat_map(|batch| &batch.updates)
            .filter_map(|update| Some((update, self.model.attention(update.kernel)?)))
            .map(|(update, attention)| update.tensors.call(self.model, attention, &step))
            .collect::<Result<_, _>>()?;
        Ok(Foreseen { calls, _step: step, lengths: shape.lengths.clone(), lengths_kv, stride: shape.stride })
    }

    fn step(&self, shape: &Shape, decodes: bool) -> Result<AttentionStep, Fault> {
        AttentionStep::new(self.model, &shape.lengths, &shape.lengths_kv, shape.stride, decodes)
    }

    /// Gives the attentions of a running graph the step's lengths, one after the other.
    fn update(&self, piece: &Piece, source: &mut Source<'_>, workspace: Option<&Slice>) -> Result<(), Fault> {
        let mut result = Ok(());
        for batch in &piece.batches {
            for update in &batch.updates {
                if result.is_ok() {
                    result = self.update_one(update, source, workspace);
                }
            }
            // The graph waits for it, whatever became of the updates.
            let recorded = self.update.record(&batch.event);
            result = result.and(recorded);
        }
        result
    }

    fn update_one(
        &self,
        update: &Update,
        source: &mut Source<'_>,
        workspace: Option<&Slice>,
    ) -> Result<(), Fault> {
        let Some(attention) = self.model.attention(update.kernel) else { return Ok(()) };
        let put = |call: &Call| update.group.update(self.update, || call.launch_in(workspace, self.update));
        let updated = match source {
            Source::Foreseen(calls) => calls.next().map_or(Ok(()), put),
            Source::Planned(step) => put(&update.tensors.call(self.model, attention, step)?),
        };
        self.progress.tick();
        updated
    }

    /// Runs one attention eagerly.
    pub(super) fn attend(
        &self,
        kernel: usize,
        rows: u32,
        step: &AttentionStep,
        prepared: &mut Prepared,
    ) -> Result<(), Fault> {
        let (Some(attention), Ready::Attention(tensors)) =
            (self.model.attention(kernel), prepared.get(self.model, kernel, rows)?)
        else {
            return Ok(());
        };
        tensors.call(self.model, attention, step)?.launch(self.workspace, self.main)?;
        self.progress.tick();
        Ok(())
    }

    /// Runs kernels eagerly.
    pub(super) fn run(
        &self,
        kernels: std::ops::Range<usize>,
        shape: &Shape,
        prepared: &mut [Prepared; 2],
    ) -> Result<(), Fault> {
        let mut step = None;
        let [of_tokens, of_logits] = prepared;
        for kernel in kernels {
            let (cache, rows) = match self.model.rows_of(kernel) {
                Rows::Tokens => (&mut *of_tokens, shape.rows),
                Rows::Logits => (&mut *of_logits, shape.logit_rows),
            };
            if rows == 0 {
                continue;
            }
            match cache.get(self.model, kernel, rows)? {
                Ready::Call(call) => {
                    call.launch(self.workspace, self.main)?;
                    self.progress.tick();
                }
                Ready::Attention(_) => {
                    let step = match &mut step {
                        Some(step) => step,
                        None => step.insert(self.step(shape, shape.decodes)?),
                    };
                    self.attend(kernel, rows, step, cache)?;
                }
            }
        }
        Ok(())
    }

    /// Finds out whether operations of a graph can be given new arguments here: captures one attention and updates
    /// it. Nothing is run.
    pub(super) fn probe(&self) -> Result<(), Fault> {
        let kernels = 0..self.model.plan.kernels.len();
        let Some(kernel) = kernels.clone().find(|kernel| self.model.attention(*kernel).is_some()) else {
            return Ok(());
        };
        let Some(attention) = self.model.attention(kernel) else { return Ok(()) };
        let step = AttentionStep::new(self.model, &[1], &[1], 1, true)?;
        let Ready::Attention(tensors) = self.model.prepare(kernel, 1)? else { return Ok(()) };
        let call = tensors.call(self.model, attention, &step)?;
        let workspace = self.workspace.lend(call.workspace())?;
        let event = Event::external(self.model.api())?;
        let mut group = None;
        let graph = capture(self.main, || {
            self.main.wait(&event)?;
            self.main.reset(&event)?;
            group = Some(TaskGroup::record(self.main, || call.launch_in(workspace.as_ref(), self.main))?);
            Ok(())
        })?;
        if let Some(group) = group {
            let call = tensors.call(self.model, attention, &step)?;
            group.update(self.update, || call.launch_in(workspace.as_ref(), self.update))?;
            if !self.update.synchronize_for(PROBE_LIMIT)? {
                let meaning =
                    format!("the update of an operation in a graph is not done after {PROBE_LIMIT:?}");
                let (device, code) = (&self.model.api().device, codes::STREAM_SYNC_TIMEOUT);
                return Err(error::own_fault(device, code, "probe", meaning, RecoveryClass::Device));
            }
        }
        drop(graph);
        Ok(())
    }
}

/// A kernel of a step that is about to be captured.
enum Planned {
    Call(Call),
    /// Captured in a group of its own.
    Attention(AttentionTensors, Call),
    /// Attention that runs eagerly, between two pieces.
    Gap,
}
