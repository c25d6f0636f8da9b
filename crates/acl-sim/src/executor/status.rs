//! Codes of the operator library, and why a first phase refuses a call.
//!
//! Always holds: a refusal leaves a recent message that names the operator, the argument and what would be
//! accepted.
//!
//! Refuses to know: where recent messages are kept; [`report`] passes them to the runtime.

/// A pointer that must not be null is null.
pub const NULL: i32 = 161_001;
/// A type, shape, format or attribute is not accepted.
pub const INVALID: i32 = 161_002;
/// The call is right, but no kernel for it is in this library.
pub const NO_KERNEL: i32 = 561_003;
/// An executor is missing, was used up, or belongs to another operator.
pub const EXECUTOR: i32 = 561_103;
/// The runtime refused the launch.
pub const RUNTIME: i32 = 361_001;
/// A matrix kernel met an address it may not touch.
pub const AICORE_FAULT: i32 = 507_015;
/// A vector kernel met an index or address it may not touch.
pub const VECTOR_FAULT: i32 = 507_035;

/// Why a first phase refuses a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A required argument is a null pointer.
    #[error("{0} is a null pointer, or an object that was destroyed: pass a live one")]
    Null(&'static str),
    /// An argument is not accepted; the text says what would be.
    #[error("{0}")]
    Invalid(String),
    /// The real library has a kernel for it, this one has not.
    #[error("{0}: the simulated library has no kernel for that")]
    NoKernel(String),
}

impl Refusal {
    /// Its code.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::Null(_) => NULL,
            Self::Invalid(_) => INVALID,
            Self::NoKernel(_) => NO_KERNEL,
        }
    }
}

/// Refuses with a text unless `accepted`.
pub fn ensure(accepted: bool, text: impl FnOnce() -> String) -> Result<(), Refusal> {
    if accepted { Ok(()) } else { Err(Refusal::Invalid(text())) }
}

/// Leaves a recent message for `aclGetRecentErrMsg` on this thread. Returns the code.
pub fn report(code: i32, text: &str) -> i32 {
    crate::launch::report(code, text)
}
