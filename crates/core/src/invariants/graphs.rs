//! Graphs: one capture at a time, of this life, within what they may take.

use super::Violation;
use crate::graphs::{BucketState, GraphBudget, GraphKey, GraphKind, GraphUse, Launched};
use crate::ids::Epoch;

/// The buckets of a device as plain data.
#[derive(Clone, Copy, Debug)]
pub struct GraphsView<'a> {
    /// The device's life.
    pub epoch: Epoch,
    /// What ready graphs may take together.
    pub budget: GraphBudget,
    /// All buckets.
    pub buckets: &'a [(GraphKey, BucketState)],
}

/// At most one capture is under way, every ready graph was captured in this life, and all of them together
/// stay within the budget.
pub fn graphs_are_sound(graphs: &GraphsView<'_>) -> Result<(), Violation> {
    let mut capturing = None;
    let (mut total, mut ready) = (GraphUse::default(), 0);
    for (key, state) in graphs.buckets {
        match *state {
            BucketState::Capturing => {
                if let Some(first) = capturing.replace(*key) {
                    return Err(Violation::TwoCaptures { first, second: *key });
                }
            }
            BucketState::Ready { epoch, cost, .. } => {
                if epoch != graphs.epoch {
                    return Err(Violation::GraphOfAnotherLife { key: *key, epoch, current: graphs.epoch });
                }
                total = total + cost;
                ready += 1;
            }
            BucketState::Wanted | BucketState::Retired { .. } | BucketState::Failed { .. } => {}
        }
    }
    if graphs.budget.holds(total, ready) {
        Ok(())
    } else {
        Err(Violation::GraphsOverBudget { graphs: ready, bytes: total.bytes, streams: total.streams })
    }
}

/// A step of `rows` rows that is replayed is replayed from one of the `captured` graphs of this life, of a
/// kind for its phase and with as many rows at least; the padding is what is left over.
pub fn launch_is_sound(
    launched: Launched,
    rows: u32,
    decode_only: bool,
    mut captured: impl Iterator<Item = GraphKey>,
) -> Result<(), Violation> {
    let Launched::Replayed { key, padded } = launched else { return Ok(()) };
    let bad = |why| Err(Violation::BadLaunch { key, rows, why });
    if !captured.any(|graph| graph == key) {
        return bad("it was never captured, or dropped since");
    }
    if key.kind == GraphKind::Decode && !decode_only {
        return bad("it takes only steps that decode");
    }
    if key.rows.checked_sub(rows) != Some(padded) {
        return bad("the rows and the padding do not make its size");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graphs::GraphKind;
    use crate::units::{Bytes, Millis};

    fn check(buckets: &[BucketState]) -> Result<(), Violation> {
        let budget = GraphBudget { bytes: Bytes(10), streams: 4, captures: 2 };
        let key = |rows| GraphKey { kind: GraphKind::Decode, rows };
        let buckets: Vec<_> = buckets.iter().zip(1..).map(|(state, rows)| (key(rows), *state)).collect();
        graphs_are_sound(&GraphsView { epoch: Epoch(3), budget, buckets: &buckets })
    }

    fn ready(epoch: u64, bytes: u64, streams: u32) -> BucketState {
        let cost = GraphUse { bytes: Bytes(bytes), streams };
        BucketState::Ready { epoch: Epoch(epoch), cost, micros: 1, since: Millis(0) }
    }

    #[test]
    fn tells_good_from_bad() {
        use BucketState::{Capturing, Wanted};
        assert_eq!(check(&[Wanted, Capturing, ready(3, 5, 2), ready(3, 5, 2)]), Ok(()));
        assert!(matches!(check(&[Capturing, Capturing]), Err(Violation::TwoCaptures { .. })));
        assert!(matches!(check(&[ready(2, 1, 1)]), Err(Violation::GraphOfAnotherLife { .. })));
        assert!(matches!(check(&[ready(3, 11, 1)]), Err(Violation::GraphsOverBudget { .. })));
        assert!(matches!(check(&[ready(3, 1, 5)]), Err(Violation::GraphsOverBudget { .. })));
        let three = [ready(3, 1, 1); 3];
        assert!(matches!(check(&three), Err(Violation::GraphsOverBudget { graphs: 3, .. })));
    }

    #[test]
    fn tells_good_launches_from_bad() {
        let captured = [GraphKind::Decode, GraphKind::Mixed].map(|kind| GraphKey { kind, rows: 8 });
        let check = |kind, size, padded, rows, decode_only| {
            let launched = Launched::Replayed { key: GraphKey { kind, rows: size }, padded };
            launch_is_sound(launched, rows, decode_only, captured.into_iter()).is_ok()
        };
        assert!(check(GraphKind::Decode, 8, 3, 5, true));
        assert!(check(GraphKind::Mixed, 8, 3, 5, false));
        assert!(!check(GraphKind::Decode, 8, 3, 5, false));
        assert!(!check(GraphKind::Decode, 8, 2, 5, true));
        assert!(!check(GraphKind::Decode, 8, 0, 9, true));
        assert!(!check(GraphKind::Decode, 16, 11, 5, true));
        assert_eq!(launch_is_sound(Launched::default(), 5, true, captured.into_iter()), Ok(()));
    }
}
