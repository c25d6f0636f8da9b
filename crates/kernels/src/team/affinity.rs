//! Binding threads to processors, where the system has and allows it; a refusal changes nothing.

/// Where the helpers of a team run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// Wherever the system puts them.
    #[default]
    Anywhere,
    /// Helper `i` stays on the allowed processor number `first + i` (counted round). The caller is left alone:
    /// it may start threads of its own, which would inherit the binding.
    From(usize),
}

impl Pinning {
    /// The processor of helper `index`, if it is to be bound.
    pub(super) fn cpu(self, index: usize, allowed: &[usize]) -> Option<usize> {
        match self {
            Self::Anywhere => None,
            Self::From(first) => allowed.get((first + index) % allowed.len().max(1)).copied(),
        }
    }
}

/// Processors this thread may run on, ascending; empty when the system does not say.
#[cfg(target_os = "linux")]
pub(super) fn allowed_cpus() -> Vec<usize> {
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

/// Binds the calling thread to one processor, if the system lets it.
#[cfg(target_os = "linux")]
pub(super) fn pin_current_thread(cpu: usize) {
    // SAFETY: `cpu_set_t` is a plain bit set, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` came from `allowed_cpus`, so it is below the capacity of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and the size are those of a local set that the call reads.
    let _ = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}

/// Processors this thread may run on, ascending; empty when the system does not say.
#[cfg(not(target_os = "linux"))]
pub(super) fn allowed_cpus() -> Vec<usize> {
    Vec::new()
}

/// Binds the calling thread to one processor, if the system lets it.
#[cfg(not(target_os = "linux"))]
pub(super) fn pin_current_thread(_cpu: usize) {}
