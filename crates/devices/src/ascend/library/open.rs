//! Groups of libraries in which a function is looked for, in order.

use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;

use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_LAZY};

use super::LibraryError;
use super::search::{Installation, OPERATORS};

/// Libraries of one purpose. Never unloaded.
pub(super) struct Group(Vec<(String, ManuallyDrop<Handle>)>);

impl Group {
    /// Opens whichever of the named libraries exist.
    pub(super) fn open(
        group: &'static str,
        installation: &Installation,
        names: &[&str],
    ) -> Result<Self, LibraryError> {
        let mut opened = Self(Vec::new());
        let mut tried = installation.passed_over.clone();
        for name in names {
            opened.open_first(installation, name, &mut tried);
        }
        opened.or_error(group, tried)
    }

    /// Opens the libraries of operators: users' own, those split by domain, the undivided one.
    pub(super) fn open_operators(installation: &Installation) -> Result<Self, LibraryError> {
        let mut opened = Self(Vec::new());
        let mut tried = installation.passed_over.clone();
        for path in installation.custom_operators().iter().chain(&installation.split_operators()) {
            opened.add(path, &mut tried);
        }
        opened.open_first(installation, OPERATORS, &mut tried);
        opened.or_error("operator", tried)
    }

    fn open_first(&mut self, installation: &Installation, name: &str, tried: &mut Vec<String>) {
        for path in installation.candidates(name) {
            if self.add(&path, tried) {
                return;
            }
        }
    }

    fn add(&mut self, path: &Path, tried: &mut Vec<String>) -> bool {
        // Libraries that CANN opens later expect its symbols to be visible to all, as when it is linked.
        // SAFETY: runs the initialisers of a library that the installation owner chose; CANN's need nothing before.
        match unsafe { Handle::open(Some(path), RTLD_LAZY | RTLD_GLOBAL) } {
            Ok(handle) => {
                self.0.push((path.display().to_string(), ManuallyDrop::new(handle)));
                true
            }
            Err(error) => {
                tried.push(format!("{}: {error}", path.display()));
                false
            }
        }
    }

    fn or_error(self, group: &'static str, tried: Vec<String>) -> Result<Self, LibraryError> {
        if self.0.is_empty() { Err(LibraryError::Open { group, tried }) } else { Ok(self) }
    }

    /// Where a function begins, in the first library that has it.
    pub(super) fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        self.0.iter().find_map(|(_, library)| {
            // SAFETY: only the address is taken; who calls it vouches for the signature.
            let symbol = unsafe { library.get::<*const c_void>(name.to_bytes_with_nul()) };
            symbol.ok().map(|symbol| symbol.as_raw_ptr().cast_const())
        })
    }

    /// What was opened, for messages.
    pub(super) fn names(&self) -> String {
        self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }
}
