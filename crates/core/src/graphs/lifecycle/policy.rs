//! How eagerly graphs are captured, tried again and given up. Plain numbers with names.

use serde::{Deserialize, Serialize};

use crate::units::Millis;

/// Bounds of [`super::Lifecycles`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifecyclePolicy {
    /// The device counts as idle after so long without a step: a pause between two steps is no idle time.
    pub idle_settle: Millis,
    /// Under load, captures begin at least this far apart, and also no later than this: a wanted graph is not
    /// starved by traffic that never ends.
    pub busy_interval: Millis,
    /// Wait after the first failure; each further one in a row doubles it.
    pub first_backoff: Millis,
    /// Wait at most.
    pub longest_backoff: Millis,
    /// Failures in a row after which a graph is given up.
    pub failures_max: u32,
    /// A graph that was good for this long has cleared itself of its failures.
    pub calm: Millis,
    /// Steps that must have been seen before a graph counts as unused.
    pub unused_after: u64,
    /// Steps between two looks at whether the traffic wants other sizes.
    pub propose_every: u64,
    /// Share of all steps, in percent, from which a number of rows is frequent.
    pub frequent_percent: u64,
    /// Share of padded rows, in percent of a bucket, above which a frequent number of rows deserves its own.
    pub padded_percent: u32,
    /// Buckets at most that no plan had.
    pub proposals_max: usize,
}

impl Default for LifecyclePolicy {
    fn default() -> Self {
        Self {
            idle_settle: Millis(50),
            busy_interval: Millis(10_000),
            first_backoff: Millis(1_000),
            longest_backoff: Millis(300_000),
            failures_max: 5,
            calm: Millis(60_000),
            unused_after: 2_000,
            propose_every: 500,
            frequent_percent: 5,
            padded_percent: 25,
            proposals_max: 16,
        }
    }
}

impl LifecyclePolicy {
    /// When to try again at `now` after `times` failures in a row; never when absent.
    pub(super) fn again(&self, now: Millis, times: u32) -> Option<Millis> {
        let doublings = times.saturating_sub(1).min(32);
        let wait = self.first_backoff.0.saturating_mul(1 << doublings).min(self.longest_backoff.0);
        (times < self.failures_max).then_some(now + Millis(wait))
    }
}
