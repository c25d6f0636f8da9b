//! Round trips, and files that are cut, changed or made of lies.

use proptest::prelude::*;
use updraft_kernels::tensor::ElementType;

use super::*;

#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the integration tests")]
#[path = "../../tests/support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::{GgufWriter, Meta, Tensor};

fn read_bytes(bytes: &[u8]) -> Result<(Metadata, Vec<(String, StoredTensor)>), CheckpointError> {
    read(Path::new("model.gguf"), bytes)
}

fn refusal(bytes: &[u8]) -> String {
    let error = read_bytes(bytes).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("model.gguf"), "no file in: {error}");
    error
}

fn sample() -> GgufWriter {
    let mut file = GgufWriter::new();
    file.meta("u8", Meta::U8(200))
        .meta("i8", Meta::I8(-100))
        .meta("u16", Meta::U16(60_000))
        .meta("i16", Meta::I16(-30_000))
        .meta("u32", Meta::U32(4_000_000_000))
        .meta("i32", Meta::I32(-2_000_000_000))
        .meta("u64", Meta::U64(u64::MAX))
        .meta("i64", Meta::I64(i64::MIN))
        .meta("f32", Meta::F32(1.5))
        .meta("f64", Meta::F64(-2.25))
        .meta("bool", Meta::Bool(true))
        .meta("text", Meta::text("grüß dich"))
        .meta("texts", Meta::Array(vec![Meta::text("a"), Meta::text(""), Meta::text("bc")]))
        .meta("floats", Meta::Array(vec![Meta::F32(0.5), Meta::F32(-1.0)]))
        .meta("integers", Meta::Array(vec![Meta::I32(-1), Meta::I32(7)]))
        .meta("bools", Meta::Array(vec![Meta::Bool(true), Meta::Bool(false)]))
        .meta("nested", Meta::Array(vec![Meta::Array(vec![Meta::U8(1)]), Meta::Array(vec![Meta::U8(2)])]))
        .meta("empty", Meta::Array(Vec::new()));
    file.tensors = vec![
        Tensor::floats("norm", &[3], &[1.0, 2.0, 3.0]),
        Tensor { name: "packed".to_owned(), shape: vec![2, 64], kind: 3, bytes: vec![7; 4 * 20] },
        Tensor { name: "k".to_owned(), shape: vec![1, 256], kind: 14, bytes: vec![9; 210] },
        Tensor { name: "foreign".to_owned(), shape: vec![4, 256], kind: 10, bytes: vec![1; 84 * 4] },
    ];
    file
}

#[test]
fn metadata_comes_back() {
    let (metadata, _) = read_bytes(&sample().bytes()).unwrap();
    let integer = |key: &str| match metadata.get(key) {
        Some(Value::Integer(value)) => *value,
        other => panic!("{key} is {other:?}"),
    };
    assert_eq!(integer("u8"), 200);
    assert_eq!(integer("i8"), -100);
    assert_eq!(integer("u16"), 60_000);
    assert_eq!(integer("i16"), -30_000);
    assert_eq!(integer("u32"), 4_000_000_000);
    assert_eq!(integer("i32"), -2_000_000_000);
    assert_eq!(integer("u64"), u64::MAX.into());
    assert_eq!(integer("i64"), i64::MIN.into());
    assert_eq!(metadata.float("f32"), Some(1.5));
    assert_eq!(metadata.float("f64"), Some(-2.25));
    assert_eq!(metadata.bool("bool"), Some(true));
    assert_eq!(metadata.string("text"), Some("grüß dich"));
    let array = |key: &str| match metadata.get(key) {
        Some(Value::Array(array)) => array.clone(),
        other => panic!("{key} is {other:?}"),
    };
    assert_eq!(array("texts"), Array::Strings(vec!["a".to_owned(), String::new(), "bc".to_owned()]));
    assert_eq!(array("floats"), Array::Floats(vec![0.5, -1.0]));
    assert_eq!(array("integers"), Array::Integers(vec![-1, 7]));
    assert_eq!(array("bools"), Array::Bools(vec![true, false]));
    let inner = |value| Value::Array(Array::Integers(vec![value]));
    assert_eq!(array("nested"), Array::Other(vec![inner(1), inner(2)]));
    assert_eq!(array("empty"), Array::Integers(Vec::new()));
    assert_eq!(metadata.integer("absent"), None);
}

#[test]
fn tensors_come_back() {
    for (version, alignment) in [(3, 32), (2, 32), (3, 64), (3, 8)] {
        let mut file = sample();
        file.version = version;
        file.alignment = alignment;
        file.meta("general.alignment", Meta::U32(alignment as u32));
        let bytes = file.bytes();
        let (_, tensors) = read_bytes(&bytes).unwrap();
        assert_eq!(tensors.len(), file.tensors.len());
        for ((name, read), written) in tensors.iter().zip(&file.tensors) {
            assert_eq!(*name, written.name);
            let shape: Vec<u64> = read.shape.iter().map(|&length| length as u64).collect();
            assert_eq!(shape, written.shape);
            if read.kind != StoredKind::Foreign("Q2_K".to_owned()) {
                assert_eq!(bytes[read.range.clone()], written.bytes, "{name} at alignment {alignment}");
            }
        }
        assert_eq!(tensors[1].1.kind, StoredKind::Known(ElementType::Q4_1));
        assert_eq!(tensors[2].1.kind, StoredKind::Known(ElementType::Q6K));
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sample().bytes();
    for len in (0..bytes.len() - 84 * 4).step_by(3) {
        refusal(&bytes[..len]);
    }
    let last_known = bytes.len() - 84 * 4 - 64;
    let error = refusal(&bytes[..last_known]);
    assert!(error.contains("cut short") && error.contains("`k`"), "{error}");
}

#[test]
fn lies_are_refused_with_their_place() {
    let change = |change: &dyn Fn(&mut GgufWriter)| {
        let mut file = sample();
        change(&mut file);
        file.bytes()
    };
    let patch = |at: usize, bytes: &[u8]| {
        let mut file = sample().bytes();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let huge = u64::MAX.to_le_bytes();
    let cases: [(&str, Vec<u8>, &str); 14] = [
        ("magic", patch(0, b"GGML"), "not with `GGUF`"),
        ("version", change(&|file| file.version = 1), "GGUF version 1"),
        ("big-endian", change(&|file| file.version = 3_u32.swap_bytes()), "big-endian"),
        ("tensor count", patch(8, &huge), "tensors cannot fit"),
        ("metadata count", patch(16, &huge), "metadata entries cannot fit"),
        ("key length", patch(24, &huge), "metadata entry 1"),
        ("value type", patch(24 + 8 + 2, &99_u32.to_le_bytes()), "`u8` has the unknown type 99"),
        (
            "alignment",
            change(&|file| {
                file.meta("general.alignment", Meta::U32(3));
            }),
            "general.alignment",
        ),
        (
            "split",
            change(&|file| {
                file.meta("split.count", Meta::U16(2));
            }),
            "split into 2 files",
        ),
        ("broken block", change(&|file| file.tensors[1].shape = vec![2, 63]), "`packed` is impossible"),
        ("overflow", change(&|file| file.tensors[0].shape = vec![1 << 40, 1 << 40]), "`norm`"),
        ("dimensions", change(&|file| file.tensors[0].shape = vec![1; 5]), "`norm` has 5 dimensions"),
        ("empty dimension", change(&|file| file.tensors[0].shape = vec![0]), "`norm` has a dimension of 0"),
        ("overlap", change(&|file| file.tensors[0].shape = vec![30]), "`norm`"),
    ];
    for (what, bytes, expected) in cases {
        let error = refusal(&bytes);
        assert!(error.contains(expected), "{what}: {error}");
    }
}

#[test]
fn absurd_array_counts_reserve_nothing() {
    let mut file = GgufWriter::new();
    file.meta("list", Meta::Array(vec![Meta::text("x")]));
    let mut bytes = file.bytes();
    let count_at = 24 + 8 + "list".len() + 4 + 4;
    bytes[count_at..count_at + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    let error = refusal(&bytes);
    assert!(error.contains("`list` has 1152921504606846976 elements"), "{error}");
}

#[test]
fn a_name_given_twice_is_refused() {
    let mut file = sample();
    file.tensors.push(file.tensors[0].clone());
    let path = std::env::temp_dir().join(format!("updraft-models-twice-{}.gguf", std::process::id()));
    std::fs::write(&path, file.bytes()).unwrap();
    let error = open(&path).map(|_| ()).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains("`norm` is there twice"), "{error}");
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = sample().bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok((_, tensors)) = read_bytes(&bytes) {
            for (_, tensor) in tensors {
                prop_assert!(tensor.range.end <= bytes.len());
            }
        }
    }

    #[test]
    fn any_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..400), entries in 0_u64..6) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(entries.to_le_bytes());
        bytes.extend(entries.to_le_bytes());
        bytes.extend(tail);
        drop(read_bytes(&bytes));
    }
}
