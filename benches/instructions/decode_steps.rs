//! Runs decode steps of a small model on one thread and prints the tokens: something to count instructions
//! of.
//!
//! `decode_steps MODEL STEPS`. MODEL is a checkpoint folder or a .gguf file. One sequence decodes STEPS
//! tokens, each step fed with the token before it, so no step can be left out. Instructions do not depend on
//! the machine's load, which makes them a gate that wall time cannot be; `instructions.sh` counts them.
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a program that cannot go on ends; it prints")]

use std::path::PathBuf;
use std::time::Duration;

use updraft_core::program::{Level, optimise};
use updraft_core::step::{SequenceSpan, StepInputs};
use updraft_core::{BlockId, Blocks, SlotId, Tokens};
use updraft_devices::Device;
use updraft_devices::cpu::{CpuDevice, CpuModel, CpuOptions, LoadOptions};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;
use updraft_kernels::team::Pinning;
use updraft_models::{Checkpoint, OpenOptions};

/// Tokens in a block, and blocks of the cache.
const BLOCK_SIZE: u32 = 64;
const BLOCKS: u32 = 4;
/// Steps that fit the cache.
const STEPS_MAX: u32 = BLOCK_SIZE * BLOCKS;
/// How long a step may take under an emulator.
const DEADLINE: Duration = Duration::from_secs(600);

fn main() {
    // Cargo passes this word to every benchmark.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let (Some(model), Some(steps)) = (words.next(), words.next()) else {
        println!("usage: decode_steps MODEL STEPS (see benches/instructions.sh)");
        return;
    };
    let steps = steps.parse().ok().filter(|steps| (1..=STEPS_MAX).contains(steps));
    let steps = steps.expect("STEPS is a number from 1 to 256");
    let mut device = open(&PathBuf::from(model));
    let mut token = 7;
    for position in 0..steps {
        token = step(&mut device, token, position);
        print!("{token} ");
    }
    println!();
}

fn open(model: &std::path::Path) -> CpuDevice {
    let checkpoint = Checkpoint::open(model, &OpenOptions::default()).expect("the model opens");
    let program = optimise(&checkpoint.program, Level::Full).0;
    let load = LoadOptions { precision: Precision::Auto, threads: 1 };
    let model = CpuModel::load(program, &checkpoint, &load, &|_| {}).expect("the weights load");
    let options = CpuOptions {
        threads: 1,
        pinning: Pinning::Anywhere,
        blocks: Blocks(BLOCKS),
        block_size: Tokens(BLOCK_SIZE),
        kv: KvType::Bf16,
        max_rows: 1,
        max_logit_rows: 1,
    };
    CpuDevice::new(model, &options).expect("the CPU can be used")
}

/// Decodes one token at a position; returns the likeliest next one.
fn step(device: &mut CpuDevice, token: u32, position: u32) -> u32 {
    let mut inputs = StepInputs::default();
    let table_len = position / BLOCK_SIZE + 1;
    inputs.token_ids.push(token);
    inputs.positions.push(position);
    inputs.slots.push(SlotId(position));
    inputs.spans.push(SequenceSpan {
        row_start: 0,
        row_count: 1,
        context: position + 1,
        table_start: 0,
        table_len,
    });
    inputs.block_tables.extend((0..table_len).map(BlockId));
    inputs.logit_rows.push(0);
    let stream = device.stream();
    stream.enqueue(&inputs).expect("the step starts");
    stream.synchronize(DEADLINE).expect("the step ends");
    likeliest(device.logits(0))
}

fn likeliest(logits: &[f32]) -> u32 {
    let best = (0_u32..).zip(logits).max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map_or(0, |(token, _)| token)
}
