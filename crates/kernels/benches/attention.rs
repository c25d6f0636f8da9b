//! Attention of one layer: a single token over a context (decode), and the second half of a prompt (prefill).
//!
//! `cargo bench -p updraft-kernels --bench attention`. Decoding is bound by reading keys and values, so it
//! shows bytes a second; prefill by arithmetic, so it shows operations a second. One thread;
//! `UPDRAFT_KERNELS` chooses the instruction set.
#![allow(unsafe_code, reason = "attention leaves it to its caller that workers keep apart")]
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark that cannot go on ends")]

use std::sync::{Mutex, PoisonError};

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use updraft_kernels::attention::{Attention, Plan, Scratch, Shape, Span};
use updraft_kernels::kv_cache::{KvCache, KvGeometry, KvType};
use updraft_kernels::lanes::Simd;
use updraft_kernels::team::{Pinning, SharedRows, Team};

/// Query heads, key heads and values of a head, as in small models of three families.
const HEADS: [[usize; 3]; 3] = [[9, 3, 64], [4, 1, 256], [16, 8, 128]];
const KINDS: [KvType; 4] = KvType::ALL;
/// Tokens in the cache while one decodes: a short conversation and a long one.
const CONTEXTS: [usize; 2] = [1024, 16_384];
/// Tokens of a prompt, of which the second half is computed.
const PROMPT: usize = 1024;
const BLOCK_SIZE: usize = 64;

fn main() {
    divan::main();
}

#[derive(Clone, Copy)]
struct Case {
    heads: [usize; 3],
    kind: KvType,
    context: usize,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [heads, kv_heads, head_dim] = self.heads;
        write!(f, "{heads}/{kv_heads}x{head_dim} {} over {}", self.kind.name(), self.context)
    }
}

fn cases(contexts: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for heads in HEADS {
        for kind in KINDS {
            cases.extend(contexts.iter().map(|context| Case { heads, kind, context: *context }));
        }
    }
    cases
}

#[divan::bench(args = cases(&CONTEXTS), max_time = 2)]
fn decode(bencher: Bencher<'_, '_>, case: Case) {
    let [_, kv_heads, head_dim] = case.heads;
    let bytes = 2 * case.context * kv_heads * case.kind.head_bytes(head_dim);
    run(bencher.counter(BytesCount::new(bytes)), case, 1);
}

#[divan::bench(args = cases(&[PROMPT]), max_time = 2)]
fn prefill(bencher: Bencher<'_, '_>, case: Case) {
    let [heads, _, head_dim] = case.heads;
    let rows = PROMPT / 2;
    let keys: usize = (PROMPT - rows..PROMPT).map(|position| position + 1).sum();
    run(bencher.counter(ItemsCount::new(4 * keys * heads * head_dim)), case, rows);
}

fn run(bencher: Bencher<'_, '_>, case: Case, rows: usize) {
    let Case { heads: [heads, kv_heads, head_dim], kind, context } = case;
    let shape = Shape { heads, kv_heads, head_dim, scale: 0.1, window: None };
    let blocks = context / BLOCK_SIZE;
    let geometry = KvGeometry { kv_heads, head_dim, block_size: BLOCK_SIZE, blocks };
    let cache = KvCache::new(kind, geometry).expect("the geometry is possible");
    let (query, out) = (SharedRows::new(rows, heads * head_dim), SharedRows::new(rows, heads * head_dim));
    let value = |at: usize| (at * 37 % 101) as f32 / 50.0 - 1.0;
    for slot in 0..context {
        let key: Vec<f32> = (0..kv_heads * head_dim).map(|i| value(slot * 7 + i)).collect();
        // SAFETY: nothing reads the cache yet.
        unsafe { cache.write(slot, &key, &key) };
    }
    for row in 0..rows {
        // SAFETY: nothing else touches the rows yet.
        let query = unsafe { query.row_mut(row) };
        for (i, x) in query.iter_mut().enumerate() {
            *x = value(row * 11 + i);
        }
    }
    let [row_count, tokens, table_len] = [rows, context, blocks].map(|count| count as u32);
    let spans = [Span { row_start: 0, row_count, context: tokens, table_start: 0, table_len }];
    let tables: Vec<u32> = (0..table_len).rev().collect();
    let mut plan = Plan::new(&shape, 1, rows);
    plan.rebuild(&shape, 1, &spans);
    let attention = Attention {
        shape,
        cache: &cache,
        query: &query,
        out: &out,
        spans: &spans,
        tables: &tables,
        plan: &plan,
    };
    let scratch = Mutex::new(Scratch::new(&[shape]));
    let simd = Simd::selected().expect("the instruction set can be used");
    let mut team = Team::new(1, &Pinning::Anywhere).expect("a team of one needs no thread");
    bencher.bench_local(|| {
        team.run(|worker| {
            let mut scratch = scratch.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the only worker calls it, and nothing else uses the cache or the rows.
            unsafe { attention.run(worker, simd, &mut scratch) };
        });
    });
}
