//! What this machine can do at best: loops that read memory, or multiply and add, and do nothing else.
//!
//! They are the yardstick for the kernels: no product runs faster than its multiplications, and no decode
//! step faster than its weights can be read. Always holds: a loop does all the work that it claims, and its
//! result shows it (a read finds every bit that is set, a multiplication adds one for each multiply-add).
//! This module refuses to know the time: whoever calls it holds the watch.

mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::cpu_features::{Isa, IsaError};
use crate::lanes::{Kernel, LANES, Lanes, Simd};

/// Words of a cache line.
pub const LINE: usize = LANES;

/// Rounds of one call of [`Probe::multiply`] at most: with more, sums in single precision would stop growing.
pub const ROUNDS_MAX: u32 = 1 << 20;

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// 8-bit integers into 32-bit sums.
    Int8,
    /// Upper halves of singles into single sums.
    Bf16,
    /// Singles.
    Fp32,
}

impl Arithmetic {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Int8, Self::Bf16, Self::Fp32];

    /// The usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Bf16 => "bf16",
            Self::Fp32 => "fp32",
        }
    }
}

/// What a loop of multiplications has done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multiplied {
    /// Multiplications and additions, counted as two operations.
    pub operations: u64,
    /// Sum over all accumulators. Every multiply-add adds one, so it is half of the operations.
    pub sum: f64,
}

/// The loops of one instruction set that this machine has.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    isa: Isa,
    simd: Simd,
}

/// One loop: twelve sums that do not wait for each other, or what the compiler makes of a dot product.
struct Loop {
    instruction: &'static str,
    /// Multiply-adds of one round.
    multiply_adds: u64,
    /// Runs some rounds and gives the sum over all accumulators.
    run: fn(u32) -> f64,
}

impl Probe {
    /// The loops for the instruction set that this process uses.
    ///
    /// # Errors
    /// When the environment forces one that cannot be used.
    pub fn selected() -> Result<Self, IsaError> {
        let isa = Isa::selected()?;
        Ok(Self { isa, simd: Simd::selected()? })
    }

    /// The loops for this very set, if the machine has it.
    #[must_use]
    pub fn of(isa: Isa) -> Option<Self> {
        Simd::of(isa).map(|simd| Self { isa, simd })
    }

    /// The instruction set.
    #[must_use]
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// Reads every line and gives all set bits, put together by OR.
    #[must_use]
    pub fn read(self, lines: &[[u32; LINE]]) -> u32 {
        self.simd.run(Read { lines })
    }

    /// The instructions that multiply, as their manuals write them; absent when the set has none for this
    /// kind.
    #[must_use]
    pub fn instruction(self, arithmetic: Arithmetic) -> Option<&'static str> {
        self.find(arithmetic).map(|found| found.instruction)
    }

    /// Multiplies and adds for some rounds (at most [`ROUNDS_MAX`]), on the calling thread.
    #[must_use]
    pub fn multiply(self, arithmetic: Arithmetic, rounds: u32) -> Option<Multiplied> {
        let found = self.find(arithmetic)?;
        let rounds = rounds.clamp(1, ROUNDS_MAX);
        let sum = (found.run)(rounds);
        Some(Multiplied { operations: 2 * found.multiply_adds * u64::from(rounds), sum })
    }

    fn find(self, arithmetic: Arithmetic) -> Option<Loop> {
        #[cfg(target_arch = "x86_64")]
        if self.isa != Isa::Portable {
            return x86::find(self.isa, arithmetic);
        }
        portable::find(arithmetic)
    }
}

/// Independent registers that reading goes to.
const STREAMS: usize = 4;

struct Read<'a> {
    lines: &'a [[u32; LINE]],
}

impl Kernel for Read<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> u32 {
        let mut found = [l.splat_u(0); STREAMS];
        let (groups, rest) = self.lines.as_chunks::<STREAMS>();
        for group in groups {
            for (found, line) in found.iter_mut().zip(group) {
                *found = l.or(*found, l.load_u(line));
            }
        }
        for (found, line) in found.iter_mut().zip(rest) {
            *found = l.or(*found, l.load_u(line));
        }
        let [a, b, c, d] = found;
        let all = l.or(l.or(a, b), l.or(c, d));
        let mut lanes = [0.0; LANES];
        l.store(l.of_bits(all), &mut lanes);
        lanes.iter().fold(0, |bits, lane| bits | lane.to_bits())
    }
}
