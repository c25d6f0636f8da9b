//! When a lost actor is started again, and when the loss goes up to whoever is above it.
//!
//! A pure value: the same policy, history and time give the same decision. The history is kept by the caller,
//! one for each actor that is watched.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// How patiently an actor is restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// Wait before the first restart.
    pub first_delay: Millis,
    /// Wait at most; each restart in a row doubles the wait up to here.
    pub longest_delay: Millis,
    /// Restarts allowed within the window.
    pub budget: u32,
    /// Length of the window.
    pub window: Millis,
    /// After this long without a loss the wait starts from the first delay again.
    pub calm: Millis,
    /// Spreads the waits of actors that were lost together.
    pub seed: u64,
}

/// What happened to one actor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Losses that still lie within the window, oldest first.
    losses: VecDeque<Millis>,
    /// The latest loss.
    last: Option<Millis>,
    /// Losses in a row without calm between them.
    streak: u32,
    /// Losses in all.
    total: u64,
}

/// What to do about a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Start it again.
    Restart {
        /// After this long.
        after: Millis,
    },
    /// It was lost too often: give the loss to the supervisor above.
    Escalate,
}

impl Default for RestartPolicy {
    /// Five restarts in a minute, 50 ms to 5 s apart.
    fn default() -> Self {
        Self {
            first_delay: Millis(50),
            longest_delay: Millis(5_000),
            budget: 5,
            window: Millis(60_000),
            calm: Millis(30_000),
            seed: 0,
        }
    }
}

impl RestartPolicy {
    /// Decides about a loss at `now` and notes it. Times never run backwards.
    pub fn decide(&self, now: Millis, history: &mut History) -> Decision {
        let calm = history.last.replace(now).is_none_or(|last| now - last >= self.calm);
        history.streak = if calm { 1 } else { history.streak.saturating_add(1) };
        history.total += 1;
        history.losses.push_back(now);
        while history.losses.front().is_some_and(|loss| now - *loss >= self.window) {
            history.losses.pop_front();
        }
        if history.losses.len() > self.budget as usize {
            // What is above starts everything afresh, so the next loss is not held against this one.
            history.losses.clear();
            history.last = None;
            return Decision::Escalate;
        }
        Decision::Restart { after: self.delay(history) }
    }

    /// Doubles with each loss in a row; then anything from three quarters of it to the whole.
    fn delay(&self, history: &History) -> Millis {
        let doublings = history.streak.saturating_sub(1).min(32);
        let delay = self.first_delay.0.saturating_mul(1 << doublings).min(self.longest_delay.0);
        let spread = delay / 4;
        let jitter = scramble(self.seed ^ scramble(history.total)) % (spread + 1);
        Millis(delay - jitter)
    }
}

/// A bijection of 64-bit numbers whose results look random (the finisher of splitmix64).
fn scramble(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(decision: Decision) -> u64 {
        match decision {
            Decision::Restart { after } => after.0,
            Decision::Escalate => panic!("escalated"),
        }
    }

    #[test]
    fn waits_double_and_start_over_after_calm() {
        let policy = RestartPolicy { budget: 100, ..RestartPolicy::default() };
        let mut history = History::default();
        let waits: Vec<u64> = (0..9).map(|at| after(policy.decide(Millis(at), &mut history))).collect();
        for (place, wait) in waits.iter().enumerate() {
            let full = (50_u64 << place).min(5_000);
            assert!((full - full / 4..=full).contains(wait), "wait {place} is {wait}");
        }
        let rested = after(policy.decide(Millis(30_008), &mut history));
        assert!(rested <= 50);
    }

    #[test]
    fn too_many_losses_in_the_window_escalate() {
        let policy = RestartPolicy::default();
        let mut history = History::default();
        for loss in 0..5 {
            after(policy.decide(Millis(loss * 1_000), &mut history));
        }
        assert_eq!(policy.decide(Millis(59_999), &mut history), Decision::Escalate);
        after(policy.decide(Millis(60_000), &mut history));
    }

    #[test]
    fn seeds_spread_the_waits() {
        let waits: std::collections::HashSet<u64> = (0..20)
            .map(|seed| {
                let policy = RestartPolicy { first_delay: Millis(4_000), seed, ..RestartPolicy::default() };
                after(policy.decide(Millis(0), &mut History::default()))
            })
            .collect();
        assert!(waits.len() > 10, "{waits:?}");
    }

    proptest! {
        #[test]
        fn never_more_restarts_than_the_budget_in_any_window(
            gaps in prop::collection::vec(0_u64..30_000, 1..60),
        ) {
            let policy = RestartPolicy::default();
            let (mut history, mut now, mut restarts) = (History::default(), 0, Vec::new());
            for gap in gaps {
                now += gap;
                match policy.decide(Millis(now), &mut history) {
                    Decision::Restart { after } => {
                        prop_assert!(after <= policy.longest_delay);
                        restarts.push(now);
                    }
                    Decision::Escalate => restarts.clear(),
                }
                let recent = restarts.iter().filter(|at| now - **at < policy.window.0).count();
                prop_assert!(recent <= policy.budget as usize);
            }
        }
    }
}
