//! Against plain arithmetic, and against itself under every way to cut the work.

use proptest::prelude::*;

use super::*;
use crate::kv_cache::KvGeometry;
use crate::team::{Pinning, Team};

/// One sequence: as many tokens as `context`, of which the last `rows` are asked for.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    context: usize,
    rows: usize,
    seed: u64,
}

#[derive(Clone, Debug)]
struct Setup {
    shape: Shape,
    kind: KvType,
    block_size: usize,
}

/// Numbers that look random but depend on the token alone, so that any cut of the work sees the same ones.
fn noise(seed: u64, position: usize, index: usize) -> f32 {
    let mut x = seed ^ (position as u64) << 20 ^ index as u64;
    for _ in 0..3 {
        x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (x >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// A head of a key or a value as it is stored.
fn rounded(kind: KvType, head: &[f32]) -> Vec<f32> {
    let unit = head.iter().fold(0.0_f32, |max, x| max.max(x.abs())) / 127.0;
    let round = |x: &f32| match kind {
        KvType::F32 => *x,
        KvType::Bf16 => half::bf16::from_f32(*x).to_f32(),
        KvType::F16 => half::f16::from_f32(*x).to_f32(),
        KvType::Int8 => (x * (1.0 / unit)).round_ties_even() * unit,
    };
    head.iter().map(round).collect()
}

fn query(sequence: Sequence, position: usize, index: usize) -> f32 {
    3.0 * noise(sequence.seed, position, index)
}

fn key(sequence: Sequence, position: usize, index: usize) -> f32 {
    noise(sequence.seed + 1, position, index)
}

fn value(sequence: Sequence, position: usize, index: usize) -> f32 {
    noise(sequence.seed + 2, position, index)
}

/// Runs one step over the sequences and returns the output rows of each. Whatever no token may see is poisoned.
fn run(setup: &Setup, simd: Simd, threads: usize, sequences: &[Sequence]) -> Vec<Vec<f32>> {
    let Shape { heads, kv_heads, head_dim, .. } = setup.shape;
    let blocks_of = |sequence: &Sequence| sequence.context.div_ceil(setup.block_size);
    let blocks: usize = sequences.iter().map(blocks_of).sum();
    let geometry = KvGeometry { kv_heads, head_dim, block_size: setup.block_size, blocks };
    let cache = KvCache::new(setup.kind, geometry).unwrap();
    let rows: usize = sequences.iter().map(|sequence| sequence.rows).sum();
    let (queries, out) = (SharedRows::new(rows, heads * head_dim), SharedRows::new(rows, heads * head_dim));
    let (mut spans, mut tables, mut row) = (Vec::new(), Vec::new(), 0);
    for slot in 0..blocks * setup.block_size {
        let poison = vec![f32::NAN; kv_heads * head_dim];
        // SAFETY: nobody else uses the cache.
        unsafe { cache.write(slot, &poison, &poison) };
    }
    for sequence in sequences {
        let start = tables.len();
        // Blocks in descending order: nothing may rely on neighbours.
        tables.extend((0..blocks_of(sequence)).map(|i| (blocks - 1 - start - i) as u32));
        for position in 0..sequence.context {
            let block = tables[start + position / setup.block_size] as usize;
            let slot = block * setup.block_size + position % setup.block_size;
            let k: Vec<f32> = (0..kv_heads * head_dim).map(|i| key(*sequence, position, i)).collect();
            let v: Vec<f32> = (0..kv_heads * head_dim).map(|i| value(*sequence, position, i)).collect();
            let window = setup.shape.window.unwrap_or(usize::MAX);
            if position.saturating_add(window) > sequence.context - sequence.rows {
                // SAFETY: nobody else uses the cache.
                unsafe { cache.write(slot, &k, &v) };
            }
        }
        spans.push(Span {
            row_start: row as u32,
            row_count: sequence.rows as u32,
            context: sequence.context as u32,
            table_start: start as u32,
            table_len: blocks_of(sequence) as u32,
        });
        for position in sequence.context - sequence.rows..sequence.context {
            // SAFETY: nobody else uses the rows.
            let to = unsafe { queries.row_mut(row) };
            for (index, x) in to.iter_mut().enumerate() {
                *x = query(*sequence, position, index);
            }
            row += 1;
        }
    }
    let mut plan = Plan::new(&setup.shape, threads, rows);
    plan.rebuild(&setup.shape, threads, &spans);
    let attention = Attention {
        shape: setup.shape,
        cache: &cache,
        query: &queries,
        out: &out,
        spans: &spans,
        tables: &tables,
        plan: &plan,
    };
    Team::new(threads, &Pinning::Anywhere).unwrap().run(|worker| {
        let mut scratch = Scratch::new(&[setup.shape]);
        // SAFETY: all workers call it, and nobody else uses cache or rows.
        unsafe { attention.run(worker, simd, &mut scratch) };
    });
    let result = |span: &Span| {
        // SAFETY: the team is done.
        let rows =
            (span.row_start..span.row_start + span.row_count).map(|row| unsafe { out.row(row as usize) });
        rows.flatten().copied().collect()
    };
    spans.iter().map(result).collect()
}

/// The same by the textbook, in double precision, from the rounded keys and values.
fn reference(setup: &Setup, sequence: Sequence) -> Vec<f64> {
    let Shape { heads, kv_heads, head_dim, scale, .. } = setup.shape;
    let mut out = Vec::new();
    for position in sequence.context - sequence.rows..sequence.context {
        for head in 0..heads {
            let kv = head * kv_heads / heads * head_dim;
            let visible = setup.shape.visible(position);
            let stored = |of: fn(Sequence, usize, usize) -> f32, j| {
                let head: Vec<f32> = (0..head_dim).map(|d| of(sequence, j, kv + d)).collect();
                rounded(setup.kind, &head)
            };
            let (keys, values): (Vec<_>, Vec<_>) =
                visible.clone().map(|j| (stored(key, j), stored(value, j))).unzip();
            let scores: Vec<f64> = keys
                .iter()
                .map(|key| {
                    let dot = key.iter().enumerate().map(|(d, k)| {
                        f64::from(query(sequence, position, head * head_dim + d)) * f64::from(*k)
                    });
                    dot.sum::<f64>() * f64::from(scale)
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..head_dim {
                let weighted = values.iter().zip(&weights).map(|(value, w)| w * f64::from(value[d]));
                out.push(weighted.sum::<f64>() / sum);
            }
        }
    }
    out
}

fn setups() -> impl Strategy<Value = Setup> {
    let kinds = prop::sample::select(KvType::ALL.to_vec());
    let dims = prop::sample::select(vec![2_usize, 8, 16, 24, 64, 80]);
    let windows = prop::option::of(prop::sample::select(vec![1_usize, 2, 3, 17, 64, 100, 300]));
    let blocks = prop::sample::select(vec![16_usize, 48, 128]);
    (1..3_usize, 1..6_usize, dims, windows, kinds, blocks).prop_map(
        |(kv_heads, group, head_dim, window, kind, block_size)| Setup {
            shape: Shape {
                heads: kv_heads * group,
                kv_heads,
                head_dim,
                scale: 1.0 / (head_dim as f32).sqrt(),
                window,
            },
            kind,
            block_size,
        },
    )
}

fn sequence(seed: u64, context: usize, rows: usize) -> Sequence {
    Sequence { context, rows: rows.clamp(1, context), seed }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn attention_is_the_textbook_formula(setup in setups(), context in 1..420_usize, rows in 1..40_usize) {
        let sequence = sequence(7, context, rows);
        let expected = reference(&setup, sequence);
        for simd in Simd::all() {
            let actual = run(&setup, simd, 1, &[sequence]);
            // Where queries and weights are rounded to bf16 too, they carry that rounding.
            let tolerance = if setup.kind == KvType::Bf16 { 2e-2 } else { 3e-6 };
            for (a, e) in actual[0].iter().zip(&expected) {
                prop_assert!((f64::from(*a) - e).abs() < tolerance, "{simd:?}: {a} is not {e}");
            }
        }
    }

    #[test]
    fn no_cut_of_the_work_changes_a_bit(
        setup in setups(),
        context in 1..700_usize,
        rows in 1..70_usize,
        threads in 1..4_usize,
        chunk in 1..40_usize,
    ) {
        let whole = sequence(3, context, rows);
        for simd in Simd::all() {
            let expected = &run(&setup, simd, 1, &[whole])[0];
            // Beside others, on more threads.
            let others = [sequence(11, 300, 1), whole, sequence(12, 20, 20), sequence(13, 77, 5)];
            prop_assert_eq!(&run(&setup, simd, threads, &others)[1], expected);
            // In chunks.
            let mut done = 0;
            let mut chunked = Vec::new();
            while done < whole.rows {
                let rows = chunk.min(whole.rows - done);
                done += rows;
                let part = Sequence { context: whole.context - whole.rows + done, rows, ..whole };
                chunked.extend(run(&setup, simd, threads, &[part]).remove(0));
            }
            prop_assert_eq!(&chunked, expected);
        }
    }
}

#[test]
fn few_items_are_divided_into_segments_with_the_same_result() {
    let shape = Shape { heads: 4, kv_heads: 1, head_dim: 64, scale: 0.125, window: None };
    let setup = Setup { shape, kind: KvType::Bf16, block_size: 16 };
    let long = sequence(5, 5 * SEGMENT + 100, 1);
    for simd in Simd::all() {
        assert_eq!(run(&setup, simd, 3, &[long]), run(&setup, simd, 1, &[long]));
    }
    let span =
        Span { row_start: 0, row_count: 1, context: long.context as u32, table_start: 0, table_len: 87 };
    let mut plan = Plan::new(&shape, 3, 1);
    plan.rebuild(&shape, 3, &[span]);
    assert_eq!((plan.items.len(), plan.merges.len()), (6, 1));
    plan.rebuild(&shape, 1, &[span]);
    assert_eq!((plan.items.len(), plan.merges.len()), (1, 0));
}

#[test]
fn a_plan_covers_every_row_and_head_once() {
    let shape = Shape { heads: 9, kv_heads: 3, head_dim: 64, scale: 0.125, window: None };
    let spans: Vec<Span> = [(0, 100, 400), (100, 1, 1000), (101, 7, 7)]
        .map(|(row_start, row_count, context)| Span {
            row_start,
            row_count,
            context,
            table_start: 0,
            table_len: 0,
        })
        .to_vec();
    for threads in [1, 2, 8] {
        let mut plan = Plan::new(&shape, threads, 108);
        plan.rebuild(&shape, threads, &spans);
        let mut seen = vec![0; 108 * 3];
        for item in plan.items.iter().filter(|item| item.partial.is_none()) {
            for row in 0..item.tile.rows {
                let row = spans[item.tile.span as usize].row_start + item.tile.first + row;
                seen[(row * 3 + item.tile.kv_head) as usize] += 1;
            }
        }
        for merge in &plan.merges {
            for row in 0..merge.tile.rows {
                let row = spans[merge.tile.span as usize].row_start + merge.tile.first + row;
                seen[(row * 3 + merge.tile.kv_head) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|times| *times == 1), "{threads} threads");
    }
}
