//! `HcclResult` numbers, data types and reduction operators.
//!
//! Always holds: numbers are those of the C ABI.
//!
//! Refuses to know: communicators.

use std::ffi::c_char;

use crate::tensor::dtype::DType;

/// Everything went well.
pub const SUCCESS: i32 = 0;
/// An argument is not accepted.
pub const PARA: i32 = 1;
/// A pointer is null, or no live communicator.
pub const PTR: i32 = 2;
/// Something inside failed.
pub const INTERNAL: i32 = 4;
/// Not in this library.
pub const NOT_SUPPORT: i32 = 5;
/// A system call failed.
pub const SYSCALL: i32 = 8;
/// Ranks did not arrive in time.
pub const TIMEOUT: i32 = 9;
/// The meeting place cannot be reached.
pub const TCP_CONNECT: i32 = 11;
/// The runtime refused.
pub const RUNTIME: i32 = 15;
/// A peer is gone or disagrees.
pub const REMOTE: i32 = 21;
/// The communicator is suspended.
pub const SUSPENDING: i32 = 22;

/// What a result means.
#[unsafe(no_mangle)]
pub extern "C" fn HcclGetErrorString(result: i32) -> *const c_char {
    let text = match result {
        0 => c"no error",
        1 => c"parameter error",
        2 => c"empty pointer",
        3 => c"memory error",
        4 => c"internal error",
        5 => c"feature not supported",
        6 => c"specific resource not found",
        7 => c"resource unavailable",
        8 => c"system call error",
        9 => c"timeout",
        10 => c"open file error",
        11 => c"tcp connect error",
        12 => c"roce connect error",
        13 => c"tcp transfer error",
        14 => c"roce transfer error",
        15 => c"runtime api error",
        16 => c"driver api error",
        17 => c"profiling api error",
        18 => c"cce api error",
        19 => c"network api error",
        20 => c"operation again",
        21 => c"error cqe from remote",
        22 => c"communicator is suspending",
        23 => c"operator retry failed",
        24 => c"out of memory",
        _ => c"unknown error",
    };
    text.as_ptr()
}

/// The element type of an `HcclDataType` number.
#[must_use]
pub fn element(code: i32) -> Option<DType> {
    Some(match code {
        0 => DType::I8,
        1 => DType::I16,
        2 => DType::I32,
        3 => DType::F16,
        4 => DType::F32,
        5 => DType::I64,
        6 => DType::U64,
        7 => DType::U8,
        8 => DType::U16,
        9 => DType::U32,
        10 => DType::F64,
        11 => DType::BF16,
        _ => return None,
    })
}

/// How parts of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Added.
    Sum,
    /// Multiplied.
    Product,
    /// The largest.
    Maximum,
    /// The smallest.
    Minimum,
}

impl Reduction {
    /// The operator of an `HcclReduceOp` number.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            0 => Self::Sum,
            1 => Self::Product,
            2 => Self::Maximum,
            3 => Self::Minimum,
            _ => return None,
        })
    }

    /// Of floats.
    #[must_use]
    pub fn floats(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Sum => a + b,
            Self::Product => a * b,
            Self::Maximum => a.max(b),
            Self::Minimum => a.min(b),
        }
    }

    /// Of integers.
    #[must_use]
    pub fn ints(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Sum => a.wrapping_add(b),
            Self::Product => a.wrapping_mul(b),
            Self::Maximum => a.max(b),
            Self::Minimum => a.min(b),
        }
    }
}
