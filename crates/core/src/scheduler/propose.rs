//! From what there is to do to one reservation: who asks for how much, in which order, at whose cost.

use super::order::Precedence;
use super::sequence::{Sequence, Stage};
use super::{Scheduler, Work};
use crate::ids::{SequenceId, StepId};
use crate::kv::{Demand, DemandKind, Reservation};
use crate::units::Tokens;

/// A reservation without an answer.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) round: u64,
    pub(super) step: StepId,
    /// Whether blocks were given back with it.
    pub(super) releases: bool,
    /// Waiting sequences that asked to start, in waiting order.
    pub(super) starts: Vec<SequenceId>,
    /// The suspect that runs by itself in this step.
    pub(super) alone: Option<SequenceId>,
    /// Sequences it names that ended since.
    pub(super) ended: Vec<SequenceId>,
}

/// What sequences under suspicion mean for the next step.
enum Isolation {
    /// There are none.
    Off,
    /// This one runs by itself.
    Only(SequenceId),
    /// None of them can run now. The others may, but nobody starts past this place.
    Before(Option<Precedence>),
}

#[derive(Default)]
struct Wishes {
    demands: Vec<Demand>,
    victims: Vec<SequenceId>,
    starts: Vec<SequenceId>,
    /// What continues by single tokens.
    streams: Work,
    /// Up to where the first prompt is computed; none when there is no prompt to compute.
    prompt: Option<u32>,
}

/// What one step still has room for besides its budget.
struct Room {
    /// Tokens of one sequence.
    chunk: Tokens,
    /// Rows of logits for prompt log-probabilities.
    prompt_logit_rows: Tokens,
    /// Rows of logits for drafts.
    draft_rows: Tokens,
}

impl Room {
    /// Tokens this sequence may compute; none when it must wait for a step with room for its logits. The
    /// first in order always finds the whole room, so nobody waits for ever.
    fn limit(&mut self, record: &Sequence) -> Option<Tokens> {
        if !record.yields_prompt_logprobs() {
            return Some(self.chunk);
        }
        let limit = self.chunk.min(self.prompt_logit_rows);
        self.prompt_logit_rows -= limit.min(record.rest_of_prompt());
        (limit > Tokens::ZERO).then_some(limit)
    }
}

impl Scheduler {
    /// What the next step needs of the block manager. None while a reservation is out, while as many steps
    /// are in flight as may be, and when there is nothing to do.
    pub fn propose(&mut self) -> Option<Reservation> {
        let too_far_ahead = self.in_flight.len() >= self.config.steps_in_flight as usize;
        if self.proposal.is_some() || !self.changed || too_far_ahead {
            return None;
        }
        let round = self.rounds + 1;
        let isolation = self.isolation();
        let alone = if let Isolation::Only(suspect) = isolation { Some(suspect) } else { None };
        let wishes = match isolation {
            Isolation::Off => self.wishes_of_all(round, None),
            Isolation::Before(barrier) => self.wishes_of_all(round, barrier),
            Isolation::Only(suspect) => self.wishes_of_one(round, suspect),
        };
        if wishes.demands.is_empty() && self.holding_blocks.is_empty() {
            return None;
        }
        self.rounds = round;
        self.changed = false;
        self.step_budget = self.budget(&wishes);
        let released = std::mem::take(&mut self.holding_blocks);
        self.proposal = Some(Proposal {
            round,
            step: self.next_step,
            releases: !released.is_empty(),
            starts: wishes.starts,
            alone,
            ended: Vec::new(),
        });
        Some(Reservation {
            epoch: self.epoch,
            step: self.next_step,
            released,
            budget: self.step_budget,
            demands: wishes.demands,
            victims: wishes.victims,
        })
    }

    /// Decides whether a suspect runs by itself.
    ///
    /// Suspects go first and one at a time. Each ends the suspicion soon, by its tokens or by a fault, or
    /// because there is no block for it; a step without it in which a fault happens is not held against it.
    fn isolation(&self) -> Isolation {
        if self.suspects == 0 {
            return Isolation::Off;
        }
        let suspect_in = |places: &std::collections::BTreeSet<Precedence>| {
            places.iter().find(|place| self.record(**place).is_some_and(Sequence::is_suspect)).copied()
        };
        let waiting = suspect_in(&self.waiting);
        if let Some(place) = suspect_in(&self.running) {
            let wants_row = self.record(place).is_some_and(Sequence::wants_row);
            return if wants_row { Isolation::Only(place.sequence) } else { Isolation::Before(waiting) };
        }
        match waiting {
            Some(place) if self.can_surely_start(place) => Isolation::Only(place.sequence),
            barrier => Isolation::Before(barrier),
        }
    }

    fn record(&self, place: Precedence) -> Option<&Sequence> {
        self.sequences.get(&place.sequence)
    }

    /// Whether a waiting sequence gets its blocks even if none of them is cached.
    fn can_surely_start(&self, place: Precedence) -> bool {
        let Some(record) = self.record(place) else { return false };
        let free = self.usage.total.saturating_sub(self.usage.used);
        record.pending == 0
            && self.running.len() < self.config.max_sequences as usize
            && Tokens(record.known()).blocks(self.config.block_size).0 <= free
    }

    fn wishes_of_all(&mut self, round: u64, barrier: Option<Precedence>) -> Wishes {
        let mut room = self.room();
        let mut wishes = Wishes::default();
        let mut prefills = Vec::new();
        for place in &self.running {
            let Some(record) = self.sequences.get_mut(&place.sequence) else { continue };
            let Some(limit) = record.wants_row().then(|| room.limit(record)).flatten() else { continue };
            // Single tokens go first: a long prompt must not hold up streams that are under way.
            let list = if record.continues() {
                wishes.streams = wishes.streams.with(record.computed, 1);
                &mut wishes.demands
            } else {
                wishes.prompt.get_or_insert(record.computed);
                &mut prefills
            };
            let mut demand = continuation(record, round, limit);
            if let Some(speculation) = &self.config.speculation {
                demand.drafts = record.draft(speculation, room.draft_rows);
                room.draft_rows -= demand.drafts;
            }
            list.push(demand);
            wishes.victims.push(place.sequence);
        }
        wishes.demands.append(&mut prefills);
        wishes.victims.reverse();
        let slots = self.config.max_sequences.saturating_sub(self.running.len() as u32);
        for place in self.waiting.iter().take(slots.min(self.config.step_budget.0) as usize) {
            let Some(record) = self.sequences.get_mut(&place.sequence) else { continue };
            // A preempted sequence starts again when all its tokens are in, and nobody passes it meanwhile.
            if barrier.is_some_and(|barrier| *place >= barrier) || record.pending > 0 {
                break;
            }
            let Some(limit) = room.limit(record) else { break };
            // How much of it is cached is not known yet; to count from its beginning is right for most.
            wishes.prompt.get_or_insert(0);
            wishes.demands.push(start(record, round, limit));
            wishes.starts.push(place.sequence);
        }
        wishes
    }

    fn wishes_of_one(&mut self, round: u64, id: SequenceId) -> Wishes {
        let mut room = self.room();
        let mut wishes = Wishes::default();
        let Some(record) = self.sequences.get_mut(&id) else { return wishes };
        let Some(limit) = room.limit(record) else { return wishes };
        if record.stage == Stage::Running {
            wishes.demands.push(continuation(record, round, limit));
        } else {
            wishes.demands.push(start(record, round, limit));
            wishes.starts.push(id);
        }
        wishes
    }

    /// Tokens of the next step: all that there may be, unless prompts would hold up streams for too long.
    fn budget(&self, wishes: &Wishes) -> Tokens {
        let all = self.config.step_budget;
        let streams = wishes.streams.tokens as u32;
        let (Some(latency), Some(context)) = (self.config.token_latency, wishes.prompt) else { return all };
        if streams == 0 || streams >= all.0 {
            return all;
        }
        Tokens(streams + latency.budget(&self.costs, wishes.streams, context, all.0 - streams))
    }

    fn room(&self) -> Room {
        Room {
            chunk: self.chunk(),
            prompt_logit_rows: self.config.prompt_logit_rows,
            draft_rows: self.config.speculation.as_ref().map_or(Tokens::ZERO, |speculation| speculation.rows),
        }
    }

    /// Tokens of one sequence in one step.
    fn chunk(&self) -> Tokens {
        let alone = self.sequences.len() <= 1;
        if alone || self.config.chunk_limit == Tokens::ZERO {
            self.config.step_budget
        } else {
            self.config.chunk_limit
        }
    }
}

fn continuation(record: &mut Sequence, round: u64, limit: Tokens) -> Demand {
    record.round = round;
    record.drafts.clear();
    Demand {
        sequence: record.place.sequence,
        target: Tokens(record.target()),
        limit,
        drafts: Tokens::ZERO,
        kind: DemandKind::Continue { computed: Tokens(record.computed), appended: record.report_rest() },
    }
}

fn start(record: &mut Sequence, round: u64, limit: Tokens) -> Demand {
    record.round = round;
    Demand {
        sequence: record.place.sequence,
        target: Tokens(record.known()),
        limit,
        drafts: Tokens::ZERO,
        kind: DemandKind::Start {
            tokens: record.joined(),
            salt: record.salt.clone(),
            reuse: record.may_reuse(),
        },
    }
}
