//! From a program to operator calls.
//!
//! First a [`Plan`] is made of the program: one kernel for each operator call, over storages and constants that are only
//! described. It depends on nothing but the program and the installed operators. Then memory is laid out and weights are
//! loaded ([`Model`]), and each step prepares the plan's kernels for its rows.
//!
//! Promises: no operator reads and writes the same memory unless it is one that works in place; what a program orders is
//! kept; a program that cannot be run is refused here, before any weight is read.
//!
//! Refuses to know: streams, graphs, where a step's inputs come from.

mod analyse;
mod attention;
mod build;
mod kernels;
mod model;
mod plan;
mod weights;

pub(super) use attention::{AttentionStep, AttentionTensors};
pub(super) use kernels::Ready;
pub(super) use model::{Model, Prepared, Sizes};
pub(super) use plan::{Attention, Plan};

use super::operators::DataType;

/// The type that a device computes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// bfloat16: the range of a single, 8 bits of precision.
    #[default]
    Bf16,
    /// float16: 11 bits of precision, at most 65504.
    F16,
}

impl Compute {
    /// Name in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Bf16 => DataType::Bf16,
            Self::F16 => DataType::F16,
        }
    }

    /// The bits of a value in this type.
    pub(super) fn bits(self, value: f32) -> u16 {
        match self {
            Self::Bf16 => half::bf16::from_f32(value).to_bits(),
            Self::F16 => half::f16::from_f32(value).to_bits(),
        }
    }

    /// What bits of this type mean.
    pub(super) fn value(self, bits: u16) -> f32 {
        match self {
            Self::Bf16 => half::bf16::from_bits(bits).to_f32(),
            Self::F16 => half::f16::from_bits(bits).to_f32(),
        }
    }

    /// Whether these bits are a finite number.
    pub(super) fn is_finite(self, bits: u16) -> bool {
        self.value(bits).is_finite()
    }
}
