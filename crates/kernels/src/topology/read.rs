//! What the system's files say of processors. The files come in as texts by name, so a test can describe any machine.

use super::parse::cpu_list;
use super::{Machine, Processor};

/// Where Linux describes its devices.
const SYSTEM: &str = "/sys/devices/system";
/// Memory nodes that are looked for: their numbers may have gaps.
const NODES_MAX: usize = 64;

/// One file by its name below the system's folder.
pub(super) fn system_file(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("{SYSTEM}/{name}")).ok()
}

impl Machine {
    /// A machine with these hardware threads to use, ascending, whose files are `file(name)`.
    pub(super) fn described(
        allowed: &[usize],
        here: Option<usize>,
        parallelism: usize,
        file: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let list = |name: &str| file(name).and_then(|text| cpu_list(&text));
        let nodes: Vec<(usize, Vec<usize>)> = list("node/online")
            .unwrap_or_default()
            .into_iter()
            .take(NODES_MAX)
            .filter_map(|node| Some((node, list(&format!("node/node{node}/cpulist"))?)))
            .collect();
        let node_of =
            |id| nodes.iter().find(|(_, members)| members.contains(&id)).map_or(0, |(node, _)| *node);
        let core_of = |id| {
            let siblings = list(&format!("cpu/cpu{id}/topology/core_cpus_list"))
                .or_else(|| list(&format!("cpu/cpu{id}/topology/thread_siblings_list")));
            // A list without it is not about it.
            siblings.filter(|all| all.contains(&id)).and_then(|all| all.into_iter().min()).unwrap_or(id)
        };
        let processors: Vec<_> =
            allowed.iter().map(|&id| Processor { id, core: core_of(id), node: node_of(id) }).collect();
        // Processors set apart at boot are nobody's by default: to be kept off them says nothing.
        let isolated = list("cpu/isolated").unwrap_or_default();
        let online = list("cpu/online").unwrap_or_default();
        let restricted = online.iter().any(|id| !isolated.contains(id) && !allowed.contains(id));
        Self { processors, parallelism: parallelism.max(1), restricted, here }
    }
}
