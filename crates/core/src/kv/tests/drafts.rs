//! Drafts: they take what is left, and leave nothing behind that could be found.

use super::*;

fn drafted(sequence: u64, computed: u32, appended: &[TokenId], drafts: u32) -> Demand {
    let kind = DemandKind::Continue { computed: Tokens(computed), appended: appended.to_vec() };
    Demand { kind, drafts: Tokens(drafts), ..go_on(sequence, computed + 1, &[]) }
}

#[test]
fn drafts_get_what_all_others_leave_of_the_budget() {
    let mut kv = manager(20);
    ask(&mut kv, 100, vec![start(1, &tokens(3), None), start(2, &[40, 41], None)], &[]);
    let demands =
        vec![drafted(1, 3, &[3], 4), drafted(2, 2, &[42], 4), start(3, &(50..56).collect::<Vec<_>>(), None)];
    assert_eq!(shares(&ask(&mut kv, 11, demands, &[])), [(1, 3, 4), (2, 2, 1), (3, 0, 6)]);
}

#[test]
fn nobody_loses_a_block_for_a_draft() {
    let mut kv = manager(3);
    ask(&mut kv, 100, vec![start(1, &tokens(3), None), start(2, &(50..54).collect::<Vec<_>>(), None)], &[]);
    // The first would like two blocks more, the second needs the one that is free.
    let demands = vec![drafted(1, 3, &[3], 6), drafted(2, 4, &[54], 6)];
    let grants = ask(&mut kv, 100, demands, &[2, 1]);
    assert_eq!((shares(&grants), grants.preempted.len()), (vec![(1, 3, 1), (2, 4, 4)], 0));
}

#[test]
fn wrong_drafts_count_as_never_computed() {
    let mut kv = manager(10);
    ask(&mut kv, 100, vec![start(1, &tokens(5), None)], &[]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![drafted(1, 5, &[5], 5)], &[])), [(1, 5, 6)]);
    // Two drafts were right: positions up to 7 are computed, and the token after them is known. A block whose
    // last slot holds a wrong draft would be full if that slot counted.
    let again = ask(&mut kv, 100, vec![drafted(1, 8, &[6, 7, 8], 0)], &[]);
    assert_eq!((shares(&again), again.granted[0].new_blocks.len()), (vec![(1, 8, 1)], 0));
    let other = ask(&mut kv, 100, vec![start(2, &tokens(14), None)], &[]);
    assert_eq!(shares(&other), [(2, 8, 6)]);
}

#[test]
fn a_block_is_not_offered_while_its_last_slot_holds_a_wrong_draft() {
    let mut kv = manager(10);
    ask(&mut kv, 100, vec![start(1, &tokens(5), None)], &[]);
    ask(&mut kv, 100, vec![drafted(1, 5, &[5], 2)], &[]);
    // One draft was right, and the token drawn in place of the other fills the block: it is known, and its slot
    // was written, for another token. Nothing is granted here, so it is not written again yet.
    let nothing = Demand { limit: Tokens(0), ..drafted(1, 7, &[6, 7], 0) };
    assert_eq!(shares(&ask(&mut kv, 100, vec![nothing], &[])), []);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(2, &tokens(9), None)], &[])), [(2, 4, 5)]);
}
