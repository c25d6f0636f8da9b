//! What loading tells about a checkpoint that does not fit, and what it takes.

use std::sync::Mutex;

use updraft_core::program::{BufferId, Op, Program, WeightId};

use super::super::{LoadError, Loaded, kv_bytes_per_token};
use super::*;

/// Something done to a program.
type Change<'a> = &'a dyn Fn(&mut Program);

fn load_error(change: impl FnOnce(&mut Tensors)) -> LoadError {
    let kind = Kind::ALL[2];
    let mut tensors = small_model::tensors(kind, ElementType::F32);
    change(&mut tensors);
    let options = LoadOptions { precision: Precision::Auto, threads: 2 };
    CpuModel::load(small_model::program(kind), &tensors, &options, &|_| ()).unwrap_err()
}

fn set_value(tensors: &mut Tensors, name: &str, index: usize, value: f32) {
    let bytes = &mut tensors.tensors.get_mut(name).unwrap().2;
    bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn a_missing_tensor_is_named() {
    let error = load_error(|tensors| drop(tensors.tensors.remove("1.key bias")));
    assert_eq!(
        error.to_string(),
        "small.safetensors lacks the tensor \"1.key bias\"; the checkpoint is incomplete or of another kind of model"
    );
}

#[test]
fn a_wrong_shape_is_named_with_both_shapes() {
    // Padded rows are not cut off silently either.
    let error = load_error(|tensors| {
        let (_, shape, bytes) = tensors.tensors.get_mut("embedding").unwrap();
        shape[0] += 1;
        bytes.extend([0; 64 * 4]);
    });
    assert_eq!(
        error.to_string(),
        "tensor \"embedding\" in small.safetensors has the shape [51, 64], but the configuration asks for [50, 64]"
    );
}

#[test]
fn damaged_values_are_found_in_matrices_and_vectors() {
    let error = load_error(|tensors| set_value(tensors, "0.gate", 64 * 5 + 3, f32::NAN));
    assert!(matches!(&error, LoadError::NotFinite { tensor, row: 5, .. } if tensor == "0.gate"), "{error}");
    let error = load_error(|tensors| set_value(tensors, "last norm", 3, f32::INFINITY));
    assert!(matches!(&error, LoadError::NotFinite { tensor, .. } if tensor == "last norm"), "{error}");
}

#[test]
fn bytes_that_are_too_few_are_refused() {
    let error = load_error(|tensors| tensors.tensors.get_mut("0.up").unwrap().2.truncate(100));
    assert!(matches!(&error, LoadError::Tensor { tensor, .. } if tensor == "0.up"), "{error}");
}

#[test]
fn a_broken_program_is_refused_at_its_operation() {
    let kind = Kind::ALL[0];
    let tensors = small_model::tensors(kind, ElementType::F32);
    let options = LoadOptions { precision: Precision::Auto, threads: 1 };
    let refused = |change: &dyn Fn(&mut Program)| {
        let mut program = small_model::program(kind);
        change(&mut program);
        CpuModel::load(program, &tensors, &options, &|_| ()).unwrap_err().to_string()
    };
    let cases: [(Change<'_>, &str); 6] = [
        (&|p| p.logits = None, "the model's program is broken: no buffer holds the logits"),
        (
            &|p| p.vocab = 51,
            "the model's program is broken: logits of 50 columns do not fit a vocabulary of 51",
        ),
        (
            &|p| p.ops[0] = Op::Add { into: BufferId(0), input: BufferId(0) },
            "the model's program is broken at operation 0: buffer 0 is used twice in one operation",
        ),
        (
            &|p| p.ops[0] = Op::Add { into: BufferId(0), input: BufferId(77) },
            "the model's program is broken at operation 0: there is no buffer 77",
        ),
        (
            &|p| p.ops[0] = Op::Embed { table: WeightId(1), out: BufferId(0), scale: 1.0 },
            "the model's program is broken at operation 0: weight 1 of shape [64] is no matrix",
        ),
        (
            &|p| {
                p.ops[0] = Op::Attention {
                    layer: 0,
                    query: BufferId(3),
                    out: BufferId(4),
                    heads: 3,
                    scale: 1.0,
                    window: None,
                };
            },
            "the model's program is broken at operation 0: 3 query heads cannot share 2 key heads",
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(refused(change), expected);
    }
}

#[test]
fn progress_reaches_the_total_and_every_tensor_is_released() {
    let kind = Kind::ALL[1];
    let tensors = small_model::tensors(kind, ElementType::Q8_0);
    let seen = Mutex::new(Vec::new());
    let options = LoadOptions { precision: Precision::Auto, threads: 3 };
    let model = CpuModel::load(small_model::program(kind), &tensors, &options, &|loaded: Loaded| {
        seen.lock().unwrap().push(loaded);
    })
    .unwrap();
    let seen = seen.into_inner().unwrap();
    let total: usize = tensors.tensors.values().map(|(_, _, bytes)| bytes.len()).sum();
    assert_eq!(seen.len(), tensors.tensors.len());
    assert_eq!(seen.iter().map(|loaded| loaded.bytes.0).max(), Some(total as u64));
    assert!(seen.iter().all(|loaded| loaded.total.0 == total as u64));
    let mut released = tensors.released.into_inner().unwrap();
    released.sort();
    assert!(released.iter().eq(tensors.tensors.keys()));
    // Quantised weights stay quantised: a little more than a byte a weight.
    assert!(model.weight_bytes().0 < 2 * total as u64, "{}", model.weight_bytes());
    assert_eq!(kv_bytes_per_token(model.program(), KvType::Bf16).0, 2 * 2 * 16 * 2);
}

#[test]
fn activation_memory_is_known() {
    let kind = Kind::ALL[0];
    let model = load(kind, &small_model::tensors(kind, ElementType::F32), Precision::Float32);
    let width: u32 = model.program().buffers.iter().map(|buffer| buffer.width).sum();
    let device = CpuDevice::new(model, &options(1, KvType::F32)).unwrap();
    assert!(device.activation_bytes().0 >= u64::from(width) * 256 * 4);
}
