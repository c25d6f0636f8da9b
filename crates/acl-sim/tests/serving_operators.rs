//! Sampling, quantised and expert operators against plain references, and the protocol of executors.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests")]
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call the C ABI on their own memory"
)]
#![allow(missing_docs, reason = "test names say what is tested")]

mod support;

use std::ptr::{null, null_mut};

use acl_sim::executor::abi::*;
use acl_sim::operators::copies::*;
use acl_sim::operators::elementwise::*;
use acl_sim::operators::matmul::*;
use acl_sim::operators::moe::gates::*;
use acl_sim::operators::moe::grouped::*;
use acl_sim::operators::moe::routing::*;
use acl_sim::operators::quantise::*;
use acl_sim::operators::quantised_matmul::*;
use acl_sim::operators::sampling::*;
use acl_sim::operators::selection::*;
use acl_sim::tensor::dtype::DType::*;
use support::{Bench, Dev, assert_close, list, noise, scalar};

#[test]
fn sorting_and_top_k_are_stable() {
    let bench = Bench::new();
    let a = Dev::new(F32, &[2, 4], &[3.0, 1.0, 3.0, 2.0, 0.0, -1.0, 5.0, 5.0]);
    let (values, indices) = (Dev::zeros(F32, &[2, 2]), Dev::zeros(I64, &[2, 2]));
    run!(bench, aclnnTopkGetWorkspaceSize, aclnnTopk; a.raw, 2, -1, true, true, values.raw, indices.raw)
        .unwrap();
    assert_eq!(values.values(), [3.0, 3.0, 5.0, 5.0]);
    assert_eq!(indices.values(), [0.0, 2.0, 2.0, 3.0]);
    let (values, indices) = (Dev::zeros(F32, &[2, 4]), Dev::zeros(I32, &[2, 4]));
    run!(bench, aclnnSortGetWorkspaceSize, aclnnSort; a.raw, true, 0, false, values.raw, indices.raw)
        .unwrap();
    assert_eq!(values.values(), [0.0, -1.0, 3.0, 2.0, 3.0, 1.0, 5.0, 5.0]);
    assert_eq!(indices.values(), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn truncation_keeps_the_likeliest() {
    let bench = Bench::new();
    let logits: Vec<f64> = [0.5f64, 0.25, 0.15, 0.1].iter().map(|p| p.ln()).collect();
    let a = Dev::new(F32, &[2, 4], &[logits.clone(), logits.clone()].concat());
    let (p, k) = (Dev::new(F32, &[2], &[0.7, 1.0]), Dev::new(I32, &[2], &[4.0, 1.0]));
    let out = Dev::zeros(F32, &[2, 4]);
    run!(bench, aclnnApplyTopKTopPGetWorkspaceSize, aclnnApplyTopKTopP; a.raw, p.raw, k.raw, out.raw)
        .unwrap();
    let kept: Vec<bool> = out.values().iter().map(|v| v.is_finite()).collect();
    assert_eq!(kept, [true, true, false, false, true, false, false, false]);
    let weights = Dev::new(F32, &[2, 3], &[0.0, 4.0, 0.0, 1.0, 1.0, 2.0]);
    let draws = Dev::zeros(I64, &[2, 64]);
    run!(bench, aclnnMultinomialGetWorkspaceSize, aclnnMultinomial; weights.raw, 64, true, 5, 0, draws.raw)
        .unwrap();
    let drawn = draws.values();
    assert!(drawn[..64].iter().all(|class| *class == 1.0));
    for class in 0..3 {
        assert!(drawn[64..].contains(&f64::from(class)), "class {class} was never drawn");
    }
    let noise = Dev::zeros(F32, &[1000]);
    run!(bench, aclnnInplaceUniformGetWorkspaceSize, aclnnInplaceUniform; noise.raw, 2.0, 4.0, 7, 0).unwrap();
    let values = noise.values();
    assert!(values.iter().all(|value| (2.0..4.0).contains(value)));
    assert!((values.iter().sum::<f64>() / 1000.0 - 3.0).abs() < 0.1);
}

#[test]
fn choices_and_masks_pick_elements() {
    let bench = Bench::new();
    let (a, b) = (Dev::new(F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]), Dev::new(F32, &[1], &[9.0]));
    let test = Dev::new(Bool, &[2], &[1.0, 0.0]);
    let out = Dev::zeros(F32, &[2, 2]);
    run!(bench, aclnnSWhereGetWorkspaceSize, aclnnSWhere; test.raw, a.raw, b.raw, out.raw).unwrap();
    assert_eq!(out.values(), [1.0, 9.0, 3.0, 9.0]);
    run!(bench, aclnnInplaceMaskedFillScalarGetWorkspaceSize, aclnnInplaceMaskedFillScalar;
        out.raw, test.raw, scalar(-5.0))
    .unwrap();
    assert_eq!(out.values(), [-5.0, 9.0, -5.0, 9.0]);
    run!(bench, aclnnTrilGetWorkspaceSize, aclnnTril; a.raw, 0, out.raw).unwrap();
    assert_eq!(out.values(), [1.0, 0.0, 3.0, 4.0]);
    run!(bench, aclnnTriuGetWorkspaceSize, aclnnTriu; a.raw, 1, out.raw).unwrap();
    assert_eq!(out.values(), [0.0, 2.0, 0.0, 0.0]);
    run!(bench, aclnnInplaceZeroGetWorkspaceSize, aclnnInplaceZero; out.raw).unwrap();
    assert_eq!(out.values(), [0.0; 4]);
}

#[test]
fn dynamic_quantisation_and_its_product_come_close_to_the_float_product() {
    let bench = Bench::new();
    let (m, k, n) = (3usize, 40usize, 21usize);
    let x = noise(m * k, 1);
    let w: Vec<f64> = noise(k * n, 2).iter().map(|v| (v * 63.0).round()).collect();
    let a = Dev::new(BF16, &[3, 40], &x);
    let (bytes, scale) = (Dev::zeros(I8, &[3, 40]), Dev::zeros(F32, &[3]));
    run!(bench, aclnnDynamicQuantGetWorkspaceSize, aclnnDynamicQuant; a.raw, null(), bytes.raw, scale.raw)
        .unwrap();
    let (q, s) = (bytes.values(), scale.values());
    for (row, scale) in a.values().chunks(k).zip(&s) {
        let highest = row.iter().fold(0f64, |h, v| h.max(v.abs()));
        assert!((scale - highest / 127.0).abs() < 1e-6);
    }
    let weight = Dev::new(I8, &[40, 21], &w);
    let columns: Vec<f64> = (0..n).map(|i| 0.01 + i as f64 / 1024.0).collect();
    let by_column = Dev::new(F32, &[21], &columns);
    let out = Dev::zeros(BF16, &[3, 21]);
    run!(bench, aclnnQuantMatmulV4GetWorkspaceSize, aclnnQuantMatmulV4;
        bytes.raw, weight.raw, by_column.raw, null(), scale.raw, null(), false, false, out.raw)
    .unwrap();
    let want: Vec<f64> = (0..m * n)
        .map(|i| {
            let sum: f64 = (0..k).map(|j| q[i / n * k + j] * w[j * n + i % n]).sum();
            sum * columns[i % n] * s[i / n]
        })
        .collect();
    assert_close(&out.values(), &want, 1.0 / 128.0);
    let half = Dev::zeros(F16, &[3, 21]);
    assert_eq!(
        run!(bench, aclnnQuantMatmulV4GetWorkspaceSize, aclnnQuantMatmulV4;
            bytes.raw, weight.raw, by_column.raw, null(), null(), null(), false, false, half.raw),
        Err(161_002),
        "a float16 result takes a packed scale"
    );
    let packed = Dev::zeros(U64, &[21]);
    run!(bench, aclnnTransQuantParamV2GetWorkspaceSize, aclnnTransQuantParamV2; by_column.raw, null(),
        packed.raw)
    .unwrap();
    run!(bench, aclnnQuantMatmulV4GetWorkspaceSize, aclnnQuantMatmulV4;
        bytes.raw, weight.raw, packed.raw, null(), null(), null(), false, false, half.raw)
    .unwrap();
    let plain: Vec<f64> = want.iter().enumerate().map(|(i, v)| v / s[i / n]).collect();
    assert_close(&half.values(), &plain, 1.0 / 1024.0);
}

#[test]
fn static_quantisation_rounds_and_clamps() {
    let bench = Bench::new();
    let a = Dev::new(F16, &[1, 4], &[0.5, 1.5, -100.0, 3.0]);
    let (scale, offset) =
        (Dev::new(F16, &[4], &[1.0, 1.0, 2.0, 0.5]), Dev::new(F16, &[4], &[0.0, 0.0, 0.0, 1.0]));
    let out = Dev::zeros(I8, &[1, 4]);
    run!(bench, aclnnAscendQuantV3GetWorkspaceSize, aclnnAscendQuantV3;
        a.raw, scale.raw, offset.raw, false, c"round".as_ptr(), 2, -1, out.raw)
    .unwrap();
    assert_eq!(out.values(), [0.0, 2.0, -128.0, 2.0]);
}

#[test]
fn weights_in_bytes_and_nibbles_are_scaled_by_group() {
    let bench = Bench::new();
    let (k, n) = (64usize, 3usize);
    let x = noise(2 * k, 3);
    let w: Vec<f64> = (0..k * n).map(|i| (i * 7 % 15) as f64 - 7.0).collect();
    let s: Vec<f64> = (0..2 * n).map(|i| 0.25 * (1 + i) as f64).collect();
    let a = Dev::new(F16, &[2, 64], &x);
    let scales = Dev::new(F16, &[2, 3], &s);
    let want: Vec<f64> = (0..2 * n)
        .map(|i| (0..k).map(|j| x[i / n * k + j] * w[j * n + i % n] * s[j / 32 * n + i % n]).sum())
        .collect();
    for dtype in [I8, I4] {
        let weight = Dev::new(dtype, &[64, 3], &w);
        let out = Dev::zeros(F16, &[2, 3]);
        run!(bench, aclnnWeightQuantBatchMatmulV2GetWorkspaceSize, aclnnWeightQuantBatchMatmulV2;
            a.raw, weight.raw, scales.raw, null(), null(), null(), null(), 32, out.raw)
        .unwrap();
        assert_close(&out.values(), &want, 1.0 / 1024.0);
    }
}

#[test]
fn experts_are_chosen_sorted_computed_and_brought_back() {
    let bench = Bench::new();
    let (t, e, k, h) = (3usize, 4usize, 2usize, 5usize);
    let logits = Dev::new(F32, &[3, 4], &[0.0, 3.0, 1.0, 2.0, 5.0, 0.0, 0.0, 4.0, 1.0, 1.0, 0.0, 0.0]);
    let (y, experts) = (Dev::zeros(F32, &[3, 2]), Dev::zeros(I32, &[3, 2]));
    run!(bench, aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize, aclnnMoeGatingTopKSoftmaxV2;
        logits.raw, null(), 2, 1, false, y.raw, experts.raw, null())
    .unwrap();
    let choice = experts.values();
    assert_eq!(choice, [1.0, 3.0, 0.0, 3.0, 0.0, 1.0]);
    assert_close(&y.values()[..2], &[1.0 / (1.0 + (-1f64).exp()), 1.0 / (1.0 + 1f64.exp())], 1e-6);

    let x = noise(t * h, 4);
    let tokens = Dev::new(F32, &[3, 5], &x);
    let (sorted, places, counts) = (Dev::zeros(F32, &[6, 5]), Dev::zeros(I32, &[6]), Dev::zeros(I64, &[4]));
    run!(bench, aclnnMoeInitRoutingV2GetWorkspaceSize, aclnnMoeInitRoutingV2;
        tokens.raw, experts.raw, 0, 0, 4, 0, 2, false, sorted.raw, places.raw, counts.raw, null())
    .unwrap();
    assert_eq!(counts.values(), [2.0, 2.0, 0.0, 2.0]);
    assert_eq!(places.values(), [2.0, 4.0, 0.0, 5.0, 1.0, 3.0]);

    let w = noise(e * h * h, 5);
    let weights = Dev::new(F32, &[4, 5, 5], &w);
    let results = Dev::zeros(F32, &[6, 5]);
    let plain = null();
    run!(bench, aclnnGroupedMatmulV4GetWorkspaceSize, aclnnGroupedMatmulV4;
        list(&[sorted.raw]), list(&[weights.raw]), plain, plain, plain, plain, plain, plain, counts.raw,
            plain,
        plain, plain, 2, 0, 1, 0, list(&[results.raw]), plain, plain)
    .unwrap();
    let out = Dev::zeros(F32, &[3, 5]);
    run!(bench, aclnnMoeFinalizeRoutingV2GetWorkspaceSize, aclnnMoeFinalizeRoutingV2;
        results.raw, places.raw, null(), null(), null(), y.raw, null(), 2, out.raw)
    .unwrap();
    let factor = y.values();
    let want: Vec<f64> = (0..t * h)
        .map(|i| {
            (0..k)
                .map(|c| {
                    let (token, expert) = (i / h, choice[i / h * k + c] as usize);
                    let sum: f64 = (0..h).map(|j| x[token * h + j] * w[(expert * h + j) * h + i % h]).sum();
                    factor[token * k + c] * sum
                })
                .sum()
        })
        .collect();
    assert_close(&out.values(), &want, 1e-5);
}

#[test]
fn an_executor_is_used_up_unless_it_is_repeatable() {
    let bench = Bench::new();
    let (a, b) = (Dev::new(F32, &[2], &[1.0, 2.0]), Dev::new(F32, &[2], &[10.0, 20.0]));
    let (one, other) = (Dev::zeros(F32, &[2]), Dev::zeros(F32, &[2]));
    let plan = |out: &Dev| {
        let (mut size, mut executor) = (0, null_mut());
        assert_eq!(aclnnMulGetWorkspaceSize(a.raw, b.raw, out.raw, &raw mut size, &raw mut executor), 0);
        (size, executor)
    };
    let (size, executor) = plan(&one);
    assert_eq!(bench.finish(aclnnDiv, size, executor), Err(561_103), "planned for another operator");
    assert_eq!(bench.finish(aclnnMul, size, executor), Ok(()));
    assert_eq!(bench.finish(aclnnMul, size, executor), Err(561_103), "used up");
    assert_eq!(bench.finish(aclnnMul, 0, null_mut()), Err(161_001));

    let (size, executor) = plan(&one);
    assert_eq!(aclSetAclOpExecutorRepeatable(executor), 0);
    bench.finish(aclnnMul, size, executor).unwrap();
    let new = other.view.data as *mut std::ffi::c_void;
    assert_eq!(aclSetOutputTensorAddr(executor, 0, one.raw.cast_mut(), new), 0);
    assert_eq!(aclSetInputTensorAddr(executor, 1, b.raw.cast_mut(), a.view.data as *mut _), 0);
    assert_ne!(aclSetInputTensorAddr(executor, 2, b.raw.cast_mut(), new), 0, "there are two inputs");
    bench.finish(aclnnMul, size, executor).unwrap();
    assert_eq!((one.values(), other.values()), (vec![10.0, 40.0], vec![1.0, 4.0]));
    assert_eq!(aclDestroyAclOpExecutor(executor), 0);
    assert_ne!(aclDestroyAclOpExecutor(executor), 0);
}

#[test]
fn a_workspace_that_is_too_small_and_memory_of_the_host_are_found_out() {
    let bench = Bench::new();
    let (a, b, out) = (Dev::zeros(F32, &[2, 2]), Dev::zeros(F32, &[2, 2]), Dev::zeros(F32, &[2, 2]));
    let (mut size, mut executor) = (0, null_mut());
    assert_eq!(aclnnMmGetWorkspaceSize(a.raw, b.raw, out.raw, 0, &raw mut size, &raw mut executor), 0);
    assert!(size > 0);
    assert_eq!(aclnnMm(null_mut(), 0, executor, bench.stream), 161_001);
    bench.finish(aclnnMm, size, executor).unwrap();
    let host = [0f32; 4];
    let view = acl_sim::tensor::view::View::dense(host.as_ptr() as usize, F32, &[2, 2]).unwrap();
    let foreign = support::tensor(&view);
    assert_eq!(
        run!(bench, aclnnAddGetWorkspaceSize, aclnnAdd; foreign, b.raw, scalar(1.0), out.raw),
        Err(507_015)
    );
}
