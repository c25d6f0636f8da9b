//! Tests of mapped files and aligned arrays.

#![allow(clippy::float_cmp, reason = "bit for bit is what is promised")]

use std::io::Write;

use super::*;

#[test]
fn arrays_are_aligned_zeroed_and_writable() {
    for len in [0, 1, 17, 1000, 40_000, 1_000_000] {
        let mut array = AlignedVec::<f32>::zeroed(len);
        assert_eq!(array.len(), len);
        assert_eq!(array.as_ptr() as usize % 64, if len == 0 { array.as_ptr() as usize % 64 } else { 0 });
        assert!(array.iter().all(|&value| value == 0.0));
        array.iter_mut().enumerate().for_each(|(at, value)| *value = at as f32);
        let copy = array.clone();
        array.discard();
        assert!(array.iter().all(|&value| value == 0.0));
        assert!(copy.iter().enumerate().all(|(at, &value)| value == at as f32));
    }
}

#[test]
fn arrays_on_large_pages_behave_the_same() {
    let mut array = AlignedVec::<u8>::zeroed(5 << 20).with_large_pages();
    array[5_000_000] = 7;
    assert_eq!(array.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 7);
}

#[test]
fn a_released_range_reads_the_same_again() {
    let path = std::env::temp_dir().join(format!("updraft-kernels-map-{}", std::process::id()));
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::File::create(&path).unwrap().write_all(&content).unwrap();
    let map = MappedFile::open(&path).unwrap();
    assert_eq!(map.bytes(), content);
    for range in [0..100_000, 10..20, 5000..50_000, 99_000..200_000, 300_000..400_000, 10..10] {
        map.release(range);
        assert_eq!(map.bytes(), content);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_empty_file_is_mapped_as_nothing() {
    let path = std::env::temp_dir().join(format!("updraft-kernels-empty-{}", std::process::id()));
    std::fs::File::create(&path).unwrap();
    let map = MappedFile::open(&path).unwrap();
    assert!(map.bytes().is_empty());
    map.release(0..10);
    std::fs::remove_file(&path).unwrap();
    assert!(MappedFile::open(&path).is_err());
}
