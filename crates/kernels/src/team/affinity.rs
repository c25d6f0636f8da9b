//! Binding threads to processors, where the system has and allows it; a refusal changes nothing.

use std::sync::Arc;

/// Where the threads of a team run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// Wherever the system puts them.
    #[default]
    Anywhere,
    /// Each of them, the caller included, on any of these processors.
    Among(Arc<[usize]>),
    /// Helper `i` on the processor number `i` of these (counted round), the caller on any of them: it may start
    /// threads of its own, which inherit the binding, and the system finds the processor that is left for it.
    Each(Arc<[usize]>),
}

impl Pinning {
    /// The processors of a helper, if it is to be bound.
    pub(super) fn helper(&self, index: usize) -> Option<&[usize]> {
        match self {
            Self::Anywhere => None,
            Self::Among(cpus) => Some(cpus),
            Self::Each(cpus) => cpus.get(index % cpus.len().max(1)).map(std::slice::from_ref),
        }
    }

    /// Binds the calling thread as far as the caller of a team is bound, and with it the threads that it starts from
    /// now on.
    pub fn bind_caller(&self) {
        match self {
            Self::Anywhere => {}
            Self::Among(cpus) | Self::Each(cpus) => bind_current_thread(cpus),
        }
    }
}

/// Processors this thread may run on, ascending; empty when the system does not say.
#[cfg(target_os = "linux")]
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is a plain bit set, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size are those of a local set that the call fills in.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return Vec::new();
    }
    // SAFETY: every index is below the capacity of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// The processor that the calling thread runs on, if the system says so.
#[cfg(target_os = "linux")]
pub(crate) fn current_cpu() -> Option<usize> {
    // SAFETY: the call takes nothing and only returns a number, negative when it has none.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Binds the calling thread to these processors, if the system lets it.
#[cfg(target_os = "linux")]
pub(super) fn bind_current_thread(cpus: &[usize]) {
    // SAFETY: `cpu_set_t` is a plain bit set, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: `cpu` is below the capacity of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the pointer and the size are those of a local set that the call reads.
    let _ = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

/// Processors this thread may run on, ascending; empty when the system does not say.
#[cfg(not(target_os = "linux"))]
pub(crate) fn allowed_cpus() -> Vec<usize> {
    Vec::new()
}

/// The processor that the calling thread runs on, if the system says so.
#[cfg(not(target_os = "linux"))]
pub(crate) fn current_cpu() -> Option<usize> {
    None
}

/// Binds the calling thread to these processors, if the system lets it.
#[cfg(not(target_os = "linux"))]
pub(super) fn bind_current_thread(_cpus: &[usize]) {}
