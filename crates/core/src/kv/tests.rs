//! The manager against its rules: hits, eviction order, victims, epochs, and a random walk under audit.

mod drafts;
mod ends;

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ids::{BlockId, Epoch, SequenceId, StepId, TokenId};
use crate::units::{Blocks, Tokens};

const BLOCK: u32 = 4;

fn manager(blocks: u32) -> KvManager {
    let config =
        KvConfig { block_size: Tokens(BLOCK), blocks: Blocks(blocks), prefix_caching: true, events: true };
    KvManager::new(config, Epoch(0))
}

fn tokens(count: u32) -> Vec<TokenId> {
    (0..count).collect()
}

fn start(sequence: u64, tokens: &[TokenId], salt: Option<&str>) -> Demand {
    Demand {
        sequence: SequenceId(sequence),
        target: Tokens(tokens.len() as u32),
        limit: Tokens(u32::MAX),
        drafts: Tokens::ZERO,
        kind: DemandKind::Start { tokens: tokens.into(), salt: salt.map(Arc::from), reuse: true },
    }
}

fn go_on(sequence: u64, target: u32, appended: &[TokenId]) -> Demand {
    Demand {
        sequence: SequenceId(sequence),
        target: Tokens(target),
        limit: Tokens(u32::MAX),
        drafts: Tokens::ZERO,
        kind: DemandKind::Continue { computed: Tokens(u32::MAX), appended: appended.to_vec() },
    }
}

fn ask(manager: &mut KvManager, budget: u32, demands: Vec<Demand>, victims: &[u64]) -> Grants {
    let grants = manager.reserve(&Reservation {
        epoch: manager.epoch(),
        step: StepId(0),
        released: Vec::new(),
        budget: Tokens(budget),
        demands,
        victims: victims.iter().copied().map(SequenceId).collect(),
    });
    manager.audit().unwrap();
    grants
}

fn release(manager: &mut KvManager, sequences: &[u64]) {
    let released = sequences.iter().copied().map(SequenceId).collect();
    manager.reserve(&Reservation { epoch: manager.epoch(), released, ..Reservation::default() });
    manager.audit().unwrap();
}

fn shares(grants: &Grants) -> Vec<(u64, u32, u32)> {
    grants.granted.iter().map(|grant| (grant.sequence.0, grant.start.0, grant.count.0)).collect()
}

#[test]
fn a_full_hit_still_computes_the_last_block() {
    let mut kv = manager(10);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(1, &tokens(8), None)], &[])), [(1, 0, 8)]);
    let again = ask(&mut kv, 100, vec![start(2, &tokens(8), None)], &[]);
    assert_eq!(shares(&again), [(2, 4, 4)]);
    assert_eq!(again.granted[0].new_blocks[0], BlockId(0));
    assert_eq!(again.usage, KvUsage { used: 3, total: 10, prefix_queries: 16, prefix_hits: 4 });
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(3, &tokens(9), None)], &[])), [(3, 8, 1)]);
}

#[test]
fn sequences_of_one_step_share_what_the_first_computes() {
    let mut kv = manager(10);
    let grants = ask(&mut kv, 100, vec![start(1, &tokens(9), None), start(2, &tokens(9), None)], &[]);
    assert_eq!(shares(&grants), [(1, 0, 9), (2, 8, 1)]);
    assert_eq!(kv.usage().used, 4);
}

#[test]
fn only_what_is_scheduled_can_be_found() {
    let mut kv = manager(10);
    let mut chunk = start(1, &tokens(12), None);
    chunk.limit = Tokens(6);
    ask(&mut kv, 100, vec![chunk], &[]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(2, &tokens(12), None)], &[])), [(2, 4, 8)]);
}

#[test]
fn salts_do_not_share() {
    let mut kv = manager(20);
    ask(&mut kv, 100, vec![start(1, &tokens(9), Some("a"))], &[]);
    let others =
        vec![start(2, &tokens(9), Some("b")), start(3, &tokens(9), None), start(4, &tokens(9), Some("a"))];
    assert_eq!(shares(&ask(&mut kv, 100, others, &[])), [(2, 0, 9), (3, 0, 9), (4, 8, 1)]);
}

#[test]
fn who_wants_prompt_logprobs_computes_everything() {
    let mut kv = manager(10);
    ask(&mut kv, 100, vec![start(1, &tokens(8), None)], &[]);
    let mut demand = start(2, &tokens(8), None);
    if let DemandKind::Start { reuse, .. } = &mut demand.kind {
        *reuse = false;
    }
    assert_eq!(shares(&ask(&mut kv, 100, vec![demand], &[])), [(2, 0, 8)]);
}

#[test]
fn produced_tokens_become_findable_when_known() {
    let mut kv = manager(10);
    ask(&mut kv, 100, vec![start(1, &tokens(7), None)], &[]);
    // Positions 7 and 8 are computed before their tokens are known.
    ask(&mut kv, 100, vec![go_on(1, 8, &[])], &[]);
    let question = tokens(9);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(2, &question, None)], &[])), [(2, 4, 5)]);
    release(&mut kv, &[2]);
    ask(&mut kv, 100, vec![go_on(1, 9, &[7])], &[]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(3, &question, None)], &[])), [(3, 8, 1)]);
}

#[test]
fn the_end_of_the_oldest_chain_goes_first() {
    let mut kv = manager(6);
    let other: Vec<TokenId> = (100..112).collect();
    ask(&mut kv, 100, vec![start(1, &tokens(12), None)], &[]);
    ask(&mut kv, 100, vec![start(2, &other, None)], &[]);
    release(&mut kv, &[1]);
    release(&mut kv, &[2]);
    kv.take_events();
    // Two blocks are needed: the last two of the first chain go.
    ask(&mut kv, 100, vec![start(3, &(200..208).collect::<Vec<_>>(), None)], &[]);
    let removed = kv.take_events().iter().filter(|event| matches!(event, KvEvent::Removed { .. })).count();
    assert_eq!(removed, 2);
    release(&mut kv, &[3]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(4, &tokens(12), None)], &[])), [(4, 4, 8)]);
}

#[test]
fn unshareable_blocks_are_used_again_before_cached_ones() {
    let mut kv = manager(3);
    ask(&mut kv, 100, vec![start(1, &tokens(5), None)], &[]);
    release(&mut kv, &[1]);
    ask(&mut kv, 100, vec![start(2, &(50..57).collect::<Vec<_>>(), None)], &[]);
    release(&mut kv, &[2]);
    assert_eq!(shares(&ask(&mut kv, 100, vec![start(3, &tokens(5), None)], &[])), [(3, 4, 1)]);
}

#[test]
fn a_start_gets_all_its_blocks_or_nothing_and_ends_the_starts() {
    let mut kv = manager(4);
    ask(&mut kv, 100, vec![start(1, &tokens(4), None)], &[]);
    let grants =
        ask(&mut kv, 100, vec![start(2, &(50..70).collect::<Vec<_>>(), None), start(3, &[9], None)], &[]);
    assert_eq!(grants.granted, []);
    let mut chunk = start(4, &(50..61).collect::<Vec<_>>(), None);
    chunk.limit = Tokens(2);
    let grants = ask(&mut kv, 100, vec![chunk], &[]);
    assert_eq!(grants.granted[0].new_blocks.len(), 3);
    assert_eq!(grants.granted[0].count, Tokens(2));
}

#[test]
fn the_budget_is_shared_in_order() {
    let mut kv = manager(20);
    ask(&mut kv, 100, vec![start(1, &tokens(3), None), start(2, &[40, 41], None)], &[]);
    let mut demands = vec![go_on(1, 4, &[3]), go_on(2, 3, &[42])];
    demands.extend([start(3, &(50..60).collect::<Vec<_>>(), None), start(4, &[80], None)]);
    assert_eq!(shares(&ask(&mut kv, 7, demands, &[])), [(1, 3, 1), (2, 2, 1), (3, 0, 5)]);
}

#[test]
fn victims_go_in_the_order_given_and_never_for_a_later_one() {
    let mut kv = manager(3);
    let prompts = [tokens(4), (50..54).collect(), (90..94).collect()];
    let starts = (1..4).zip(&prompts).map(|(id, prompt)| start(id, prompt, None)).collect();
    ask(&mut kv, 100, starts, &[]);
    // All want a fourth block; the last in line pays, and nobody pays for the second.
    let demands = vec![go_on(1, 5, &[4]), go_on(2, 5, &[54]), go_on(3, 5, &[94])];
    let grants = ask(&mut kv, 100, demands, &[3, 2, 1]);
    assert_eq!(grants.preempted, [SequenceId(3)]);
    assert_eq!(shares(&grants), [(1, 4, 1)]);
    // What the second was told is not lost.
    release(&mut kv, &[1]);
    let grants = ask(&mut kv, 100, vec![go_on(2, 5, &[])], &[2]);
    assert_eq!(shares(&grants), [(2, 4, 1)]);
}

#[test]
fn nobody_starts_on_what_was_just_taken() {
    let mut kv = manager(4);
    ask(&mut kv, 100, vec![start(1, &tokens(4), None), start(2, &(50..62).collect::<Vec<_>>(), None)], &[]);
    let grants = ask(&mut kv, 100, vec![go_on(1, 5, &[4]), start(3, &[9], None)], &[2, 1]);
    assert_eq!((shares(&grants), grants.preempted), (vec![(1, 4, 1)], vec![SequenceId(2)]));
}

#[test]
fn epochs_only_rise() {
    let mut kv = manager(4);
    ask(&mut kv, 100, vec![start(1, &tokens(9), None)], &[]);
    kv.reset(Epoch(2));
    assert_eq!(kv.usage().used, 0);
    assert_eq!(kv.take_events().last(), Some(&KvEvent::Cleared));
    let late = Reservation {
        epoch: Epoch(1),
        budget: Tokens(9),
        demands: vec![start(1, &tokens(3), None)],
        ..Reservation::default()
    };
    assert_eq!(kv.reserve(&late).granted, []);
    assert_eq!(kv.reserve(&late).epoch, Epoch(2));
    let early = Reservation { epoch: Epoch(3), ..late };
    assert_eq!(shares(&kv.reserve(&early)), [(1, 0, 3)]);
    kv.reset(Epoch(1));
    assert_eq!(kv.epoch(), Epoch(3));
}

#[test]
fn events_carry_the_chain() {
    let mut kv = manager(8);
    ask(&mut kv, 100, vec![start(1, &tokens(8), None)], &[]);
    let events = kv.take_events();
    let [KvEvent::Stored { hashes, parent: None, tokens: stored }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((hashes.len(), stored), (2, &tokens(8)));
    let (last, grown) = (hashes[1], (0..12).collect::<Vec<_>>());
    // The same tokens in other blocks are no news; what follows them is.
    let mut fresh = start(2, &grown, None);
    if let DemandKind::Start { reuse, .. } = &mut fresh.kind {
        *reuse = false;
    }
    ask(&mut kv, 100, vec![fresh], &[]);
    let events = kv.take_events();
    let [KvEvent::Stored { parent, tokens: stored, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*parent, stored.as_slice()), (Some(last), &[8, 9, 10, 11][..]));
}

/// One move of the random walk.
#[derive(Clone, Debug)]
enum Move {
    Start { prompt: u32, len: u32, limit: u32 },
    Step { budget: u32 },
    Release { which: usize },
    Reset,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0_u32..3, 1_u32..20, 1_u32..9)
            .prop_map(|(prompt, len, limit)| Move::Start { prompt, len, limit }),
        6 => (1_u32..12).prop_map(|budget| Move::Step { budget }),
        2 => (0_usize..8).prop_map(|which| Move::Release { which }),
        1 => Just(Move::Reset),
    ];
    prop::collection::vec(one, 1..60)
}

/// What every slot and every table must hold, written down independently of the manager.
struct Mirror {
    slots: Vec<Vec<TokenId>>,
    live: Vec<Live>,
}

struct Live {
    id: u64,
    tokens: Vec<TokenId>,
    computed: usize,
    table: Vec<BlockId>,
}

impl Live {
    fn slot(&self, position: usize) -> usize {
        let block_size = BLOCK as usize;
        self.table[position / block_size].0 as usize * block_size + position % block_size
    }
}

impl Mirror {
    /// A token for everyone who has computed all it knows, and the wish to go on.
    fn demands(&mut self) -> Vec<Demand> {
        let grow = |live: &mut Live| {
            let mut appended = Vec::new();
            if live.computed == live.tokens.len() {
                appended.push((live.id % 2) as u32);
                live.tokens.extend(&appended);
            }
            go_on(live.id, live.tokens.len() as u32, &appended)
        };
        self.live.iter_mut().map(grow).collect()
    }

    fn apply(&mut self, grants: &Grants, mut newcomer: Option<(u64, Vec<TokenId>)>) {
        self.live.retain(|live| !grants.preempted.contains(&SequenceId(live.id)));
        for grant in &grants.granted {
            if let Some((id, tokens)) = newcomer.take_if(|(id, _)| *id == grant.sequence.0) {
                self.live.push(Live { id, tokens, computed: grant.start.0 as usize, table: Vec::new() });
            }
            let live = self.live.iter_mut().find(|live| live.id == grant.sequence.0).unwrap();
            assert_eq!(live.computed, grant.start.0 as usize);
            live.table.extend(&grant.new_blocks);
            live.computed += grant.count.0 as usize;
            assert!(live.computed <= live.tokens.len());
            for position in grant.start.0 as usize..live.computed {
                self.slots[live.slot(position)] = live.tokens[..=position].to_vec();
            }
        }
    }

    /// Everyone finds its own tokens in its slots: found ones were right, computed ones were not overwritten.
    fn check(&self) {
        for live in &self.live {
            for position in 0..live.computed {
                assert_eq!(self.slots[live.slot(position)], live.tokens[..=position]);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_random_walk_never_shares_wrongly(walk in moves(), blocks in 2_u32..12) {
        let mut kv = manager(blocks);
        let mut mirror = Mirror { slots: vec![Vec::new(); (blocks * BLOCK) as usize], live: Vec::new() };
        for (id, step) in (1..).zip(walk) {
            let (mut demands, mut newcomer, mut budget) = (Vec::new(), None, 64);
            match step {
                Move::Start { prompt, len, limit } => {
                    let tokens: Vec<TokenId> = (0..len).map(|at| prompt * 100 + at / 6).collect();
                    demands.push(Demand { limit: Tokens(limit), ..start(id, &tokens, None) });
                    newcomer = Some((id, tokens));
                }
                Move::Step { budget: given } => {
                    budget = given;
                    demands = mirror.demands();
                }
                Move::Release { which } if which < mirror.live.len() => {
                    release(&mut kv, &[mirror.live.remove(which).id]);
                }
                Move::Release { .. } => {}
                Move::Reset => {
                    kv.reset(kv.epoch().next());
                    mirror.live.clear();
                    prop_assert_eq!(kv.usage().used, 0);
                }
            }
            let victims: Vec<u64> = mirror.live.iter().rev().map(|live| live.id).collect();
            let grants = ask(&mut kv, budget, demands, &victims);
            prop_assert!(grants.granted.iter().map(|grant| grant.count.0).sum::<u32>() <= budget);
            mirror.apply(&grants, newcomer);
            mirror.check();
        }
        let rest: Vec<u64> = mirror.live.iter().map(|live| live.id).collect();
        release(&mut kv, &rest);
        prop_assert_eq!(kv.usage().used, 0);
    }
}
