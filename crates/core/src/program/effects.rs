//! What an operation reads and changes, and what a fused one stands for.
//!
//! Whoever moves, drops or splits operations asks here; nobody else needs to know every operation there is.

use super::{BufferId, Op, WeightId};

impl Op {
    /// Buffers whose content it depends on, those that it changes in place too.
    #[must_use]
    pub fn reads(&self) -> Vec<BufferId> {
        match *self {
            Self::Embed { .. } => Vec::new(),
            Self::RmsNorm { input, .. } | Self::MatMul { input, .. } | Self::TakeLogitRows { input, .. } => {
                vec![input]
            }
            Self::HeadNorm { buffer, .. } | Self::Rope { buffer, .. } => vec![buffer],
            Self::WriteKv { key, value, .. } => vec![key, value],
            Self::Attention { query, .. } => vec![query],
            Self::Gate { gate, up, .. } => vec![gate, up],
            Self::Add { into, input } | Self::AddRmsNorm { into, input, .. } => vec![into, input],
            Self::RopeWriteKv { query, key, value, .. } => vec![query, key, value],
        }
    }

    /// Buffers that it changes. All but those it reads as well are overwritten as a whole.
    #[must_use]
    pub fn writes(&self) -> Vec<BufferId> {
        match *self {
            Self::Embed { out, .. }
            | Self::RmsNorm { out, .. }
            | Self::MatMul { out, .. }
            | Self::Attention { out, .. }
            | Self::Gate { out, .. }
            | Self::TakeLogitRows { out, .. } => vec![out],
            Self::HeadNorm { buffer, .. } | Self::Rope { buffer, .. } => vec![buffer],
            Self::WriteKv { .. } => Vec::new(),
            Self::Add { into, .. } => vec![into],
            Self::AddRmsNorm { into, out, .. } => vec![into, out],
            Self::RopeWriteKv { query, key, .. } => vec![query, key],
        }
    }

    /// Whether it writes to the KV cache, which outlives the step.
    #[must_use]
    pub fn writes_cache(&self) -> bool {
        matches!(self, Self::WriteKv { .. } | Self::RopeWriteKv { .. })
    }

    /// Whether it reads or changes a buffer.
    #[must_use]
    pub fn touches(&self, buffer: BufferId) -> bool {
        self.reads().contains(&buffer) || self.writes().contains(&buffer)
    }

    /// The sequence of simple operations that it stands for: itself, unless it is a fused one. Running these
    /// one after the other gives the same bits.
    #[must_use]
    pub fn sequence(&self) -> Vec<Op> {
        match *self {
            Self::AddRmsNorm { into, input, weight, offset, epsilon, out } => {
                vec![Self::Add { into, input }, Self::RmsNorm { input: into, weight, offset, epsilon, out }]
            }
            Self::RopeWriteKv { query, key, value, head_dim, rope, layer } => {
                let turn = |buffer| Self::Rope { buffer, head_dim, rope };
                vec![turn(query), turn(key), Self::WriteKv { layer, key, value }]
            }
            ref simple => vec![simple.clone()],
        }
    }

    /// Calls `rename` on every buffer that it names.
    pub(super) fn for_buffers(&mut self, mut rename: impl FnMut(&mut BufferId)) {
        match self {
            Self::Embed { out, .. } => rename(out),
            Self::RmsNorm { input, out, .. }
            | Self::MatMul { input, out, .. }
            | Self::TakeLogitRows { input, out } => [input, out].into_iter().for_each(rename),
            Self::HeadNorm { buffer, .. } | Self::Rope { buffer, .. } => rename(buffer),
            Self::WriteKv { key, value, .. } => [key, value].into_iter().for_each(rename),
            Self::Attention { query, out, .. } => [query, out].into_iter().for_each(rename),
            Self::Gate { gate, up, out, .. } => [gate, up, out].into_iter().for_each(rename),
            Self::Add { into, input } => [into, input].into_iter().for_each(rename),
            Self::AddRmsNorm { into, input, out, .. } => [into, input, out].into_iter().for_each(rename),
            Self::RopeWriteKv { query, key, value, .. } => [query, key, value].into_iter().for_each(rename),
        }
    }

    /// Calls `rename` on every weight that it names.
    pub(super) fn for_weights(&mut self, mut rename: impl FnMut(&mut WeightId)) {
        match self {
            Self::Embed { table, .. } => rename(table),
            Self::RmsNorm { weight, .. }
            | Self::HeadNorm { weight, .. }
            | Self::AddRmsNorm { weight, .. } => {
                rename(weight);
            }
            Self::MatMul { weight, bias, .. } => [weight].into_iter().chain(bias).for_each(rename),
            Self::Rope { .. }
            | Self::WriteKv { .. }
            | Self::Attention { .. }
            | Self::Gate { .. }
            | Self::Add { .. }
            | Self::TakeLogitRows { .. }
            | Self::RopeWriteKv { .. } => {}
        }
    }
}
