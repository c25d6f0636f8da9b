//! `FusedInferAttentionScore`, versions 1 to 4.
//!
//! Always holds: quantisation, padding and shared-prefix arguments are refused when they are there, never
//! ignored.
//!
//! Refuses to know: arithmetic.

use super::call::{Arguments, Call};
use super::kernel;
use crate::executor::plan::{Plan, Planned, Slot, Slots, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;

/// Refuses arguments that no kernel here takes.
pub(super) fn absent(plan: &Plan, slots: &[Option<Slot>]) -> Result<(), Refusal> {
    match slots.iter().flatten().next() {
        None => Ok(()),
        Some(slot) => Err(Refusal::NoKernel(format!("{} in attention", plan.name(*slot)))),
    }
}

pub(super) fn planned(plan: &mut Plan, arguments: Arguments) -> Planned {
    let call = Call::check(plan, arguments)?;
    work(move |views| kernel::run(&call, views))
}

fn no_padding(plan: &Plan, slots: &[Option<Slot>], antiquant: &[i64]) -> Result<(), Refusal> {
    absent(plan, slots)?;
    ensure(antiquant.iter().all(|mode| (0..=1).contains(mode)), || {
        format!("antiquant modes {antiquant:?} without quantised caches must be 0 or 1")
    })
}

fn lse_of(flag: bool, lse: Option<Slot>) -> Result<Option<Slot>, Refusal> {
    ensure(!flag || lse.is_some(), || "softmaxLseFlag is set, but softmaxLse is missing".to_owned())?;
    Ok(lse.filter(|_| flag))
}

operator!(aclnnFusedInferAttentionScore, aclnnFusedInferAttentionScoreGetWorkspaceSize,
(query: input, key: list, value: list, pseShift: optional, attenMask: optional,
 actualSeqLengths: optional_ints, actualSeqLengthsKv: optional_ints,
 deqScale1: optional, quantScale1: optional, deqScale2: optional, quantScale2: optional,
 quantOffset2: optional, antiquantScale: optional, antiquantOffset: optional, blockTable: optional,
 queryPaddingSize: optional, kvPaddingSize: optional,
 numHeads: i64, scaleValue: f64, preTokens: i64, nextTokens: i64, inputLayout: text,
 numKeyValueHeads: i64, sparseMode: i64, innerPrecise: i64, blockSize: i64, antiquantMode: i64,
 softmaxLseFlag: bool, attentionOut: output, softmaxLse: optional_output) =>
|plan: &mut Plan, query, key: Slots, value: Slots, pse, mask, lengths, lengths_kv,
 d1, q1, d2, q2, o2, anti_scale, anti_offset, table, pad_q, pad_kv,
 heads, scale, before, after, layout, kv_heads, sparse, inner, block, anti, flag, out, lse| {
    no_padding(plan, &[d1, q1, d2, q2, o2, anti_scale, anti_offset, pad_q, pad_kv], &[anti])?;
    let lse = lse_of(flag, lse)?;
    planned(plan, Arguments {
        query, key, value, pse, mask, lengths, lengths_kv, table, query_rope: None, key_rope: None,
        heads, kv_heads, scale, before, after, layout, sparse, inner, block, out, lse,
    })
});

operator!(aclnnFusedInferAttentionScoreV2, aclnnFusedInferAttentionScoreV2GetWorkspaceSize,
(query: input, key: list, value: list, pseShiftOptional: optional, attenMaskOptional: optional,
 actualSeqLengthsOptional: optional_ints, actualSeqLengthsKvOptional: optional_ints,
 deqScale1Optional: optional, quantScale1Optional: optional, deqScale2Optional: optional,
 quantScale2Optional: optional, quantOffset2Optional: optional, antiquantScaleOptional: optional,
 antiquantOffsetOptional: optional, blockTableOptional: optional, queryPaddingSizeOptional: optional,
 kvPaddingSizeOptional: optional, keyAntiquantScaleOptional: optional,
 keyAntiquantOffsetOptional: optional, valueAntiquantScaleOptional: optional,
 valueAntiquantOffsetOptional: optional, keySharedPrefixOptional: optional,
 valueSharedPrefixOptional: optional, actualSharedPrefixLenOptional: optional_ints,
 numHeads: i64, scaleValue: f64, preTokens: i64, nextTokens: i64, inputLayout: text,
 numKeyValueHeads: i64, sparseMode: i64, innerPrecise: i64, blockSize: i64, antiquantMode: i64,
 softmaxLseFlag: bool, keyAntiquantMode: i64, valueAntiquantMode: i64,
 attentionOut: output, softmaxLse: optional_output) =>
|plan: &mut Plan, query, key: Slots, value: Slots, pse, mask, lengths, lengths_kv,
 d1, q1, d2, q2, o2, anti_scale, anti_offset, table, pad_q, pad_kv,
 key_scale, key_offset, value_scale, value_offset, key_prefix, value_prefix, _prefix: Option<Vec<i64>>,
 heads, scale, before, after, layout, kv_heads, sparse, inner, block, anti, flag, key_anti, value_anti,
 out, lse| {
    no_padding(
        plan,
        &[d1, q1, d2, q2, o2, anti_scale, anti_offset, pad_q, pad_kv, key_scale, key_offset, value_scale,
          value_offset, key_prefix, value_prefix],
        &[anti, key_anti, value_anti],
    )?;
    let lse = lse_of(flag, lse)?;
    planned(plan, Arguments {
        query, key, value, pse, mask, lengths, lengths_kv, table, query_rope: None, key_rope: None,
        heads, kv_heads, scale, before, after, layout, sparse, inner, block, out, lse,
    })
});

operator!(aclnnFusedInferAttentionScoreV3, aclnnFusedInferAttentionScoreV3GetWorkspaceSize,
(query: input, key: list, value: list, pseShiftOptional: optional, attenMaskOptional: optional,
 actualSeqLengthsOptional: optional_ints, actualSeqLengthsKvOptional: optional_ints,
 deqScale1Optional: optional, quantScale1Optional: optional, deqScale2Optional: optional,
 quantScale2Optional: optional, quantOffset2Optional: optional, antiquantScaleOptional: optional,
 antiquantOffsetOptional: optional, blockTableOptional: optional, queryPaddingSizeOptional: optional,
 kvPaddingSizeOptional: optional, keyAntiquantScaleOptional: optional,
 keyAntiquantOffsetOptional: optional, valueAntiquantScaleOptional: optional,
 valueAntiquantOffsetOptional: optional, keySharedPrefixOptional: optional,
 valueSharedPrefixOptional: optional, actualSharedPrefixLenOptional: optional_ints,
 queryRopeOptional: optional, keyRopeOptional: optional, keyRopeAntiquantScaleOptional: optional,
 numHeads: i64, scaleValue: f64, preTokens: i64, nextTokens: i64, inputLayout: text,
 numKeyValueHeads: i64, sparseMode: i64, innerPrecise: i64, blockSize: i64, antiquantMode: i64,
 softmaxLseFlag: bool, keyAntiquantMode: i64, valueAntiquantMode: i64,
 attentionOut: output, softmaxLse: optional_output) =>
|plan: &mut Plan, query, key: Slots, value: Slots, pse, mask, lengths, lengths_kv,
 d1, q1, d2, q2, o2, anti_scale, anti_offset, table, pad_q, pad_kv,
 key_scale, key_offset, value_scale, value_offset, key_prefix, value_prefix, _prefix: Option<Vec<i64>>,
 query_rope, key_rope, rope_scale,
 heads, scale, before, after, layout, kv_heads, sparse, inner, block, anti, flag, key_anti, value_anti,
 out, lse| {
    no_padding(
        plan,
        &[d1, q1, d2, q2, o2, anti_scale, anti_offset, pad_q, pad_kv, key_scale, key_offset, value_scale,
          value_offset, key_prefix, value_prefix, rope_scale],
        &[anti, key_anti, value_anti],
    )?;
    let lse = lse_of(flag, lse)?;
    planned(plan, Arguments {
        query, key, value, pse, mask, lengths, lengths_kv, table, query_rope, key_rope,
        heads, kv_heads, scale, before, after, layout, sparse, inner, block, out, lse,
    })
});
