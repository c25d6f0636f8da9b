//! CANN's shared libraries, opened at run time.
//!
//! Promises: a [`Library`] has every function of CANN 8.1 that this backend calls, or does not exist; what came later is
//! optional. All libraries come out of one installation. Which library exports a function differs between releases, so
//! each function is looked for in all libraries of its group. Libraries are never unloaded: CANN's own threads outlive
//! its handles.
//!
//! Refuses to know: devices, faults, what functions do.

mod chip;
mod open;
mod search;
mod symbols;

use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

use thiserror::Error;

pub use chip::Chip;
pub use search::SearchPath;

use open::Group;
use search::{BASE, RUNTIME};
pub(super) use symbols::{Collectives, Executor, HcclComm, RootInfo, Runtime, Tensors};

/// Why CANN cannot be loaded.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// None of the candidates could be opened.
    #[error(
        "cannot open CANN's {group} library; tried {}. Install CANN 8.1 or newer and source its set_env.sh, or set \
         ASCEND_HOME_PATH",
        tried.join("; ")
    )]
    Open {
        /// What is missing: `runtime`, `operator base`, `operator`.
        group: &'static str,
        /// Every folder that lacks some, every candidate with the loader's answer.
        tried: Vec<String>,
    },
    /// Functions are missing.
    #[error(
        "the CANN libraries in {found} lack {}; they are older than CANN 8.1 or not complete. Install CANN 8.1 or newer",
        missing.join(", ")
    )]
    Symbols {
        /// The libraries that were opened.
        found: String,
        /// Every missing function.
        missing: Vec<&'static str>,
    },
    /// `aclInit` fails.
    #[error("CANN does not start: {text} (status {status}); see the logs below ~/ascend/log")]
    Init {
        /// Its status.
        status: i32,
        /// What the library says.
        text: String,
    },
}

/// Release of CANN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// As the installation writes it: `8.1.RC1`.
    pub text: String,
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

/// The loaded functions.
pub struct Library {
    pub(super) runtime: Runtime,
    pub(super) tensors: Tensors,
    /// Absent when there is no collective library.
    pub(super) collectives: Option<Collectives>,
    operators: Group,
    version: Option<Version>,
}

/// Where both phases of an operator begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperatorSymbols {
    pub(super) phase_one: *const c_void,
    pub(super) phase_two: symbols::PhaseTwo,
}

impl Library {
    /// Opens the first complete installation on the search path.
    ///
    /// # Errors
    /// When a library or a function is missing; all missing ones are named.
    pub fn load(search: &SearchPath) -> Result<Arc<Self>, LibraryError> {
        let installation = search.installation()?;
        let runtime = Group::open("runtime", &installation, &RUNTIME)?;
        let base = Group::open("operator base", &installation, &BASE)?;
        let operators = Group::open_operators(&installation)?;
        let hccl = Group::open("collective", &installation, &["libhccl.so", "libhcomm.so"]).ok();
        let mut missing = Vec::new();
        let functions = Runtime::find(&runtime, &mut missing);
        let tensors = Tensors::find(&base, &mut missing);
        let mut unused = Vec::new();
        let collectives = hccl.as_ref().and_then(|group| Collectives::find(group, &mut unused));
        let (Some(runtime_functions), Some(tensors), true) = (functions, tensors, missing.is_empty()) else {
            return Err(LibraryError::Symbols { found: runtime.names(), missing });
        };
        let version = runtime_functions.version();
        let runtime = runtime_functions;
        Ok(Arc::new(Self { runtime, tensors, collectives, operators, version }))
    }

    /// The installed release, if it can be asked.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Whether an operator (`aclnnMm`) is installed.
    #[must_use]
    pub fn has_operator(&self, name: &str) -> bool {
        self.operator(name).is_some()
    }

    /// Both phases of an operator.
    pub(super) fn operator(&self, name: &str) -> Option<OperatorSymbols> {
        let symbol = |suffix: &str| {
            let symbol = CString::new(format!("{name}{suffix}")).ok()?;
            self.operators.symbol(&symbol)
        };
        let (phase_one, phase_two) = (symbol("GetWorkspaceSize")?, symbol("")?);
        // SAFETY: the second phase of every operator has this signature.
        let phase_two = unsafe { std::mem::transmute::<*const c_void, symbols::PhaseTwo>(phase_two) };
        Some(OperatorSymbols { phase_one, phase_two })
    }

    /// What the library said last on this thread; asking clears it.
    pub(super) fn recent_message(&self) -> String {
        // SAFETY: takes nothing; the result is a string that lives until the next call on this thread.
        let text = unsafe { (self.runtime.get_recent_err_msg)() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: not null, and a C string by its interface.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Version {
    /// Reads `8.1.RC1`, `9.1.0`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split('.').map(|part| part.parse().ok());
        let major = numbers.next()??;
        let minor = numbers.next().flatten().unwrap_or(0);
        Some(Self { text: text.trim().to_owned(), major, minor })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
