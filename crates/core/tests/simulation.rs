//! The scheduler, the block manager and a toy executor under random arrivals, cancellations, tiny pools, lost
//! epochs, poisonous sequences and messages that arrive in any order they can.
//!
//! The toy executor keeps a toy KV cache: what a slot holds depends on all tokens before it, read through the
//! block table. A block that is shared wrongly, given away too early or never filled therefore changes the
//! tokens, and every stream is compared with the run it would have had alone.
//!
//! A failure names its seed; `UPDRAFT_SEED=n` runs that one alone, `UPDRAFT_SEEDS=n` runs that many.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "simulation/toy.rs"]
mod toy;
#[path = "simulation/world.rs"]
mod world;

use world::{Totals, World};

const SEEDS: u64 = 200;

#[test]
fn every_stream_is_what_it_would_have_been_alone() {
    if let Some(seed) = number("UPDRAFT_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let mut totals = Totals::default();
    for seed in 0..number("UPDRAFT_SEEDS").unwrap_or(SEEDS) {
        totals.add(&run(seed));
    }
    println!("{totals:?}");
    // A simulation in which nothing happens proves nothing.
    assert!(totals.finished > 2_000, "{totals:?}");
    assert!(totals.cancelled > 500, "{totals:?}");
    assert!(totals.poisoned > 100, "{totals:?}");
    assert!(totals.preemptions > 1_000, "{totals:?}");
    assert!(totals.losses > 500, "{totals:?}");
    assert!(totals.scheduler_losses > 100, "{totals:?}");
    assert!(totals.late_rows > 300, "{totals:?}");
    assert!(totals.prefix_hits > 5_000, "{totals:?}");
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
