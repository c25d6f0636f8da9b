//! A plan: kernels over described memory.

use std::rc::Rc;

use updraft_core::program::{BufferId, RopeId, Rows, WeightId};

/// Index into [`Plan::storages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ascend) struct StorageId(pub(super) usize);

/// Index into [`Plan::constants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ascend) struct ConstantId(pub(super) usize);

/// Memory that a step writes: `[rows, width]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StorageSpec {
    pub(super) width: u32,
    pub(super) rows: Rows,
    /// Whether its values are singles; otherwise of the compute type.
    pub(super) single: bool,
}

/// Where each value of a head comes from: value `j` is the checkpoint's value `order[j]`.
pub(super) type HeadOrder = Rc<[u32]>;

/// A tensor of the checkpoint, perhaps with the values of each head in another order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) weight: WeightId,
    pub(super) order: Option<HeadOrder>,
}

/// Memory that is filled once.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Constant {
    /// Matrices, one below the other, or vectors, one behind the other.
    Weights {
        parts: Vec<Part>,
        /// Added to every value.
        offset: f32,
    },
    /// Cosines of all positions, one row each, a value for each value of a head.
    Cos { rope: RopeId, head_dim: u32 },
    /// Sines.
    Sin { rope: RopeId, head_dim: u32 },
}

/// One operator call.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::ascend) enum Kernel {
    Embed {
        table: ConstantId,
        out: StorageId,
    },
    Scale {
        input: StorageId,
        factor: f32,
        out: StorageId,
    },
    /// `out = table[positions]`.
    Angles {
        table: ConstantId,
        form: TakeForm,
        out: StorageId,
    },
    /// Over each of `groups` parts of a row.
    RmsNorm {
        input: StorageId,
        gamma: ConstantId,
        groups: u32,
        epsilon: f32,
        rstd: StorageId,
        out: StorageId,
    },
    /// `sum = into + input`, `out` its norm.
    AddRmsNorm(AddRmsNorm),
    MatMul {
        input: StorageId,
        weight: ConstantId,
        bias: Option<ConstantId>,
        out: StorageId,
    },
    AddBias {
        into: StorageId,
        bias: ConstantId,
    },
    /// In place.
    Rope {
        query: StorageId,
        key: StorageId,
        head_dim: u32,
        cos: StorageId,
        sin: StorageId,
        form: RopeForm,
    },
    RopeAlone {
        input: StorageId,
        head_dim: u32,
        cos: StorageId,
        sin: StorageId,
        out: StorageId,
    },
    /// Keys and values at once.
    WriteKv {
        layer: u32,
        key: StorageId,
        value: StorageId,
    },
    /// Only one of them.
    WriteHalf {
        layer: u32,
        input: StorageId,
        is_key: bool,
    },
    Attention(Attention),
    SwiGlu {
        input: StorageId,
        out: StorageId,
    },
    Silu {
        input: StorageId,
        out: StorageId,
    },
    Gelu {
        input: StorageId,
        out: StorageId,
    },
    Mul {
        input: StorageId,
        other: StorageId,
        out: StorageId,
    },
    Add {
        into: StorageId,
        input: StorageId,
    },
    TakeLogitRows {
        input: StorageId,
        form: TakeForm,
        out: StorageId,
    },
    Cast {
        input: StorageId,
        out: StorageId,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::ascend) struct AddRmsNorm {
    pub(super) into: StorageId,
    pub(super) input: StorageId,
    pub(super) gamma: ConstantId,
    pub(super) epsilon: f32,
    pub(super) rstd: StorageId,
    pub(super) sum: StorageId,
    pub(super) out: StorageId,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::ascend) struct Attention {
    pub(super) layer: u32,
    pub(super) query: StorageId,
    pub(super) out: StorageId,
    pub(super) heads: u32,
    pub(super) scale: f32,
    pub(super) window: Option<u32>,
    pub(super) form: AttentionForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ascend) enum TakeForm {
    IndexSelect,
    Gather,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ascend) enum RopeForm {
    First,
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ascend) enum AttentionForm {
    First,
    Second,
    Third,
}

/// A program as kernels.
#[derive(Clone, Debug, Default)]
pub(in crate::ascend) struct Plan {
    pub(super) storages: Vec<StorageSpec>,
    pub(super) constants: Vec<Constant>,
    pub(in crate::ascend) kernels: Vec<Kernel>,
    /// Where the kernels begin that only concern rows whose logits are wanted.
    pub(in crate::ascend) tail: usize,
    /// Storage that holds the logits as singles.
    pub(super) logits: Option<StorageId>,
    /// Where a buffer of the program ends up.
    pub(super) places: Vec<StorageId>,
}

impl Plan {
    pub(super) fn spec(&self, id: StorageId) -> &StorageSpec {
        &self.storages[id.0]
    }

    /// Where a buffer of the program ends up, with its width.
    pub(in crate::ascend) fn place(&self, buffer: BufferId) -> Option<(StorageId, u32)> {
        let place = *self.places.get(buffer.0 as usize)?;
        Some((place, self.spec(place).width))
    }

    /// Which rows a kernel works on.
    pub(in crate::ascend) fn rows(&self, kernel: &Kernel) -> Rows {
        let out = match kernel {
            Kernel::Embed { out, .. }
            | Kernel::Scale { out, .. }
            | Kernel::Angles { out, .. }
            | Kernel::RmsNorm { out, .. }
            | Kernel::AddRmsNorm(AddRmsNorm { out, .. })
            | Kernel::MatMul { out, .. }
            | Kernel::RopeAlone { out, .. }
            | Kernel::Attention(Attention { out, .. })
            | Kernel::SwiGlu { out, .. }
            | Kernel::Silu { out, .. }
            | Kernel::Gelu { out, .. }
            | Kernel::Mul { out, .. }
            | Kernel::TakeLogitRows { out, .. }
            | Kernel::Cast { out, .. } => out,
            Kernel::AddBias { into, .. } | Kernel::Add { into, .. } => into,
            Kernel::Rope { query, .. } => query,
            Kernel::WriteKv { key, .. } => key,
            Kernel::WriteHalf { input, .. } => input,
        };
        self.spec(*out).rows
    }
}
