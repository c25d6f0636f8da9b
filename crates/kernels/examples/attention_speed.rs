//! Prints how fast attention and the thread team are on this machine: `cargo run --release -p updraft-kernels
//! --example attention_speed`.
//!
//! For attention: one layer, one sequence, on one thread and on all; a single token over 1024 (the cost that is added
//! to each decoded token, times the number of layers), and the second half of a prompt of 1024. For the team: one
//! barrier, and one fork and join. The best of several runs. `UPDRAFT_KERNELS` chooses the instruction set.
#![allow(unsafe_code, reason = "attention leaves it to its caller that workers keep apart")]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use updraft_kernels::attention::{Attention, Plan, Scratch, Shape, Span};
use updraft_kernels::cpu_features::Isa;
use updraft_kernels::kv_cache::{KvCache, KvGeometry, KvType};
use updraft_kernels::lanes::Simd;
use updraft_kernels::team::{Pinning, SharedRows, Team};

/// Query heads, key heads and values of a head, as in small models of three families.
const SHAPES: [[usize; 3]; 3] = [[9, 3, 64], [4, 1, 256], [16, 8, 128]];
const CONTEXT: usize = 1024;
const BLOCK_SIZE: usize = 64;
const BARRIERS: u32 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("instruction set: {}", Isa::selected()?);
    let all = std::thread::available_parallelism()?.get();
    let threads = if all > 1 { vec![1, all] } else { vec![1] };
    for threads in &threads {
        let mut team = Team::new(*threads, &Pinning::Anywhere)?;
        let forks = best(|| team.run(|_| ()));
        let barriers = best(|| {
            team.run(|worker| {
                for _ in 0..BARRIERS {
                    worker.barrier();
                }
            });
        });
        println!("{threads} threads: fork and join {forks:?}, barrier {:?}", barriers / BARRIERS);
    }
    for [heads, kv_heads, head_dim] in SHAPES {
        let shape = Shape { heads, kv_heads, head_dim, scale: 0.1, window: None };
        for kind in KvType::ALL {
            print!("{heads:2}/{kv_heads} heads of {head_dim:3} {:8}", kind.name());
            for threads in &threads {
                for rows in [1, CONTEXT / 2] {
                    let time = measure(shape, kind, *threads, rows)?;
                    let keys: usize = (CONTEXT - rows..CONTEXT).map(|position| position + 1).sum();
                    let rate = (4 * keys * heads * head_dim) as f64 / time.as_secs_f64() / 1e9;
                    print!(" | {threads} thr {rows:3} rows {time:9.1?} {rate:6.1} GFLOPS");
                }
            }
            println!();
        }
    }
    Ok(())
}

fn measure(
    shape: Shape,
    kind: KvType,
    threads: usize,
    rows: usize,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let blocks = CONTEXT / BLOCK_SIZE;
    let Shape { heads, kv_heads, head_dim, .. } = shape;
    let cache = KvCache::new(kind, KvGeometry { kv_heads, head_dim, block_size: BLOCK_SIZE, blocks })?;
    let (query, out) = (SharedRows::new(rows, heads * head_dim), SharedRows::new(rows, heads * head_dim));
    let value = |at: usize| (at * 37 % 101) as f32 / 50.0 - 1.0;
    for slot in 0..CONTEXT {
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
    let [row_count, context, table_len] = [rows, CONTEXT, blocks].map(|count| count as u32);
    let spans = [Span { row_start: 0, row_count, context, table_start: 0, table_len }];
    let tables: Vec<u32> = (0..table_len).rev().collect();
    let mut plan = Plan::new(&shape, threads, rows);
    plan.rebuild(&shape, threads, &spans);
    let attention = Attention {
        shape,
        cache: &cache,
        query: &query,
        out: &out,
        spans: &spans,
        tables: &tables,
        plan: &plan,
    };
    let scratch: Vec<_> = (0..threads).map(|_| Mutex::new(Scratch::new(&[shape]))).collect();
    let simd = Simd::selected()?;
    let mut team = Team::new(threads, &Pinning::Anywhere)?;
    Ok(best(|| {
        team.run(|worker| {
            let mut scratch = scratch[worker.index()].lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: every worker calls it, and nothing else uses the cache or the rows.
            unsafe { attention.run(worker, simd, &mut scratch) };
        });
    }))
}

fn best(mut run: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    best
}
