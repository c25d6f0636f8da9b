//! Several devices together.

use std::sync::mpsc::{Receiver, Sender, channel};

use updraft_core::Rank;
use updraft_core::program::BufferId;
use updraft_devices::Device;
use updraft_devices::ascend::{AscendDevice, AscendOptions, MeetingPoint};

use super::models::{self, Kind};
use super::support::{Sequence, inputs, open, options};

const ROWS: usize = 20;
/// The first buffer of the program: the residual stream.
const HIDDEN: BufferId = BufferId(0);

#[test]
fn two_devices_add_up_a_buffer() {
    let (send_point, point) = channel::<Vec<u8>>();
    let (send_values, values) = channel::<Vec<f32>>();
    // What a thread sends with is dropped when it fails, so that the other one ends too.
    std::thread::scope(move |scope| {
        scope.spawn(move || second(&point, &send_values));
        first(&send_point, &values);
    });
}

fn first(send_point: &Sender<Vec<u8>>, theirs: &Receiver<Vec<f32>>) {
    let mut device = opened(0);
    assert!(device.collective().is_none());
    let point = device.meeting_point().expect("a meeting point");
    send_point.send(point.as_bytes().to_vec()).expect("the other rank");
    device.join(&point, Rank(0), 2).expect("a group");
    let ours = ran(&mut device, 1);
    let theirs = theirs.recv().expect("the other rank");
    assert_ne!(ours, theirs);
    let sum = summed(&mut device, Rank(0));
    for (sum, (ours, theirs)) in sum.iter().zip(ours.iter().zip(&theirs)) {
        let expected = half::bf16::from_f32(ours + theirs).to_f32();
        assert!((sum - expected).abs() <= expected.abs() / 128.0, "{sum} is not {ours} + {theirs}");
    }
    assert_eq!(sum.len(), theirs.len());
}

fn second(point: &Receiver<Vec<u8>>, values: &Sender<Vec<f32>>) {
    let mut device = opened(1);
    let point = MeetingPoint::from_bytes(&point.recv().expect("the other rank")).expect("a meeting point");
    device.join(&point, Rank(1), 2).expect("a group");
    values.send(ran(&mut device, 2)).expect("the other rank");
    summed(&mut device, Rank(1));
}

fn opened(ordinal: u32) -> AscendDevice {
    let options = AscendOptions { ordinal, ..options() };
    open(&models::program(Kind::LLAMA), &models::tensors(Kind::LLAMA), &options).expect("a device")
}

/// Runs a step and returns what it left.
fn ran(device: &mut AscendDevice, seed: u32) -> Vec<f32> {
    let sequence = Sequence::new(seed, ROWS, 0);
    device.run(&inputs(&[(&sequence, 0, ROWS)])).expect("a step");
    device.peek(HIDDEN, ROWS).expect("values")
}

fn summed(device: &mut AscendDevice, rank: Rank) -> Vec<f32> {
    let group = device.collective().expect("a group");
    assert_eq!((group.rank(), group.size()), (rank, 2));
    group.all_reduce(HIDDEN, ROWS as u32).expect("a sum");
    device.peek(HIDDEN, ROWS).expect("values")
}
