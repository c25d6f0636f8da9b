//! Whatever an optimiser does, nobody can tell by the results: random programs give the same logits and leave
//! the same keys and values, bit for bit, before and after.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is a test")]

#[path = "optimiser/interpreter.rs"]
mod interpreter;

use interpreter::{Step, run};
use proptest::prelude::*;
use updraft_core::program::{
    Activation, BufferId, Fusion, KvLayerSpec, Level, Op, Outcome, Program, RopeId, RopePairing, RopeSpec,
    Rows, WeightId, WeightRole, optimise,
};

const WIDTH: u32 = 8;
const HEAD: u32 = 4;
/// Buffers with a row for each token, and for each logit row.
const WIDE: u8 = 6;
const NARROW: u8 = 3;
const LAYERS: u8 = 2;

/// A program of one instruction or a few for each entry: what, and which buffers, layers and weights.
fn program(entries: &[(u8, [u8; 4])]) -> Program {
    let mut program = Program { vocab: WIDTH, ..Program::default() };
    for at in 0..WIDE {
        program.buffer(&format!("wide {at}"), WIDTH, Rows::Tokens);
    }
    for at in 0..NARROW {
        program.buffer(&format!("narrow {at}"), WIDTH, Rows::Logits);
    }
    program.weight("table", &[32, WIDTH], WeightRole::Embedding);
    program.weight("matrix a", &[WIDTH, WIDTH], WeightRole::Matrix);
    program.weight("matrix b", &[WIDTH, WIDTH], WeightRole::Matrix);
    program.weight("vector a", &[WIDTH], WeightRole::Vector);
    program.weight("vector b", &[WIDTH], WeightRole::Vector);
    program.weight("head vector", &[HEAD], WeightRole::Vector);
    for frequency in [1.0, 0.5] {
        let inverse_frequencies = vec![frequency, frequency / 8.0];
        let pairing = RopePairing::Halves;
        program.ropes.push(RopeSpec { inverse_frequencies, factor: 1.0, pairing, max_positions: 64 });
    }
    program.kv_layers = vec![KvLayerSpec { kv_heads: WIDTH / HEAD, head_dim: HEAD }; LAYERS.into()];
    for (what, with) in entries {
        push(&mut program, *what, *with);
    }
    // Most of what was computed can be seen in the end.
    program.ops.extend((1..WIDE - 1).map(|at| Op::Add { into: BufferId(0), input: BufferId(at.into()) }));
    let last = BufferId((WIDE + NARROW - 1).into());
    program.ops.push(Op::TakeLogitRows { input: BufferId(0), out: last });
    let logits = program.buffer("logits", WIDTH, Rows::Logits);
    program.ops.push(Op::Add { into: BufferId(last.0 - 1), input: last });
    program.ops.push(Op::MatMul {
        input: BufferId(last.0 - 1),
        weight: WeightId(1),
        bias: None,
        out: logits,
    });
    program.logits = Some(logits);
    program
}

fn push(program: &mut Program, what: u8, [a, b, c, d]: [u8; 4]) {
    // Different ones, of the same kind of rows.
    let narrow = d % 4 == 0;
    let (first, count) = if narrow { (WIDE, NARROW) } else { (0, WIDE) };
    let any = |step: u8| BufferId((first + (a + step) % count).into());
    let (x, y, z) = (any(0), any(1 + b % (count - 2)), any(count - 1));
    let wide = |step: u8| BufferId(((a + step) % WIDE).into());
    let (p, q, r) = (wide(0), wide(1 + b % 2), wide(3 + c % 2));
    let (layer, rope) = (u32::from(c % LAYERS), RopeId(u32::from(b % 2)));
    let (matrix, vector) = (WeightId(1 + u32::from(c % 2)), WeightId(3 + u32::from(c % 2)));
    let norm = |input, out| Op::RmsNorm { input, weight: vector, offset: 0.5, epsilon: 1e-5, out };
    let product = |input, out| Op::MatMul { input, weight: matrix, bias: None, out };
    let turn = |buffer| Op::Rope { buffer, head_dim: HEAD, rope };
    let ops = match what {
        0 => vec![Op::Embed { table: WeightId(0), out: p, scale: 1.5 }],
        1 => vec![norm(x, y)],
        2 => {
            vec![Op::HeadNorm { buffer: x, head_dim: HEAD, weight: WeightId(5), offset: 0.0, epsilon: 1e-5 }]
        }
        3 => vec![Op::MatMul { input: x, weight: matrix, bias: (d % 3 == 0).then_some(vector), out: y }],
        4 => vec![turn(p)],
        5 => vec![Op::WriteKv { layer, key: p, value: q }],
        6 => vec![Op::Attention { layer, query: p, out: q, heads: WIDTH / HEAD, scale: 0.5, window: None }],
        7 => vec![Op::Gate { gate: x, up: y, out: z, activation: Activation::Silu }],
        8 => vec![Op::Add { into: x, input: y }],
        9 => vec![Op::TakeLogitRows { input: p, out: BufferId((WIDE + b % NARROW).into()) }],
        // What models do, whole or with something in the middle.
        10 => vec![Op::Add { into: x, input: y }, norm(x, if d % 5 == 0 { y } else { z })],
        11 => vec![Op::Add { into: x, input: y }, Op::Add { into: z, input: y }, norm(x, z)],
        // The sum is needed before the norm; what it adds is overwritten before the norm.
        12 => vec![Op::Add { into: p, input: q }, product(p, r), norm(p, wide(5))],
        13 => vec![Op::Add { into: p, input: q }, product(r, q), norm(p, wide(5))],
        14 => vec![turn(p), turn(q), Op::WriteKv { layer, key: q, value: r }],
        // Keys are needed after their rotation, before the write.
        15 => vec![turn(q), turn(p), product(p, wide(5)), Op::WriteKv { layer, key: p, value: r }],
        _ => vec![
            turn(p),
            Op::MatMul { input: r, weight: matrix, bias: None, out: wide(5) },
            turn(q),
            Op::WriteKv { layer, key: p, value: wide(5) },
            Op::Attention { layer, query: q, out: r, heads: WIDTH / HEAD, scale: 0.5, window: None },
        ],
    };
    program.ops.extend(ops);
}

fn steps() -> Vec<Step> {
    vec![vec![(3, 0), (5, 1), (7, 2)], vec![(9, 3)], vec![(11, 1), (2, 4)]]
}

fn fused(program: &Program, level: Level, fusion: Fusion) -> u32 {
    let (_, report) = optimise(program, level);
    let outcome = report.fusions.iter().find(|(of, _)| *of == fusion).unwrap().1;
    if let Outcome::Done { fused, .. } = outcome { fused } else { 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn nobody_can_tell(entries in proptest::collection::vec((0_u8..17, any::<[u8; 4]>().prop_map(
        |with| with.map(|value| value % 60))), 0..30)) {
        let before = program(&entries);
        let expected = run(&before, &steps());
        for level in [Level::Off, Level::Norms, Level::Full] {
            let (after, report) = optimise(&before, level);
            prop_assert_eq!(&run(&after, &steps()), &expected, "{} gave {:#?}", report, after.ops);
            prop_assert!(after.ops.len() <= before.ops.len());
            // There is nothing left to do, and what stands for a sequence is that sequence.
            let (again, report) = optimise(&after, level);
            prop_assert_eq!(&again.ops, &after.ops);
            prop_assert_eq!(report.dead, 0);
            let mut simple = after.clone();
            simple.ops = after.ops.iter().flat_map(Op::sequence).collect();
            prop_assert_eq!(&run(&simple, &steps()), &expected);
        }
    }
}

/// A property that holds because nothing is ever rewritten would say nothing.
#[test]
fn random_programs_are_rewritten_a_lot() {
    let mut numbers = 1_u64;
    let mut random = move |below: u64| {
        numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((numbers >> 33) % below) as u8
    };
    let (mut norms, mut ropes, mut dead) = (0, 0, 0);
    for _ in 0..300 {
        let entries: Vec<(u8, [u8; 4])> =
            (0..20).map(|_| (random(17), [random(60), random(60), random(60), random(60)])).collect();
        let program = program(&entries);
        norms += fused(&program, Level::Norms, Fusion::AddRmsNorm);
        ropes += fused(&program, Level::Full, Fusion::RopeWriteKv);
        dead += optimise(&program, Level::Full).1.dead;
    }
    assert!(norms > 100 && ropes > 300 && dead > 300, "{norms} norms, {ropes} ropes, {dead} dead");
}
