//! All machines together: scheduler, block manager, graph lifecycles, dispatcher and recovery ledger around a
//! toy device, under random arrivals, cancellations, slow readers, tiny pools, lost epochs, poisonous
//! sequences, faults of every class, hangs, spare devices, and messages that arrive in any order they can,
//! late, or not at all.
//!
//! The toy device keeps a toy KV cache: what a slot holds depends on all tokens before it, read through the
//! block table. A block that is shared wrongly, given away too early, never filled or left spoilt by a fault
//! therefore changes the tokens, and every stream is compared with the run it would have had alone.
//!
//! A failure names its seed; `UPDRAFT_SEED=n` runs that one alone, `UPDRAFT_SEEDS=n` runs that many.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "all of this is a test")]

#[path = "simulation/accidents.rs"]
mod accidents;
#[path = "simulation/client.rs"]
mod client;
#[path = "simulation/dice.rs"]
mod dice;
#[path = "simulation/station.rs"]
mod station;
#[path = "simulation/totals.rs"]
mod totals;
#[path = "simulation/toy.rs"]
mod toy;
#[path = "simulation/world.rs"]
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use totals::Totals;
use updraft_core::recovery::{Action, RecoveryClass};
use world::World;

/// Runs without `UPDRAFT_SEEDS`: enough for everything below to happen.
const SEEDS: u64 = 500;

#[test]
fn every_stream_is_what_it_would_have_been_alone() {
    if let Some(seed) = number("UPDRAFT_SEED") {
        println!("{:#?}", run(seed));
        return;
    }
    let totals = run_all(number("UPDRAFT_SEEDS").unwrap_or(SEEDS));
    println!("{totals:?}");
    // A simulation in which nothing happens proves nothing.
    assert!(totals.finished > 3_000, "{totals:?}");
    assert!(totals.cancelled > 1_000, "{totals:?}");
    assert!(totals.poisoned > 200, "{totals:?}");
    assert!(totals.preemptions > 2_000, "{totals:?}");
    assert!(totals.losses > 1_000, "{totals:?}");
    assert!(totals.scheduler_losses > 200, "{totals:?}");
    assert!(totals.late_rows > 300, "{totals:?}");
    assert!(totals.drafted > 5_000, "{totals:?}");
    assert!(totals.accepted > 2_000 && totals.drafted > totals.accepted + 2_000, "{totals:?}");
    assert!(totals.stale_results > 1_000 && totals.stale_answers > 100, "{totals:?}");
    assert!(totals.prefix_hits > 10_000, "{totals:?}");
    assert!(totals.held_back > 3_000, "{totals:?}");
    assert!(totals.replays > 5_000 && totals.captures > 1_000, "{totals:?}");
    assert!(totals.failed_captures > 200 && totals.mismatches > 20, "{totals:?}");
    assert!(totals.forgotten > 20 && totals.proposed > 20, "{totals:?}");
    assert!(totals.hangs > 50 && totals.spares_used > 20 && totals.stranded > 20, "{totals:?}");
    assert!(totals.full_channels > 300, "{totals:?}");
    for class in RecoveryClass::ALL {
        for moment in ["open", "prefill", "decode", "capture", "replay"] {
            assert!(
                totals.faults.contains_key(&(class.as_str(), moment)),
                "no {class:?} at {moment}: {totals:?}"
            );
        }
    }
    for action in Action::ALL {
        assert!(totals.actions.contains_key(action.as_str()), "nobody had to {action:?}: {totals:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let traces: Vec<u64> = (0..24).map(|seed| run(seed).trace).collect();
    let again: Vec<u64> = (0..24).map(|seed| run(seed).trace).collect();
    assert_eq!(traces, again);
    let mut different = traces.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), traces.len(), "different seeds gave the same run");
}

/// On all cores; what comes out does not depend on how many there are.
fn run_all(seeds: u64) -> Totals {
    let next = AtomicU64::new(0);
    let worker = || {
        let mut totals = Totals::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return totals;
            }
            totals.add(run(seed));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut totals = Totals::default();
        for worker in running {
            match worker.join() {
                Ok(part) => totals.add(part),
                Err(cause) => std::panic::resume_unwind(cause),
            }
        }
        totals
    })
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn run(seed: u64) -> Totals {
    match std::panic::catch_unwind(|| World::new(seed).run()) {
        Ok(totals) => totals,
        Err(cause) => {
            eprintln!("the simulation failed with UPDRAFT_SEED={seed}");
            std::panic::resume_unwind(cause)
        }
    }
}
