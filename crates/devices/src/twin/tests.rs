//! The twin is strict, and its troubles come when they should.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use updraft_core::recovery::RecoveryClass;
use updraft_core::{BlockId, SlotId};

use super::*;

fn twin(faults: &TwinFaults) -> TwinDevice {
    TwinDevice::new(TwinOptions {
        ordinal: 3,
        vocab: 11,
        blocks: Blocks(4),
        block_size: Tokens(16),
        step_time: Duration::ZERO,
        faults: faults.clone(),
    })
    .unwrap()
}

fn prompt(tokens: &[TokenId], block: u32) -> StepInputs {
    let rows = tokens.len() as u32;
    StepInputs {
        token_ids: tokens.to_vec(),
        positions: (0..rows).collect(),
        slots: (0..rows).map(|at| SlotId(block * 16 + at)).collect(),
        spans: vec![SequenceSpan {
            row_start: 0,
            row_count: rows,
            context: rows,
            table_start: 0,
            table_len: 1,
        }],
        block_tables: vec![BlockId(block)],
        logit_rows: vec![rows - 1],
    }
}

#[test]
fn it_answers_from_what_lies_in_the_blocks() {
    let mut twin = twin(&TwinFaults::default());
    twin.run(&prompt(&[1, 2, 3], 2)).unwrap();
    assert_eq!(twin.logits(0), logits_after([1, 2, 3].into_iter(), 11));
    let elsewhere = StepInputs { block_tables: vec![BlockId(1)], ..prompt(&[1, 2, 3], 2) };
    twin.run(&elsewhere).unwrap();
    assert_ne!(twin.logits(0), logits_after([1, 2, 3].into_iter(), 11));
}

#[test]
fn trouble_comes_once_and_after_the_times_it_was_told() {
    let faults = TwinFaults::default();
    let mut twin = twin(&faults);
    let fault = TwinFault { code: 7, class: RecoveryClass::Stream };
    faults.arm(Moment::Prefill, 1, 1, TwinTrouble::Fault(fault));
    twin.run(&prompt(&[1, 2], 0)).unwrap();
    let error = twin.run(&prompt(&[1, 2], 0)).unwrap_err();
    assert!(
        matches!(error, DeviceError::Fault(fault) if fault.class == RecoveryClass::Stream && fault.device == "twin:3")
    );
    assert!(!faults.is_armed());
    twin.run(&prompt(&[1, 2], 0)).unwrap();
}

#[test]
fn graphs_are_gone_after_a_repair() {
    let mut twin = twin(&TwinFaults::default());
    let key = GraphKey { kind: GraphKind::Decode, rows: 4 };
    assert!(matches!(twin.replay(key, &prompt(&[1], 0)), Err(DeviceError::NoGraph(_))));
    twin.capture(key).unwrap();
    twin.replay(key, &prompt(&[1], 0)).unwrap();
    twin.synchronize(Duration::ZERO).unwrap();
    assert_eq!(twin.logits(0), logits_after([1].into_iter(), 11));
    twin.repair().unwrap();
    assert!(matches!(twin.replay(key, &prompt(&[1], 0)), Err(DeviceError::NoGraph(_))));
}

#[test]
fn a_step_that_hangs_is_still_running_after_the_deadline() {
    let faults = TwinFaults::default();
    let mut twin = twin(&faults);
    faults.arm(Moment::Decode, 0, 1, TwinTrouble::Hang(Duration::from_millis(20)));
    twin.enqueue(&prompt(&[1], 0)).unwrap();
    let error = twin.synchronize(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, DeviceError::Fault(fault) if fault.class == RecoveryClass::WaitMore));
    twin.synchronize(Duration::from_secs(1)).unwrap();
}
