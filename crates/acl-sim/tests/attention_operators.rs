//! Fused attention against a plain reference in `f64`: layouts, paging, windows, masks, and the same bits
//! everywhere.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests")]
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call the C ABI on their own memory"
)]
#![allow(missing_docs, reason = "test names say what is tested")]

mod support;

use std::ffi::CStr;
use std::ptr::null;

use acl_sim::operators::attention::fused::*;
use acl_sim::operators::attention::legacy::*;
use acl_sim::tensor::dtype::DType::{self, *};
use support::{Bench, Dev, Raw, assert_close, ints, list, noise};

const HEADS: usize = 6;
const KV: usize = 2;
const D: usize = 24;
const SCALE: f64 = 0.2;

struct Call {
    query: Raw,
    key: Raw,
    value: Raw,
    pse: Raw,
    mask: Raw,
    lengths: Vec<i64>,
    lengths_kv: Vec<i64>,
    table: Raw,
    layout: &'static CStr,
    sparse: i64,
    window: (i64, i64),
    block: i64,
    out: Raw,
    lse: Raw,
}

impl Call {
    fn new(query: Raw, key: Raw, value: Raw, layout: &'static CStr, out: Raw) -> Self {
        let (pse, mask, table, lse) = (null(), null(), null(), null());
        let window = (i64::from(i32::MAX), i64::from(i32::MAX));
        let (lengths, lengths_kv) = (vec![], vec![]);
        Self {
            query,
            key,
            value,
            pse,
            mask,
            lengths,
            lengths_kv,
            table,
            layout,
            sparse: 0,
            window,
            block: 0,
            out,
            lse,
        }
    }

    fn run(&self, bench: &Bench) -> Result<(), i32> {
        let array = |values: &[i64]| if values.is_empty() { null() } else { ints(values) };
        run!(bench, aclnnFusedInferAttentionScoreV3GetWorkspaceSize, aclnnFusedInferAttentionScoreV3;
            self.query, list(&[self.key]), list(&[self.value]), self.pse, self.mask,
            array(&self.lengths), array(&self.lengths_kv),
            null(), null(), null(), null(), null(), null(), null(), self.table, null(), null(),
            null(), null(), null(), null(), null(), null(), null(), null(), null(), null(),
            HEADS as i64, SCALE, self.window.0, self.window.1, self.layout.as_ptr(), KV as i64,
                self.sparse, 0,
            self.block, 0, !self.lse.is_null(), 0, 0, self.out, self.lse)
    }
}

/// Attention of one sequence; `q` is `[queries, HEADS, D]`, `k` and `v` are `[keys, KV, D]`.
fn reference(q: &[f64], k: &[f64], v: &[f64], sees: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let (queries, keys) = (q.len() / HEADS / D, k.len() / KV / D);
    let mut out = vec![0.0; q.len()];
    for row in 0..queries {
        for head in 0..HEADS {
            let kv = head / (HEADS / KV);
            let at = (row * HEADS + head) * D;
            let score = |key: usize| {
                let dot: f64 = (0..D).map(|d| q[at + d] * k[(key * KV + kv) * D + d]).sum();
                (dot * SCALE).exp()
            };
            let seen: Vec<usize> = (0..keys).filter(|key| sees(row, *key)).collect();
            let total: f64 = seen.iter().map(|key| score(*key)).sum();
            for key in seen {
                let weight = score(key) / total;
                (0..D).for_each(|d| out[at + d] += weight * v[(key * KV + kv) * D + d]);
            }
        }
    }
    out
}

fn causal_mask() -> Dev {
    let values: Vec<f64> = (0..2048 * 2048).map(|i| f64::from(u8::from(i % 2048 > i / 2048))).collect();
    Dev::new(Bool, &[2048, 2048], &values)
}

/// Puts rows of a sequence into blocks of a cache `[blocks, size, KV * D]`, or by heads.
fn paged(rows: &[f64], table: &[usize], blocks: usize, size: usize, by_head: bool) -> Vec<f64> {
    let mut cache = vec![f64::NAN; blocks * size * KV * D];
    for (token, row) in rows.chunks(KV * D).enumerate() {
        let (block, place) = (table[token / size], token % size);
        for (at, value) in row.iter().enumerate() {
            let (head, d) = (at / D, at % D);
            let index = if by_head {
                ((block * KV + head) * size + place) * D + d
            } else {
                (block * size + place) * KV * D + at
            };
            cache[index] = *value;
        }
    }
    cache
}

fn tolerance(dtype: DType) -> f64 {
    if dtype == BF16 { 1.0 / 128.0 } else { 1.0 / 1024.0 }
}

#[test]
fn paged_causal_attention_matches_and_has_the_bits_of_every_other_layout() {
    let bench = Bench::new();
    let mask = causal_mask();
    for dtype in [BF16, F16] {
        let (queries, keys) = (5, 37);
        let q = noise(queries * HEADS * D, 1);
        let (k, v) = (noise(keys * KV * D, 2), noise(keys * KV * D, 3));
        let table = [3usize, 0, 2];
        let want = reference(&q, &k, &v, |row, key| key <= row + keys - queries);
        let query = Dev::new(dtype, &[5, 6, 24], &q);
        let out = Dev::zeros(dtype, &[5, 6, 24]);
        let pages = Dev::new(I32, &[1, 4], &[3.0, 0.0, 2.0, -1.0]);
        let [kc, vc] = [&k, &v].map(|rows| Dev::new(dtype, &[4, 16, 48], &paged(rows, &table, 4, 16, false)));
        let mut call = Call::new(query.raw, kc.raw, vc.raw, c"TND", out.raw);
        (call.mask, call.sparse, call.block, call.table) = (mask.raw, 3, 16, pages.raw);
        (call.lengths, call.lengths_kv) = (vec![5], vec![37]);
        call.run(&bench).unwrap();
        let first = out.values();
        assert_close(&first, &want, tolerance(dtype));

        let [kh, vh] =
            [&k, &v].map(|rows| Dev::new(dtype, &[4, 2, 16, 24], &paged(rows, &table, 4, 16, true)));
        (call.key, call.value) = (kh.raw, vh.raw);
        call.run(&bench).unwrap();
        assert_eq!(out.values(), first, "cache by heads");

        let [kt, vt] = [&k, &v].map(|rows| Dev::new(dtype, &[37, 2, 24], rows));
        (call.key, call.value, call.table, call.block) = (kt.raw, vt.raw, null(), 0);
        call.run(&bench).unwrap();
        assert_eq!(out.values(), first, "ragged keys");

        let order = |rows: usize, heads: usize| {
            vec![(heads * D) as i64 * rows as i64, D as i64, (heads * D) as i64, 1]
        };
        call.query = query.window(&[1, 6, 5, 24], &order(5, 6), 0);
        call.key = kt.window(&[1, 2, 37, 24], &order(37, 2), 0);
        call.value = vt.window(&[1, 2, 37, 24], &order(37, 2), 0);
        call.out = out.window(&[1, 5, 6, 24], &[720, 144, 24, 1], 0);
        (call.layout, call.lengths, call.lengths_kv) = (c"BNSD_BSND", vec![], vec![]);
        call.run(&bench).unwrap();
        assert_eq!(out.values(), first, "heads first");

        // One token at a time, as decoding would: row 2 saw 35 keys.
        let one = Dev::zeros(dtype, &[1, 1, 144]);
        let mut step =
            Call::new(query.window(&[1, 1, 144], &[144, 144, 1], 288), kc.raw, vc.raw, c"BSH", one.raw);
        (step.table, step.block, step.lengths_kv) = (pages.raw, 16, vec![35]);
        step.run(&bench).unwrap();
        assert_eq!(one.values(), first[288..432], "decoded alone");
    }
}

#[test]
fn a_batch_of_sequences_does_not_mix() {
    let bench = Bench::new();
    let mask = causal_mask();
    let lengths = [(2usize, 2usize), (1, 20), (4, 9)];
    let (total_q, total_k): (usize, usize) = lengths.iter().fold((0, 0), |(a, b), (q, k)| (a + q, b + k));
    let q = noise(total_q * HEADS * D, 4);
    let (k, v) = (noise(total_k * KV * D, 5), noise(total_k * KV * D, 6));
    let query = Dev::new(BF16, &[total_q as i64, 6, 24], &q);
    let out = Dev::zeros(BF16, &[total_q as i64, 6, 24]);
    let [kt, vt] = [&k, &v].map(|rows| Dev::new(BF16, &[total_k as i64, 2, 24], rows));
    let lse = Dev::zeros(F32, &[total_q as i64, 6, 1]);
    let mut call = Call::new(query.raw, kt.raw, vt.raw, c"TND", out.raw);
    (call.mask, call.sparse, call.lse) = (mask.raw, 3, lse.raw);
    (call.lengths, call.lengths_kv) = (vec![2, 3, 7], vec![2, 22, 31]);
    call.run(&bench).unwrap();
    let (mut at, mut from) = (0, 0);
    let got = out.values();
    for (queries, keys) in lengths {
        let (a, b) = (at * HEADS * D, (at + queries) * HEADS * D);
        let span = from * KV * D..(from + keys) * KV * D;
        let want = reference(&q[a..b], &k[span.clone()], &v[span], |row, key| key + queries <= row + keys);
        assert_close(&got[a..b], &want, 1.0 / 128.0);
        (at, from) = (at + queries, from + keys);
    }
    let dot: f64 = (0..D).map(|d| q[d] * k[d]).sum();
    assert!((lse.values()[0] - dot * SCALE).abs() < 1e-4, "the first query sees one key");
}

#[test]
fn bands_and_masks_hide_keys() {
    let bench = Bench::new();
    let mask = causal_mask();
    let (queries, keys) = (4usize, 11usize);
    let q = noise(queries * HEADS * D, 7);
    let (k, mut v) = (noise(keys * KV * D, 8), noise(keys * KV * D, 9));
    let query = Dev::new(F16, &[1, 4, 6, 24], &q);
    let out = Dev::zeros(F16, &[1, 4, 6, 24]);
    let [kt, vt] = [&k, &v].map(|rows| Dev::new(F16, &[1, 11, 2, 24], rows));
    let mut call = Call::new(query.raw, kt.raw, vt.raw, c"BSND", out.raw);
    (call.mask, call.sparse, call.window) = (mask.raw, 4, (2, 0));
    call.run(&bench).unwrap();
    let want = reference(&q, &k, &v, |row, key| key <= row + 7 && key + 2 >= row + 7);
    assert_close(&out.values(), &want, 1e-3);
    (call.sparse, call.window) = (2, (0, 0));
    call.run(&bench).unwrap();
    assert_close(&out.values(), &reference(&q, &k, &v, |row, key| key <= row), 1e-3);

    let hides = |row: usize, key: usize| (row + key).is_multiple_of(3);
    let full: Vec<f64> = (0..44).map(|i| f64::from(u8::from(hides(i / 11, i % 11)))).collect();
    let full = Dev::new(Bool, &[1, 1, 4, 11], &full);
    (call.mask, call.sparse) = (full.raw, 1);
    call.run(&bench).unwrap();
    assert_close(&out.values(), &reference(&q, &k, &v, |row, key| !hides(row, key)), 1e-3);

    // The same as an added bias of minus infinity, and hidden values may be anything.
    v[..KV * D].fill(f64::NAN);
    let bad = Dev::new(F16, &[1, 11, 2, 24], &v);
    let bias: Vec<f64> = (0..44).map(|i| if i % 11 == 0 { f64::NEG_INFINITY } else { 0.0 }).collect();
    let bias = Dev::new(F16, &[1, 1, 4, 11], &bias);
    (call.mask, call.sparse, call.pse, call.value) = (null(), 0, bias.raw, bad.raw);
    call.run(&bench).unwrap();
    assert_close(&out.values(), &reference(&q, &k, &v, |_, key| key > 0), 1e-3);
}

#[test]
fn what_the_real_kernel_refuses_is_refused() {
    let bench = Bench::new();
    let make = |dtype| Dev::zeros(dtype, &[1, 4, 6, 24]);
    let keys = |dtype| Dev::zeros(dtype, &[1, 4, 2, 24]);
    let (q, k, out) = (make(F32), keys(F32), make(F32));
    assert_eq!(Call::new(q.raw, k.raw, k.raw, c"BSND", out.raw).run(&bench), Err(161_002), "32-bit floats");
    let (q, k, out) = (make(BF16), keys(BF16), make(BF16));
    let mut call = Call::new(q.raw, k.raw, k.raw, c"BSND", out.raw);
    assert_eq!(call.run(&bench), Ok(()));
    call.sparse = 3;
    assert_eq!(call.run(&bench), Err(161_002), "causal without the mask");
    let zeros = Dev::zeros(Bool, &[2048, 2048]);
    call.mask = zeros.raw;
    assert_eq!(call.run(&bench), Err(507_015), "a mask that is no triangle");
    let bench = Bench::new();
    let table = Dev::new(I32, &[1, 1], &[5.0]);
    let cache = Dev::zeros(BF16, &[2, 16, 48]);
    let mut call = Call::new(q.raw, cache.raw, cache.raw, c"BSND", out.raw);
    (call.table, call.block) = (table.raw, 16);
    assert_eq!(call.run(&bench), Err(161_002), "paging without lengths");
    call.lengths_kv = vec![4];
    assert_eq!(call.run(&bench), Err(507_015), "a block that does not exist");
    call.block = 24;
    assert_eq!(call.run(&bench), Err(161_002), "a block size that is no multiple of 16");
}

#[test]
fn the_older_operators_give_the_same_bits() {
    let bench = Bench::new();
    let (q, k, v) = (noise(3 * 144, 10), noise(3 * 48, 11), noise(3 * 48, 12));
    let query = Dev::new(F16, &[1, 3, 144], &q);
    let (key, value) = (Dev::new(F16, &[1, 3, 48], &k), Dev::new(F16, &[1, 3, 48], &v));
    let (out, other) = (Dev::zeros(F16, &[1, 3, 144]), Dev::zeros(F16, &[1, 3, 144]));
    Call::new(query.raw, key.raw, value.raw, c"BSH", out.raw).run(&bench).unwrap();
    run!(bench, aclnnPromptFlashAttentionV3GetWorkspaceSize, aclnnPromptFlashAttentionV3;
        query.raw, key.raw, value.raw, null(), null(), null(), null(), null(), null(), null(), null(), null(),
        6, SCALE, i64::from(i32::MAX), 0, c"BSH".as_ptr(), 2, 0, 0, other.raw)
    .unwrap();
    assert_eq!(out.values(), other.values());
    let last = query.window(&[1, 1, 144], &[144, 144, 1], 288);
    let one = Dev::zeros(F16, &[1, 1, 144]);
    run!(bench, aclnnIncreFlashAttentionV4GetWorkspaceSize, aclnnIncreFlashAttentionV4;
        last, list(&[key.raw]), list(&[value.raw]), null(), null(), ints(&[3]), null(), null(), null(),
            null(),
        null(), null(), null(), null(), null(), 6, SCALE, c"BSH".as_ptr(), 2, 0, 0, one.raw)
    .unwrap();
    assert_eq!(one.values(), out.values()[288..]);
}
