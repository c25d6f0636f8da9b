//! The memory that this machine offers, container limits included.

use std::path::Path;

use updraft_core::Bytes;

/// Memory that can still be taken; absent where the system does not tell.
#[must_use]
pub(super) fn free_memory() -> Option<Bytes> {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).ok();
    let system = read("/proc/meminfo").and_then(|text| available(&text));
    let container = container_room(
        read("/sys/fs/cgroup/memory.max").as_deref(),
        read("/sys/fs/cgroup/memory.current").as_deref(),
        read("/sys/fs/cgroup/memory.stat").as_deref(),
    );
    match (system, container) {
        (Some(system), Some(container)) => Some(Bytes(system.min(container))),
        (system, container) => system.or(container).map(Bytes),
    }
}

/// `MemAvailable` of `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// What a container's limit leaves. Cached file pages count as used there, but are given up when needed.
fn container_room(limit: Option<&str>, used: Option<&str>, statistics: Option<&str>) -> Option<u64> {
    let limit: u64 = limit?.trim().parse().ok()?;
    let used: u64 = used?.trim().parse().ok()?;
    let file_pages = statistics
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("inactive_file ")))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(file_pages)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        assert_eq!(container_room(Some("max\n"), Some("5"), None), None);
        assert_eq!(container_room(Some("100\n"), Some("60\n"), None), Some(40));
        assert_eq!(container_room(Some("100"), Some("60"), Some("anon 1\ninactive_file 25\n")), Some(65));
        assert_eq!(container_room(Some("100"), Some("160"), None), Some(0));
    }
}
