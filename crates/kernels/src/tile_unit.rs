//! The processor's matrix unit (Intel AMX): eight registers of sixteen rows of 64 bytes, and products of them.
//!
//! Owns the permission that the system must give, and the shape that all registers have here. A value of [`TileUnit`]
//! proves that the unit can be used. Registers are loaded, used and stored within one block of assembly each, so
//! that nobody depends on what another one has left in them; only their shape stays, between
//! [`TileUnit::with_registers`] and its end.
//!
//! Numbers of half width are multiplied in pairs: the sum over the even ones and the sum over the odd ones of up to 32
//! are formed in single precision and then added to the result, with denormal numbers counted as zero. A result
//! depends on its own row and column alone.

#![allow(clippy::unused_self, reason = "a value is the proof that the instructions may be used")]

use std::arch::asm;
use std::sync::OnceLock;

use crate::cpu_features::Isa;

/// Rows of a register, and values of single precision in one.
pub(crate) const TILE_ROWS: usize = 16;

/// Proof that the matrix unit is there and may be used by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TileUnit(());

/// Shapes of the registers, in the form that the processor loads.
#[repr(C, align(64))]
struct Shapes([u8; 64]);

/// Every register: sixteen rows of 64 bytes.
static SHAPES: Shapes = shapes([(TILE_ROWS as u8, 64); 8]);

/// Results; a left side of 32 bytes a row, and the right side that goes with it.
static INTEGER_SHAPES: Shapes = shapes([(16, 64), (16, 32), (8, 64), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]);

/// From rows, and bytes of a row, of each register.
const fn shapes(of: [(u8, u8); 8]) -> Shapes {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut register = 0;
    while register < 8 {
        bytes[48 + register] = of[register].0;
        bytes[16 + 2 * register] = of[register].1;
        register += 1;
    }
    Shapes(bytes)
}

impl TileUnit {
    /// The unit, if the machine has one and the system lets the process use it. Asks the system once.
    pub(crate) fn get() -> Option<Self> {
        static ALLOWED: OnceLock<bool> = OnceLock::new();
        ALLOWED.get_or_init(|| has_tiles() && ask_system()).then_some(Self(()))
    }

    /// The unit, where this instruction set means it.
    pub(crate) fn for_isa(isa: Isa) -> Option<Self> {
        (isa == Isa::Amx).then(Self::get).flatten()
    }

    /// As [`TileUnit::with_registers`], with the registers in the shapes for integers.
    pub(crate) fn with_integer_registers<R>(self, work: impl FnOnce(IntegerRegisters) -> R) -> R {
        let _release = self.load(&INTEGER_SHAPES);
        work(IntegerRegisters(()))
    }

    /// Runs `work` with the registers in their shape, and releases them: a thread whose registers are in use is
    /// switched more slowly. Calls must not be nested.
    pub(crate) fn with_registers<R>(self, work: impl FnOnce(Registers) -> R) -> R {
        let _release = self.load(&SHAPES);
        work(Registers(()))
    }

    fn load(self, shapes: &'static Shapes) -> Release {
        // SAFETY: the unit may be used (`self`), and the shapes are valid ones.
        unsafe { asm!("ldtilecfg [{}]", in(reg) shapes, options(nostack, readonly)) };
        Release
    }
}

/// Releases the registers, also when the work panics.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        // SAFETY: the instruction exists, since a `TileUnit` was there; no code relies on the registers.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Proof that the registers have the shapes for integers now.
#[derive(Clone, Copy)]
pub(crate) struct IntegerRegisters(());

impl IntegerRegisters {
    /// `out[16][16] = left * right` in signed bytes and whole sums: `left` has 32 values in each row, rows are 64 bytes
    /// apart; `right` is eight rows of sixteen times four values, `out` sixteen rows of sixteen sums.
    ///
    /// # Safety
    /// All that is described can be read and written.
    pub(crate) unsafe fn product(self, left: *const i32, right: *const u8, out: *mut i32) {
        // SAFETY: reads and writes only what the caller describes; all registers used are named.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tileloadd tmm1, [{left} + {line}]",
                "tileloadd tmm2, [{right} + {line}]",
                "tdpbssd tmm0, tmm1, tmm2",
                "tilestored [{out} + {line}], tmm0",
                left = in(reg) left,
                right = in(reg) right,
                out = in(reg) out,
                line = in(reg) 64_usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _,
                options(nostack),
            );
        }
    }
}

/// Proof that the registers have their shape now.
#[derive(Clone, Copy)]
pub(crate) struct Registers(());

/// A left side in half precision, as two parts whose sum it is. Each part: sixteen rows, `stride` bytes apart.
#[derive(Clone, Copy)]
pub(crate) struct SplitRows {
    /// The upper parts.
    pub(crate) high: *const u32,
    /// The lower parts.
    pub(crate) low: *const u32,
    /// Bytes from one row to the next.
    pub(crate) stride: usize,
    /// Bytes from the 32 values of one step to those of the next.
    pub(crate) step: usize,
}

impl Registers {
    /// `out[16][16] += left * right` for four right sides at once: `left` has `32 * steps` values in each row, each
    /// right side `steps` times sixteen rows of sixteen pairs, one behind the other. Rows of the results are
    /// `out_stride` bytes apart, and the results 64 bytes. `steps` is above zero.
    ///
    /// # Safety
    /// All that is described can be read and written.
    pub(crate) unsafe fn add_four_products(
        self,
        left: SplitRows,
        right: [*const u32; 4],
        steps: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        debug_assert!(steps > 0, "the unit counts down");
        let [r0, r1, r2, r3] = right;
        // SAFETY: reads and writes only what the caller describes; all registers used are named.
        unsafe {
            asm!(
                "tileloadd tmm0, [{out} + {out_stride}]",
                "tileloadd tmm1, [{out} + {out_stride} + 64]",
                "tileloadd tmm2, [{out} + {out_stride} + 128]",
                "tileloadd tmm3, [{out} + {out_stride} + 192]",
                "2:",
                "tileloadd tmm4, [{high} + {stride}]",
                "tileloadd tmm5, [{low} + {stride}]",
                "tileloadd tmm6, [{r0} + {line}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm0, tmm5, tmm6",
                "tileloadd tmm7, [{r1} + {line}]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm1, tmm5, tmm7",
                "tileloadd tmm6, [{r2} + {line}]",
                "tdpbf16ps tmm2, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tileloadd tmm7, [{r3} + {line}]",
                "tdpbf16ps tmm3, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {high}, {step}",
                "add {low}, {step}",
                "add {r0}, 1024",
                "add {r1}, 1024",
                "add {r2}, 1024",
                "add {r3}, 1024",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{out} + {out_stride}], tmm0",
                "tilestored [{out} + {out_stride} + 64], tmm1",
                "tilestored [{out} + {out_stride} + 128], tmm2",
                "tilestored [{out} + {out_stride} + 192], tmm3",
                high = inout(reg) left.high => _,
                low = inout(reg) left.low => _,
                stride = in(reg) left.stride,
                step = in(reg) left.step,
                r0 = inout(reg) r0 => _,
                r1 = inout(reg) r1 => _,
                r2 = inout(reg) r2 => _,
                r3 = inout(reg) r3 => _,
                line = in(reg) 64_usize,
                steps = inout(reg) steps => _,
                out = in(reg) out,
                out_stride = in(reg) out_stride,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// `out[16][64] += left * right`: `left` has 64 values in each row, of which the first 32 go with the first
    /// right side and the rest with the second; one that is absent is left out. Each right side has sixteen rows of
    /// 64 pairs, `right_stride` bytes apart. Rows of `out` are `out_stride` bytes apart.
    ///
    /// # Safety
    /// All that is described can be read and written.
    pub(crate) unsafe fn add_products(
        self,
        left: SplitRows,
        right: [Option<*const u32>; 2],
        right_stride: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        let (skip, first, second) = match right {
            [Some(first), Some(second)] => (0, first, Some(second)),
            [Some(first), None] => (0, first, None),
            [None, Some(second)] => (left.step, second, None),
            [None, None] => return,
        };
        // SAFETY: reads and writes only what the caller describes; all registers used are named.
        unsafe {
            asm!(
                "tileloadd tmm0, [{out} + {out_stride}]",
                "tileloadd tmm1, [{out} + {out_stride} + 64]",
                "tileloadd tmm2, [{out} + {out_stride} + 128]",
                "tileloadd tmm3, [{out} + {out_stride} + 192]",
                "2:",
                "tileloadd tmm4, [{high} + {stride}]",
                "tileloadd tmm5, [{low} + {stride}]",
                "tileloadd tmm6, [{right} + {right_stride}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm0, tmm5, tmm6",
                "tileloadd tmm7, [{right} + {right_stride} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm1, tmm5, tmm7",
                "tileloadd tmm6, [{right} + {right_stride} + 128]",
                "tdpbf16ps tmm2, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tileloadd tmm7, [{right} + {right_stride} + 192]",
                "tdpbf16ps tmm3, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {high}, {step}",
                "add {low}, {step}",
                "mov {right}, {second}",
                "xor {second:e}, {second:e}",
                "test {right}, {right}",
                "jnz 2b",
                "tilestored [{out} + {out_stride}], tmm0",
                "tilestored [{out} + {out_stride} + 64], tmm1",
                "tilestored [{out} + {out_stride} + 128], tmm2",
                "tilestored [{out} + {out_stride} + 192], tmm3",
                high = inout(reg) left.high.wrapping_byte_add(skip) => _,
                low = inout(reg) left.low.wrapping_byte_add(skip) => _,
                stride = in(reg) left.stride,
                step = in(reg) left.step,
                right = inout(reg) first => _,
                second = inout(reg) second.unwrap_or(std::ptr::null()) => _,
                right_stride = in(reg) right_stride,
                out = in(reg) out,
                out_stride = in(reg) out_stride,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

/// Products in a round of the busy loops.
pub(crate) const BUSY_PRODUCTS: u64 = 6;

/// Defines a loop that does nothing but multiply, and returns the sum of all results. All numbers of both sides are
/// `ones`, and `rounds` is above zero.
macro_rules! busy {
    ($name:ident, $product:literal, $value:expr) => {
        pub(crate) fn $name(self, rounds: u32, ones: u32) -> f64 {
            let side = [ones; TILE_ROWS * TILE_ROWS];
            let mut results = [[0_u32; TILE_ROWS * TILE_ROWS]; BUSY_PRODUCTS as usize];
            // SAFETY: reads one register's worth of `side`, writes as many as there are in `results`; all registers
            // used are named; `rounds` is counted down to zero.
            unsafe {
                asm!(
                    "tilezero tmm0", "tilezero tmm1", "tilezero tmm2",
                    "tilezero tmm3", "tilezero tmm4", "tilezero tmm5",
                    "tileloadd tmm6, [{side} + {line}]",
                    "tileloadd tmm7, [{side} + {line}]",
                    "2:",
                    concat!($product, " tmm0, tmm6, tmm7"),
                    concat!($product, " tmm1, tmm6, tmm7"),
                    concat!($product, " tmm2, tmm6, tmm7"),
                    concat!($product, " tmm3, tmm6, tmm7"),
                    concat!($product, " tmm4, tmm6, tmm7"),
                    concat!($product, " tmm5, tmm6, tmm7"),
                    "sub {rounds:e}, 1",
                    "jnz 2b",
                    "tilestored [{results} + {line}], tmm0",
                    "tilestored [{results} + {line} + 1024], tmm1",
                    "tilestored [{results} + {line} + 2048], tmm2",
                    "tilestored [{results} + {line} + 3072], tmm3",
                    "tilestored [{results} + {line} + 4096], tmm4",
                    "tilestored [{results} + {line} + 5120], tmm5",
                    side = in(reg) side.as_ptr(),
                    results = in(reg) results.as_mut_ptr(),
                    line = in(reg) 64_usize,
                    rounds = inout(reg) rounds => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
            results.as_flattened().iter().map(|bits| $value(*bits)).sum()
        }
    };
}

impl Registers {
    busy!(busy_int8, "tdpbssd", f64::from);
    busy!(busy_bf16, "tdpbf16ps", |bits| f64::from(f32::from_bits(bits)));
}

/// Whether the processor has the unit, for integers and for numbers of half width.
fn has_tiles() -> bool {
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    #[allow(unused_unsafe, reason = "older compilers take the call for unsafe")]
    // SAFETY: every processor of this architecture has the instruction.
    let (highest, leaf) =
        unsafe { (std::arch::x86_64::__cpuid(0).eax, std::arch::x86_64::__cpuid_count(7, 0)) };
    let all = BF16 | TILES | INT8;
    // Without support by the system for the wide registers, this would not be worth a look.
    highest >= 7 && leaf.edx & all == all && is_x86_feature_detected!("avx512f")
}

/// Asks for the registers' place in the process' saved state, which is not there by default.
#[cfg(target_os = "linux")]
fn ask_system() -> bool {
    const REQUEST: libc::c_ulong = 0x1023;
    const TILE_DATA: libc::c_ulong = 18;
    // SAFETY: the call takes two numbers and changes nothing but what this process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
fn ask_system() -> bool {
    false
}
