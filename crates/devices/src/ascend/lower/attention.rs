//! Attention over the paged cache: one operator call for each layer, with the lengths of sequences as host arrays.
//!
//! Because of those arrays a call is never repeated: it is planned anew for each step.

use std::ffi::CStr;

use super::kernels::tensor_rows;
use super::model::Model;
use super::plan::{Attention, AttentionForm};
use crate::ascend::error::Fault;
use crate::ascend::operators::{self, Call, DataType, IntArray, Tensor};
use crate::ascend::runtime::{Api, Pool, Purpose};

use std::rc::Rc;

/// Tokens of all sequences, heads, values.
const RAGGED: &CStr = c"TND";
/// `sparseMode` without a mask.
const EVERYTHING: i64 = 0;
/// `sparseMode` of a causal mask that ends with the last key.
const CAUSAL: i64 = 3;
/// `sparseMode` of a band that ends with the last key.
const BAND: i64 = 4;
/// No limit to the tokens before or behind.
const UNLIMITED: i64 = i32::MAX as i64;
/// Rows and columns of the mask that stands for a causal one of any size.
const MASK: usize = 2048;
/// What it takes.
pub(super) const MASK_BYTES: usize = MASK * MASK;

/// Query and output of one attention for a number of rows.
#[derive(Debug)]
pub(in crate::ascend) struct AttentionTensors {
    query: Tensor,
    out: Tensor,
}

/// What all attentions of a step share.
#[derive(Debug)]
pub(in crate::ascend) struct AttentionStep {
    /// Rows up to the end of each sequence.
    lengths: IntArray,
    /// Tokens of each sequence in the cache.
    lengths_kv: IntArray,
    table: Tensor,
    /// Whether every sequence has one row.
    decodes: bool,
}

impl AttentionStep {
    /// `lengths` are cumulative; the block table is `[sequences, stride]`.
    pub(in crate::ascend) fn new(
        model: &Model,
        lengths: &[i64],
        lengths_kv: &[i64],
        stride: usize,
        decodes: bool,
    ) -> Result<Self, Fault> {
        let api = model.api();
        let dims = [lengths.len() as i64, stride as i64];
        Ok(Self {
            lengths: IntArray::new(api, lengths)?,
            lengths_kv: IntArray::new(api, lengths_kv)?,
            table: Tensor::new(api, DataType::I32, &model.inputs.tables, &dims)?,
            decodes,
        })
    }
}

impl AttentionTensors {
    pub(super) fn new(model: &Model, attention: &Attention, rows: u32) -> Result<Self, Fault> {
        let dims = [rows, attention.heads, model.head_dim(attention.layer)];
        Ok(Self {
            query: tensor_rows(model, attention.query, &dims)?,
            out: tensor_rows(model, attention.out, &dims)?,
        })
    }

    /// Plans the call of a step.
    pub(in crate::ascend) fn call(
        &self,
        model: &Model,
        attention: &Attention,
        step: &AttentionStep,
    ) -> Result<Call, Fault> {
        let cache = &model.caches[attention.layer as usize];
        let operators = &model.operators;
        let (heads, kv_heads) = (i64::from(attention.heads), i64::from(cache.kv_heads));
        let block = model.sizes.block_size as i64;
        let scale = f64::from(attention.scale);
        let (sparse, before, after) = match attention.window {
            Some(window) => (BAND, i64::from(window) - 1, 0),
            None if step.decodes => (EVERYTHING, UNLIMITED, UNLIMITED),
            None => (CAUSAL, UNLIMITED, UNLIMITED),
        };
        let mask = (sparse != EVERYTHING).then_some(&model.mask);
        let (query, out, lengths, lengths_kv) = (&self.query, &self.out, &step.lengths, &step.lengths_kv);
        let (key, value, table) = (&cache.key_list, &cache.value_list, &step.table);
        let none = None;
        match attention.form {
            AttentionForm::First => operators::attention_v1(
                operators, query, key, value, none, mask, lengths, lengths_kv, none, none, none, none, none,
                none, none, table, none, none, heads, scale, before, after, RAGGED, kv_heads, sparse, 0,
                block, 0, false, out, none,
            ),
            AttentionForm::Second => operators::attention_v2(
                operators, query, key, value, none, mask, lengths, lengths_kv, none, none, none, none, none,
                none, none, table, none, none, none, none, none, none, none, none, None, heads, scale,
                before, after, RAGGED, kv_heads, sparse, 0, block, 0, false, 0, 0, out, none,
            ),
            AttentionForm::Third => operators::attention_v3(
                operators, query, key, value, none, mask, lengths, lengths_kv, none, none, none, none, none,
                none, none, table, none, none, none, none, none, none, none, none, None, none, none, none,
                heads, scale, before, after, RAGGED, kv_heads, sparse, 0, block, 0, false, 0, 0, out, none,
            ),
        }
    }
}

/// The mask that stands for a causal one of any size: 1 where a key is hidden.
pub(super) fn causal_mask(api: &Rc<Api>, pool: &mut Pool) -> Result<Tensor, Fault> {
    let memory = pool.take(Purpose::Activations, MASK_BYTES)?;
    let hidden = |at: usize| u8::from(at % MASK > at / MASK);
    let bytes: Vec<u8> = (0..MASK_BYTES).map(hidden).collect();
    memory.write(0, &bytes)?;
    Tensor::new(api, DataType::I8, &memory, &[MASK as i64, MASK as i64])
}
