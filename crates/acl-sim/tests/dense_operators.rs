//! The operators of dense models against plain references in `f64`, through the C ABI and a stream.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests")]
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call the C ABI on their own memory"
)]
#![allow(missing_docs, reason = "test names say what is tested")]

mod support;

use std::ptr::null;

use acl_sim::operators::activations::*;
use acl_sim::operators::cache::*;
use acl_sim::operators::copies::*;
use acl_sim::operators::elementwise::*;
use acl_sim::operators::gathers::*;
use acl_sim::operators::matmul::*;
use acl_sim::operators::norms::*;
use acl_sim::operators::reductions::*;
use acl_sim::operators::rope::*;
use acl_sim::tensor::dtype::DType::{self, *};
use support::{Bench, Dev, assert_close, ints, list, noise, scalar};

fn product(x: &[f64], w: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|i| (0..k).map(|j| x[i / n * k + j] * w[j * n + i % n]).sum()).collect()
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        BF16 => 1.0 / 128.0,
        F16 => 1.0 / 1024.0,
        _ => 1e-5,
    }
}

#[test]
fn a_matrix_product_takes_plain_and_transposed_weights_and_offsets() {
    let bench = Bench::new();
    for dtype in [BF16, F16, F32] {
        for (m, k, n) in [(1, 576, 17), (3, 65, 33), (5, 8, 1), (9, 130, 70)] {
            let (x, w) = (noise(m * k, 1), noise(k * n, 2));
            let (mi, ki, ni) = (m as i64, k as i64, n as i64);
            let a = Dev::new(dtype, &[mi, ki], &x);
            let want = product(&x, &w, m, k, n);
            let plain = Dev::new(dtype, &[ki, ni], &w);
            let out = Dev::zeros(dtype, &[mi, ni]);
            run!(bench, aclnnMmGetWorkspaceSize, aclnnMm; a.raw, plain.raw, out.raw, 0).unwrap();
            assert_close(&out.values(), &want, tolerance(dtype));
            // The same weights as [n, k] behind three elements of something else.
            let mut turned = vec![99.0; 3];
            turned.extend((0..n * k).map(|i| w[i % k * n + i / k]));
            let stored = Dev::new(dtype, &[3 + ki * ni], &turned);
            let view = stored.window(&[ki, ni], &[1, ki], 3);
            let again = Dev::zeros(dtype, &[mi, ni]);
            run!(bench, aclnnMatmulGetWorkspaceSize, aclnnMatmul; a.raw, view, again.raw, 0).unwrap();
            assert_eq!(again.values(), out.values(), "both layouts are added in one order");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_in_a_batch() {
    let bench = Bench::new();
    let (m, k, n) = (70, 131, 1200);
    let a = Dev::new(BF16, &[m, k], &noise((m * k) as usize, 3));
    let w = Dev::new(BF16, &[n, k], &noise((n * k) as usize, 4));
    let turned = w.window(&[k, n], &[1, k], 0);
    let all = Dev::zeros(F32, &[m, n]);
    run!(bench, aclnnMmGetWorkspaceSize, aclnnMm; a.raw, turned, all.raw, 0).unwrap();
    let all = all.values();
    for row in [0, 3, 64, 69] {
        let one = a.window(&[1, k], &[k, 1], row * k);
        let out = Dev::zeros(F32, &[1, n]);
        run!(bench, aclnnMmGetWorkspaceSize, aclnnMm; one, turned, out.raw, 0).unwrap();
        assert_eq!(out.values(), all[(row * n) as usize..][..n as usize], "row {row}");
    }
}

#[test]
fn batches_broadcast_and_addmm_adds() {
    let bench = Bench::new();
    let (x, w) = (noise(2 * 3 * 5, 5), noise(5 * 4, 6));
    let a = Dev::new(F32, &[2, 3, 5], &x);
    let b = Dev::new(F32, &[5, 4], &w);
    let out = Dev::zeros(F32, &[2, 3, 4]);
    run!(bench, aclnnMatmulGetWorkspaceSize, aclnnMatmul; a.raw, b.raw, out.raw, 1).unwrap();
    assert_close(&out.values(), &product(&x, &w, 6, 5, 4), 1e-5);
    let bias = noise(4, 7);
    let c = Dev::new(F32, &[4], &bias);
    let flat = a.shaped(&[6, 5]);
    let sum = Dev::zeros(F32, &[6, 4]);
    run!(bench, aclnnAddmmGetWorkspaceSize, aclnnAddmm;
        c.raw, flat, b.raw, scalar(2.0), scalar(0.5), sum.raw, 0)
    .unwrap();
    let want: Vec<f64> =
        product(&x, &w, 6, 5, 4).iter().enumerate().map(|(i, v)| v * 0.5 + 2.0 * bias[i % 4]).collect();
    assert_close(&sum.values(), &want, 1e-5);
    let wrong = Dev::zeros(F32, &[6, 5]);
    assert_eq!(run!(bench, aclnnMmGetWorkspaceSize, aclnnMm; flat, b.raw, wrong.raw, 0), Err(161_002));
    assert_eq!(run!(bench, aclnnMmGetWorkspaceSize, aclnnMm; null(), b.raw, wrong.raw, 0), Err(161_001));
}

#[test]
fn norms_agree_with_the_reference_and_fused_with_separate() {
    let bench = Bench::new();
    let (rows, h) = (5usize, 77usize);
    let (x, y, g) = (noise(rows * h, 8), noise(rows * h, 9), noise(h, 10));
    let shape = [rows as i64, h as i64];
    for dtype in [F32, BF16, F16] {
        let (a, b, gamma) =
            (Dev::new(dtype, &shape, &x), Dev::new(dtype, &shape, &y), Dev::new(dtype, &[77], &g));
        let (out, rstd) = (Dev::zeros(dtype, &shape), Dev::zeros(F32, &[5, 1]));
        run!(bench, aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm; a.raw, gamma.raw, 1e-5, out.raw, rstd.raw)
            .unwrap();
        let factor: Vec<f64> = x
            .chunks(h)
            .map(|row| 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / h as f64 + 1e-5).sqrt())
            .collect();
        let want: Vec<f64> = x.iter().enumerate().map(|(i, v)| v * factor[i / h] * g[i % h]).collect();
        assert_close(&out.values(), &want, tolerance(dtype));
        assert_close(&rstd.values(), &factor, 1e-5);
        let (fused, sum) = (Dev::zeros(dtype, &shape), Dev::zeros(dtype, &shape));
        run!(bench, aclnnAddRmsNormGetWorkspaceSize, aclnnAddRmsNorm;
            a.raw, b.raw, gamma.raw, 1e-5, fused.raw, rstd.raw, sum.raw)
        .unwrap();
        let (added, apart) = (Dev::zeros(dtype, &shape), Dev::zeros(dtype, &shape));
        run!(bench, aclnnAddGetWorkspaceSize, aclnnAdd; a.raw, b.raw, scalar(1.0), added.raw).unwrap();
        run!(bench, aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm; added.raw, gamma.raw, 1e-5, apart.raw,
            rstd.raw)
        .unwrap();
        assert_eq!(sum.values(), added.values());
        assert_eq!(fused.values(), apart.values());
    }
}

#[test]
fn elementwise_operators_broadcast_strided_views() {
    let bench = Bench::new();
    let (x, y) = (noise(6, 11), noise(3, 12));
    let a = Dev::new(F32, &[2, 3], &x);
    let turned = a.window(&[3, 2], &[1, 3], 0);
    let b = Dev::new(BF16, &[3, 1], &y);
    let out = Dev::zeros(F32, &[3, 2]);
    let value = |i: usize| (x[i % 2 * 3 + i / 2], y[i / 2]);
    let expect = |f: fn(f64, f64) -> f64| (0..6).map(|i| f(value(i).0, value(i).1)).collect::<Vec<_>>();
    run!(bench, aclnnSubGetWorkspaceSize, aclnnSub; turned, b.raw, scalar(3.0), out.raw).unwrap();
    assert_close(&out.values(), &expect(|a, b| a - 3.0 * b), 1e-6);
    run!(bench, aclnnMulGetWorkspaceSize, aclnnMul; turned, b.raw, out.raw).unwrap();
    assert_close(&out.values(), &expect(|a, b| a * b), 1e-6);
    run!(bench, aclnnInplaceAddGetWorkspaceSize, aclnnInplaceAdd; turned, b.raw, scalar(1.0)).unwrap();
    let sums = a.values();
    assert_close(&(0..6).map(|i| sums[i % 2 * 3 + i / 2]).collect::<Vec<_>>(), &expect(|a, b| a + b), 1e-6);
    let (big, one) = (Dev::new(I64, &[1], &[(1i64 << 53) as f64]), Dev::new(I64, &[1], &[1.0]));
    let answer = Dev::zeros(I64, &[1]);
    run!(bench, aclnnAddGetWorkspaceSize, aclnnAdd; big.raw, one.raw, scalar(1.0), answer.raw).unwrap();
    let less = Dev::zeros(Bool, &[1]);
    run!(bench, aclnnLtTensorGetWorkspaceSize, aclnnLtTensor; big.raw, answer.raw, less.raw).unwrap();
    assert_eq!(less.values(), [1.0], "integers are not rounded to a float");
}

#[test]
fn activations_match_their_formulas() {
    let bench = Bench::new();
    let x = noise(64, 13);
    let a = Dev::new(F32, &[4, 16], &x);
    let out = Dev::zeros(F32, &[4, 16]);
    let silu = |v: f64| v / (1.0 + (-v).exp());
    run!(bench, aclnnSiluGetWorkspaceSize, aclnnSilu; a.raw, out.raw).unwrap();
    assert_close(&out.values(), &x.iter().map(|v| silu(*v)).collect::<Vec<_>>(), 1e-5);
    let half = Dev::zeros(F32, &[4, 8]);
    run!(bench, aclnnSwiGluGetWorkspaceSize, aclnnSwiGlu; a.raw, -1, half.raw).unwrap();
    let want: Vec<f64> = (0..32).map(|i| silu(x[i / 8 * 16 + i % 8]) * x[i / 8 * 16 + 8 + i % 8]).collect();
    assert_close(&half.values(), &want, 1e-5);
    run!(bench, aclnnGeluV2GetWorkspaceSize, aclnnGeluV2; a.raw, 1, out.raw).unwrap();
    let tanh = |v: f64| 0.5 * v * (1.0 + (0.797_884_560_8 * (v + 0.044_715 * v * v * v)).tanh());
    assert_close(&out.values(), &x.iter().map(|v| tanh(*v)).collect::<Vec<_>>(), 1e-5);
}

#[test]
fn rotary_embedding_turns_halves_and_neighbours() {
    let bench = Bench::new();
    let (t, n, d) = (3usize, 2usize, 8usize);
    let (x, c, s) = (noise(t * n * d, 14), noise(t * d, 15), noise(t * d, 16));
    let partner = |i: usize, half: bool| {
        let (base, at) = (i / d * d, i % d);
        match (half, at < d / 2, at % 2 == 0) {
            (true, true, _) => -x[base + at + d / 2],
            (true, false, _) => x[base + at - d / 2],
            (false, _, true) => -x[base + at + 1],
            (false, _, false) => x[base + at - 1],
        }
    };
    let want = |half: bool| -> Vec<f64> {
        (0..x.len())
            .map(|i| {
                let at = i / (n * d) * d + i % d;
                x[i] * c[at] + partner(i, half) * s[at]
            })
            .collect()
    };
    let (cos, sin) = (Dev::new(F32, &[3, 1, 8], &c), Dev::new(F32, &[3, 1, 8], &s));
    let (q, k) = (Dev::new(F32, &[3, 2, 8], &x), Dev::new(F32, &[3, 2, 8], &x));
    run!(bench, aclnnApplyRotaryPosEmbV2GetWorkspaceSize, aclnnApplyRotaryPosEmbV2;
        q.raw, k.raw, cos.raw, sin.raw, 4, c"half".as_ptr())
    .unwrap();
    assert_close(&q.values(), &want(true), 1e-5);
    assert_eq!(q.values(), k.values());
    let source = Dev::new(F32, &[1, 3, 2, 8], &x);
    let out = Dev::zeros(F32, &[1, 3, 2, 8]);
    let (cos, sin) = (cos.shaped(&[1, 3, 1, 8]), sin.shaped(&[1, 3, 1, 8]));
    run!(bench, aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding;
        source.raw, cos, sin, 1, out.raw)
    .unwrap();
    assert_close(&out.values(), &want(false), 1e-5);
}

#[test]
fn rows_are_taken_and_put_by_index() {
    let bench = Bench::new();
    let table = Dev::new(BF16, &[4, 3], &(0..12).map(f64::from).collect::<Vec<_>>());
    let index = Dev::new(I64, &[2, 2], &[3.0, 0.0, 1.0, 1.0]);
    let out = Dev::zeros(BF16, &[2, 2, 3]);
    run!(bench, aclnnEmbeddingGetWorkspaceSize, aclnnEmbedding; table.raw, index.raw, out.raw).unwrap();
    assert_eq!(out.values(), [9.0, 10.0, 11.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
    let columns = Dev::new(I32, &[2], &[2.0, 0.0]);
    let picked = Dev::zeros(BF16, &[4, 2]);
    run!(bench, aclnnIndexSelectGetWorkspaceSize, aclnnIndexSelect; table.raw, 1, columns.raw, picked.raw)
        .unwrap();
    assert_eq!(picked.values(), [2.0, 0.0, 5.0, 3.0, 8.0, 6.0, 11.0, 9.0]);
    let bad = Dev::new(I32, &[2], &[2.0, 7.0]);
    assert_eq!(
        run!(bench, aclnnIndexSelectGetWorkspaceSize, aclnnIndexSelect; table.raw, 1, bad.raw, picked.raw),
        Err(507_035)
    );
    let bench = Bench::new();
    let rows = Dev::new(I64, &[2], &[2.0, 0.0]);
    let source = Dev::new(BF16, &[2, 3], &[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
    run!(bench, aclnnInplaceIndexCopyGetWorkspaceSize, aclnnInplaceIndexCopy; table.raw, 0, rows.raw,
        source.raw)
    .unwrap();
    assert_eq!(table.values(), [-4.0, -5.0, -6.0, 3.0, 4.0, 5.0, -1.0, -2.0, -3.0, 9.0, 10.0, 11.0]);
    let places = Dev::new(I32, &[2, 2], &[3.0, 1.0, 1.0, 2.0]);
    let values = Dev::new(BF16, &[2], &[50.0, 60.0]);
    run!(bench, aclnnScatterNdUpdateGetWorkspaceSize, aclnnScatterNdUpdate; table.raw, places.raw,
        values.raw)
    .unwrap();
    assert_eq!(table.values()[5..11], [60.0, -1.0, -2.0, -3.0, 9.0, 50.0]);
}

#[test]
fn the_paged_cache_takes_slots_and_skips_padding() {
    let bench = Bench::new();
    let (k, v) = (noise(3 * 2 * 4, 17), noise(3 * 2 * 4, 18));
    let (key, value) = (Dev::new(BF16, &[3, 2, 4], &k), Dev::new(BF16, &[3, 2, 4], &v));
    let caches = [Dev::zeros(BF16, &[2, 16, 2, 4]), Dev::zeros(BF16, &[2, 16, 2, 4])];
    let slots = Dev::new(I32, &[3], &[17.0, -1.0, 3.0]);
    let mode = std::ptr::null();
    run!(bench, aclnnScatterPaKvCacheGetWorkspaceSize, aclnnScatterPaKvCache;
        key.raw, caches[0].raw, slots.raw, value.raw, caches[1].raw, null(), null(), null(), mode, mode,
        null(), null())
    .unwrap();
    for (cache, rows) in caches.iter().zip([&k, &v]) {
        let got = cache.values();
        assert_eq!(got[17 * 8..18 * 8], rows[..8]);
        assert_eq!(got[3 * 8..4 * 8], rows[16..]);
        assert_eq!(got.iter().filter(|value| **value != 0.0).count(), {
            rows[..8].iter().chain(&rows[16..]).filter(|value| **value != 0.0).count()
        });
    }
    let far = Dev::new(I32, &[3], &[0.0, 1.0, 32.0]);
    assert_eq!(
        run!(bench, aclnnScatterPaKvCacheGetWorkspaceSize, aclnnScatterPaKvCache;
            key.raw, caches[0].raw, far.raw, value.raw, caches[1].raw, null(), null(), null(), mode, mode,
            null(), null()),
        Err(507_035)
    );
}

#[test]
fn copies_move_every_element_to_its_place() {
    let bench = Bench::new();
    let x: Vec<f64> = (0..24).map(f64::from).collect();
    let a = Dev::new(F32, &[2, 3, 4], &x);
    let turned = Dev::zeros(F32, &[4, 2, 3]);
    run!(bench, aclnnPermuteGetWorkspaceSize, aclnnPermute; a.raw, ints(&[2, 0, 1]), turned.raw).unwrap();
    assert_eq!(turned.values(), (0..24).map(|i| x[i % 6 * 4 + i / 6]).collect::<Vec<_>>());
    let joined = Dev::zeros(F32, &[2, 6, 4]);
    run!(bench, aclnnCatGetWorkspaceSize, aclnnCat; list(&[a.raw, a.raw]), 1, joined.raw).unwrap();
    assert_eq!(joined.values()[..24], [&x[..12], &x[..12]].concat());
    let cut = Dev::zeros(F32, &[2, 3, 2]);
    run!(bench, aclnnSliceGetWorkspaceSize, aclnnSlice; a.raw, 2, 1, 4, 2, cut.raw).unwrap();
    assert_eq!(cut.values(), (0..12).map(|i| x[i / 2 * 4 + 1 + i % 2 * 2]).collect::<Vec<_>>());
    let cast = Dev::zeros(I32, &[2, 3, 4]);
    let odd = Dev::new(F32, &[2, 3, 4], &x.iter().map(|v| v - 11.7).collect::<Vec<_>>());
    run!(bench, aclnnCastGetWorkspaceSize, aclnnCast; odd.raw, 3, cast.raw).unwrap();
    assert_eq!(cast.values(), x.iter().map(|v| (v - 11.7).trunc() + 0.0).collect::<Vec<_>>());
    let many = Dev::zeros(F32, &[2, 6, 4]);
    run!(bench, aclnnRepeatGetWorkspaceSize, aclnnRepeat; a.raw, ints(&[1, 2, 1]), many.raw).unwrap();
    assert_eq!(many.values(), [&x[..12], &x[..12], &x[12..], &x[12..]].concat());
    run!(bench, aclnnRepeatInterleaveIntWithDimGetWorkspaceSize, aclnnRepeatInterleaveIntWithDim;
        a.raw, 2, 1, 6, many.raw)
    .unwrap();
    assert_eq!(many.values()[..12], [&x[..4], &x[..4], &x[4..8]].concat());
}

#[test]
fn reductions_run_along_the_dimension_asked_for() {
    let bench = Bench::new();
    let x = [1.0, 5.0, 5.0, -2.0, 7.0, 0.5];
    let a = Dev::new(BF16, &[2, 3], &x);
    let best = Dev::zeros(I64, &[2]);
    run!(bench, aclnnArgMaxGetWorkspaceSize, aclnnArgMax; a.raw, -1, false, best.raw).unwrap();
    assert_eq!(best.values(), [1.0, 1.0], "the first of equal ones wins");
    let down = Dev::zeros(I32, &[1, 3]);
    run!(bench, aclnnArgMaxGetWorkspaceSize, aclnnArgMax; a.raw, 0, true, down.raw).unwrap();
    assert_eq!(down.values(), [0.0, 1.0, 0.0]);
    let out = Dev::zeros(F32, &[2, 3]);
    run!(bench, aclnnSoftmaxGetWorkspaceSize, aclnnSoftmax; a.raw, 1, out.raw).unwrap();
    let want: Vec<f64> = x
        .chunks(3)
        .flat_map(|r| r.iter().map(|v| v.exp() / r.iter().map(|v| v.exp()).sum::<f64>()))
        .collect();
    assert_close(&out.values(), &want, 1e-6);
    let sum = Dev::zeros(F32, &[3]);
    run!(bench, aclnnReduceSumGetWorkspaceSize, aclnnReduceSum; a.raw, ints(&[0]), false, 0, sum.raw)
        .unwrap();
    assert_eq!(sum.values(), [-1.0, 12.0, 5.5]);
    let run = Dev::zeros(F32, &[2, 3]);
    run!(bench, aclnnCumsumGetWorkspaceSize, aclnnCumsum; a.raw, 1, 0, run.raw).unwrap();
    assert_eq!(run.values(), [1.0, 6.0, 11.0, -2.0, 5.0, 5.5]);
}
