//! What is fused, what is not, and what the report says.

use super::super::{KvLayerSpec, RopeId, Rows, WeightRole};
use super::*;

const HIDDEN: BufferId = BufferId(0);
const BRANCH: BufferId = BufferId(1);
const NORMED: BufferId = BufferId(2);
const QUERY: BufferId = BufferId(3);
const KEY: BufferId = BufferId(4);
const VALUE: BufferId = BufferId(5);
const LAST: BufferId = BufferId(6);
const LOGITS: BufferId = BufferId(7);

fn add(into: BufferId, input: BufferId) -> Op {
    Op::Add { into, input }
}

fn norm(input: BufferId, out: BufferId) -> Op {
    Op::RmsNorm { input, weight: WeightId(1), offset: 0.0, epsilon: 1e-5, out }
}

fn matmul(input: BufferId, out: BufferId) -> Op {
    Op::MatMul { input, weight: WeightId(0), bias: None, out }
}

fn rope(buffer: BufferId) -> Op {
    Op::Rope { buffer, head_dim: 4, rope: RopeId(0) }
}

/// Everything is read in the end, so that nothing is dead.
fn program(ops: Vec<Op>) -> Program {
    let mut program = Program { vocab: 8, ..Program::default() };
    for name in ["hidden", "branch", "normed", "query", "key", "value"] {
        program.buffer(name, 8, Rows::Tokens);
    }
    program.buffer("last", 8, Rows::Logits);
    let logits = program.buffer("logits", 8, Rows::Logits);
    program.weight("matrix", &[8, 8], WeightRole::Matrix);
    program.weight("norm", &[8], WeightRole::Vector);
    program.kv_layers = vec![KvLayerSpec { kv_heads: 2, head_dim: 4 }];
    program.ops = ops;
    program.ops.extend([BRANCH, NORMED, QUERY, KEY, VALUE].map(|input| add(HIDDEN, input)));
    program.ops.push(Op::TakeLogitRows { input: HIDDEN, out: LAST });
    program.ops.push(matmul(LAST, LOGITS));
    program.logits = Some(logits);
    program
}

fn fused(ops: Vec<Op>, level: Level) -> (Vec<Op>, Report) {
    let (program, report) = optimise(&program(ops), level);
    let tail = program.ops.len() - 7;
    (program.ops[..tail].to_vec(), report)
}

#[test]
fn fuses_a_sum_with_the_norm_behind_it() {
    let (ops, report) = fused(vec![add(HIDDEN, BRANCH), norm(HIDDEN, NORMED)], Level::Norms);
    let expected = Op::AddRmsNorm {
        into: HIDDEN,
        input: BRANCH,
        weight: WeightId(1),
        offset: 0.0,
        epsilon: 1e-5,
        out: NORMED,
    };
    assert_eq!(ops[0], expected);
    assert_eq!(report.fusions[0].1, Outcome::Done { fused: 1, left: 0 });
    assert_eq!(report.fusions[1].1, Outcome::NotAsked);
}

#[test]
fn fuses_past_what_has_nothing_to_do_with_it() {
    let (ops, _) = fused(vec![add(HIDDEN, BRANCH), rope(QUERY), norm(HIDDEN, NORMED)], Level::Norms);
    assert!(matches!(ops[..2], [Op::Rope { .. }, Op::AddRmsNorm { .. }]));
}

#[test]
fn leaves_a_sum_alone_that_somebody_needs_before_the_norm() {
    for between in [matmul(HIDDEN, QUERY), matmul(QUERY, BRANCH)] {
        let ops = vec![add(HIDDEN, BRANCH), between, norm(HIDDEN, NORMED)];
        let (after, report) = fused(ops.clone(), Level::Norms);
        assert_eq!(after, ops);
        assert_eq!(report.fusions[0].1, Outcome::Done { fused: 0, left: 1 });
    }
    // Here the norm's result would lie where the sum still reads.
    let ops = vec![add(HIDDEN, BRANCH), norm(HIDDEN, BRANCH)];
    assert_eq!(fused(ops.clone(), Level::Norms).0, ops);
}

#[test]
fn fuses_rotations_with_the_write() {
    let write = Op::WriteKv { layer: 0, key: KEY, value: VALUE };
    let (ops, report) = fused(vec![rope(QUERY), rope(KEY), write.clone()], Level::Full);
    let whole =
        Op::RopeWriteKv { query: QUERY, key: KEY, value: VALUE, head_dim: 4, rope: RopeId(0), layer: 0 };
    assert_eq!(ops[0], whole);
    assert_eq!(report.fusions[1].1, Outcome::Done { fused: 1, left: 0 });
    let (ops, _) = fused(vec![rope(KEY), rope(QUERY), matmul(HIDDEN, VALUE), write.clone()], Level::Full);
    assert_eq!(ops[1], whole);
    // Neither a query that is used before, nor one turned by another table, nor a key without rotation.
    let other = Op::Rope { buffer: QUERY, head_dim: 4, rope: RopeId(1) };
    for before in [
        vec![rope(QUERY), matmul(QUERY, BRANCH), rope(KEY)],
        vec![other, rope(KEY)],
        vec![rope(KEY), matmul(KEY, BRANCH), rope(QUERY)],
        vec![rope(QUERY), matmul(BRANCH, KEY)],
    ] {
        let ops: Vec<Op> = before.into_iter().chain([write.clone()]).collect();
        assert_eq!(fused(ops.clone(), Level::Full).0, ops);
    }
    assert_eq!(fused(vec![rope(QUERY), rope(KEY), write], Level::Norms).0.len(), 3);
}

#[test]
fn drops_what_nobody_reads() {
    let mut lazy = program(Vec::new());
    // Overwritten before anybody reads it; then never read.
    lazy.ops.splice(0..0, [matmul(HIDDEN, QUERY), norm(BRANCH, QUERY)]);
    lazy.weight("never", &[3], WeightRole::Vector);
    lazy.ops.retain(|op| *op != add(HIDDEN, KEY));
    lazy.ops.push(rope(VALUE));
    lazy.ops.push(matmul(HIDDEN, KEY));
    let (after, report) = optimise(&lazy, Level::Norms);
    assert_eq!(report.dead, 3);
    assert_eq!(after.ops.len(), lazy.ops.len() - 3);
    assert_eq!(report.buffers, (8, 7));
    assert!(after.buffers.iter().all(|buffer| buffer.name != "key"));
    assert_eq!(after.weights.iter().map(|weight| &weight.name).collect::<Vec<_>>(), ["matrix", "norm"]);
    let logits = after.logits.and_then(|logits| after.buffers.get(logits.0 as usize));
    assert_eq!(logits.map(|logits| logits.name.as_str()), Some("logits"));
    let (same, report) = optimise(&lazy, Level::Off);
    assert_eq!((same, report.dead), (lazy, 0));
}

#[test]
fn keeps_what_goes_into_the_cache() {
    let ops =
        vec![matmul(HIDDEN, KEY), matmul(HIDDEN, VALUE), Op::WriteKv { layer: 0, key: KEY, value: VALUE }];
    let mut program = program(ops.clone());
    program.ops.retain(|op| *op != add(HIDDEN, KEY) && *op != add(HIDDEN, VALUE));
    let (after, _) = optimise(&program, Level::Norms);
    assert_eq!(after.ops.len(), program.ops.len());
}

#[test]
fn the_report_says_what_was_done_and_what_could_not_be() {
    let (_, report) = fused(vec![add(HIDDEN, BRANCH), norm(HIDDEN, NORMED)], Level::Full);
    let text = report.to_string();
    assert!(text.contains("9 -> 8 operations"), "{text}");
    assert!(text.contains("add+norm: 1 fused"), "{text}");
    assert!(text.contains("norm+quantise: nothing to act on"), "{text}");
}
