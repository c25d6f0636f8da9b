//! What replaying a step saves over running it operation by operation: host time a step and tokens a second.
//!
//! `cargo bench --bench graphs -- [MODEL] [--ascend] [--rounds N]`. MODEL is a checkpoint folder or .gguf file; without one a small
//! fixture is used. `--ascend` measures device 0 of the CANN that the environment points to (the simulated one included)
//! as well as the CPU. Eager and replayed steps alternate, so that a busy machine disturbs both alike.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark that cannot go on ends; its output is its purpose"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::program::Program;
use updraft_core::program::{Level, optimise};
use updraft_core::step::{SequenceSpan, StepInputs};
use updraft_core::{BlockId, Blocks, SlotId, Tokens};
use updraft_devices::Device;
use updraft_devices::ascend::{AscendDevice, AscendOptions, Compute, Library, SearchPath};
use updraft_devices::cpu::{CpuDevice, CpuModel, CpuOptions, LoadOptions};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;
use updraft_kernels::team::Pinning;
use updraft_models::{Checkpoint, OpenOptions};

/// Decoding sequences in a step.
const BATCHES: [u32; 3] = [1, 8, 32];
/// Tokens each sequence has when measuring begins.
const CONTEXT: u32 = 64;
/// Tokens in a block.
const BLOCK_SIZE: u32 = 128;
/// Pairs of an eager and a replayed step, unless said otherwise.
const ROUNDS: u32 = 60;
/// With more, sequences would outgrow their two blocks.
const ROUNDS_MAX: u32 = 180;
/// Steps before measuring.
const WARM_UP: u32 = 4;
/// Rows of a step, at most.
const MAX_ROWS: usize = 64;
/// How long a step may take.
const DEADLINE: Duration = Duration::from_secs(60);

struct Arguments {
    model: PathBuf,
    ascend: bool,
    rounds: u32,
}

/// Medians of one way to run a step.
#[derive(Clone, Copy)]
struct Figures {
    host: Duration,
    step: Duration,
}

fn main() {
    let arguments = arguments();
    let checkpoint = Checkpoint::open(&arguments.model, &OpenOptions::default()).expect("the model opens");
    println!("model: {}", checkpoint.config.architecture);
    println!();
    println!(
        "| device | sequences | host time eager | host time replayed | ratio | tokens/s eager | tokens/s replayed |"
    );
    println!("|---|---|---|---|---|---|---|");
    measure(&mut cpu(&checkpoint, arguments.rounds), arguments.rounds);
    if arguments.ascend {
        measure(&mut ascend(&checkpoint, arguments.rounds), arguments.rounds);
    }
}

fn arguments() -> Arguments {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/qwen3-bf16");
    let mut found = Arguments { model: fixture, ascend: false, rounds: ROUNDS };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--ascend" => found.ascend = true,
            "--rounds" => {
                let rounds = words.next().and_then(|rounds| rounds.parse().ok());
                found.rounds = rounds
                    .filter(|rounds| (1..=ROUNDS_MAX).contains(rounds))
                    .expect("--rounds takes 1 to 180");
            }
            // What cargo passes to every benchmark.
            "--bench" => {}
            model => found.model = PathBuf::from(model),
        }
    }
    found
}

fn cpu(checkpoint: &Checkpoint, rounds: u32) -> CpuDevice {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let load = LoadOptions { precision: Precision::Auto, threads };
    let model = CpuModel::load(program(checkpoint), checkpoint, &load, &|_| {}).expect("the weights load");
    let options = CpuOptions {
        threads,
        pinning: Pinning::Anywhere,
        blocks: blocks(rounds),
        block_size: Tokens(BLOCK_SIZE),
        kv: KvType::Bf16,
        max_rows: MAX_ROWS,
        max_logit_rows: MAX_ROWS,
    };
    CpuDevice::new(model, &options).expect("the CPU can be used")
}

fn ascend(checkpoint: &Checkpoint, rounds: u32) -> AscendDevice {
    let library = Library::load(&SearchPath::from_environment(None)).expect("CANN is installed");
    let options = AscendOptions {
        ordinal: 0,
        compute: Compute::Bf16,
        blocks: blocks(rounds),
        block_size: Tokens(BLOCK_SIZE),
        max_rows: MAX_ROWS,
        max_logit_rows: MAX_ROWS,
        max_sequences: MAX_ROWS,
        max_model_len: 2 * BLOCK_SIZE as usize,
        avoid: Vec::new(),
    };
    let program = program(checkpoint);
    AscendDevice::open(&library, &program, checkpoint, &options, &|_| {}).expect("the device opens")
}

/// The program as it is served.
fn program(checkpoint: &Checkpoint) -> Program {
    optimise(&checkpoint.program, Level::Full).0
}

fn blocks(rounds: u32) -> Blocks {
    let tokens = CONTEXT + rounds + WARM_UP;
    Blocks(tokens.div_ceil(BLOCK_SIZE) * BATCHES.into_iter().max().unwrap_or(1))
}

fn measure(device: &mut dyn Device, rounds: u32) {
    for rows in BATCHES {
        let key = GraphKey { kind: GraphKind::Decode, rows };
        device.stream().capture(key).expect("the device captures a decode step");
        let (mut eager, mut replayed) = (Vec::new(), Vec::new());
        for round in 0..rounds + WARM_UP {
            // Both run the same step: what it writes is what it wrote before.
            let inputs = decode(rows, CONTEXT + round);
            let first = step(device, None, &inputs);
            let second = step(device, Some(key), &inputs);
            if round >= WARM_UP {
                eager.push(first);
                replayed.push(second);
            }
        }
        let (eager, replayed) = (medians(&eager), medians(&replayed));
        let rate = |figures: Figures| f64::from(rows) / figures.step.as_secs_f64();
        println!(
            "| {} | {rows} | {:.1} us | {:.1} us | {:.2} | {:.1} | {:.1} |",
            device.properties().name,
            eager.host.as_secs_f64() * 1e6,
            replayed.host.as_secs_f64() * 1e6,
            replayed.host.as_secs_f64() / eager.host.as_secs_f64(),
            rate(eager),
            rate(replayed),
        );
        device.stream().forget(key);
    }
}

fn step(device: &mut dyn Device, graph: Option<GraphKey>, inputs: &StepInputs) -> Figures {
    let started = Instant::now();
    let stream = device.stream();
    match graph {
        None => stream.enqueue(inputs).expect("the step starts"),
        Some(key) => stream.replay(key, inputs).expect("the step starts"),
    }
    let launched = started.elapsed();
    stream.synchronize(DEADLINE).expect("the step ends");
    Figures { step: started.elapsed(), host: device.host_time().unwrap_or(launched) }
}

fn medians(figures: &[Figures]) -> Figures {
    let median = |of: fn(&Figures) -> Duration| {
        let mut times: Vec<Duration> = figures.iter().map(of).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    Figures { host: median(|figures| figures.host), step: median(|figures| figures.step) }
}

/// A step in which `rows` sequences decode the token at `position`.
fn decode(rows: u32, position: u32) -> StepInputs {
    let mut inputs = StepInputs::default();
    let table_len = (position + 1).div_ceil(BLOCK_SIZE);
    for row in 0..rows {
        let table = (0..table_len).map(|block| block * rows + row);
        let slot = (position / BLOCK_SIZE * rows + row) * BLOCK_SIZE + position % BLOCK_SIZE;
        inputs.token_ids.push(7 + row);
        inputs.positions.push(position);
        inputs.slots.push(SlotId(slot));
        inputs.spans.push(SequenceSpan {
            row_start: row,
            row_count: 1,
            context: position + 1,
            table_start: inputs.block_tables.len() as u32,
            table_len,
        });
        inputs.block_tables.extend(table.map(BlockId));
        inputs.logit_rows.push(row);
    }
    inputs
}
