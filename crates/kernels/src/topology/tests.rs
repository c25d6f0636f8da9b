//! What is chosen on machines that are described.

use std::collections::HashMap;

use super::{Binding, Choice, Machine, Reason};
use crate::team::Pinning;

/// A machine of `nodes` nodes with `cores` cores each; the second hardware threads of all cores come behind the first,
/// as on most.
fn machine(nodes: usize, cores: usize, siblings: usize) -> (Vec<usize>, HashMap<String, String>) {
    let total = nodes * cores;
    let mut files = HashMap::new();
    files.insert("cpu/online".to_owned(), format!("0-{}\n", total * siblings - 1));
    files.insert("cpu/isolated".to_owned(), "\n".to_owned());
    files.insert("node/online".to_owned(), format!("0-{}\n", nodes - 1));
    for node in 0..nodes {
        let members = (0..siblings).map(|copy| {
            let first = copy * total + node * cores;
            format!("{first}-{}", first + cores - 1)
        });
        files.insert(format!("node/node{node}/cpulist"), members.collect::<Vec<_>>().join(","));
    }
    for id in 0..total * siblings {
        let all = (0..siblings).map(|copy| (id % total + copy * total).to_string());
        let name = format!("cpu/cpu{id}/topology/core_cpus_list");
        files.insert(name, all.collect::<Vec<_>>().join(","));
    }
    ((0..total * siblings).collect(), files)
}

fn describe(allowed: &[usize], here: usize, parallelism: usize, files: &HashMap<String, String>) -> Machine {
    Machine::described(allowed, Some(here), parallelism, &|name| files.get(name).cloned())
}

fn among(first: usize, last: usize) -> Pinning {
    Pinning::Among((first..=last).collect())
}

fn auto(machine: &Machine, wanted: Option<usize>) -> Choice {
    machine.choose(wanted, Binding::Auto)
}

#[test]
fn a_core_is_one_thread_whatever_it_pretends() {
    let (all, files) = machine(1, 8, 2);
    let choice = auto(&describe(&all, 0, 16, &files), None);
    assert_eq!((choice.threads, choice.reason, &choice.pinning), (8, Reason::Cores, &Pinning::Anywhere));
    assert_eq!(
        choice.to_string(),
        "8, one for each core (8 cores with 16 hardware threads); on processors 0-15, not bound: other programs may use \
         them too"
    );
    // A virtual machine that shows one thread a core, or nothing, is believed.
    let (all, files) = machine(1, 2, 1);
    assert_eq!(auto(&describe(&all, 0, 2, &files), None).threads, 2);
    let bare = describe(&[0, 1, 2], 0, 3, &HashMap::new());
    assert_eq!(
        auto(&bare, None).to_string(),
        "3, one for each core; on processors 0-2, not bound: other programs may use them too"
    );
}

#[test]
fn the_second_hardware_thread_of_a_core_may_be_all_there_is() {
    let (_, files) = machine(1, 4, 2);
    let choice = auto(&describe(&[4, 5, 2, 6], 4, 4, &files), None);
    assert_eq!(choice.threads, 3, "2 and 6 are one core");
}

#[test]
fn a_quota_wins_over_cores_and_is_no_claim_to_any() {
    let (all, files) = machine(1, 8, 2);
    let choice = auto(&describe(&all[..8], 0, 3, &files), None);
    assert_eq!((choice.threads, choice.reason, &choice.pinning), (3, Reason::Quota, &Pinning::Anywhere));
    assert!(
        choice
            .to_string()
            .contains("3, as many as the CPU quota has whole processors; on processors 0-7, not bound")
    );
    // A quota above the number of cores is none for the number of threads, but for binding.
    let choice = auto(&describe(&all, 0, 12, &files), None);
    assert_eq!((choice.threads, choice.reason, &choice.pinning), (8, Reason::Cores, &Pinning::Anywhere));
    // Nothing is rounded to zero.
    assert_eq!(auto(&describe(&all, 0, 0, &files), None).threads, 1);
}

#[test]
fn processors_of_ones_own_are_bound_to() {
    let (_, files) = machine(1, 8, 2);
    let own = describe(&[2, 3, 10, 11], 2, 4, &files);
    let choice = auto(&own, None);
    assert_eq!((choice.threads, &choice.pinning), (2, &Pinning::Each([2, 3].into())));
    assert!(
        choice.to_string().ends_with("; on processors 2-3, each bound to one: the process may use no others"),
        "{choice}"
    );
    // All hardware threads, when as many are asked for.
    assert_eq!(auto(&own, Some(4)).pinning, Pinning::Each([2, 3, 10, 11].into()));
    // One thread may go where it likes, and too many have to.
    assert_eq!(auto(&own, Some(1)).pinning, Pinning::Anywhere);
    assert_eq!(auto(&own, Some(5)).pinning, Pinning::Anywhere);
    assert_eq!(own.choose(None, Binding::Never).pinning, Pinning::Anywhere);
}

#[test]
fn processors_set_apart_at_boot_are_no_sign_of_an_own_set() {
    let (_, mut files) = machine(1, 8, 1);
    files.insert("cpu/isolated".to_owned(), "4-7\n".to_owned());
    assert_eq!(auto(&describe(&[0, 1, 2, 3], 0, 4, &files), None).pinning, Pinning::Anywhere);
}

#[test]
fn binding_can_be_asked_for() {
    let (all, files) = machine(1, 4, 2);
    let shared = describe(&all, 0, 8, &files);
    assert_eq!(shared.choose(None, Binding::Cores).pinning, Pinning::Each([0, 1, 2, 3].into()));
    assert_eq!(shared.choose(Some(6), Binding::Cores).pinning, Pinning::Each([0, 1, 2, 3, 4, 5].into()));
    assert_eq!(shared.choose(Some(9), Binding::Cores).pinning, Pinning::Anywhere);
}

#[test]
fn a_team_that_fits_stays_on_one_memory_node() {
    let (all, files) = machine(2, 4, 2);
    let on = |here| describe(&all, here, 16, &files);
    let choice = auto(&on(6), Some(4));
    assert_eq!(choice.pinning, Pinning::Among([4, 5, 6, 7, 12, 13, 14, 15].into()));
    assert!(choice.to_string().contains("on processors 4-7,12-15 of memory node 1, not bound"), "{choice}");
    assert_eq!(auto(&on(8), Some(4)).pinning, Pinning::Among([0, 1, 2, 3, 8, 9, 10, 11].into()));
    // All cores do not fit, nor does one more than a node has.
    assert_eq!(auto(&on(6), None).pinning, Pinning::Anywhere);
    assert_eq!(auto(&on(6), Some(5)).pinning, Pinning::Anywhere);
    assert_eq!(on(6).choose(Some(4), Binding::Never).pinning, Pinning::Anywhere);
    assert_eq!(on(6).choose(Some(2), Binding::Cores).pinning, Pinning::Each([4, 5].into()));
}

#[test]
fn the_node_with_more_cores_is_taken_when_ours_is_too_small() {
    let (_, files) = machine(2, 4, 1);
    let uneven = describe(&[3, 4, 5, 6, 7], 3, 5, &files);
    assert_eq!(auto(&uneven, Some(1)).pinning, Pinning::Among([3].into()));
    assert_eq!(auto(&uneven, Some(3)).pinning, among(4, 7));
    // A quota does not tear a team apart.
    assert_eq!(auto(&describe(&[0, 1, 2, 3, 4, 5, 6, 7], 1, 2, &files), None).pinning, among(0, 3));
}

#[test]
fn a_system_that_says_nothing_is_used_as_it_is() {
    let unknown = Machine::described(&[], None, 6, &|_| None);
    let choice = auto(&unknown, None);
    assert_eq!((choice.threads, &choice.pinning), (6, &Pinning::Anywhere));
    assert_eq!(choice.to_string(), "6, one for each core");
    assert_eq!(auto(&unknown, Some(2)).to_string(), "2, as asked");
}

#[test]
fn this_machine_can_be_read() {
    let machine = Machine::current();
    let choice = machine.choose(None, Binding::Auto);
    assert!(choice.threads >= 1 && choice.threads <= machine.parallelism, "{choice}");
}
