//! Metrics of drafts. They are on the page only while drafts are made.

use metrics::counter;
use updraft_core::speculation::DraftCounts;

use super::names as n;
use super::record::with;
use super::recorder::Labels;

/// Zeros, for up to so many drafts behind one token.
pub(super) fn first_values(drafts: u32, labels: &Labels) {
    for name in [n::DRAFTS, n::DRAFT_TOKENS, n::ACCEPTED_TOKENS] {
        counter!(name, labels).absolute(0);
    }
    for position in 0..drafts {
        per_position(position as usize, labels).absolute(0);
    }
}

/// The drafts of one step.
pub(super) fn step(counts: &DraftCounts, labels: &Labels) {
    if counts.sequences == 0 {
        return;
    }
    counter!(n::DRAFTS, labels).increment(counts.sequences.into());
    counter!(n::DRAFT_TOKENS, labels).increment(counts.drafted.into());
    counter!(n::ACCEPTED_TOKENS, labels).increment(counts.accepted_in_all().into());
    for (position, accepted) in counts.accepted.iter().enumerate().filter(|(_, accepted)| **accepted > 0) {
        per_position(position, labels).increment(u64::from(*accepted));
    }
}

fn per_position(position: usize, labels: &Labels) -> metrics::Counter {
    counter!(n::ACCEPTED_TOKENS_PER_POSITION, &with(labels, "position", &position.to_string()))
}
