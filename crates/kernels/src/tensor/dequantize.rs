//! What each storage type means, one block after the other, in the plainest form.
//!
//! Callers have checked that `bytes` and `out` hold the same whole number of blocks.

use super::ElementType;

/// Turns whole blocks into numbers. `out` has `block_len` values for every `block_bytes` of `bytes`.
pub(super) fn blocks(element: ElementType, bytes: &[u8], out: &mut [f32]) {
    debug_assert_eq!(bytes.len() / element.block_bytes(), out.len() / element.block_len());
    let blocks = bytes.chunks_exact(element.block_bytes()).zip(out.chunks_exact_mut(element.block_len()));
    match element {
        ElementType::F32 => blocks.for_each(|(b, y)| y[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        ElementType::F16 => blocks.for_each(|(b, y)| y[0] = half_at(b, 0)),
        ElementType::BF16 => blocks.for_each(|(b, y)| y[0] = f32::from_le_bytes([0, 0, b[0], b[1]])),
        ElementType::Q4_0 => blocks.for_each(|(b, y)| {
            let d = half_at(b, 0);
            nibbles(&b[2..18], y, |_, q| d * (q as f32 - 8.0));
        }),
        ElementType::Q4_1 => blocks.for_each(|(b, y)| {
            let (d, m) = (half_at(b, 0), half_at(b, 2));
            nibbles(&b[4..20], y, |_, q| d * q as f32 + m);
        }),
        ElementType::Q5_0 => blocks.for_each(|(b, y)| {
            let (d, high) = (half_at(b, 0), u32::from_le_bytes([b[2], b[3], b[4], b[5]]));
            nibbles(&b[6..22], y, |k, q| d * (with_bit(q, high >> k) as f32 - 16.0));
        }),
        ElementType::Q5_1 => blocks.for_each(|(b, y)| {
            let (d, m) = (half_at(b, 0), half_at(b, 2));
            let high = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
            nibbles(&b[8..24], y, |k, q| d * with_bit(q, high >> k) as f32 + m);
        }),
        ElementType::Q8_0 => blocks.for_each(|(b, y)| {
            let d = half_at(b, 0);
            y.iter_mut().zip(&b[2..34]).for_each(|(y, &q)| *y = d * (q as i8) as f32);
        }),
        ElementType::Q4K => blocks.for_each(|(b, y)| q4_k(b, y)),
        ElementType::Q5K => blocks.for_each(|(b, y)| q5_k(b, y)),
        ElementType::Q6K => blocks.for_each(|(b, y)| q6_k(b, y)),
    }
}

/// Scale and minimum (6 bits each) of group `group` of a K-quant block, from its 12 packed bytes.
pub(crate) fn six_bit_scales(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let low = packed[group + 4];
    ((low & 15) | (packed[group - 4] >> 6) << 4, (low >> 4) | (packed[group] >> 6) << 4)
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn with_bit(nibble: u8, bits: u32) -> u8 {
    nibble | ((bits & 1) as u8) << 4
}

/// 32 values from 16 bytes: the low nibbles are the first half, the high nibbles the second.
fn nibbles(packed: &[u8], out: &mut [f32], value: impl Fn(usize, u8) -> f32) {
    for (at, &byte) in packed.iter().enumerate() {
        out[at] = value(at, byte & 15);
        out[at + 16] = value(at + 16, byte >> 4);
    }
}

/// Bytes: d, dmin, 12 of scales, 128 of nibbles. Each 32 bytes of nibbles hold two groups.
fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = six_bit_scales(&block[4..16], group);
        let packed = &block[16 + group / 2 * 32..][..32];
        for (out, &byte) in out.iter_mut().zip(packed) {
            let q = (byte >> (group % 2 * 4)) & 15;
            *out = d * scale as f32 * q as f32 - dmin * min as f32;
        }
    }
}

/// Bytes: d, dmin, 12 of scales, 32 of fifth bits (bit `group` of byte `k`), 128 of nibbles as in `q4_k`.
fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = six_bit_scales(&block[4..16], group);
        let packed = &block[48 + group / 2 * 32..][..32];
        for (k, (out, &byte)) in out.iter_mut().zip(packed).enumerate() {
            let q = with_bit((byte >> (group % 2 * 4)) & 15, u32::from(block[16 + k]) >> group);
            *out = d * scale as f32 * q as f32 - dmin * min as f32;
        }
    }
}

/// Bytes: 128 of nibbles, 64 of upper two bits, 16 signed scales, d. Each half of the block (128 values) is
/// four groups of 32, whose nibbles share 64 bytes and whose upper bits share 32.
fn q6_k(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 208);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (half, quarter) = (group / 4, group % 4);
        let low = &block[half * 64 + quarter % 2 * 32..][..32];
        let high = &block[128 + half * 32..][..32];
        for (k, out) in out.iter_mut().enumerate() {
            let q = (low[k] >> (quarter / 2 * 4)) & 15 | ((high[k] >> (quarter * 2)) & 3) << 4;
            let scale = block[192 + group * 2 + k / 16] as i8;
            *out = d * scale as f32 * (q as f32 - 32.0);
        }
    }
}
