//! A program as stages: what can run between two barriers.
//!
//! A stage is a chain of row-wise operations (a worker takes some rows through the whole chain), or a set of
//! independent matrix products, or one attention. Operations are sorted into stages by what they read and
//! write, in program order where possible; every operation sees exactly what it would have seen in program order.

mod sort;
#[cfg(test)]
mod tests;

use updraft_core::program::{Activation, BufferId, Program, RopeId, Rows, WeightId};
use updraft_kernels::activations::InputForm;

/// What runs between two barriers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Row-wise operations, in order, on rows of one kind.
    Rows {
        /// The rows.
        kind: Rows,
        /// The chain.
        ops: Vec<RowOp>,
    },
    /// Products that read nothing of each other.
    Products(Vec<Product>),
    /// One layer's attention.
    Attention(AttentionOp),
}

/// An operation that takes each row by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RowOp {
    /// Cosines and sines of the row's position.
    RopeAngles { rope: RopeId },
    /// Puts a row into the form that products read.
    Prepare { buffer: BufferId },
    /// [`Op::Embed`].
    Embed { table: WeightId, out: BufferId, scale: f32 },
    /// [`Op::RmsNorm`]; the vector has the offset added.
    RmsNorm { input: BufferId, vector: VectorId, epsilon: f32, out: BufferId },
    /// [`Op::HeadNorm`]; the vector has the offset added.
    HeadNorm { buffer: BufferId, vector: VectorId, epsilon: f32 },
    /// [`Op::Rope`].
    Rope { buffer: BufferId, head_dim: usize, rope: RopeId },
    /// [`Op::WriteKv`].
    WriteKv { layer: usize, key: BufferId, value: BufferId },
    /// [`Op::Gate`].
    Gate { gate: BufferId, up: BufferId, out: BufferId, activation: Activation },
    /// [`Op::Add`].
    Add { into: BufferId, input: BufferId },
    /// [`Op::TakeLogitRows`].
    TakeLogitRows { input: BufferId, out: BufferId },
}

/// [`Op::MatMul`] on a prepared input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Product {
    pub(super) input: BufferId,
    pub(super) weight: WeightId,
    pub(super) bias: Option<VectorId>,
    pub(super) out: BufferId,
}

/// [`Op::Attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AttentionOp {
    pub(super) layer: usize,
    pub(super) query: BufferId,
    pub(super) out: BufferId,
    /// Index into [`Stages::shapes`].
    pub(super) shape: usize,
}

/// Index into [`Stages::vectors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VectorId(pub(super) usize);

/// A vector as operations want it: a weight plus a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct VectorSpec {
    pub(super) weight: WeightId,
    pub(super) offset: f32,
}

/// What attention layers may differ in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AttentionShape {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) scale: f32,
    pub(super) window: Option<usize>,
}

/// A program, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Stages {
    /// In the order in which they run.
    pub(super) order: Vec<Stage>,
    /// Vectors that operations name.
    pub(super) vectors: Vec<VectorSpec>,
    /// Attention shapes that layers name.
    pub(super) shapes: Vec<AttentionShape>,
    /// For each buffer, the form in which products want it.
    pub(super) forms: Vec<Option<InputForm>>,
}

impl Stages {
    /// Sorts a program that has been checked. `form` says in which form a matrix wants its input.
    pub(super) fn new(program: &Program, form: impl Fn(WeightId) -> InputForm) -> Self {
        let mut stages = Self { forms: vec![None; program.buffers.len()], ..Self::default() };
        stages.order = sort::sorted(program, &mut stages, &form);
        stages
    }

    fn vector(&mut self, weight: WeightId, offset: f32) -> VectorId {
        let spec = VectorSpec { weight, offset };
        let found = self.vectors.iter().position(|known| *known == spec);
        VectorId(found.unwrap_or_else(|| {
            self.vectors.push(spec);
            self.vectors.len() - 1
        }))
    }

    fn shape(&mut self, shape: AttentionShape) -> usize {
        self.shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        })
    }
}
