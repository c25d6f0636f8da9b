//! What is written must be found where attention looks for it.
#![allow(clippy::float_cmp, reason = "these results are exact")]

use half::bf16;
use proptest::prelude::*;

use super::*;

fn geometry(kv_heads: usize, head_dim: usize, block_size: usize) -> KvGeometry {
    KvGeometry { kv_heads, head_dim, block_size, blocks: 5 }
}

/// The stored value as attention reads it, from a part of a word (0 is the lowest) and the scale of its position.
fn unpack(kind: KvType, word: u32, part: usize, scale: u32) -> f32 {
    let half = (word >> (16 * (part % 2))) as u16;
    match kind {
        KvType::F32 => f32::from_bits(word),
        KvType::Bf16 => bf16::from_bits(half).to_f32(),
        KvType::F16 => f16::from_bits(half).to_f32(),
        KvType::Int8 => f32::from((word >> (8 * part)) as u8 as i8) * f32::from_bits(scale),
    }
}

/// What is stored for `x` in a head whose largest value is `largest`.
fn rounded(kind: KvType, x: f32, largest: f32) -> f32 {
    let unit = largest / 127.0;
    match kind {
        KvType::F32 => x,
        KvType::Bf16 => bf16::from_f32(x).to_f32(),
        KvType::F16 => f16::from_f32(x).to_f32(),
        KvType::Int8 => (x * (1.0 / unit)).round_ties_even() * unit,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_token_is_read_as_written_and_nothing_else_changes(
        kv_heads in 1..4_usize,
        head_dim in prop::sample::select(vec![1_usize, 5, 8, 16, 24, 64]),
        block_size in prop::sample::select(vec![16_usize, 32, 48]),
        slot_seed: usize,
    ) {
        for kind in KvType::ALL {
            let cache = KvCache::new(kind, geometry(kv_heads, head_dim, block_size)).unwrap();
            let slot = slot_seed % (5 * block_size);
            let key: Vec<f32> = (0..kv_heads * head_dim).map(|i| 0.3 + i as f32).collect();
            let value: Vec<f32> = key.iter().map(|x| -x).collect();
            let largest = |head: usize| key[(head + 1) * head_dim - 1];
            // SAFETY: nobody else uses the cache.
            unsafe { cache.write(slot, &key, &value) };
            let per = kind.per_word();
            let mut found = 0;
            for block in 0..5 {
                for head in 0..kv_heads {
                    for sub in 0..block_size / SUB_BLOCK {
                        let keys = cache.sub_block_keys(block, head, sub);
                        let values = cache.sub_block_values(block, head, sub).as_flattened();
                        for lane in 0..SUB_BLOCK {
                            // Of the kinds without scales this is any word.
                            let scales = [keys[keys.len() - 1][lane], values[values.len() - LANES + lane]];
                            let here = block * block_size + sub * SUB_BLOCK + lane == slot;
                            for dim in 0..cache.padded_dim() {
                                let k = unpack(kind, keys[dim / per][lane], dim % per, scales[0]);
                                let word = values[lane / per * cache.padded_dim() + dim];
                                let v = unpack(kind, word, lane % per, scales[1]);
                                let x = if here && dim < head_dim { key[head * head_dim + dim] } else { 0.0 };
                                let stored = rounded(kind, x, largest(head));
                                prop_assert_eq!(k, stored);
                                prop_assert_eq!(v, -stored);
                                found += usize::from(k != 0.0);
                            }
                        }
                    }
                }
            }
            prop_assert_eq!(found, kv_heads * head_dim);
        }
    }
}

#[test]
fn rounding_is_that_of_the_standard() {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-40];
    let patterns = (0..=u32::MAX).step_by(65_521).map(f32::from_bits);
    for x in special.into_iter().chain(patterns) {
        let (ours, theirs) = (bf16::from_bits(bf16_bits(x)), bf16::from_f32(x));
        assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{x:e}");
    }
}

#[test]
fn integers_hide_nothing_that_is_not_finite_and_keep_the_smallest_rows() {
    let unit = |values: &[f32]| Scale::of(values).unit;
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(unit(&[1.0, bad, 2.0]).is_nan());
    }
    assert_eq!(unit(&[0.0, -0.0]), 0.0);
    assert_eq!(Scale::of(&[0.0; 3]).quantise(0.0), 0);
    let scale = Scale::of(&[127.0, -127.0, 0.4]);
    assert_eq!([127.0, -127.0, 0.4, -1.5].map(|x| scale.quantise(x) as i8), [127, -127, 0, -2]);
    // Too small for an inverse: zeros, not noise.
    assert_eq!(Scale::of(&[1e-40]).quantise(1e-40), 0);
}

#[test]
fn impossible_sizes_are_refused() {
    let refused = |geometry| KvCache::new(KvType::F32, geometry).unwrap_err();
    assert_eq!(refused(geometry(1, 8, 24)), KvCacheError::BlockSize { block_size: 24 });
    assert_eq!(refused(geometry(1, 8, 0)), KvCacheError::BlockSize { block_size: 0 });
    assert_eq!(refused(geometry(0, 8, 16)), KvCacheError::Empty { kv_heads: 0, head_dim: 8 });
    // More than can be counted, more than can be addressed, more than there is.
    for blocks in [usize::MAX / 64, usize::MAX / 64 / 4096, 1 << 36] {
        assert_eq!(refused(KvGeometry { blocks, ..geometry(4, 64, 16) }), KvCacheError::TooLarge { blocks });
    }
}

#[test]
fn bytes_of_a_token_count_keys_values_and_padding() {
    assert_eq!(KvCache::bytes_per_token(KvType::Bf16, 3, 64), 2 * 3 * 64 * 2);
    assert_eq!(KvCache::bytes_per_token(KvType::F32, 1, 20), 2 * 32 * 4);
    assert_eq!(KvCache::bytes_per_token(KvType::Int8, 2, 64), 2 * 2 * (64 + 4));
}

#[test]
#[should_panic(expected = "block 5 of 5")]
fn a_slot_beyond_the_cache_is_no_memory_error() {
    let cache = KvCache::new(KvType::F32, geometry(1, 16, 16)).unwrap();
    // SAFETY: nobody else uses the cache.
    unsafe { cache.write(5 * 16, &[0.0; 16], &[0.0; 16]) };
}
