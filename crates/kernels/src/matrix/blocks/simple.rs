//! Blocks of 32 values: `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0`.

use super::{
    Form, Group, IntegerBlock, TileBytes, TileHalves, add_fifth_bits, half_bits, half_is_finite, set_nibbles,
    set_word, unpack_nibbles, words,
};
use crate::matrix::vectors::Vectors;
use crate::memory::Plain;
use crate::tensor::ElementType;

/// 4 bits, zero point 8.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::matrix) struct Q4_0Block {
    scales: TileHalves,
    nibbles: [TileBytes; 4],
}

/// 4 bits and a minimum.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::matrix) struct Q4_1Block {
    scales: TileHalves,
    minimums: TileHalves,
    nibbles: [TileBytes; 4],
}

/// 5 bits, zero point 16.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::matrix) struct Q5_0Block {
    scales: TileHalves,
    nibbles: [TileBytes; 4],
    fifth: TileBytes,
}

/// 5 bits and a minimum.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::matrix) struct Q5_1Block {
    scales: TileHalves,
    minimums: TileHalves,
    nibbles: [TileBytes; 4],
    fifth: TileBytes,
}

/// 8 bits, stored with 128 added; `bytes[i]` has values `4 i` to `4 i + 3` of each row.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::matrix) struct Q8_0Block {
    scales: TileHalves,
    bytes: [TileBytes; 8],
}

macro_rules! plain {
    ($($block:ty: $bytes:literal),*) => {
        $(
            // SAFETY: arrays of numbers, all a multiple of 32 bytes long, so nothing is padded (the size
            // below is their sum); every bit pattern is a value, and the alignment is 2.
            unsafe impl Plain for $block {}
            const _: () = assert!(size_of::<$block>() == $bytes * 16);
        )*
    };
}
// Bytes a row: as in the checkpoint.
plain!(Q4_0Block: 18, Q4_1Block: 20, Q5_0Block: 22, Q5_1Block: 24, Q8_0Block: 34);

impl IntegerBlock for Q4_0Block {
    const STORED_BYTES: usize = ElementType::Q4_0.block_bytes();
    const GROUPS: usize = 1;
    const FORM: Form = Form::Symmetric { zero_point: 8 };
    type Head<V: Vectors> = ();

    #[inline(always)]
    fn head<V: Vectors>(&self, _: V, _: usize) {}

    #[inline(always)]
    fn group<V: Vectors>(&self, v: V, part: usize, (): (), _: usize) -> Group<V> {
        Group {
            values: unpack_nibbles(v, part, &self.nibbles),
            scale: v.load_f16(&self.scales, part),
            second: v.zero(),
        }
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.scales[row] = half_bits(stored, 0);
        set_nibbles(&mut self.nibbles, row, split_nibbles(&stored[2..18]));
        half_is_finite(self.scales[row])
    }
}

impl IntegerBlock for Q4_1Block {
    const STORED_BYTES: usize = ElementType::Q4_1.block_bytes();
    const GROUPS: usize = 1;
    const FORM: Form = Form::Affine;
    type Head<V: Vectors> = ();

    #[inline(always)]
    fn head<V: Vectors>(&self, _: V, _: usize) {}

    #[inline(always)]
    fn group<V: Vectors>(&self, v: V, part: usize, (): (), _: usize) -> Group<V> {
        Group {
            values: unpack_nibbles(v, part, &self.nibbles),
            scale: v.load_f16(&self.scales, part),
            second: v.load_f16(&self.minimums, part),
        }
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.scales[row] = half_bits(stored, 0);
        self.minimums[row] = half_bits(stored, 2);
        set_nibbles(&mut self.nibbles, row, split_nibbles(&stored[4..20]));
        half_is_finite(self.scales[row]) && half_is_finite(self.minimums[row])
    }
}

impl IntegerBlock for Q5_0Block {
    const STORED_BYTES: usize = ElementType::Q5_0.block_bytes();
    const GROUPS: usize = 1;
    const FORM: Form = Form::Symmetric { zero_point: 16 };
    type Head<V: Vectors> = ();

    #[inline(always)]
    fn head<V: Vectors>(&self, _: V, _: usize) {}

    #[inline(always)]
    fn group<V: Vectors>(&self, v: V, part: usize, (): (), _: usize) -> Group<V> {
        Group {
            values: add_fifth_bits(v, part, unpack_nibbles(v, part, &self.nibbles), &self.fifth),
            scale: v.load_f16(&self.scales, part),
            second: v.zero(),
        }
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.scales[row] = half_bits(stored, 0);
        set_word(&mut self.fifth, row, spread_bits(words::<1>(&stored[2..6])[0]));
        set_nibbles(&mut self.nibbles, row, split_nibbles(&stored[6..22]));
        half_is_finite(self.scales[row])
    }
}

impl IntegerBlock for Q5_1Block {
    const STORED_BYTES: usize = ElementType::Q5_1.block_bytes();
    const GROUPS: usize = 1;
    const FORM: Form = Form::Affine;
    type Head<V: Vectors> = ();

    #[inline(always)]
    fn head<V: Vectors>(&self, _: V, _: usize) {}

    #[inline(always)]
    fn group<V: Vectors>(&self, v: V, part: usize, (): (), _: usize) -> Group<V> {
        Group {
            values: add_fifth_bits(v, part, unpack_nibbles(v, part, &self.nibbles), &self.fifth),
            scale: v.load_f16(&self.scales, part),
            second: v.load_f16(&self.minimums, part),
        }
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.scales[row] = half_bits(stored, 0);
        self.minimums[row] = half_bits(stored, 2);
        set_word(&mut self.fifth, row, spread_bits(words::<1>(&stored[4..8])[0]));
        set_nibbles(&mut self.nibbles, row, split_nibbles(&stored[8..24]));
        half_is_finite(self.scales[row]) && half_is_finite(self.minimums[row])
    }
}

impl IntegerBlock for Q8_0Block {
    const STORED_BYTES: usize = ElementType::Q8_0.block_bytes();
    const GROUPS: usize = 1;
    const FORM: Form = Form::Symmetric { zero_point: 128 };
    const WIDE: bool = true;
    type Head<V: Vectors> = ();

    #[inline(always)]
    fn head<V: Vectors>(&self, _: V, _: usize) {}

    #[inline(always)]
    fn group<V: Vectors>(&self, v: V, part: usize, (): (), _: usize) -> Group<V> {
        Group {
            values: self.bytes.each_ref().map(|bytes| v.load_bytes(bytes, part)),
            scale: v.load_f16(&self.scales, part),
            second: v.zero(),
        }
    }

    #[inline(always)]
    fn set_row(&mut self, row: usize, stored: &[u8]) -> bool {
        self.scales[row] = half_bits(stored, 0);
        for (bytes, word) in self.bytes.iter_mut().zip(words::<8>(&stored[2..34])) {
            set_word(bytes, row, word ^ 0x8080_8080);
        }
        half_is_finite(self.scales[row])
    }
}

/// 32 values from the checkpoint's 16 bytes (low nibbles first, then high ones), one a byte.
#[inline(always)]
fn split_nibbles(packed: &[u8]) -> [u32; 8] {
    let packed: [u32; 4] = words(packed);
    std::array::from_fn(|i| (packed[i % 4] >> (i / 4 * 4)) & 0x0F0F_0F0F)
}

/// From bit `4 i + t` to bit `8 t + i`: where a plane of fifth bits has it.
#[inline(always)]
fn spread_bits(bits: u32) -> u32 {
    (0..8).fold(0, |word, i| {
        // The product puts bit t of the nibble at bit 8 t, among others.
        let nibble = (bits >> (4 * i)) & 15;
        word | (nibble.wrapping_mul(0x0020_4081) & 0x0101_0101) << i
    })
}
