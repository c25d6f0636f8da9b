//! Steps without graphs: their numbers, and what inputs are refused.

use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::program::{Level, optimise};
use updraft_core::{Blocks, Bytes, Tokens};
use updraft_devices::ascend::{AscendOptions, Compute, footprint};
use updraft_devices::cpu::{CpuDevice, CpuModel, CpuOptions, LoadOptions};
use updraft_devices::{Device, DeviceError};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;
use updraft_kernels::team::Pinning;

use super::models::{self, Kind, Tensors};
use super::support::{BLOCK_SIZE, BLOCKS, Part, Sequence, device, inputs, logits, open, options, step};

fn expected(kind: Kind, tensors: &Tensors, parts: &[Part<'_>]) -> Vec<Vec<f32>> {
    let load = LoadOptions { precision: Precision::Float32, threads: 1 };
    let model = CpuModel::load(models::program(kind), tensors, &load, &|_| ()).unwrap();
    let options = CpuOptions {
        threads: 1,
        pinning: Pinning::Anywhere,
        blocks: Blocks(BLOCKS as u32),
        block_size: Tokens(BLOCK_SIZE as u32),
        kv: KvType::F32,
        max_rows: 128,
        max_logit_rows: 128,
    };
    step(&mut CpuDevice::new(model, &options).unwrap(), parts)
}

/// The largest difference, as a share of the largest logit.
fn difference(actual: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    assert_eq!(actual.len(), expected.len());
    let largest = expected.iter().flatten().fold(0.0_f32, |most, value| most.max(value.abs()));
    assert!(largest > 0.5, "logits too small to compare: {largest}");
    let pairs = actual.iter().flatten().zip(expected.iter().flatten());
    pairs.fold(0.0_f32, |most, (a, e)| if a.is_finite() { most.max((a - e).abs()) } else { f32::MAX })
        / largest
}

#[test]
fn logits_are_those_of_the_cpu_within_the_precision_of_the_type() {
    for kind in Kind::ALL {
        let tensors = models::tensors(kind);
        let sequence = Sequence::new(1, 50, 3);
        let expected = expected(kind, &tensors, &[(&sequence, 0, 50)]);
        for (compute, within) in [(Compute::Bf16, 0.06), (Compute::F16, 0.008)] {
            let options = AscendOptions { compute, ..options() };
            let mut device = open(&models::program(kind), &tensors, &options).unwrap();
            let apart = difference(&step(&mut device, &[(&sequence, 0, 50)]), &expected);
            assert!(apart < within, "{} in {compute:?}: {apart}", kind.name);
        }
    }
}

#[test]
fn decoding_goes_on_from_the_cache() {
    for kind in Kind::ALL {
        let tensors = models::tensors(kind);
        let sequence = Sequence::new(2, 40, 7);
        let expected = expected(kind, &tensors, &[(&sequence, 0, 40)]);
        let mut device = device(kind);
        let mut actual = step(&mut device, &[(&sequence, 0, 17)]);
        actual.extend(step(&mut device, &[(&sequence, 17, 13)]));
        for position in 30..40 {
            actual.extend(step(&mut device, &[(&sequence, position, 1)]));
        }
        let apart = difference(&actual, &expected);
        assert!(apart < 0.06, "{}: {apart}", kind.name);
    }
}

#[test]
fn a_sequence_in_a_batch_has_the_logits_that_it_has_alone() {
    for kind in Kind::ALL {
        let mut device = device(kind);
        let sequence = Sequence::new(5, 60, 10);
        let alone = step(&mut device, &[(&sequence, 0, 60)]);
        let others = [Sequence::new(6, 40, 20), Sequence::new(7, 9, 30), Sequence::new(8, 33, 40)];
        step(&mut device, &[(&others[0], 0, 39), (&others[2], 0, 20)]);
        let parts = [(&others[0], 39, 1), (&sequence, 0, 50), (&others[1], 0, 9), (&others[2], 20, 13)];
        let batched = step(&mut device, &parts);
        assert!(batched[1..51] == alone[..50], "{}", kind.name);
        let batched = step(&mut device, &[(&sequence, 50, 10), (&others[1], 8, 1)]);
        assert!(batched[..10] == alone[50..], "{}", kind.name);
    }
}

#[test]
fn a_fused_program_computes_the_same() {
    for kind in [Kind::LLAMA, Kind::QWEN3] {
        let tensors = models::tensors(kind);
        let (fused, _) = optimise(&models::program(kind), Level::Full);
        assert_ne!(fused, models::program(kind));
        let sequence = Sequence::new(3, 30, 5);
        let plain = step(&mut device(kind), &[(&sequence, 0, 30)]);
        let mut device = open(&fused, &tensors, &options()).unwrap();
        let apart = difference(&step(&mut device, &[(&sequence, 0, 30)]), &plain);
        assert!(apart < 0.03, "{}: {apart}", kind.name);
    }
}

#[test]
fn older_operators_compute_the_same() {
    let sequence = Sequence::new(3, 30, 5);
    for kind in Kind::ALL {
        let plain = step(&mut device(kind), &[(&sequence, 0, 30)]);
        let old = ["ScatterPaKvCache", "ApplyRotaryPosEmbV2", "FusedInferAttentionScoreV3", "IndexSelect"];
        let bare = ["FusedInferAttentionScoreV2", "ApplyRotaryPosEmb", "SwiGlu", "Addmm"]
            .iter()
            .chain(&old)
            .copied();
        for avoid in [old.to_vec(), bare.collect()] {
            let avoid = avoid.into_iter().map(|name| format!("aclnn{name}")).collect();
            let options = AscendOptions { avoid, ..options() };
            let mut device = open(&models::program(kind), &models::tensors(kind), &options).unwrap();
            let apart = difference(&step(&mut device, &[(&sequence, 0, 30)]), &plain);
            assert!(apart < 0.03, "{} without {:?}: {apart}", kind.name, options.avoid);
        }
    }
}

#[test]
fn only_rows_that_are_asked_for_have_logits() {
    let mut device = device(Kind::LLAMA);
    let sequence = Sequence::new(1, 20, 0);
    let all = step(&mut device, &[(&sequence, 0, 20)]);
    let mut some = inputs(&[(&sequence, 0, 20)]);
    some.logit_rows = vec![3, 19];
    device.run(&some).unwrap();
    assert!(logits(&device, 2) == [all[3].clone(), all[19].clone()]);
    some.logit_rows.clear();
    device.run(&some).unwrap();
    step(&mut device, &[(&sequence, 19, 1)]);
}

#[test]
fn inputs_that_make_no_sense_are_refused_and_the_device_goes_on() {
    let mut device = device(Kind::LLAMA);
    let sequence = Sequence::new(1, 20, 0);
    let mut wrong = inputs(&[(&sequence, 0, 20)]);
    wrong.token_ids[3] = models::VOCAB;
    assert!(matches!(device.run(&wrong), Err(DeviceError::OutOfRange { row: 3, .. })));
    let many: Vec<_> = (0..17).map(|at| Sequence::new(at, 1, at)).collect();
    let parts: Vec<Part<'_>> = many.iter().map(|sequence| (sequence, 0, 1)).collect();
    let refused = device.run(&inputs(&parts));
    assert!(matches!(refused, Err(DeviceError::TooMany { what: "sequences", actual: 17, max: 16 })));
    step(&mut device, &[(&sequence, 0, 20)]);
}

#[test]
fn every_operation_that_is_handed_over_is_a_sign_of_life() {
    let tensors = models::tensors(Kind::LLAMA);
    let mut device = device(Kind::LLAMA);
    let progress = device.progress();
    assert!(
        progress.reading() as usize >= tensors.tensors.len() - 4,
        "one for each weight, some of which are joined"
    );
    let sequence = Sequence::new(1, 20, 0);
    let inputs = inputs(&[(&sequence, 0, 20)]);
    let before = progress.reading();
    device.stream().enqueue(&inputs).unwrap();
    assert!(progress.reading() > before + 20, "{} since {before}", progress.reading());
    device.stream().synchronize(std::time::Duration::from_secs(60)).unwrap();
    for kind in [GraphKind::Decode, GraphKind::Piecewise] {
        let key = GraphKey { kind, rows: 1 };
        let before = progress.reading();
        device.stream().capture(key).unwrap();
        assert!(progress.reading() > before + 40, "planned and recorded");
        let (before, one) = (progress.reading(), super::support::inputs(&[(&sequence, 19, 1)]));
        device.stream().replay(key, &one).unwrap();
        // The graph or its pieces, and two attentions.
        assert!(progress.reading() >= before + 3, "{kind:?}");
        device.stream().synchronize(std::time::Duration::from_secs(60)).unwrap();
    }
}

#[test]
fn a_step_on_the_stream_keeps_the_next_one_out() {
    let mut device = device(Kind::LLAMA);
    let sequence = Sequence::new(1, 20, 0);
    let inputs = inputs(&[(&sequence, 0, 20)]);
    device.stream().enqueue(&inputs).unwrap();
    let Err(DeviceError::Fault(fault)) = device.stream().enqueue(&inputs) else { panic!("taken") };
    assert!(fault.to_string().contains("synchronise first"), "{fault}");
    device.stream().synchronize(std::time::Duration::from_secs(60)).unwrap();
    device.run(&inputs).unwrap();
}

#[test]
fn memory_is_told_by_what_it_is_for() {
    let device = device(Kind::LLAMA);
    let memory = device.memory();
    // Two layers, keys and values, two heads of 64 values, two bytes; a slot more for each row of the largest graph.
    let kv = 2 * 2 * 2 * 64 * 2 * (BLOCKS * BLOCK_SIZE + options().max_rows) as u64;
    assert!(memory.kv >= Bytes(kv) && memory.kv < Bytes(kv + 4096), "{memory:?}");
    assert!(memory.weights.0 > 100_000 && memory.activations.0 > 0, "{memory:?}");
    assert_eq!(device.properties().name, "ascend:0");
    // Pieces are padded.
    let told = footprint(&models::program(Kind::LLAMA), &options()).unwrap();
    for (told, taken) in [(told.weights, memory.weights), (told.kv, memory.kv)] {
        assert!(told <= taken && taken.0 < told.0 + told.0 / 20 + 4096, "{told:?} and {taken:?}");
    }
    assert!(told.activations <= memory.activations, "{told:?} and {memory:?}");
}
