//! One attention call: its arguments checked, lengths resolved, ready to run any number of times.
//!
//! Always holds: lengths come from host arrays at plan time, so a captured call keeps them until it is
//! updated.
//!
//! Refuses to know: which operator it was called through.

use super::layout::{Heads, Layout};
use crate::executor::plan::{Plan, Slot, Slots};
use crate::executor::status::{Refusal, ensure};
use crate::tensor::dtype::DType;
use crate::tensor::view::View;

/// A mask of this many rows and columns stands for a causal one of any size.
const CAUSAL_MASK: usize = 2048;

/// Tokens a cache block may have at most.
const MAX_BLOCK: i64 = 1024;

/// Arguments that the versions share, as they came.
pub(super) struct Arguments {
    pub(super) query: Slot,
    pub(super) key: Slots,
    pub(super) value: Slots,
    pub(super) pse: Option<Slot>,
    pub(super) mask: Option<Slot>,
    pub(super) lengths: Option<Vec<i64>>,
    pub(super) lengths_kv: Option<Vec<i64>>,
    pub(super) table: Option<Slot>,
    pub(super) query_rope: Option<Slot>,
    pub(super) key_rope: Option<Slot>,
    pub(super) heads: i64,
    pub(super) kv_heads: i64,
    pub(super) scale: f64,
    pub(super) before: i64,
    pub(super) after: i64,
    pub(super) layout: String,
    pub(super) sparse: i64,
    pub(super) inner: i64,
    pub(super) block: i64,
    pub(super) out: Slot,
    pub(super) lse: Option<Slot>,
}

/// Which keys a query may see by their distance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    before: i64,
    after: i64,
    /// Whether the last query stands at the last key, rather than the first at the first.
    right_down: bool,
}

impl Window {
    /// Range of visible keys of query `row` of `queries`, out of `keys`.
    pub(super) fn visible(&self, row: usize, queries: usize, keys: usize) -> std::ops::Range<usize> {
        let shift = if self.right_down { keys as i64 - queries as i64 } else { 0 };
        let at = row as i64 + shift;
        let first = at.saturating_sub(self.before).clamp(0, keys as i64);
        let end = at.saturating_add(self.after).saturating_add(1).clamp(first, keys as i64);
        first as usize..end as usize
    }
}

/// One sequence of the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    /// First query, in tokens of a ragged layout.
    pub(super) start: usize,
    pub(super) queries: usize,
    /// First key, in tokens of a ragged layout.
    pub(super) start_kv: usize,
    pub(super) keys: usize,
}

/// A checked call.
pub(super) struct Call {
    pub(super) arguments: Arguments,
    pub(super) query: Heads,
    pub(super) key: Vec<Heads>,
    pub(super) value: Vec<Heads>,
    pub(super) query_rope: Option<Heads>,
    pub(super) key_rope: Option<Heads>,
    pub(super) out: Heads,
    pub(super) ragged: bool,
    pub(super) window: Window,
    pub(super) use_mask: bool,
    pub(super) sequences: Vec<Sequence>,
}

impl Call {
    /// Checks everything that can be checked before the launch, and asks for workspace.
    #[allow(clippy::too_many_lines, reason = "one list of checks, in the order of the arguments")]
    pub(super) fn check(plan: &mut Plan, arguments: Arguments) -> Result<Self, Refusal> {
        let a = &arguments;
        let dtype = plan.types(a.query, &[DType::F16, DType::BF16])?;
        ensure(a.heads > 0 && a.kv_heads >= 0, || {
            format!("numHeads is {} and numKeyValueHeads {}: both must be positive", a.heads, a.kv_heads)
        })?;
        let heads = a.heads as usize;
        let kv_heads = if a.kv_heads == 0 { heads } else { a.kv_heads as usize };
        ensure(heads.is_multiple_of(kv_heads), || {
            format!("{heads} heads are not a multiple of {kv_heads} key/value heads")
        })?;
        ensure((0..=3).contains(&a.inner), || format!("innerPrecise is {}; accepted are 0 to 3", a.inner))?;
        let (layout, layout_out) = Layout::parse(&a.layout)?;
        let query = Heads::new(plan.view(a.query), layout, heads, "query")?;
        let out = Heads::new(plan.view(a.out), layout_out, heads, "attentionOut")?;
        let paged = a.table.is_some();
        let sides = |slots: &Slots, name: &'static str| -> Result<Vec<Heads>, Refusal> {
            ensure(!slots.0.is_empty(), || format!("{name} is an empty list"))?;
            slots
                .0
                .clone()
                .map(|index| {
                    let slot = Slot(index);
                    plan.types(slot, &[dtype])?;
                    let view = plan.view(slot);
                    let heads = if paged {
                        Heads::paged(view, kv_heads, a.block.max(0) as usize, name)?
                    } else {
                        Heads::new(view, layout, kv_heads, name)?
                    };
                    if heads.element != 1 && heads.size > 1 {
                        return Err(Refusal::NoKernel(format!("{name} with elements of a head apart")));
                    }
                    Ok(heads)
                })
                .collect()
        };
        let (key, value) = (sides(&a.key, "key")?, sides(&a.value, "value")?);
        ensure(key.len() == value.len(), || "key and value have different numbers of tensors".to_owned())?;
        ensure(key.iter().all(|key| key.size == query.size), || {
            format!("key heads have {} elements, query heads {}", key[0].size, query.size)
        })?;
        ensure(value.iter().all(|value| value.size == out.size), || {
            format!("value heads have {} elements, attentionOut heads {}", value[0].size, out.size)
        })?;
        plan.types(a.out, &[dtype])?;
        if let Some(table) = a.table {
            plan.types(table, &[DType::I32])?;
            plan.rank(table, &[2])?;
            ensure(a.block > 0 && a.block % 16 == 0 && a.block <= MAX_BLOCK, || {
                format!(
                    "blockSize is {}; with a block table it is a multiple of 16 up to {MAX_BLOCK}",
                    a.block
                )
            })?;
            ensure(key.len() == 1, || "a paged cache is one tensor".to_owned())?;
        }
        let rope = |slot: Option<Slot>, heads: usize, paged: bool, name: &str| match slot {
            None => Ok(None),
            Some(slot) => {
                plan.types(slot, &[dtype])?;
                let view = plan.view(slot);
                let block = a.block.max(0) as usize;
                if paged {
                    Heads::paged(view, heads, block, name)
                } else {
                    Heads::new(view, layout, heads, name)
                }
                .map(Some)
            }
        };
        let query_rope = rope(a.query_rope, heads, false, "queryRope")?;
        let key_rope = rope(a.key_rope, kv_heads, paged, "keyRope")?;
        ensure(query_rope.map(|rope| rope.size) == key_rope.map(|rope| rope.size), || {
            "queryRope and keyRope must both be there, with heads of one size".to_owned()
        })?;
        let sequences = sequences(a, &query, &key, layout.is_ragged(), paged)?;
        let (window, use_mask) = window(plan, a, &sequences)?;
        if let Some(lse) = a.lse {
            plan.types(lse, &[DType::F32])?;
            let shape = if layout.is_ragged() {
                vec![query.tokens as i64, a.heads, 1]
            } else {
                vec![query.batches as i64, a.heads, query.tokens as i64, 1]
            };
            plan.shape(lse, &shape)?;
        }
        // As the real one, the workspace grows with what the call has to hold between its two products.
        let keys: usize = sequences.iter().map(|sequence| sequence.keys).sum();
        plan.scratch(super::super::matmul::SYSTEM_WORKSPACE + heads * (query.tokens * out.size + keys) * 4);
        let ragged = layout.is_ragged();
        let call = Self {
            query,
            key,
            value,
            query_rope,
            key_rope,
            out,
            ragged,
            window,
            use_mask,
            sequences,
            arguments: Arguments { kv_heads: kv_heads as i64, ..arguments },
        };
        Ok(call)
    }
}

fn sequences(
    a: &Arguments,
    query: &Heads,
    key: &[Heads],
    ragged: bool,
    paged: bool,
) -> Result<Vec<Sequence>, Refusal> {
    let needed = |lengths: &Option<Vec<i64>>, name: &str| {
        lengths.clone().filter(|lengths| !lengths.is_empty()).ok_or_else(|| {
            Refusal::Invalid(format!("{name} is missing; this layout needs the lengths of all sequences"))
        })
    };
    let (queries, starts) = if ragged {
        split_cumulative(&needed(&a.lengths, "actualSeqLengths")?, query.tokens, "actualSeqLengths")?
    } else {
        let lengths = each(a.lengths.as_deref(), query.batches, query.tokens, "actualSeqLengths")?;
        (lengths, vec![0; query.batches])
    };
    let batch = queries.len();
    let (keys, starts_kv) = if paged {
        let lengths = needed(&a.lengths_kv, "actualSeqLengthsKv")?;
        (each(Some(&lengths), batch, usize::MAX, "actualSeqLengthsKv")?, vec![0; batch])
    } else if ragged {
        let lengths = needed(&a.lengths_kv, "actualSeqLengthsKv")?;
        split_cumulative(&lengths, key[0].tokens, "actualSeqLengthsKv")?
    } else {
        let single = key.len() == 1;
        ensure(if single { key[0].batches == batch } else { key.len() == batch }, || {
            format!("the batch of query is {batch}, key has {} tensors of {}", key.len(), key[0].batches)
        })?;
        let most = key.iter().map(|key| key.tokens).min().unwrap_or(0);
        let mut lengths = each(a.lengths_kv.as_deref(), batch, most, "actualSeqLengthsKv")?;
        if !single && a.lengths_kv.is_none() {
            lengths = key.iter().map(|key| key.tokens).collect();
        }
        (lengths, vec![0; batch])
    };
    ensure(keys.len() == batch, || {
        format!("actualSeqLengths has {batch} sequences, actualSeqLengthsKv {}", keys.len())
    })?;
    let join = |at: usize| Sequence {
        start: starts[at],
        queries: queries[at],
        start_kv: starts_kv[at],
        keys: keys[at],
    };
    Ok((0..batch).map(join).collect())
}

fn split_cumulative(ends: &[i64], tokens: usize, name: &str) -> Result<(Vec<usize>, Vec<usize>), Refusal> {
    let (mut lengths, mut starts, mut last) = (Vec::new(), Vec::new(), 0i64);
    for end in ends {
        ensure(*end >= last && *end <= tokens as i64, || {
            format!("{name} {ends:?} must rise and end within the {tokens} tokens of this layout")
        })?;
        starts.push(last as usize);
        lengths.push((end - last) as usize);
        last = *end;
    }
    Ok((lengths, starts))
}

fn each(lengths: Option<&[i64]>, batch: usize, most: usize, name: &str) -> Result<Vec<usize>, Refusal> {
    let Some(lengths) = lengths.filter(|lengths| !lengths.is_empty()) else { return Ok(vec![most; batch]) };
    let fits = lengths.iter().all(|length| usize::try_from(*length).is_ok_and(|length| length <= most));
    ensure(fits && (lengths.len() == batch || lengths.len() == 1), || {
        format!("{name} {lengths:?} must be one length, or {batch} of them, none above {most}")
    })?;
    let one = |at: usize| lengths.get(at).or(lengths.first()).map_or(0, |length| *length as usize);
    Ok((0..batch).map(one).collect())
}

fn window(plan: &Plan, a: &Arguments, sequences: &[Sequence]) -> Result<(Window, bool), Refusal> {
    let all = Window { before: i64::MAX, after: i64::MAX, right_down: false };
    let Some(mask) = a.mask else {
        ensure(matches!(a.sparse, 0 | 1), || {
            format!("sparseMode {} needs an attenMask of {CAUSAL_MASK} rows and columns", a.sparse)
        })?;
        return Ok((all, false));
    };
    plan.types(mask, &[DType::Bool, DType::I8, DType::U8])?;
    let view: View = plan.view(mask);
    if a.sparse >= 2 {
        ensure(a.sparse <= 4, || format!("sparseMode is {}; accepted are 0 to 4", a.sparse))?;
        let lead = view.rank().saturating_sub(2);
        let causal = view.rank() >= 2
            && view.shape()[lead..] == [CAUSAL_MASK as i64; 2]
            && view.shape()[..lead].iter().all(|size| *size == 1);
        ensure(causal, || {
            format!(
                "attenMask has shape {:?}; sparseMode {} takes a triangle of {CAUSAL_MASK} by {CAUSAL_MASK}",
                view.shape(),
                a.sparse
            )
        })?;
    }
    Ok(match a.sparse {
        2 => (Window { after: 0, ..all }, true),
        3 => (Window { after: 0, right_down: true, ..all }, true),
        4 => (Window { before: a.before, after: a.after, right_down: true }, true),
        sparse => {
            ensure((0..=1).contains(&sparse), || format!("sparseMode is {sparse}; accepted are 0 to 4"))?;
            let (rows, columns) = mask_size(&view, sequences.len());
            let longest = |of: fn(&Sequence) -> usize| sequences.iter().map(of).max().unwrap_or(0);
            let (queries, keys) = (longest(|s| s.queries), longest(|s| s.keys));
            ensure(columns >= keys && (rows >= queries || rows == 0), || {
                format!(
                    "attenMask has shape {:?}, too small for {queries} queries and {keys} keys",
                    view.shape()
                )
            })?;
            let near = Window { before: a.before, after: a.after, right_down: false };
            (if sparse == 0 { near } else { all }, true)
        }
    })
}

/// Rows (0: one for all queries) and columns of a mask.
pub(super) fn mask_size(view: &View, batch: usize) -> (usize, usize) {
    match view.rank() {
        0 => (0, 0),
        1 => (0, view.last()),
        2 if view.dim(0) == batch && batch > 1 => (0, view.last()),
        rank => (if view.dim(rank - 2) == 1 { 0 } else { view.dim(rank - 2) }, view.last()),
    }
}
