//! A replay gives the bits of an eager step, whatever has run on the device in between.

use updraft_core::graphs::{GraphKey, GraphKind};

use super::*;
use crate::{DeviceError, Stream as _};

const DECODE: GraphKey = GraphKey { kind: GraphKind::Decode, rows: 4 };

fn replay(device: &mut CpuDevice, parts: &[(&Sequence, usize, usize)]) -> Vec<Vec<f32>> {
    let inputs = inputs(parts);
    device.replay(DECODE, &inputs).unwrap();
    device.synchronize(std::time::Duration::ZERO).unwrap();
    (0..inputs.rows()).map(|row| device.logits(row).to_vec()).collect()
}

#[test]
fn a_replay_gives_the_bits_of_an_eager_step() {
    for kind in Kind::ALL {
        let model = load(kind, &small_model::tensors(kind, ElementType::Q8_0), Precision::Auto);
        // Long enough to pass from one segment of attention to the next, and out of every window.
        let sequences = [Sequence::new(1, 300, 0), Sequence::new(2, 280, 20), Sequence::new(3, 290, 40)];
        let mut device = CpuDevice::new(Arc::clone(&model), &options(2, KvType::Bf16)).unwrap();
        let mut eager = CpuDevice::new(model, &options(1, KvType::Bf16)).unwrap();
        device.capture(DECODE).unwrap();
        for (sequence, end) in sequences.iter().zip([240, 250, 200]) {
            step(&mut device, &[(sequence, 0, 120)]);
            step(&mut device, &[(sequence, 120, end - 120)]);
            step(&mut eager, &[(sequence, 0, 120)]);
            step(&mut eager, &[(sequence, 120, end - 120)]);
        }
        for at in 0..40 {
            let [first, second, third] = &sequences;
            let mut parts = vec![(first, 240 + at, 1), (second, 250 + at.min(29), 1), (third, 200 + at, 1)];
            parts.truncate(if at % 7 == 3 { 2 } else { 3 });
            if at == 20 {
                parts.swap(0, 1);
            }
            let expected = step(&mut eager, &parts);
            assert!(replay(&mut device, &parts) == expected, "{kind:?} at {at}");
            if at % 11 == 5 {
                // An eager step of other rows in between disturbs nothing.
                step(&mut device, &[(&sequences[0], 100, 9)]);
            }
        }
    }
}

#[test]
fn only_what_was_captured_is_replayed_and_only_for_as_many_rows() {
    let kind = Kind::ALL[0];
    let model = load(kind, &small_model::tensors(kind, ElementType::F32), Precision::Float32);
    let mut device = CpuDevice::new(model, &options(2, KvType::F32)).unwrap();
    let sequence = Sequence::new(1, 8, 0);
    let inputs = inputs(&[(&sequence, 0, 8)]);
    assert!(matches!(device.replay(DECODE, &inputs), Err(DeviceError::NoGraph(DECODE))));
    assert_eq!(device.memory().graphs, updraft_core::Bytes(0));
    let graph = device.capture(DECODE).unwrap();
    assert_eq!(device.memory().graphs, graph.cost.bytes);
    assert!(graph.cost.bytes.0 > 0 && graph.cost == device.graph_cost(DECODE));
    assert!(matches!(device.replay(DECODE, &inputs), Err(DeviceError::TooMany { actual: 8, max: 4, .. })));
    device.forget(DECODE);
    assert!(matches!(device.replay(DECODE, &inputs), Err(DeviceError::NoGraph(DECODE))));
}
