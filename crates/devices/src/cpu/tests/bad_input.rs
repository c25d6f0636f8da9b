//! Inputs that make no sense are refused by name, and the device goes on.

use super::*;
use crate::DeviceError;

fn device() -> CpuDevice {
    let kind = Kind::ALL[0];
    let model = load(kind, &small_model::tensors(kind, ElementType::F32), Precision::Float32);
    CpuDevice::new(model, &CpuOptions { max_rows: 32, max_logit_rows: 4, ..options(2, KvType::F32) }).unwrap()
}

fn good() -> StepInputs {
    let (first, second) = (Sequence::new(1, 20, 0), Sequence::new(2, 5, 7));
    let mut inputs = inputs(&[(&first, 0, 20), (&second, 0, 5)]);
    inputs.logit_rows = vec![19, 24];
    inputs
}

fn refused(change: impl FnOnce(&mut StepInputs)) -> String {
    let mut device = device();
    let mut inputs = good();
    change(&mut inputs);
    let message = device.run(&inputs).unwrap_err().to_string();
    device.run(&good()).unwrap();
    message
}

#[test]
fn every_list_is_checked_before_anything_runs() {
    device().run(&good()).unwrap();
    let told = [
        refused(|i| i.token_ids[3] = small_model::VOCAB),
        refused(|i| i.token_ids[3] = u32::MAX),
        refused(|i| i.slots[21] = SlotId((BLOCKS * BLOCK_SIZE) as u32)),
        refused(|i| i.slots[21] = SlotId(0)),
        refused(|i| i.positions[2] = 9),
        refused(|i| i.logit_rows[1] = 25),
        refused(|i| i.block_tables[1] = BlockId(BLOCKS as u32)),
        refused(|i| i.spans[1].table_start = u32::MAX),
        refused(|i| i.spans[0].table_len = 1),
        refused(|i| i.spans[0].context = 3),
        refused(|i| i.spans[1].row_start = 3),
        refused(|i| i.spans[1].row_count = u32::MAX),
        refused(|i| i.spans.truncate(1)),
        refused(|i| i.positions.truncate(1)),
        refused(|i| i.slots.truncate(1)),
        refused(|i| i.logit_rows = vec![0, 1, 2, 3, 4]),
        refused(|i| *i = inputs(&[(&Sequence::new(1, 33, 0), 0, 33)])),
    ];
    let expected = [
        "row 3 names token 50, but there are only 50",
        "row 3 names token 4294967295, but there are only 50",
        "row 21 names slot 1024, but there are only 1024",
        "row 21 has slot 0 where its sequence has 113",
        "row 2 has position 9 where its sequence has 2",
        "row 1 names logit row 25, but there are only 25",
        "row 0 names block 64, but there are only 64",
        "the step's spans and block tables do not belong together: 4294967296 and 3",
        "the step's context and block table do not belong together: 20 and 16",
        "a step of 20 rows of one sequence does not fit this device, which takes 3",
        "the step's spans and rows do not belong together: 3 and 20",
        "a step of 4294967315 rows does not fit this device, which takes 25",
        "the step's spans and rows do not belong together: 20 and 25",
        "the step's tokens and positions do not belong together: 25 and 1",
        "the step's tokens and slots do not belong together: 25 and 1",
        "a step of 5 logit rows does not fit this device, which takes 4",
        "a step of 33 rows does not fit this device, which takes 32",
    ];
    for (told, expected) in told.iter().zip(expected) {
        assert_eq!(told, expected);
    }
}

#[test]
fn positions_beyond_the_rotary_tables_are_refused() {
    let kind = Kind::ALL[0];
    let tensors = small_model::tensors(kind, ElementType::F32);
    let mut program = small_model::program(kind);
    program.ropes[0].max_positions = 30;
    let load = LoadOptions { precision: Precision::Float32, threads: 1 };
    let model = CpuModel::load(program, &tensors, &load, &|_| ()).unwrap();
    let mut device = CpuDevice::new(model, &options(1, KvType::F32)).unwrap();
    let sequence = Sequence::new(1, 31, 0);
    device.run(&inputs(&[(&sequence, 0, 30)])).unwrap();
    let message = device.run(&inputs(&[(&sequence, 30, 1)])).unwrap_err().to_string();
    assert_eq!(message, "row 0 names position 30, but there are only 30");
}

#[test]
fn a_cache_of_impossible_blocks_is_refused() {
    let kind = Kind::ALL[0];
    let model = load(kind, &small_model::tensors(kind, ElementType::F32), Precision::Float32);
    let options = CpuOptions { block_size: Tokens(20), ..options(1, KvType::F32) };
    let error = CpuDevice::new(model, &options).unwrap_err();
    assert!(matches!(error, DeviceError::KvCache(_)), "{error}");
}
