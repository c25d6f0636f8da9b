//! A model's step as data: a list of operations over buffers.
//!
//! A model family writes one [`Program`] when a checkpoint is opened; a device resolves its weights once and
//! then runs it every step with fresh [`crate::step::StepInputs`]. A device may rewrite the list (fuse,
//! reorder where independent) as long as no token changes.
//!
//! Shapes: an activation buffer is a matrix `[rows, width]` of the compute type, where `rows` is the step's
//! token rows, or the step's logit rows for buffers marked so. Weight matrices are `[out, in]`, row-major, as
//! in checkpoints. The reduction order of every operation depends on a row alone, never on its neighbours.

mod effects;
mod optimise;

use serde::{Deserialize, Serialize};

pub use optimise::{Fusion, Level, Outcome, Report, optimise};

/// Index into [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BufferId(pub u32);

/// Index into [`Program::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WeightId(pub u32);

/// Index into [`Program::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RopeId(pub u32);

/// A model's step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Activation buffers.
    pub buffers: Vec<BufferSpec>,
    /// Tensors to take from the checkpoint.
    pub weights: Vec<WeightSpec>,
    /// Rotary tables.
    pub ropes: Vec<RopeSpec>,
    /// KV cache geometry of each attention layer.
    pub kv_layers: Vec<KvLayerSpec>,
    /// Operations, in order.
    pub ops: Vec<Op>,
    /// Holds the logits, `[logit rows, vocabulary]`, when the last operation has run.
    pub logits: Option<BufferId>,
    /// Columns of the logits buffer.
    pub vocab: u32,
}

/// One activation buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferSpec {
    /// Name for people.
    pub name: String,
    /// Columns.
    pub width: u32,
    /// Which rows it has.
    pub rows: Rows,
}

/// Which rows of a step a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rows {
    /// One for each token computed.
    Tokens,
    /// One for each position whose logits are wanted.
    Logits,
}

/// One tensor of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightSpec {
    /// Name in the checkpoint.
    pub name: String,
    /// Expected shape: `[out, in]` or `[width]`.
    pub shape: Vec<u32>,
    /// How it is used, which decides how a device stores it.
    pub role: WeightRole,
}

/// What a tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightRole {
    /// Right-hand side of a matrix product (an embedding table shared with the output product too).
    Matrix,
    /// A table from which whole rows are read.
    Embedding,
    /// A vector of norm weights or biases.
    Vector,
}

/// KV cache geometry of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvLayerSpec {
    /// Key and value heads.
    pub kv_heads: u32,
    /// Values in one head.
    pub head_dim: u32,
}

/// A rotary table: angle of pair `i` at position `p` is `p * inverse_frequencies[i]`.
///
/// All rope variants (linear, dynamic, yarn, llama3) are folded into the frequencies and the factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeSpec {
    /// One for each rotated pair; `2 * len` leading values of a head are rotated, the rest pass.
    pub inverse_frequencies: Vec<f32>,
    /// Multiplies sine and cosine (yarn's attention factor; 1 otherwise).
    pub factor: f32,
    /// Which values form a pair.
    pub pairing: RopePairing,
    /// Positions the table must cover.
    pub max_positions: u32,
}

/// Which two values of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RopePairing {
    /// `i` with `i + half` (Hugging Face layout).
    Halves,
    /// `2 i` with `2 i + 1` (GGUF files of the Llama family, `DeepSeek`).
    Neighbours,
}

/// Gate function of a gated feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
}

/// One operation. Inputs and outputs never alias unless the text says "in place".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// `out[r] = table[token_ids[r]] * scale`.
    Embed {
        /// `[vocabulary, width]`.
        table: WeightId,
        /// `[tokens, width]`.
        out: BufferId,
        /// Factor on every value (1 for most families).
        scale: f32,
    },
    /// `out[r] = norm(input[r]) * (weight + offset)`: root mean square over the row.
    RmsNorm {
        /// `[rows, width]`.
        input: BufferId,
        /// `[width]`.
        weight: WeightId,
        /// Added to every weight: 1 for zero-centred weights, else 0.
        offset: f32,
        /// Added to the mean square.
        epsilon: f32,
        /// `[rows, width]`.
        out: BufferId,
    },
    /// [`Op::RmsNorm`] over each head of a row, in place.
    HeadNorm {
        /// `[tokens, heads * head_dim]`.
        buffer: BufferId,
        /// Values in one head.
        head_dim: u32,
        /// `[head_dim]`.
        weight: WeightId,
        /// Added to every weight.
        offset: f32,
        /// Added to the mean square.
        epsilon: f32,
    },
    /// `out[r] = input[r] * weight^T (+ bias)`.
    MatMul {
        /// `[rows, in]`.
        input: BufferId,
        /// `[out, in]`.
        weight: WeightId,
        /// `[out]`.
        bias: Option<WeightId>,
        /// `[rows, out]`.
        out: BufferId,
    },
    /// Rotates every head of a row by its position, in place.
    Rope {
        /// `[tokens, heads * head_dim]`.
        buffer: BufferId,
        /// Values in one head.
        head_dim: u32,
        /// The table.
        rope: RopeId,
    },
    /// Stores keys and values of all rows at their slots.
    WriteKv {
        /// Index into [`Program::kv_layers`].
        layer: u32,
        /// `[tokens, kv_heads * head_dim]`.
        key: BufferId,
        /// `[tokens, kv_heads * head_dim]`.
        value: BufferId,
    },
    /// Causal attention over the paged cache (the step's own keys are already written).
    Attention {
        /// Index into [`Program::kv_layers`].
        layer: u32,
        /// `[tokens, heads * head_dim]`.
        query: BufferId,
        /// `[tokens, heads * head_dim]`.
        out: BufferId,
        /// Query heads; a multiple of the layer's `kv_heads`.
        heads: u32,
        /// Multiplies the scores.
        scale: f32,
        /// A token sees itself and the `window - 1` tokens before it; all when absent.
        window: Option<u32>,
    },
    /// `out[r] = activation(gate[r]) * up[r]`.
    Gate {
        /// `[rows, width]`.
        gate: BufferId,
        /// `[rows, width]`.
        up: BufferId,
        /// `[rows, width]`.
        out: BufferId,
        /// The gate function.
        activation: Activation,
    },
    /// `into[r] += input[r]`, in place.
    Add {
        /// `[rows, width]`.
        into: BufferId,
        /// `[rows, width]`.
        input: BufferId,
    },
    /// `out[i] = input[logit_rows[i]]`.
    TakeLogitRows {
        /// `[tokens, width]`.
        input: BufferId,
        /// `[logit rows, width]`.
        out: BufferId,
    },
    /// [`Op::Add`] of `input` to `into`, in place, then [`Op::RmsNorm`] of `into` to `out`. Exactly these
    /// two, with every rounding between them.
    AddRmsNorm {
        /// `[rows, width]`.
        into: BufferId,
        /// `[rows, width]`.
        input: BufferId,
        /// `[width]`.
        weight: WeightId,
        /// Added to every weight.
        offset: f32,
        /// Added to the mean square.
        epsilon: f32,
        /// `[rows, width]`.
        out: BufferId,
    },
    /// [`Op::Rope`] of `query` and of `key`, in place, then [`Op::WriteKv`]. Exactly these three.
    RopeWriteKv {
        /// `[tokens, heads * head_dim]`.
        query: BufferId,
        /// `[tokens, kv_heads * head_dim]`.
        key: BufferId,
        /// `[tokens, kv_heads * head_dim]`.
        value: BufferId,
        /// Values in one head.
        head_dim: u32,
        /// The table.
        rope: RopeId,
        /// Index into [`Program::kv_layers`].
        layer: u32,
    },
}

impl Program {
    /// Adds a buffer.
    pub fn buffer(&mut self, name: &str, width: u32, rows: Rows) -> BufferId {
        self.buffers.push(BufferSpec { name: name.to_owned(), width, rows });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Adds a weight, or finds the one of the same name (a shared output matrix).
    pub fn weight(&mut self, name: &str, shape: &[u32], role: WeightRole) -> WeightId {
        if let Some(at) = self.weights.iter().position(|weight| weight.name == name) {
            if role == WeightRole::Matrix {
                self.weights[at].role = WeightRole::Matrix;
            }
            return WeightId(at as u32);
        }
        self.weights.push(WeightSpec { name: name.to_owned(), shape: shape.to_vec(), role });
        WeightId(self.weights.len() as u32 - 1)
    }
}
