//! Captured steps.
//!
//! A full graph holds a whole step. Attention takes the lengths of sequences as host arrays, which a capture bakes in;
//! so each attention stands in a task group of its own, and before a replay gets to it, a second stream gives it the
//! step's lengths. Attentions wait for that in batches, each behind one event: the first batch is one attention, so that
//! the device starts at once, and each further one is twice as large, since the device is busy with the one before while
//! the host updates it. Piecewise graphs end before each attention, which runs eagerly.
//!
//! Promises: what a graph has baked in (tensors, workspace, events) lives as long as the graph; a capture that fails
//! leaves a stream that does not capture; an update that fails half-way does not leave the graph waiting.

use updraft_core::Bytes;
use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::program::Rows;

use super::error::Fault;
use super::lower::{AttentionStep, AttentionTensors, Model, Prepared, Ready};
use super::operators::Call;
use super::runtime::{Event, GraphHandle, Slice, Stream, TaskGroup, Workspace, capture};
use super::step::Shape;
use crate::{Graph, GraphCost};

/// What a graph is thought to take for each of its operations before one was measured.
const KERNEL_BYTES: u64 = 4 << 10;

/// Attentions behind one event, at most.
const LARGEST_BATCH: usize = 8;

/// One captured step.
#[derive(Debug)]
pub(super) struct Captured {
    pieces: Vec<Piece>,
    pub(super) graph: Graph,
    /// Scratch memory that its operations were captured with.
    workspace: Option<Slice>,
    /// Calls that were captured, with their tensors.
    _calls: Vec<Call>,
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
        Ok(Captured { pieces, graph, workspace, _calls: kept })
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
            GraphKind::Mixed => (key.rows as usize).min(sizes.sequences),
            GraphKind::Piecewise => return Ok(None),
        };
        let mut lengths: Vec<i64> = (1..=sequences as i64).collect();
        if let Some(last) = lengths.last_mut() {
            *last = i64::from(key.rows);
        }
        let lengths_kv = vec![sizes.positions as i64; sequences];
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
        let step = self.step(shape, decodes)?;
        for piece in &captured.pieces {
            piece.graph.execute(self.main)?;
            self.update(piece, &step, captured.workspace.as_ref())?;
            if let Some(kernel) = piece.then {
                self.attend(kernel, shape.seen, &step, prepared)?;
            }
        }
        Ok(())
    }

    fn step(&self, shape: &Shape, decodes: bool) -> Result<AttentionStep, Fault> {
        AttentionStep::new(self.model, &shape.lengths, &shape.lengths_kv, shape.stride, decodes)
    }

    /// Gives the attentions of a running graph the step's lengths, one after the other.
    fn update(&self, piece: &Piece, step: &AttentionStep, workspace: Option<&Slice>) -> Result<(), Fault> {
        let mut result = Ok(());
        for batch in &piece.batches {
            for update in &batch.updates {
                if result.is_ok() {
                    result = self.update_one(update, step, workspace);
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
        step: &AttentionStep,
        workspace: Option<&Slice>,
    ) -> Result<(), Fault> {
        let Some(attention) = self.model.attention(update.kernel) else { return Ok(()) };
        let call = update.tensors.call(self.model, attention, step)?;
        update.group.update(self.update, || call.launch_in(workspace, self.update))
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
        tensors.call(self.model, attention, step)?.launch(self.workspace, self.main)
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
                Ready::Call(call) => call.launch(self.workspace, self.main)?,
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
            self.update.synchronize()?;
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
