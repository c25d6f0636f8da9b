//! Replayed steps against eager ones, bit for bit.

use std::time::Duration;

use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::step::StepInputs;
use updraft_devices::ascend::{AscendDevice, AscendOptions};
use updraft_devices::{Device, DeviceError};

use super::models;
use super::models::Kind;
use super::support::{BLOCK_SIZE, Part, Sequence, device, inputs, logits, open, options, step};

const LONG: Duration = Duration::from_secs(60);

fn key(kind: GraphKind, rows: u32) -> GraphKey {
    GraphKey { kind, rows }
}

fn replay(device: &mut AscendDevice, key: GraphKey, inputs: &StepInputs) -> Vec<Vec<f32>> {
    device.stream().replay(key, inputs).expect("a replay");
    device.stream().synchronize(LONG).expect("a step");
    logits(device, inputs.logit_rows.len())
}

/// Three sequences of different lengths with all but their last tokens in the cache.
fn started(device: &mut AscendDevice) -> Vec<Sequence> {
    let sequences = vec![Sequence::new(1, 40, 0), Sequence::new(2, 5, 10), Sequence::new(3, 90, 20)];
    for sequence in &sequences {
        step(device, &[(sequence, 0, sequence.tokens.len() - 4)]);
    }
    sequences
}

fn last(sequences: &[Sequence], back: usize) -> Vec<Part<'_>> {
    sequences.iter().map(|sequence| (sequence, sequence.tokens.len() - back, 1)).collect()
}

#[test]
fn a_decode_graph_has_the_bits_of_an_eager_step() {
    for kind in Kind::ALL {
        let mut eager = device(kind);
        let mut device = device(kind);
        let sequences = started(&mut eager);
        started(&mut device);
        for rows in [3, 8] {
            let graph = device.stream().capture(key(GraphKind::Decode, rows)).expect("a graph");
            assert!(graph.nodes > 20 && graph.cost.streams >= 1, "{graph:?}");
        }
        for back in (1..=4).rev() {
            let parts = last(&sequences, back);
            let expected = step(&mut eager, &parts);
            // Without and with rows of nobody.
            for rows in [3, 8] {
                let actual = replay(&mut device, key(GraphKind::Decode, rows), &inputs(&parts));
                assert!(actual == expected, "{} x{rows}, {back} before the end", kind.name);
            }
        }
        // Fewer sequences than ever before, with a context that has shrunk.
        let parts = [(&sequences[1], 2, 1)];
        let expected = step(&mut eager, &parts);
        assert!(replay(&mut device, key(GraphKind::Decode, 3), &inputs(&parts)) == expected, "{}", kind.name);
    }
}

#[test]
fn a_graph_of_any_rows_has_the_bits_of_an_eager_step() {
    for graph in [GraphKind::Mixed, GraphKind::Piecewise] {
        for kind in Kind::ALL {
            let mut eager = device(kind);
            let mut device = device(kind);
            let sequences = started(&mut eager);
            started(&mut device);
            let new = Sequence::new(9, 30, 40);
            device.stream().capture(key(graph, 32)).expect("a graph");
            let steps: [Vec<Part<'_>>; 4] = [
                vec![(&new, 0, 29), (&sequences[0], 36, 1), (&sequences[2], 86, 2)],
                vec![(&sequences[1], 1, 3), (&new, 29, 1)],
                last(&sequences, 2),
                vec![(&sequences[2], 60, 20)],
            ];
            for (at, parts) in steps.iter().enumerate() {
                let expected = step(&mut eager, parts);
                let actual = replay(&mut device, key(graph, 32), &inputs(parts));
                assert!(actual == expected, "{graph:?} {} step {at}", kind.name);
            }
        }
    }
}

#[test]
fn rows_of_nobody_leave_everybodys_cache_alone() {
    let mut device = device(Kind::LLAMA);
    let sequences = started(&mut device);
    device.stream().capture(key(GraphKind::Decode, 16)).expect("a graph");
    device.stream().capture(key(GraphKind::Mixed, 64)).expect("a graph");
    let whole = Sequence::new(4, 60, 50);
    let expected = step(&mut device, &[(&whole, 0, 60)]);
    for _ in 0..3 {
        replay(&mut device, key(GraphKind::Decode, 16), &inputs(&last(&sequences, 1)));
        replay(&mut device, key(GraphKind::Mixed, 64), &inputs(&[(&sequences[0], 36, 3)]));
    }
    assert!(step(&mut device, &[(&whole, 59, 1)])[0] == expected[59]);
}

#[test]
fn logits_are_only_fetched_for_rows_that_want_them() {
    let mut device = device(Kind::LLAMA);
    let sequences = started(&mut device);
    device.stream().capture(key(GraphKind::Mixed, 16)).expect("a graph");
    let mut some = inputs(&[(&sequences[0], 36, 4), (&sequences[1], 1, 4)]);
    let all = replay(&mut device, key(GraphKind::Mixed, 16), &some);
    some.logit_rows = vec![3, 7];
    let two = replay(&mut device, key(GraphKind::Mixed, 16), &some);
    assert!(two == [all[3].clone(), all[7].clone()]);
    some.logit_rows.clear();
    assert!(replay(&mut device, key(GraphKind::Mixed, 16), &some).is_empty());
}

#[test]
fn a_decode_graph_may_have_more_rows_than_a_step_has_sequences() {
    let options = AscendOptions { max_sequences: 20, ..options() };
    let mut device =
        open(&models::program(Kind::LLAMA), &models::tensors(Kind::LLAMA), &options).expect("a device");
    let sequences: Vec<_> = (0..20).map(|at| Sequence::new(at, 3, at)).collect();
    let begun: Vec<Part<'_>> = sequences.iter().map(|sequence| (sequence, 0, 2)).collect();
    step(&mut device, &begun);
    let parts = last(&sequences, 1);
    let expected = step(&mut device, &parts);
    let large = key(GraphKind::Decode, 32);
    device.stream().capture(large).expect("a graph");
    for parts in [&parts[..], &parts[..1]] {
        assert!(replay(&mut device, large, &inputs(parts)) == expected[..parts.len()]);
    }
    // As many sequences as there may be, and the one of nobody.
    let mixed = key(GraphKind::Mixed, 64);
    device.stream().capture(mixed).expect("a graph");
    assert!(replay(&mut device, mixed, &inputs(&parts)) == expected);
}

#[test]
fn rows_of_nobody_have_slots_of_their_own_however_many_they_are() {
    // Sequences are shorter than what is filled up, and all blocks are taken.
    let options =
        AscendOptions { max_model_len: 2 * BLOCK_SIZE, blocks: updraft_core::Blocks(4), ..options() };
    let mut device =
        open(&models::program(Kind::LLAMA), &models::tensors(Kind::LLAMA), &options).expect("a device");
    let sequences = [Sequence::new(1, 30, 0), Sequence::new(2, 30, 2)];
    let whole = step(&mut device, &[(&sequences[0], 0, 30), (&sequences[1], 0, 30)]);
    for kind in [GraphKind::Mixed, GraphKind::Piecewise, GraphKind::Decode] {
        device.stream().capture(key(kind, 128)).expect("a graph");
        let parts = inputs(&[(&sequences[0], 29, 1)]);
        assert!(replay(&mut device, key(kind, 128), &parts) == whole[29..30], "{kind:?}");
        let after = step(&mut device, &[(&sequences[1], 29, 1)]);
        assert!(after == whole[59..60], "{kind:?}");
    }
}

#[test]
fn a_graph_takes_only_steps_of_its_kind_and_size() {
    let mut device = device(Kind::LLAMA);
    let sequences = started(&mut device);
    let decode = key(GraphKind::Decode, 2);
    let one = inputs(&[(&sequences[0], 36, 1)]);
    assert!(matches!(device.stream().replay(decode, &one), Err(DeviceError::NoGraph(_))));
    device.stream().capture(decode).expect("a graph");
    let three = inputs(&last(&sequences, 1));
    assert!(matches!(device.stream().replay(decode, &three), Err(DeviceError::TooMany { .. })));
    let prompt = inputs(&[(&sequences[0], 36, 2)]);
    assert!(matches!(device.stream().replay(decode, &prompt), Err(DeviceError::TooMany { .. })));
    let large = key(GraphKind::Decode, 129);
    assert!(matches!(device.stream().capture(large), Err(DeviceError::TooMany { .. })));
    replay(&mut device, decode, &one);
    device.stream().forget(decode);
    assert!(matches!(device.stream().replay(decode, &one), Err(DeviceError::NoGraph(_))));
    device.run(&one).expect("an eager step");
}

#[test]
fn repair_gives_new_streams_and_voids_graphs() {
    let mut device = device(Kind::LLAMA);
    let sequences = started(&mut device);
    let decode = key(GraphKind::Decode, 4);
    device.stream().capture(decode).expect("a graph");
    let parts = last(&sequences, 1);
    let expected = replay(&mut device, decode, &inputs(&parts));
    device.repair().expect("new streams");
    assert!(matches!(device.stream().replay(decode, &inputs(&parts)), Err(DeviceError::NoGraph(_))));
    assert!(step(&mut device, &parts) == expected, "the cache is still there");
    device.stream().capture(decode).expect("a graph");
    assert!(replay(&mut device, decode, &inputs(&parts)) == expected);
}

#[test]
fn a_larger_workspace_leaves_captured_graphs_theirs() {
    let mut device = device(Kind::QWEN3);
    let sequences = started(&mut device);
    let decode = key(GraphKind::Decode, 1);
    device.stream().capture(decode).expect("a graph");
    let one = inputs(&[(&sequences[0], 36, 1)]);
    let expected = replay(&mut device, decode, &one);
    device.stream().capture(key(GraphKind::Mixed, 128)).expect("a graph");
    let long = Sequence::new(9, 120, 40);
    step(&mut device, &[(&long, 0, 120)]);
    assert!(replay(&mut device, decode, &one) == expected);
}

#[test]
fn many_attentions_are_updated_in_batches() {
    let mut eager = device(Kind::DEEP);
    let mut device = device(Kind::DEEP);
    let sequences = started(&mut eager);
    started(&mut device);
    device.stream().capture(key(GraphKind::Decode, 4)).expect("a graph");
    for back in (1..=4).rev() {
        let parts = last(&sequences, back);
        let expected = step(&mut eager, &parts);
        assert!(replay(&mut device, key(GraphKind::Decode, 4), &inputs(&parts)) == expected, "{back}");
    }
}
