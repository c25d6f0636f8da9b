//! How programs become stages.

use updraft_core::program::{KvLayerSpec, Op, RopePairing, RopeSpec, WeightRole};

use super::*;

/// Embed, then one layer as the families write it, then logits.
fn decoder() -> Program {
    let mut p = Program { vocab: 100, ..Program::default() };
    p.ropes.push(RopeSpec {
        inverse_frequencies: vec![1.0; 4],
        factor: 1.0,
        pairing: RopePairing::Halves,
        max_positions: 64,
    });
    p.kv_layers.push(KvLayerSpec { kv_heads: 1, head_dim: 8 });
    let table = p.weight("table", &[100, 16], WeightRole::Matrix);
    let square = p.weight("square", &[16, 16], WeightRole::Matrix);
    let narrow = p.weight("narrow", &[8, 16], WeightRole::Matrix);
    let norm = p.weight("norm", &[16], WeightRole::Vector);
    let [hidden, normed, query, attended, branch] =
        ["hidden", "normed", "query", "attended", "branch"].map(|name| p.buffer(name, 16, Rows::Tokens));
    let [key, value] = ["key", "value"].map(|name| p.buffer(name, 8, Rows::Tokens));
    let [last, last_normed] = ["last", "last normed"].map(|name| p.buffer(name, 16, Rows::Logits));
    let logits = p.buffer("logits", 100, Rows::Logits);
    let rms = |input, out| Op::RmsNorm { input, weight: norm, offset: 0.0, epsilon: 1e-5, out };
    let product = |input, weight, out| Op::MatMul { input, weight, bias: None, out };
    p.ops = vec![
        Op::Embed { table, out: hidden, scale: 1.0 },
        rms(hidden, normed),
        product(normed, square, query),
        Op::Rope { buffer: query, head_dim: 8, rope: RopeId(0) },
        product(normed, narrow, key),
        Op::Rope { buffer: key, head_dim: 8, rope: RopeId(0) },
        product(normed, narrow, value),
        Op::WriteKv { layer: 0, key, value },
        Op::Attention { layer: 0, query, out: attended, heads: 2, scale: 1.0, window: None },
        product(attended, square, branch),
        Op::Add { into: hidden, input: branch },
        Op::TakeLogitRows { input: hidden, out: last },
        rms(last, last_normed),
        product(last_normed, table, logits),
    ];
    p.logits = Some(logits);
    p
}

fn outline(stages: &Stages) -> Vec<(&'static str, usize)> {
    stages
        .order
        .iter()
        .map(|stage| match stage {
            Stage::Rows { kind: Rows::Tokens, ops } => ("token rows", ops.len()),
            Stage::Rows { kind: Rows::Logits, ops } => ("logit rows", ops.len()),
            Stage::Products(products) => ("products", products.len()),
            Stage::Attention(_) => ("attention", 1),
        })
        .collect()
}

#[test]
fn a_layer_has_as_few_barriers_as_its_data_flow_allows() {
    let stages = Stages::new(&decoder(), |_| InputForm::QUANTIZED);
    assert_eq!(
        outline(&stages),
        [
            ("token rows", 4), // angles, embedding, norm, quantising
            ("products", 3),   // query, key and value, though rotations stand between them
            ("token rows", 3), // two rotations, keys and values into the cache
            ("attention", 1),
            ("token rows", 1), // quantising
            ("products", 1),
            ("token rows", 1), // residual
            ("logit rows", 3), // picking, norm, quantising
            ("products", 1),
        ]
    );
}

#[test]
fn an_input_is_prepared_once_for_all_products_and_again_when_it_changed() {
    let mut program = decoder();
    let Op::MatMul { input, weight, .. } = program.ops[2] else { unreachable!() };
    let out = program.buffer("other", 16, Rows::Tokens);
    let branch = BufferId(4);
    // Reads the norm's output once more, then changes it and reads again.
    program.ops.push(Op::MatMul { input, weight, bias: None, out });
    program.ops.push(Op::Add { into: input, input: branch });
    program.ops.push(Op::MatMul { input, weight, bias: None, out });
    let stages = Stages::new(&program, |_| InputForm::QUANTIZED);
    let prepared = stages.order.iter().filter_map(|stage| match stage {
        Stage::Rows { ops, .. } => Some(ops),
        _ => None,
    });
    let times = prepared.flatten().filter(|op| **op == RowOp::Prepare { buffer: input }).count();
    assert_eq!(times, 2);
}

#[test]
fn forms_are_what_the_matrices_want() {
    let stages =
        Stages::new(&decoder(), |weight| if weight.0 == 2 { InputForm::QUANTIZED } else { InputForm::FLOAT });
    // The norm's output feeds a quantised matrix and one that is not, attention's output only the latter.
    assert_eq!(stages.forms[1], Some(InputForm::QUANTIZED.and(InputForm::FLOAT)));
    assert_eq!(stages.forms[3], Some(InputForm::FLOAT));
    assert_eq!(stages.forms[0], None);
}

#[test]
fn equal_vectors_and_shapes_are_kept_once() {
    let stages = Stages::new(&decoder(), |_| InputForm::FLOAT);
    assert_eq!((stages.vectors.len(), stages.shapes.len()), (1, 1));
}
