//! Multiplications written out for x86: twelve sums in registers, nothing that touches memory.
//!
//! The whole loop is assembly, so that no compiler moves a sum to the stack or sees that all sums are equal.
//! Each function is for machines that have its instructions; [`find`] hands out no other.

use std::arch::asm;

use super::{Arithmetic, LINE, Loop};
use crate::cpu_features::Isa;
use crate::tile_unit::{BUSY_PRODUCTS, Registers, TILE_ROWS, TileUnit};

/// Four bytes of 1.
const INT8_ONES: u32 = 0x0101_0101;
/// Two 16-bit integers of 1.
const INT16_ONES: u32 = 0x0001_0001;
/// Two bf16 numbers of 1.
const BF16_ONES: u32 = 0x3f80_3f80;
/// 1.0.
const FP32_ONE: u32 = 0x3f80_0000;

/// Sums that do not wait for each other: more than the latency of any of these instructions times two a
/// cycle.
const CHAINS: u64 = 12;

/// The loop of an instruction set that the machine has.
pub(super) fn find(isa: Isa, arithmetic: Arithmetic) -> Option<Loop> {
    debug_assert!(isa.is_available(), "the caller has a probe of this set");
    let (instruction, multiply_adds, run): (_, _, fn(u32) -> f64) = match (isa, arithmetic) {
        (Isa::Avx2, Arithmetic::Int8) => ("vpmaddubsw + vpmaddwd, 256 bits", 32, int8_avx2),
        (Isa::AvxVnni, Arithmetic::Int8) => ("vpdpbusd, 256 bits", 32, int8_avx_vnni),
        (Isa::Amx, Arithmetic::Int8 | Arithmetic::Bf16) => return tiles(arithmetic),
        (Isa::Avx512, Arithmetic::Int8) => ("vpdpbusd, 512 bits", 64, int8_avx512),
        (Isa::Avx512, Arithmetic::Bf16) if is_x86_feature_detected!("avx512bf16") => {
            ("vdpbf16ps, 512 bits", 32, bf16_avx512)
        }
        (Isa::Portable, _) | (_, Arithmetic::Bf16) => return None,
        (Isa::Avx2 | Isa::AvxVnni, Arithmetic::Fp32) => ("vfmadd231ps, 256 bits", 8, fp32_avx2),
        (Isa::Avx512 | Isa::Amx, Arithmetic::Fp32) => ("vfmadd231ps, 512 bits", 16, fp32_avx512),
    };
    Some(Loop { instruction, multiply_adds: CHAINS * multiply_adds, run })
}

/// The loop of the matrix unit.
fn tiles(arithmetic: Arithmetic) -> Option<Loop> {
    let (instruction, values, run): (_, _, fn(u32) -> f64) = match arithmetic {
        Arithmetic::Int8 => {
            ("tdpbssd, matrix unit", 64, |rounds| tile_sum(rounds, INT8_ONES, Registers::busy_int8))
        }
        _ => ("tdpbf16ps, matrix unit", 32, |rounds| tile_sum(rounds, BF16_ONES, Registers::busy_bf16)),
    };
    TileUnit::get()?;
    let results = (TILE_ROWS * TILE_ROWS) as u64;
    Some(Loop { instruction, multiply_adds: BUSY_PRODUCTS * results * values, run })
}

/// The sum over all results of rounds of products of ones.
fn tile_sum(rounds: u32, ones: u32, busy: fn(Registers, u32, u32) -> f64) -> f64 {
    TileUnit::get().map_or(0.0, |unit| unit.with_registers(|registers| busy(registers, rounds, ones)))
}

/// Defines a function that runs one operation on twelve sums, round after round, and returns all lanes of
/// their total. `$v` names the registers, `$operation` is a macro from the number of a sum to its
/// instructions, which may use register 12 (`$x` in all lanes), 13 (`$y`) and 14 (free). Zeroing 256 bits
/// zeroes the rest of a register.
macro_rules! loops {
    ($($name:ident($v:literal, $x:ident, $y:ident, $operation:ident, $add:literal, $sum:ident);)*) => {
        $(
            fn $name(rounds: u32) -> f64 {
                let mut lanes = [0_u32; LINE];
                // SAFETY: `find` returns this function only where the machine has its instructions. All
                // vector registers are declared as overwritten; memory is written only at `lanes`, which
                // holds the widest register; `rounds` is above zero (`Probe::multiply` sees to it), so
                // counting down ends.
                unsafe {
                    asm!(
                        concat!("vmovd xmm12, {x:e}"),
                        concat!("vpbroadcastd ", $v, "12, xmm12"),
                        concat!("vmovd xmm13, {y:e}"),
                        concat!("vpbroadcastd ", $v, "13, xmm13"),
                        "vpxor ymm0, ymm0, ymm0", "vpxor ymm1, ymm1, ymm1", "vpxor ymm2, ymm2, ymm2",
                        "vpxor ymm3, ymm3, ymm3", "vpxor ymm4, ymm4, ymm4", "vpxor ymm5, ymm5, ymm5",
                        "vpxor ymm6, ymm6, ymm6", "vpxor ymm7, ymm7, ymm7", "vpxor ymm8, ymm8, ymm8",
                        "vpxor ymm9, ymm9, ymm9", "vpxor ymm10, ymm10, ymm10", "vpxor ymm11, ymm11, ymm11",
                        "2:",
                        $operation!("0"), $operation!("1"), $operation!("2"), $operation!("3"),
                        $operation!("4"), $operation!("5"), $operation!("6"), $operation!("7"),
                        $operation!("8"), $operation!("9"), $operation!("10"), $operation!("11"),
                        "sub ecx, 1",
                        "jnz 2b",
                        concat!($add, " ", $v, "0, ", $v, "0, ", $v, "1"),
                        concat!($add, " ", $v, "2, ", $v, "2, ", $v, "3"),
                        concat!($add, " ", $v, "4, ", $v, "4, ", $v, "5"),
                        concat!($add, " ", $v, "6, ", $v, "6, ", $v, "7"),
                        concat!($add, " ", $v, "8, ", $v, "8, ", $v, "9"),
                        concat!($add, " ", $v, "10, ", $v, "10, ", $v, "11"),
                        concat!($add, " ", $v, "0, ", $v, "0, ", $v, "2"),
                        concat!($add, " ", $v, "4, ", $v, "4, ", $v, "6"),
                        concat!($add, " ", $v, "8, ", $v, "8, ", $v, "10"),
                        concat!($add, " ", $v, "0, ", $v, "0, ", $v, "4"),
                        concat!($add, " ", $v, "0, ", $v, "0, ", $v, "8"),
                        concat!("vmovups [{lanes}], ", $v, "0"),
                        "vzeroupper",
                        x = in(reg) $x,
                        y = in(reg) $y,
                        lanes = in(reg) lanes.as_mut_ptr(),
                        inout("ecx") rounds => _,
                        clobber_abi("sysv64"),
                        options(nostack),
                    );
                }
                $sum(&lanes)
            }
        )*
    };
}

fn integers(lanes: &[u32; LINE]) -> f64 {
    lanes.iter().map(|lane| f64::from(*lane)).sum()
}

fn singles(lanes: &[u32; LINE]) -> f64 {
    lanes.iter().map(|lane| f64::from(f32::from_bits(*lane))).sum()
}

macro_rules! bytes_avx2 {
    ($sum:literal) => {
        concat!(
            "vpmaddubsw ymm14, ymm12, ymm12\n",
            "vpmaddwd ymm14, ymm14, ymm13\n",
            "vpaddd ymm",
            $sum,
            ", ymm",
            $sum,
            ", ymm14"
        )
    };
}

macro_rules! bytes_avx_vnni {
    ($sum:literal) => {
        concat!("{{vex}} vpdpbusd ymm", $sum, ", ymm12, ymm12")
    };
}

macro_rules! bytes_avx512 {
    ($sum:literal) => {
        concat!("vpdpbusd zmm", $sum, ", zmm12, zmm12")
    };
}

macro_rules! halves_avx512 {
    ($sum:literal) => {
        concat!("vdpbf16ps zmm", $sum, ", zmm12, zmm12")
    };
}

macro_rules! singles_avx2 {
    ($sum:literal) => {
        concat!("vfmadd231ps ymm", $sum, ", ymm12, ymm12")
    };
}

macro_rules! singles_avx512 {
    ($sum:literal) => {
        concat!("vfmadd231ps zmm", $sum, ", zmm12, zmm12")
    };
}

loops! {
    int8_avx2("ymm", INT8_ONES, INT16_ONES, bytes_avx2, "vpaddd", integers);
    int8_avx_vnni("ymm", INT8_ONES, INT16_ONES, bytes_avx_vnni, "vpaddd", integers);
    int8_avx512("zmm", INT8_ONES, INT16_ONES, bytes_avx512, "vpaddd", integers);
    bf16_avx512("zmm", BF16_ONES, BF16_ONES, halves_avx512, "vaddps", singles);
    fp32_avx2("ymm", FP32_ONE, FP32_ONE, singles_avx2, "vaddps", singles);
    fp32_avx512("zmm", FP32_ONE, FP32_ONE, singles_avx512, "vaddps", singles);
}
