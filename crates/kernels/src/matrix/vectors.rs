//! The vocabulary of matrix products: sixteen output rows, as one or two registers, with integer dot
//! products.
//!
//! Kernels are written once, over [`Vectors`]; each instruction set says how an operation is done. Unlike
//! [`crate::lanes`], whose values are always sixteen numbers, a value here is one register, since these
//! kernels count registers. A value of a `Vectors` type proves that the machine has its instructions, so its
//! methods are safe to call: only [`dispatch`] makes such values, inside a function that is compiled for
//! those instructions. Everything between that function and the instructions is inlined, which is what
//! `inline(always)` on every method is for.

#![allow(
    clippy::inline_always,
    reason = "operations must dissolve in the function that enables their instructions"
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod one_lane;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::{Avx512, WideTask};
pub(crate) use one_lane::OneLane;

use crate::activations::{GROUP, QuantizedGroup, quantize};
use crate::cpu_features::Isa;

/// Output rows in a tile: lanes of the widest vector.
pub(crate) const TILE: usize = 16;

/// One instruction set's way to work on the rows of a tile.
///
/// A tile of 16 rows is `PARTS` vectors; methods that read a tile's data take the part they want. Integer
/// weights come as 64 bytes for a tile: four consecutive values along the row in each lane.
pub(crate) trait Vectors: Copy {
    /// Vectors that make up a tile.
    const PARTS: usize;
    /// Input rows that a kernel holds in registers at once: 16 (with float weights 8), 4 or 1.
    const MAX_ROWS: usize;
    /// A number in each lane.
    type F32: Copy;
    /// An integer in each lane.
    type I32: Copy;
    /// Four bytes in each lane.
    type Bytes: Copy;

    /// Zero in every lane.
    fn zero(self) -> Self::F32;
    /// The same number in every lane.
    fn splat(self, value: f32) -> Self::F32;
    /// Numbers of a tile, stored as singles.
    fn load_f32(self, values: &[f32; TILE], part: usize) -> Self::F32;
    /// Numbers of a tile, stored as halves.
    fn load_f16(self, bits: &[u16; TILE], part: usize) -> Self::F32;
    /// Numbers of a tile, stored as upper halves of singles.
    fn load_bf16(self, bits: &[u16; TILE], part: usize) -> Self::F32;
    /// Numbers of a tile, stored as small integers.
    fn load_u8(self, values: &[u8; TILE], part: usize) -> Self::F32;
    /// Numbers of a tile, stored as small signed integers.
    fn load_i8(self, values: &[i8; TILE], part: usize) -> Self::F32;
    /// Writes a part of a tile.
    fn store(self, value: Self::F32, out: &mut [f32; TILE], part: usize);

    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once where the instruction set can.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;

    /// Bytes of a tile.
    fn load_bytes(self, bytes: &[u8; 64], part: usize) -> Self::Bytes;
    /// The lower four bits of each byte.
    fn low_nibbles(self, bytes: Self::Bytes) -> Self::Bytes;
    /// The upper four bits of each byte.
    fn high_nibbles(self, bytes: Self::Bytes) -> Self::Bytes;
    /// `values`, with those bits of `plane` that start at `bit` and are as many as `mask` has moved to bit 4
    /// and above. `mask` is 0x10 or 0x30; `values` have nothing there.
    fn with_upper_bits(self, values: Self::Bytes, plane: Self::Bytes, bit: usize, mask: i8) -> Self::Bytes;
    /// Byte `index` of each lane as a number.
    fn byte_as_f32(self, bytes: Self::Bytes, index: usize) -> Self::F32;

    /// The same integer in every lane.
    fn splat_i32(self, value: i32) -> Self::I32;
    /// Adds to each lane the product of its four unsigned bytes (at most 63) with the four signed bytes
    /// of `input` (-127 to 127).
    fn dot(self, sum: Self::I32, weights: Self::Bytes, input: i32) -> Self::I32;
    /// Where [`Vectors::dot_wide`] starts from, given minus 128 times the sum of the input values.
    fn wide_start(self, start: i32) -> Self::I32;
    /// As [`Vectors::dot`] for weights up to 255 whose zero point is 128; together with `wide_start` the
    /// result is that for the signed weights.
    fn dot_wide(self, sum: Self::I32, weights: Self::Bytes, input: i32) -> Self::I32;
    /// Integers as numbers.
    fn to_f32(self, value: Self::I32) -> Self::F32;

    /// Quantises a group of a row: the same bits on every set, as long as all values are finite.
    #[inline(always)]
    fn quantize(self, values: &[f32; GROUP]) -> QuantizedGroup {
        quantize(values)
    }

    /// Asks for the cache line at `address`, which need not be valid memory.
    fn prefetch(self, address: *const u8);
}

/// Work that can be done on any instruction set.
pub(crate) trait Task {
    /// What it yields.
    type Output;
    /// Whether it uses [`Vectors::dot`]; if not, it is not compiled for sets that differ in that alone.
    const INTEGER_DOTS: bool;
    /// Does it. Implementations are `inline(always)`, and so is everything they call per element.
    fn run<V: Vectors>(self, vectors: V) -> Self::Output;
}

/// Does a task that is written for AVX-512, where the process uses at least that.
#[cfg(target_arch = "x86_64")]
pub(crate) fn dispatch_wide<T: WideTask>(isa: Isa, task: T) {
    assert!(isa >= Isa::Avx512 && isa.is_available(), "{isa} has no wide vectors here");
    // SAFETY: the check has found the instructions that the function is compiled for.
    unsafe { avx512::run_wide(task) }
}

/// Does the task on an instruction set that this machine has (see [`Isa::is_available`]); one that it lacks
/// counts as portable.
pub(crate) fn dispatch<T: Task>(isa: Isa, task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    match isa {
        // SAFETY: the guard has found the instructions that the function is compiled for.
        Isa::Avx512 | Isa::Amx if isa.is_available() => return unsafe { avx512::run(task) },
        // SAFETY: as above.
        Isa::AvxVnni if T::INTEGER_DOTS && isa.is_available() => return unsafe { avx2::run_vnni(task) },
        // SAFETY: as above.
        Isa::Avx2 | Isa::AvxVnni if isa.is_available() => return unsafe { avx2::run(task) },
        _ => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    portable::run(task)
}
