//! The first phase of every operator that is called, with the arguments of CANN's headers in their order.

use std::ffi::{CStr, c_void};

use super::call::{Argument, Call, Operators};
use super::tensor::{IntArray, Scalar, Tensor, TensorList};
use crate::ascend::error::Fault;
use crate::ascend::library::Executor;

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($arg:ident: $kind:ty),* $(,)?);)*) => {
        /// Every operator of this file.
        pub(super) const NAMES: &[&str] = &[$($symbol),*];

        /// Places of operators in [`NAMES`].
        #[allow(non_camel_case_types, reason = "named after the functions below")]
        enum Place { $($name),* }

        $(
            $(#[$doc])*
            #[allow(clippy::too_many_arguments, reason = "as many as the operator has")]
            pub(in crate::ascend) fn $name(operators: &Operators, $($arg: $kind),*) -> Result<Call, Fault> {
                type Raw = unsafe extern "C" fn(
                    $(<$kind as Argument>::Raw,)* *mut u64, *mut Executor
                ) -> i32;
                let symbols = operators.symbols(Place::$name as usize, $symbol)?;
                let mut objects = Vec::new();
                $($arg.keep(&mut objects);)*
                // SAFETY: found under the very name whose signature this is.
                let phase_one = unsafe { std::mem::transmute::<*const c_void, Raw>(symbols.phase_one) };
                // SAFETY: objects that are alive, numbers, static strings, and two places for results.
                Call::plan(operators, $symbol, symbols, objects, |size, executor| unsafe {
                    phase_one($($arg.raw(),)* size, executor)
                })
            }
        )*
    };
}

type T<'a> = &'a Tensor;
type Maybe<'a> = Option<&'a Tensor>;

operators! {
    /// Rows of a table.
    embedding = "aclnnEmbedding"(weight: T<'_>, indices: T<'_>, out: T<'_>);
    /// `out = input * other`.
    muls = "aclnnMuls"(input: T<'_>, other: &Scalar, out: T<'_>);
    /// `out = input * other`, value by value.
    mul = "aclnnMul"(input: T<'_>, other: T<'_>, out: T<'_>);
    /// Root mean square norm.
    rms_norm = "aclnnRmsNorm"(x: T<'_>, gamma: T<'_>, epsilon: f64, out: T<'_>, rstd: T<'_>);
    /// `sum = x1 + x2`, and its norm.
    add_rms_norm = "aclnnAddRmsNorm"(
        x1: T<'_>, x2: T<'_>, gamma: T<'_>, epsilon: f64, out: T<'_>, rstd: T<'_>, sum: T<'_>,
    );
    /// Product of matrices.
    mm = "aclnnMm"(left: T<'_>, right: T<'_>, out: T<'_>, cube: i8);
    /// `out = beta * bias + alpha * left * right`.
    addmm = "aclnnAddmm"(
        bias: T<'_>, left: T<'_>, right: T<'_>, beta: &Scalar, alpha: &Scalar, out: T<'_>, cube: i8,
    );
    /// `into += alpha * other`.
    inplace_add = "aclnnInplaceAdd"(into: T<'_>, other: T<'_>, alpha: &Scalar);
    /// Rotates query and key in place.
    apply_rotary_pos_emb = "aclnnApplyRotaryPosEmb"(
        query: T<'_>, key: T<'_>, cos: T<'_>, sin: T<'_>, layout: i64,
    );
    /// The same with a choice of pairs.
    apply_rotary_pos_emb_v2 = "aclnnApplyRotaryPosEmbV2"(
        query: T<'_>, key: T<'_>, cos: T<'_>, sin: T<'_>, layout: i64, mode: &'static CStr,
    );
    /// Rotates one tensor.
    rotary_position_embedding = "aclnnRotaryPositionEmbedding"(
        x: T<'_>, cos: T<'_>, sin: T<'_>, mode: i64, out: T<'_>,
    );
    /// Stores keys and values at their slots.
    scatter_pa_kv_cache = "aclnnScatterPaKvCache"(
        key: T<'_>, key_cache: T<'_>, slots: T<'_>, value: T<'_>, value_cache: T<'_>, compress_lens: Maybe<'_>,
        compress_offset: Maybe<'_>, seq_lens: Maybe<'_>, cache_mode: &'static CStr, scatter_mode: &'static CStr,
        strides: Option<&IntArray>, offsets: Option<&IntArray>,
    );
    /// `into[indices] = updates`, row by row.
    scatter_nd_update = "aclnnScatterNdUpdate"(into: T<'_>, indices: T<'_>, updates: T<'_>);
    /// `out = silu(first half) * second half`.
    swi_glu = "aclnnSwiGlu"(x: T<'_>, dim: i64, out: T<'_>);
    /// `x * sigmoid(x)`.
    silu = "aclnnSilu"(x: T<'_>, out: T<'_>);
    /// GELU; `approximate` 1 is the tanh form.
    gelu_v2 = "aclnnGeluV2"(x: T<'_>, approximate: i64, out: T<'_>);
    /// Takes slices along a dimension.
    index_select = "aclnnIndexSelect"(input: T<'_>, dim: i64, index: T<'_>, out: T<'_>);
    /// The same under another name.
    gather_v2 = "aclnnGatherV2"(input: T<'_>, dim: i64, index: T<'_>, out: T<'_>);
    /// Converts.
    cast = "aclnnCast"(input: T<'_>, data_type: i32, out: T<'_>);
    /// Attention, first form.
    attention_v1 = "aclnnFusedInferAttentionScore"(
        query: T<'_>, key: &TensorList, value: &TensorList, pse_shift: Maybe<'_>, mask: Maybe<'_>,
        lengths: &IntArray, lengths_kv: &IntArray, deq_scale1: Maybe<'_>, quant_scale1: Maybe<'_>,
        deq_scale2: Maybe<'_>, quant_scale2: Maybe<'_>, quant_offset2: Maybe<'_>, antiquant_scale: Maybe<'_>,
        antiquant_offset: Maybe<'_>, block_table: T<'_>, query_padding: Maybe<'_>, kv_padding: Maybe<'_>,
        heads: i64, scale: f64, pre_tokens: i64, next_tokens: i64, layout: &'static CStr, kv_heads: i64,
        sparse_mode: i64, inner_precise: i64, block_size: i64, antiquant_mode: i64, lse_flag: bool, out: T<'_>,
        lse: Maybe<'_>,
    );
    /// Attention, second form: with separate scales and shared prefixes.
    attention_v2 = "aclnnFusedInferAttentionScoreV2"(
        query: T<'_>, key: &TensorList, value: &TensorList, pse_shift: Maybe<'_>, mask: Maybe<'_>,
        lengths: &IntArray, lengths_kv: &IntArray, deq_scale1: Maybe<'_>, quant_scale1: Maybe<'_>,
        deq_scale2: Maybe<'_>, quant_scale2: Maybe<'_>, quant_offset2: Maybe<'_>, antiquant_scale: Maybe<'_>,
        antiquant_offset: Maybe<'_>, block_table: T<'_>, query_padding: Maybe<'_>, kv_padding: Maybe<'_>,
        key_scale: Maybe<'_>, key_offset: Maybe<'_>, value_scale: Maybe<'_>, value_offset: Maybe<'_>,
        key_prefix: Maybe<'_>, value_prefix: Maybe<'_>, prefix_length: Option<&IntArray>, heads: i64, scale: f64,
        pre_tokens: i64, next_tokens: i64, layout: &'static CStr, kv_heads: i64, sparse_mode: i64,
        inner_precise: i64, block_size: i64, antiquant_mode: i64, lse_flag: bool, key_mode: i64,
        value_mode: i64, out: T<'_>, lse: Maybe<'_>,
    );
    /// Attention, third form: with separate rotary parts.
    attention_v3 = "aclnnFusedInferAttentionScoreV3"(
        query: T<'_>, key: &TensorList, value: &TensorList, pse_shift: Maybe<'_>, mask: Maybe<'_>,
        lengths: &IntArray, lengths_kv: &IntArray, deq_scale1: Maybe<'_>, quant_scale1: Maybe<'_>,
        deq_scale2: Maybe<'_>, quant_scale2: Maybe<'_>, quant_offset2: Maybe<'_>, antiquant_scale: Maybe<'_>,
        antiquant_offset: Maybe<'_>, block_table: T<'_>, query_padding: Maybe<'_>, kv_padding: Maybe<'_>,
        key_scale: Maybe<'_>, key_offset: Maybe<'_>, value_scale: Maybe<'_>, value_offset: Maybe<'_>,
        key_prefix: Maybe<'_>, value_prefix: Maybe<'_>, prefix_length: Option<&IntArray>,
        query_rope: Maybe<'_>, key_rope: Maybe<'_>, key_rope_scale: Maybe<'_>, heads: i64, scale: f64,
        pre_tokens: i64, next_tokens: i64, layout: &'static CStr, kv_heads: i64, sparse_mode: i64,
        inner_precise: i64, block_size: i64, antiquant_mode: i64, lse_flag: bool, key_mode: i64,
        value_mode: i64, out: T<'_>, lse: Maybe<'_>,
    );
}
