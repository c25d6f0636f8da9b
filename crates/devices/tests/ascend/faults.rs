//! Injected faults come out as what they are.

use std::time::Duration;

use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::recovery::{DeviceFault, RecoveryClass};
use updraft_devices::{Device, DeviceError};

use super::children::{Child, in_child};
use super::models::Kind;
use super::support::{Sequence, device, inputs, logits, step};

fn fault<T>(result: Result<T, DeviceError>) -> DeviceFault {
    match result {
        Err(DeviceError::Fault(fault)) => *fault,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no fault"),
    }
}

#[test]
fn a_kernel_that_fails_shows_at_the_synchronisation() {
    let script = "operator=aclnnSwiGlu nth=3 code=507015";
    in_child(Child::new("faults::child_kernel").set("ACL_SIM_FAULTS", script));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_kernel() {
    let mut device = device(Kind::LLAMA);
    let sequence = Sequence::new(1, 20, 0);
    let inputs = inputs(&[(&sequence, 0, 20)]);
    device.run(&inputs).unwrap();
    let expected = logits(&device, 20);
    device.stream().enqueue(&inputs).expect("faults of the work show later");
    let fault = fault(device.stream().synchronize(Duration::from_secs(60)));
    assert_eq!((fault.code, fault.class), (507_015, RecoveryClass::Stream), "{fault}");
    assert_eq!(fault.device, "ascend:0");
    let again = device.stream().synchronize(Duration::from_secs(60));
    assert_eq!(
        again.map_err(|error| error.to_string()),
        Err(fault.to_string()),
        "it did not end well meanwhile"
    );
    device.repair().expect("new streams");
    assert!(step(&mut device, &[(&sequence, 0, 20)]) == expected);
    device.stream().synchronize(Duration::from_secs(60)).expect("the last step ended well");
}

#[test]
fn memory_that_is_used_up_is_a_fault_of_its_class() {
    in_child(Child::new("faults::child_memory").set("ACL_SIM_FAULTS", "operator=malloc nth=4 code=207018"));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_memory() {
    let (program, tensors) = (super::models::program(Kind::LLAMA), super::models::tensors(Kind::LLAMA));
    let opened = super::support::open(&program, &tensors, &super::support::options());
    let Err(updraft_devices::ascend::OpenError::Device(error)) = opened else { panic!("opened") };
    let fault = fault::<()>(Err(error));
    assert_eq!((fault.code, fault.class), (207_018, RecoveryClass::Memory), "{fault}");
}

#[test]
fn a_capture_that_fails_leaves_the_device_usable() {
    // The first operator that is captured belongs to the probe at the opening.
    let script = "operator=aclnnSwiGlu phase=capture at=call nth=2 code=507009";
    in_child(Child::new("faults::child_capture").set("ACL_SIM_FAULTS", script));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_capture() {
    let mut device = device(Kind::LLAMA);
    let sequence = Sequence::new(1, 20, 0);
    let expected = step(&mut device, &[(&sequence, 0, 20)]);
    let good = GraphKey { kind: GraphKind::Piecewise, rows: 1 };
    let broken = GraphKey { kind: GraphKind::Decode, rows: 1 };
    let fault = fault(device.stream().capture(broken));
    assert_eq!(fault.class, RecoveryClass::Graph, "{fault}");
    assert!(step(&mut device, &[(&sequence, 0, 20)]) == expected);
    let one = inputs(&[(&sequence, 19, 1)]);
    for key in [good, broken] {
        device.stream().capture(key).expect("the fault is over");
        device.stream().replay(key, &one).expect("a replay");
        device.stream().synchronize(Duration::from_secs(60)).expect("a step");
        assert!(logits(&device, 1)[0] == expected[19]);
    }
}

#[test]
fn a_replay_that_fails_names_the_root() {
    let script = "operator=aclnnAddRmsNorm phase=replay code=507015; operator=aclnnRmsNorm phase=replay nth=4 code=507015";
    in_child(Child::new("faults::child_replay").set("ACL_SIM_FAULTS", script));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_replay() {
    let mut device = device(Kind::LLAMA);
    let sequence = Sequence::new(1, 20, 0);
    let expected = step(&mut device, &[(&sequence, 0, 20)]);
    let key = GraphKey { kind: GraphKind::Decode, rows: 1 };
    device.stream().capture(key).expect("a graph");
    let one = inputs(&[(&sequence, 19, 1)]);
    device.stream().replay(key, &one).expect("a replay is only started");
    let fault = fault(device.stream().synchronize(Duration::from_secs(60)));
    assert!(matches!(fault.class, RecoveryClass::GraphDead | RecoveryClass::Stream), "{fault}");
    device.repair().expect("new streams");
    assert!(step(&mut device, &[(&sequence, 19, 1)])[0] == expected[19]);
}

#[test]
fn a_step_that_hangs_ends_in_wait_more_and_shows_signs_of_life() {
    let script = "operator=aclnnSwiGlu nth=3 hang";
    in_child(Child::new("faults::child_hang").set("ACL_SIM_FAULTS", script));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_hang() {
    let mut device = device(Kind::LLAMA);
    let sequence = Sequence::new(1, 20, 0);
    let expected = step(&mut device, &[(&sequence, 0, 20)]);
    let inputs = inputs(&[(&sequence, 0, 20)]);
    device.stream().enqueue(&inputs).expect("a start");
    let before = device.progress().reading();
    let fault = fault(device.stream().synchronize(Duration::from_millis(100)));
    assert_eq!((fault.code, fault.class), (507_046, RecoveryClass::WaitMore), "{fault}");
    assert!(device.progress().reading() > before);
    device.repair().expect("new streams");
    assert!(step(&mut device, &[(&sequence, 0, 20)]) == expected);
}

#[test]
fn a_driver_that_cannot_update_leaves_piecewise_graphs() {
    let script = "operator=aclnnFusedInferAttentionScoreV3 phase=eager at=call code=207019";
    in_child(Child::new("faults::child_no_update").set("ACL_SIM_FAULTS", script));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_no_update() {
    let mut device = device(Kind::LLAMA);
    assert_eq!(device.properties().graph_kinds, [GraphKind::Piecewise]);
    let reason = device.graph_limit().expect("a reason").to_owned();
    assert!(reason.contains("25.0.RC1") && reason.contains("207019"), "{reason}");
    let refused = device.stream().capture(GraphKey { kind: GraphKind::Decode, rows: 1 });
    assert!(matches!(refused, Err(DeviceError::GraphKind { kind: GraphKind::Decode, .. })));
    device.stream().capture(GraphKey { kind: GraphKind::Piecewise, rows: 8 }).expect("a graph");
}

#[test]
fn a_device_that_is_lost_at_the_opening_is_not_taken_for_an_old_driver() {
    let script = "operator=aclnnFusedInferAttentionScoreV3 phase=eager at=call code=507899";
    in_child(Child::new("faults::child_lost_at_opening").set("ACL_SIM_FAULTS", script));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_lost_at_opening() {
    let (program, tensors) = (super::models::program(Kind::LLAMA), super::models::tensors(Kind::LLAMA));
    let opened = super::support::open(&program, &tensors, &super::support::options());
    let Err(updraft_devices::ascend::OpenError::Device(error)) = opened else { panic!("opened") };
    let fault = fault::<()>(Err(error));
    assert_eq!(fault.class, RecoveryClass::Process, "{fault}");
    assert!(fault.text.contains("507899"), "{fault}");
}

#[test]
fn a_graph_that_still_runs_is_destroyed_when_its_stream_is_gone() {
    // The second eager attention is refused at its call (the first one belongs to the opening), while the piece before it
    // hangs. There is room for the device's two streams, one more while they are replaced, and three pieces.
    let script = "budget device=0 streams=6; operator=aclnnMm phase=replay hang; \
                  operator=aclnnFusedInferAttentionScoreV3 phase=eager at=call nth=2 code=507000";
    in_child(Child::new("faults::child_still_running").set("ACL_SIM_FAULTS", script));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_still_running() {
    let mut device = device(Kind::LLAMA);
    let one = inputs(&[(&Sequence::new(1, 1, 0), 0, 1)]);
    let key = GraphKey { kind: GraphKind::Piecewise, rows: 1 };
    device.stream().capture(key).expect("three pieces");
    let refused = fault(device.stream().replay(key, &one));
    assert!(refused.text.contains("507000"), "{refused}");
    let synchronised = fault(device.stream().synchronize(Duration::from_secs(60)));
    assert_eq!(synchronised, refused, "a step that did not start has not ended well");
    device.stream().forget(key);
    let stuck = fault(device.stream().enqueue(&one));
    assert_eq!(stuck.class, RecoveryClass::Stream, "{stuck}");
    device.repair().expect("new streams");
    let decode = GraphKey { kind: GraphKind::Decode, rows: 1 };
    for key in [key, decode] {
        device.stream().capture(key).expect("the streams of the old graph are free");
    }
    device.stream().replay(key, &one).expect("a replay");
    device.stream().synchronize(Duration::from_secs(60)).expect("a step");
    let replayed = logits(&device, 1);
    device.run(&one).expect("a step");
    assert!(logits(&device, 1) == replayed);
}

#[test]
fn an_operator_that_refuses_is_named() {
    in_child(Child::new("faults::child_refusal").set("ACL_SIM_MISSING", "aclnnSwiGlu"));
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_refusal() {
    let mut device = device(Kind::LLAMA);
    let sequence = Sequence::new(1, 20, 0);
    let fault = fault(device.run(&inputs(&[(&sequence, 0, 20)])));
    assert_eq!(fault.operator.as_deref(), Some("aclnnSwiGlu"), "{fault}");
}
