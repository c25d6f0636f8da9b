//! The manager itself: serves one reservation at a time, in the order of its demands.
//!
//! A running sequence gets a block when it crosses into one, if need be from a victim. A waiting sequence
//! gets the blocks of all its known tokens at once or nothing: a prompt that has started can be finished
//! without taking anything from anyone. Any refused start ends the starts of that step, and so does a
//! preemption: what was just taken from one sequence is not for a newcomer. Drafts come last, and get what is
//! left.

use std::collections::HashMap;
use std::sync::Arc;

use super::events::KvEvent;
use super::messages::{Demand, DemandKind, Grant, Grants, KvUsage, Reservation};
use super::pool::BlockPool;
use super::table::{Opening, Table};
use crate::ids::{BlockId, Epoch, SequenceId, TokenId};
use crate::invariants::{self, PoolView, Violation};
use crate::units::{Blocks, Tokens};

/// Size and habits of the KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvConfig {
    /// Tokens in a block; at least 1.
    pub block_size: Tokens,
    /// Blocks in the pool.
    pub blocks: Blocks,
    /// Whether blocks are shared between sequences with the same beginning.
    pub prefix_caching: bool,
    /// Whether changes of the prefix cache are kept for [`KvManager::take_events`].
    pub events: bool,
}

/// Owner of the block table of one executor group.
#[derive(Debug)]
pub struct KvManager {
    config: KvConfig,
    epoch: Epoch,
    pool: BlockPool,
    tables: HashMap<SequenceId, Table>,
    /// The start refused last, which will most likely be asked for again.
    refused: Option<(SequenceId, Opening)>,
    events: Vec<KvEvent>,
    prefix_queries: u64,
    prefix_hits: u64,
}

/// What is left of a step while its demands are served.
struct Serving<'a> {
    budget: u32,
    victims: &'a [SequenceId],
    next_victim: usize,
    granted: Vec<Grant>,
    preempted: Vec<SequenceId>,
    /// Grants to which drafts may be added, and how many.
    drafting: Vec<(usize, Tokens)>,
}

/// The beginning of a sequence that need not be computed.
#[derive(Debug, Default)]
struct Prefix {
    /// Full blocks, to be shared with others.
    shared: Vec<BlockId>,
    /// The block behind them, not full, to be taken over.
    end: Option<BlockId>,
    /// Tokens in all of these.
    tokens: u32,
}

impl KvManager {
    /// An empty cache.
    #[must_use]
    pub fn new(mut config: KvConfig, epoch: Epoch) -> Self {
        config.block_size = config.block_size.max(Tokens(1));
        Self {
            pool: BlockPool::new(config.blocks.0),
            config,
            epoch,
            tables: HashMap::new(),
            refused: None,
            events: Vec::new(),
            prefix_queries: 0,
            prefix_hits: 0,
        }
    }

    /// Serves one step's demands; see the module's first lines for the rules.
    pub fn reserve(&mut self, reservation: &Reservation) -> Grants {
        if reservation.epoch > self.epoch {
            self.reset(reservation.epoch);
        }
        let mut serving = Serving {
            budget: reservation.budget.0,
            victims: &reservation.victims,
            next_victim: 0,
            granted: Vec::with_capacity(reservation.demands.len()),
            preempted: Vec::new(),
            drafting: Vec::new(),
        };
        if reservation.epoch == self.epoch {
            for sequence in &reservation.released {
                self.release(*sequence);
            }
            self.serve(&reservation.demands, &mut serving);
        }
        Grants {
            epoch: self.epoch,
            step: reservation.step,
            granted: serving.granted,
            preempted: serving.preempted,
            usage: self.usage(),
        }
    }

    /// Forgets everything: the memory behind the blocks belongs to a new executor. An epoch that is not newer
    /// is ignored.
    pub fn reset(&mut self, epoch: Epoch) {
        if epoch <= self.epoch {
            return;
        }
        self.epoch = epoch;
        self.pool = BlockPool::new(self.config.blocks.0);
        self.tables.clear();
        self.refused = None;
        if self.config.events {
            self.events.push(KvEvent::Cleared);
        }
    }

    /// How full the pool is. Blocks that are only kept in case they are needed again count as free.
    #[must_use]
    pub fn usage(&self) -> KvUsage {
        KvUsage {
            used: self.pool.total() - self.pool.free(),
            total: self.pool.total(),
            prefix_queries: self.prefix_queries,
            prefix_hits: self.prefix_hits,
        }
    }

    /// The executor life whose memory this manager divides.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Changes of the prefix cache since the last call, in order; empty unless the configuration asks for
    /// them.
    pub fn take_events(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.events)
    }

    /// Checks that no block is lost or wrongly shared. Takes time in proportion to the pool: for tests.
    pub fn audit(&self) -> Result<(), Violation> {
        let references = self.pool.references();
        invariants::blocks_balance(&PoolView {
            references: &references,
            free: &self.pool.free_blocks(),
            tables: &self.tables.iter().map(|(id, table)| (*id, &table.blocks[..])).collect::<Vec<_>>(),
            published: &self.pool.published().chain(self.pool.ends()).collect::<Vec<_>>(),
        })
    }

    fn serve(&mut self, demands: &[Demand], serving: &mut Serving<'_>) {
        let mut starting = true;
        for demand in demands {
            match &demand.kind {
                DemandKind::Continue { computed, appended } => {
                    self.serve_continue(demand, *computed, appended, serving);
                }
                DemandKind::Start { tokens, salt, reuse } => {
                    if !starting || !serving.preempted.is_empty() || serving.budget == 0 {
                        continue;
                    }
                    let opening = self.opening(demand.sequence, tokens, salt.as_ref());
                    starting = self.serve_start(demand, opening, *reuse, serving);
                }
            }
        }
        for (grant, drafts) in std::mem::take(&mut serving.drafting) {
            self.add_drafts(grant, drafts, serving);
        }
    }

    fn serve_continue(
        &mut self,
        demand: &Demand,
        computed: Tokens,
        appended: &[TokenId],
        serving: &mut Serving<'_>,
    ) {
        let block_size = self.config.block_size;
        // A victim of this very step has no table any more.
        let Some(table) = self.tables.get_mut(&demand.sequence) else { return };
        // Before anything is offered: what a wrong draft left behind is not the block's content.
        table.computed = table.computed.min(computed.0);
        table.append(appended);
        let (start, held) = (table.computed, table.blocks.len() as u32);
        let wanted = demand.target.0.saturating_sub(start).min(demand.limit.0).min(serving.budget);
        let needed = Tokens(start + wanted).blocks(block_size).0.saturating_sub(held);
        if needed > self.pool.free() {
            self.preempt_for(demand.sequence, needed, serving);
        }
        let room = (held + self.pool.free().min(needed)).saturating_mul(block_size.0);
        let count = wanted.min(room.saturating_sub(start));
        if count > 0 {
            let missing = Tokens(start + count).blocks(block_size).0.saturating_sub(held);
            let new_blocks = self.take_blocks(missing);
            if let Some(table) = self.tables.get_mut(&demand.sequence) {
                table.blocks.extend_from_slice(&new_blocks);
                table.computed = start + count;
            }
            if start + count == demand.target.0 && demand.drafts > Tokens::ZERO {
                serving.drafting.push((serving.granted.len(), demand.drafts));
            }
            serving.grant(demand.sequence, start, count, new_blocks);
        }
        self.offer_complete_blocks(demand.sequence);
    }

    /// Adds to a grant what there is still room for. Drafts are no known tokens, so nothing is offered.
    fn add_drafts(&mut self, grant: usize, drafts: Tokens, serving: &mut Serving<'_>) {
        let block_size = self.config.block_size;
        let Some(grant) = serving.granted.get_mut(grant) else { return };
        let Some(table) = self.tables.get_mut(&grant.sequence) else { return };
        let held = table.blocks.len() as u32;
        let room = (held + self.pool.free()).saturating_mul(block_size.0);
        let end = (table.computed + drafts.0.min(serving.budget)).min(room);
        let count = end.saturating_sub(table.computed);
        if count == 0 {
            return;
        }
        table.computed = end;
        serving.budget -= count;
        grant.count += Tokens(count);
        let new_blocks = self.take_blocks(Tokens(end).blocks(block_size).0.saturating_sub(held));
        if let Some(table) = self.tables.get_mut(&grant.sequence) {
            table.blocks.extend_from_slice(&new_blocks);
        }
        grant.new_blocks.extend(new_blocks);
    }

    /// Returns whether it was granted.
    fn serve_start(
        &mut self,
        demand: &Demand,
        opening: Opening,
        reuse: bool,
        serving: &mut Serving<'_>,
    ) -> bool {
        let block_size = self.config.block_size;
        self.release(demand.sequence);
        let tokens = opening.tokens.len() as u32;
        let Prefix { shared, end, tokens: cached } =
            if reuse { self.find_prefix(&opening) } else { Prefix::default() };
        let found = (shared.len() + usize::from(end.is_some())) as u32;
        let needed = Tokens(tokens).blocks(block_size).0 - found;
        let revived = shared.iter().chain(&end).filter(|block| self.pool.is_free(**block)).count() as u32;
        let count =
            demand.target.0.min(tokens).saturating_sub(cached).min(demand.limit.0).min(serving.budget);
        if count == 0 || needed + revived > self.pool.free() {
            self.refused = Some((demand.sequence, opening));
            return false;
        }
        if reuse && self.config.prefix_caching {
            self.prefix_queries += u64::from(tokens);
            self.prefix_hits += u64::from(cached);
        }
        for block in &shared {
            self.pool.share(*block);
        }
        let offered = shared.len();
        let mut blocks = shared;
        if let Some(end) = end {
            self.pool.take_over(end);
            blocks.push(end);
        }
        blocks.extend(self.take_blocks(needed));
        let table = Table::new(opening, blocks.clone(), offered, cached + count);
        self.tables.insert(demand.sequence, table);
        serving.grant(demand.sequence, cached, count, blocks);
        self.offer_complete_blocks(demand.sequence);
        true
    }

    /// The hashed tokens of a start, from the last refusal when it is the same one again.
    fn opening(&mut self, sequence: SequenceId, tokens: &Arc<[TokenId]>, salt: Option<&Arc<str>>) -> Opening {
        // A sequence's tokens only grow, so the same number of them are the same ones.
        match self.refused.take() {
            Some((refused, opening)) if refused == sequence && opening.tokens.len() == tokens.len() => {
                opening
            }
            _ => {
                let hashed = self.config.prefix_caching;
                Opening::new(Arc::clone(tokens), salt.cloned(), self.config.block_size, hashed)
            }
        }
    }

    /// What can be found of a sequence's beginning. The last token is always computed anew: a step needs its logits.
    fn find_prefix(&self, opening: &Opening) -> Prefix {
        if !self.config.prefix_caching {
            return Prefix::default();
        }
        let block_size = self.config.block_size.0 as usize;
        let most = opening.tokens.len().saturating_sub(1);
        let hashes = opening.hashes.iter().take(most / block_size);
        let shared: Vec<_> = hashes.map_while(|hash| self.pool.find(hash)).collect();
        let computed = shared.len() * block_size;
        let rest = opening.tokens.get(computed..most).unwrap_or_default();
        let end = opening.place(shared.len()).and_then(|place| self.pool.find_end(&place, rest));
        let tokens = computed as u32 + end.map_or(0, |(_, tokens)| tokens);
        Prefix { shared, end: end.map(|(block, _)| block), tokens }
    }

    /// Takes the blocks of victims until `needed` are free or nobody is left that comes after `sequence`.
    fn preempt_for(&mut self, sequence: SequenceId, needed: u32, serving: &mut Serving<'_>) {
        let own_place = serving.victims.iter().position(|victim| *victim == sequence);
        let end = own_place.unwrap_or(serving.victims.len());
        while self.pool.free() < needed && serving.next_victim < end {
            let victim = serving.victims[serving.next_victim];
            serving.next_victim += 1;
            let runs = serving.granted.iter().any(|grant| grant.sequence == victim);
            if !runs && self.release(victim) {
                serving.preempted.push(victim);
            }
        }
    }

    /// Gives a sequence's blocks back; false when it has none.
    fn release(&mut self, sequence: SequenceId) -> bool {
        let Some(table) = self.tables.remove(&sequence) else { return false };
        if self.config.prefix_caching
            && let Some((place, block, tokens)) = table.end(self.config.block_size)
        {
            self.pool.keep_end(block, place, tokens);
        }
        for block in table.blocks.iter().rev() {
            self.pool.give_back(*block);
        }
        true
    }

    fn take_blocks(&mut self, count: u32) -> Vec<BlockId> {
        let mut blocks = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let Some((block, evicted)) = self.pool.take() else { break };
            if let (Some(hash), true) = (evicted, self.config.events) {
                self.events.push(KvEvent::Removed { hash });
            }
            blocks.push(block);
        }
        blocks
    }

    /// Lets others find the blocks whose tokens are known and computed by now.
    fn offer_complete_blocks(&mut self, sequence: SequenceId) {
        if !self.config.prefix_caching {
            return;
        }
        let block_size = self.config.block_size;
        let Some(table) = self.tables.get_mut(&sequence) else { return };
        let complete = table.complete_blocks(block_size);
        let mut fresh: Option<(usize, Vec<_>)> = None;
        while table.offered < complete {
            let index = table.offered;
            let Some(hash) = table.hash(index, block_size) else { break };
            table.offered += 1;
            if self.pool.publish(table.blocks[index], hash) {
                if self.config.events {
                    fresh.get_or_insert((index, Vec::new())).1.push(hash);
                }
            } else if let Some((first, hashes)) = fresh.take() {
                self.events.push(stored(table, first, hashes, block_size));
            }
        }
        if let Some((first, hashes)) = fresh {
            self.events.push(stored(table, first, hashes, block_size));
        }
    }
}

impl Serving<'_> {
    fn grant(&mut self, sequence: SequenceId, start: u32, count: u32, new_blocks: Vec<BlockId>) {
        self.budget -= count;
        self.granted.push(Grant { sequence, start: Tokens(start), count: Tokens(count), new_blocks });
    }
}

fn stored(table: &Table, first: usize, hashes: Vec<super::BlockHash>, block_size: Tokens) -> KvEvent {
    let mut tokens = Vec::with_capacity(hashes.len() * block_size.0 as usize);
    for block in first..first + hashes.len() {
        table.extend_with_tokens(block, block_size, &mut tokens);
    }
    KvEvent::Stored { hashes, parent: table.parent(first), tokens }
}
