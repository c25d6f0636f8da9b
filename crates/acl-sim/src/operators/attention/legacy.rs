//! `PromptFlashAttentionV3` for prefill and `IncreFlashAttentionV4` for decode: what chips without the fused
//! operator have.
//!
//! Always holds: the same arithmetic as the fused operator.
//!
//! Refuses to know: quantised caches.

use super::call::Arguments;
use super::fused::{absent, planned};
use crate::executor::plan::{Plan, Slot, Slots};
use crate::executor::status::ensure;
use crate::operator;

operator!(aclnnPromptFlashAttentionV3, aclnnPromptFlashAttentionV3GetWorkspaceSize,
(query: input, key: input, value: input, pseShift: optional, attenMask: optional,
 actualSeqLengths: optional_ints, actualSeqLengthsKv: optional_ints,
 deqScale1: optional, quantScale1: optional, deqScale2: optional, quantScale2: optional,
 quantOffset2: optional, numHeads: i64, scaleValue: f64, preTokens: i64, nextTokens: i64,
 inputLayout: text, numKeyValueHeads: i64, sparseMode: i64, innerPrecise: i64, attentionOut: output) =>
|plan: &mut Plan, query, key: Slot, value: Slot, pse, mask, lengths, lengths_kv, d1, q1, d2, q2, o2,
 heads, scale, before, after, layout, kv_heads, sparse, inner, out| {
    absent(plan, &[d1, q1, d2, q2, o2])?;
    planned(plan, Arguments {
        query, key: Slots(key.0..key.0 + 1), value: Slots(value.0..value.0 + 1), pse, mask, lengths,
        lengths_kv, table: None, query_rope: None, key_rope: None, heads, kv_heads, scale, before, after,
        layout, sparse, inner, block: 0, out, lse: None,
    })
});

operator!(aclnnIncreFlashAttentionV4, aclnnIncreFlashAttentionV4GetWorkspaceSize,
(query: input, key: list, value: list, pseShift: optional, attenMask: optional,
 actualSeqLengths: optional_ints, dequantScale1: optional, quantScale1: optional,
 dequantScale2: optional, quantScale2: optional, quantOffset2: optional, antiquantScale: optional,
 antiquantOffset: optional, blocktable: optional, kvPaddingSize: optional, numHeads: i64,
 scaleValue: f64, inputLayout: text, numKeyValueHeads: i64, blockSize: i64, innerPrecise: i64,
 attentionOut: output) =>
|plan: &mut Plan, query, key: Slots, value: Slots, pse, mask, lengths_kv, d1, q1, d2, q2, o2, anti_scale,
 anti_offset, table, pad, heads, scale, layout: String, kv_heads, block, inner, out| {
    absent(plan, &[d1, q1, d2, q2, o2, anti_scale, anti_offset, pad])?;
    let tokens = plan.view(query).dim(if layout == "BNSD" { 2 } else { 1 });
    ensure(tokens == 1 && matches!(layout.as_str(), "BSH" | "BSND" | "BNSD"), || {
        format!("decode takes one query a sequence in BSH, BSND or BNSD, not {tokens} in {layout:?}")
    })?;
    planned(plan, Arguments {
        query, key, value, pse, mask, lengths: None, lengths_kv, table, query_rope: None, key_rope: None,
        heads, kv_heads, scale, before: i64::MAX, after: i64::MAX, layout, sparse: 0, inner, block, out,
        lse: None,
    })
});
