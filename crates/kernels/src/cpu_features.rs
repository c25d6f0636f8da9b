//! Which instruction set the kernels use: found once, the same for the whole process.
//!
//! Results are bit-identical between runs only on the same instruction set, so the choice never changes while
//! the process lives. The environment variable [`KERNELS_VARIABLE`] forces one, for tests and for hunting
//! faults.

use std::fmt;
use std::sync::OnceLock;

use thiserror::Error;

/// Environment variable that forces an instruction set by its name.
pub const KERNELS_VARIABLE: &str = "UPDRAFT_KERNELS";

/// A set of instructions that kernels are written for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// What the compiler makes for every machine of this architecture.
    Portable,
    /// AVX2 with FMA and F16C: 256-bit vectors.
    Avx2,
    /// AVX2 and AVX-VNNI: 256-bit vectors with integer dot products.
    AvxVnni,
    /// AVX-512 (F, BW, DQ, VL, VNNI) with all of AVX2: 512-bit vectors with integer dot products.
    Avx512,
    /// AVX-512 with BF16, and the matrix unit (AMX) for products of numbers of half width.
    Amx,
}

/// Why the forced instruction set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{KERNELS_VARIABLE} is {value:?}, which {problem}; this machine can use: {possible}")]
pub struct IsaError {
    /// What the environment says.
    pub value: String,
    /// What is wrong with it.
    pub problem: &'static str,
    /// Names that would work.
    pub possible: String,
}

impl Isa {
    /// Every set, slowest first.
    pub const ALL: [Self; 5] = [Self::Portable, Self::Avx2, Self::AvxVnni, Self::Avx512, Self::Amx];

    /// The set that this process uses: the fastest one that the machine has, or the one that the environment
    /// forces.
    pub fn selected() -> Result<Self, IsaError> {
        static SELECTED: OnceLock<Result<Isa, IsaError>> = OnceLock::new();
        SELECTED
            .get_or_init(|| {
                let forced = std::env::var_os(KERNELS_VARIABLE).filter(|value| !value.is_empty());
                Self::choose(forced.as_ref().map(|value| value.to_string_lossy()).as_deref())
            })
            .clone()
    }

    /// Name, as in the environment variable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// True if this machine has the instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => has_avx2(),
            Self::AvxVnni => has_avx2() && has_avx_vnni(),
            Self::Avx512 => has_avx2() && has_avx512(),
            Self::Amx => Self::Avx512.is_available() && has_amx(),
        }
    }

    /// The sets that this machine has, slowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    fn choose(forced: Option<&str>) -> Result<Self, IsaError> {
        let available = Self::available();
        let Some(value) = forced else {
            return Ok(available.last().copied().unwrap_or(Self::Portable));
        };
        let refusal = |problem| IsaError {
            value: value.to_owned(),
            problem,
            possible: available.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", "),
        };
        let isa = Self::ALL
            .into_iter()
            .find(|isa| isa.name() == value)
            .ok_or_else(|| refusal("names no instruction set"))?;
        if isa.is_available() { Ok(isa) } else { Err(refusal("this machine does not have")) }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx_vnni() -> bool {
    is_x86_feature_detected!("avxvnni")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(target_arch = "x86_64")]
fn has_amx() -> bool {
    is_x86_feature_detected!("avx512bf16") && crate::tile_unit::TileUnit::get().is_some()
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx_vnni() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_amx() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_available_set_is_the_default() {
        assert_eq!(Isa::choose(None).ok(), Isa::available().last().copied());
        assert_eq!(Isa::choose(Some("portable")), Ok(Isa::Portable));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_possible_ones() {
        let message = Isa::choose(Some("sse9")).unwrap_err().to_string();
        assert!(message.contains("\"sse9\", which names no instruction set; this machine can use: portable"));
        for isa in Isa::ALL {
            assert_eq!(Isa::choose(Some(isa.name())).is_ok(), isa.is_available());
        }
    }
}
