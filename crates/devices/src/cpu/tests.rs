//! The device against plain arithmetic, and against itself under every way to cut the work.

mod bad_input;
mod fused;
mod graphs;
#[path = "../../../../tests/common/kernel_paths.rs"]
mod kernel_paths;
mod loading;
mod reference;
mod small_model;

use std::sync::Arc;

use updraft_core::ids::{BlockId, SlotId};
use updraft_core::step::{SequenceSpan, StepInputs};
use updraft_core::{Blocks, Tokens};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;
use updraft_kernels::team::Pinning;
use updraft_kernels::tensor::ElementType;

use super::{CpuDevice, CpuModel, CpuOptions, LoadOptions};
use crate::Device;
use small_model::{Kind, Tensors};

const BLOCK_SIZE: usize = 16;
const BLOCKS: usize = 64;

fn options(threads: usize, kv: KvType) -> CpuOptions {
    CpuOptions {
        threads,
        pinning: Pinning::Anywhere,
        blocks: Blocks(BLOCKS as u32),
        block_size: Tokens(BLOCK_SIZE as u32),
        kv,
        max_rows: 256,
        max_logit_rows: 256,
    }
}

fn load(kind: Kind, tensors: &Tensors, precision: Precision) -> Arc<CpuModel> {
    let options = LoadOptions { precision, threads: 2 };
    CpuModel::load(small_model::program(kind), tensors, &options, &|_| ()).unwrap()
}

/// A sequence with its blocks.
#[derive(Clone)]
struct Sequence {
    tokens: Vec<u32>,
    table: Vec<u32>,
}

impl Sequence {
    fn new(seed: u32, len: usize, first_block: u32) -> Self {
        let tokens = (0..len as u32).map(|i| (i * 7 + seed * 13 + i * i % 11) % small_model::VOCAB);
        let blocks = len.div_ceil(BLOCK_SIZE) as u32;
        // Backwards, so that nothing can rely on neighbouring blocks.
        Self { tokens: tokens.collect(), table: (first_block..first_block + blocks).rev().collect() }
    }
}

/// Inputs that compute `count` tokens of each sequence from `start` on, with logits for every row.
fn inputs(parts: &[(&Sequence, usize, usize)]) -> StepInputs {
    let mut inputs = StepInputs::default();
    for (sequence, start, count) in parts {
        inputs.spans.push(SequenceSpan {
            row_start: inputs.rows() as u32,
            row_count: *count as u32,
            context: (start + count) as u32,
            table_start: inputs.block_tables.len() as u32,
            table_len: sequence.table.len() as u32,
        });
        inputs.block_tables.extend(sequence.table.iter().map(|block| BlockId(*block)));
        for position in *start..start + count {
            let block = sequence.table[position / BLOCK_SIZE] as usize;
            inputs.token_ids.push(sequence.tokens[position]);
            inputs.positions.push(position as u32);
            inputs.slots.push(SlotId((block * BLOCK_SIZE + position % BLOCK_SIZE) as u32));
        }
    }
    inputs.logit_rows = (0..inputs.rows() as u32).collect();
    inputs
}

/// Runs one step and returns the logits of all its rows.
fn step(device: &mut CpuDevice, parts: &[(&Sequence, usize, usize)]) -> Vec<Vec<f32>> {
    let inputs = inputs(parts);
    device.run(&inputs).unwrap();
    (0..inputs.rows()).map(|row| device.logits(row).to_vec()).collect()
}

/// All logits of a sequence, computed in chunks of one size.
fn in_chunks(device: &mut CpuDevice, sequence: &Sequence, chunk: usize) -> Vec<Vec<f32>> {
    let mut logits = Vec::new();
    while logits.len() < sequence.tokens.len() {
        let count = chunk.min(sequence.tokens.len() - logits.len());
        logits.extend(step(device, &[(sequence, logits.len(), count)]));
    }
    logits
}

#[test]
fn logits_are_those_of_plain_arithmetic() {
    for kind in Kind::ALL {
        let tensors = small_model::tensors(kind, ElementType::F32);
        let model = load(kind, &tensors, Precision::Float32);
        let sequence = Sequence::new(1, 50, 3);
        let expected = reference::logits(model.program(), &tensors, &sequence.tokens);
        let mut device = CpuDevice::new(model, &options(2, KvType::F32)).unwrap();
        let actual = step(&mut device, &[(&sequence, 0, 50)]);
        let largest = expected.iter().flatten().fold(0.0, |m: f64, x| if x.abs() > m { x.abs() } else { m });
        assert!(largest > 0.5, "logits too small to compare: {largest}");
        for (row, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
            for (a, e) in actual.iter().zip(expected) {
                assert!((f64::from(*a) - e).abs() < 2e-5 * largest, "{kind:?} row {row}: {a} is not {e}");
            }
        }
    }
}

#[test]
fn no_cut_of_the_work_changes_a_bit() {
    let storages = [
        (ElementType::F32, Precision::Float32, KvType::F32),
        (ElementType::Q8_0, Precision::Auto, KvType::Bf16),
        (ElementType::BF16, Precision::Auto, KvType::F16),
        (ElementType::Q8_0, Precision::Float32, KvType::F32),
        (ElementType::Q8_0, Precision::Auto, KvType::Int8),
    ];
    for (kind, (element, precision, kv)) in Kind::ALL.into_iter().cycle().zip(storages) {
        let model = load(kind, &small_model::tensors(kind, element), precision);
        let sequence = Sequence::new(5, 83, 10);
        let mut alone = CpuDevice::new(Arc::clone(&model), &options(1, kv)).unwrap();
        let expected = step(&mut alone, &[(&sequence, 0, 83)]);
        for threads in 1..=3 {
            let mut device = CpuDevice::new(Arc::clone(&model), &options(threads, kv)).unwrap();
            for chunk in [1, 3, 16, 64, 83] {
                let chunked = in_chunks(&mut device, &sequence, chunk);
                assert!(chunked == expected, "{kind:?} {element} chunk {chunk} on {threads} threads");
            }
            let others = [Sequence::new(6, 40, 20), Sequence::new(7, 9, 30), Sequence::new(8, 33, 40)];
            step(&mut device, &[(&others[0], 0, 39), (&others[2], 0, 20)]);
            let batch = [(&others[0], 39, 1), (&sequence, 0, 60), (&others[1], 0, 9), (&others[2], 20, 13)];
            let batched = step(&mut device, &batch);
            assert!(batched[1..61] == expected[..60], "{kind:?} {element} batched on {threads} threads");
            let batch = [(&sequence, 60, 23), (&others[1], 8, 1)];
            let batched = step(&mut device, &batch);
            assert!(batched[..23] == expected[60..], "{kind:?} {element} batched on {threads} threads");
        }
    }
}

#[test]
fn sequences_may_share_a_prefix_in_the_cache() {
    let kind = Kind::ALL[0];
    let model = load(kind, &small_model::tensors(kind, ElementType::F32), Precision::Float32);
    let mut device = CpuDevice::new(model, &options(2, KvType::F32)).unwrap();
    let first = Sequence::new(1, 48, 0);
    let mut second = first.clone();
    second.table[2] = 9;
    second.tokens[40] += 1;
    let expected = step(&mut device, &[(&first, 0, 48)]);
    let shared = step(&mut device, &[(&second, 32, 16)]);
    assert!(shared[..8] == expected[32..40]);
    assert!(shared[8] != expected[40]);
}

#[test]
fn only_rows_that_are_asked_for_have_logits() {
    let kind = Kind::ALL[0];
    let model = load(kind, &small_model::tensors(kind, ElementType::F32), Precision::Float32);
    let mut device = CpuDevice::new(model, &options(2, KvType::F32)).unwrap();
    let sequence = Sequence::new(1, 200, 0);
    // Many rows first: their memory is given back, and small steps go on as before.
    let all = step(&mut device, &[(&sequence, 0, 200)]);
    let mut some = inputs(&[(&sequence, 100, 50)]);
    some.logit_rows = vec![7, 49];
    device.run(&some).unwrap();
    assert!(device.logits(0) == all[107] && device.logits(1) == all[149]);
    some.logit_rows.clear();
    device.run(&some).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.logits(0).len())).is_err());
    device.run(&StepInputs::default()).unwrap();
    assert_eq!(device.properties().vocab, small_model::VOCAB as usize);
}

#[test]
fn with_every_other_instruction_set() {
    kernel_paths::run_again_on_each("with_every_other_instruction_set", |_| &["cpu::tests::"]);
}
