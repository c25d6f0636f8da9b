//! Blocks that are not full: taken over by whoever goes on like their last owner.

use super::*;

/// A sequence of seven tokens, two blocks, that is gone.
fn after_seven_tokens(salt: Option<&str>) -> KvManager {
    let mut kv = manager(10);
    ask(&mut kv, 100, vec![start(1, &tokens(6), salt)], &[]);
    ask(&mut kv, 100, vec![go_on(1, 7, &[6])], &[]);
    release(&mut kv, &[1]);
    kv
}

#[test]
fn the_next_turn_goes_on_in_the_last_block() {
    let mut kv = after_seven_tokens(None);
    let grants = ask(&mut kv, 100, vec![start(2, &tokens(10), None)], &[]);
    assert_eq!(shares(&grants), [(2, 7, 3)]);
    assert_eq!(grants.granted[0].new_blocks[..2], [BlockId(0), BlockId(1)]);
    assert_eq!(grants.usage, KvUsage { used: 3, total: 10, prefix_queries: 16, prefix_hits: 7 });
}

#[test]
fn one_owner_takes_an_end_and_others_share_it_when_it_is_full() {
    let mut kv = after_seven_tokens(None);
    let both = vec![start(2, &tokens(10), None), start(3, &tokens(10), None)];
    assert_eq!(shares(&ask(&mut kv, 100, both, &[])), [(2, 7, 3), (3, 8, 2)]);
}

#[test]
fn an_end_is_for_those_who_begin_with_all_of_it() {
    // Eight tokens in the only block; the last token of a prompt is computed anew.
    let starts_at = |prompt: &[TokenId]| {
        let config =
            KvConfig { block_size: Tokens(16), blocks: Blocks(9), prefix_caching: true, events: false };
        let mut kv = KvManager::new(config, Epoch(0));
        ask(&mut kv, 100, vec![start(1, &tokens(8), None)], &[]);
        release(&mut kv, &[1]);
        let grants = ask(&mut kv, 100, vec![start(2, prompt, None)], &[]);
        assert_eq!(grants.granted[0].new_blocks[0] == BlockId(0), grants.granted[0].start > Tokens(0));
        grants.granted[0].start.0
    };
    let parting_at = |at: usize| {
        let mut prompt = tokens(12);
        prompt[at] = 99;
        prompt
    };
    assert_eq!(starts_at(&tokens(12)), 8);
    assert_eq!(starts_at(&tokens(9)), 8);
    assert_eq!(starts_at(&tokens(8)), 0);
    assert_eq!(starts_at(&parting_at(7)), 0);
}

#[test]
fn the_same_end_again_takes_the_place_of_the_first() {
    let mut kv = manager(8);
    for id in 1..5 {
        // The last token is computed anew, so none of them takes over what the one before has left.
        ask(&mut kv, 100, vec![start(id, &tokens(5), None)], &[]);
        release(&mut kv, &[id]);
    }
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(9, &tokens(7), None)], &[])), [(9, 5, 2)]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(10, &tokens(7), None)], &[])), [(10, 4, 3)]);
}

#[test]
fn wrong_drafts_are_no_part_of_an_end() {
    let mut kv = manager(10);
    ask(&mut kv, 100, vec![start(1, &tokens(5), None)], &[]);
    ask(&mut kv, 100, vec![Demand { drafts: Tokens(1), ..go_on(1, 6, &[5]) }], &[]);
    // The token behind the sixth was drafted and computed, but nobody has confirmed it.
    release(&mut kv, &[1]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(2, &tokens(10), None)], &[])), [(2, 6, 4)]);
}

#[test]
fn an_end_goes_out_with_its_block() {
    let mut kv = after_seven_tokens(None);
    ask(&mut kv, 100, vec![start(2, &(100..140).collect::<Vec<_>>(), None)], &[]);
    release(&mut kv, &[2]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(3, &tokens(10), None)], &[])), [(3, 0, 10)]);
}

#[test]
fn the_end_of_a_short_sequence_is_its_only_block() {
    let mut kv = manager(10);
    ask(&mut kv, 100, vec![start(1, &tokens(3), Some("a"))], &[]);
    release(&mut kv, &[1]);
    let starts = vec![start(2, &tokens(6), None), start(3, &tokens(6), Some("a"))];
    assert_eq!(shares(&ask(&mut kv, 100, starts, &[])), [(2, 0, 6), (3, 3, 3)]);
}

#[test]
fn without_prefix_caching_nothing_is_kept() {
    let config =
        KvConfig { block_size: Tokens(BLOCK), blocks: Blocks(9), prefix_caching: false, events: false };
    let mut kv = KvManager::new(config, Epoch(0));
    ask(&mut kv, 100, vec![start(1, &tokens(6), None)], &[]);
    release(&mut kv, &[1]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(2, &tokens(9), None)], &[])), [(2, 0, 9)]);
}

#[test]
fn many_ends_in_one_place_push_out_the_oldest() {
    let mut kv = manager(40);
    let prompt = |id: u32| [&tokens(4)[..], &[100 + id, 200, 300]].concat();
    for id in 0..20 {
        ask(&mut kv, 100, vec![start(u64::from(id), &prompt(id), None)], &[]);
    }
    for id in 0..20 {
        release(&mut kv, &[id]);
    }
    let mut starts_at = |id: u32| {
        let longer = [&prompt(id)[..], &[400]].concat();
        let grants = ask(&mut kv, 100, vec![start(u64::from(100 + id), &longer, None)], &[]);
        grants.granted[0].start.0
    };
    assert_eq!((starts_at(0), starts_at(3), starts_at(4), starts_at(19)), (4, 4, 7, 7));
}
