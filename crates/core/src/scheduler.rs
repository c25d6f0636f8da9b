//! Which sequences run in the next step, with how many tokens.
//!
//! A step has one token budget. Running sequences are served before waiting ones: first those that continue
//! by one token, then those in the middle of a prompt, then newcomers. All of this happens in **one order**
//! of sequences (arrival for [`Policy::Fcfs`], priority less age for [`Policy::Priority`]), which also names
//! the victims: when a running sequence needs a block and none is free, the one that comes last in the order
//! loses its blocks, goes back to waiting with the tokens it has produced, and is computed anew when its turn
//! comes. Since the order never changes and a later arrival falls behind any given sequence after a bounded
//! time, the first sequence always gets on and nothing starves.
//!
//! The dialogue, driven by an actor that owns one [`Scheduler`]:
//!
//! 1. [`Scheduler::propose`] gives a [`Reservation`] for the block manager; nothing more is proposed until
//!    its answer is in.
//! 2. [`Scheduler::commit`] turns the manager's [`Grants`] into a plan for the executor. Whatever was granted
//!    is planned, even for a sequence that ended meanwhile: others may count on the blocks it fills.
//! 3. [`Scheduler::complete`] takes the executor's results, in the order of steps.
//! 4. After each of these, and after an admission or a cancellation, call `propose` again until it gives
//!    nothing. It gives nothing only when it must wait for a message or has no work, so this ends.
//!
//! With [`SchedulerConfig::speculation`], a sequence that continues may get drafts of its next tokens, when its
//! last token is known and it is under no suspicion. Drafts take what the others leave. What of them turns out
//! right is as if it had been computed token by token; the rest as if it had never been computed.
//!
//! With [`SchedulerConfig::token_latency`], a step in which sequences continue computes no more of prompts than fits into
//! a time, by what steps before it have cost. Chunks change no token.
//!
//! Up to [`SchedulerConfig::steps_in_flight`] steps are planned ahead of their results. What a result will
//! change is foreseen where it can be (the last token by length) and corrected where it cannot (an end token
//! found late costs one row, whose result is dropped).
//!
//! Refuses to know: what a token means, which blocks exist, who reads the events, what time it is. How long a step took
//! comes with its result.

mod audit;
mod commit;
mod complete;
mod config;
mod cost;
mod events;
mod latency;
mod lose;
mod order;
mod propose;
mod sequence;

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::admission::{self, Limits, QueueState, Refusal, RequestShape};
use crate::ids::{Epoch, SequenceId, StepId};
use crate::kv::KvUsage;
use crate::units::Tokens;

pub use config::{NewSequence, Policy, SchedulerConfig};
pub use events::{Blame, FailureCause, FinishReason, SchedulerEvent, SchedulerLoad, SequenceStats};
pub use latency::{LatencyBound, TokenLatency};

use complete::Pace;
use cost::{CostModel, Work};
use order::Precedence;
use propose::Proposal;
use sequence::{Sequence, Stage};

#[cfg(doc)]
use crate::kv::{Grants, Reservation};

/// The scheduler of one executor group.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    epoch: Epoch,
    next_step: StepId,
    sequences: HashMap<SequenceId, Sequence>,
    /// Sequences without blocks, next to start first.
    waiting: BTreeSet<Precedence>,
    /// Sequences with blocks, last to lose them first.
    running: BTreeSet<Precedence>,
    /// The reservation that is out.
    proposal: Option<Proposal>,
    /// Reservations so far.
    rounds: u64,
    /// Steps without a result, oldest first.
    in_flight: VecDeque<Flight>,
    /// Ended sequences whose blocks the manager still has.
    holding_blocks: Vec<SequenceId>,
    /// Ended or preempted sequences which the executor still knows.
    on_executor: Vec<SequenceId>,
    /// Whether anything has happened since the last reservation was made that could make another one worth
    /// its while.
    changed: bool,
    /// The pool after the last reservation.
    usage: KvUsage,
    /// Sequences that must run by themselves; see [`crate::fault::STRIKES_ISOLATE`].
    suspects: u32,
    waiting_prompt_tokens: u64,
    preemptions: u64,
    pace: Pace,
    costs: CostModel,
    /// Tokens that the last reservation was for, at most.
    step_budget: Tokens,
    /// Events that no call has handed out yet.
    events: Vec<SchedulerEvent>,
}

/// One step the executor works on.
#[derive(Debug)]
struct Flight {
    step: StepId,
    rows: Vec<FlightRow>,
    work: Work,
    prompt_tokens: u32,
}

/// One row of it, in plan order.
#[derive(Clone, Copy, Debug)]
struct FlightRow {
    sequence: SequenceId,
    samples: bool,
    /// Drafts behind the token that is known.
    drafts: u32,
}

impl Scheduler {
    /// A scheduler without work.
    #[must_use]
    pub fn new(config: SchedulerConfig, epoch: Epoch) -> Self {
        let usage = KvUsage { total: config.pool.0, ..KvUsage::default() };
        Self {
            step_budget: config.step_budget,
            config: config.checked(),
            costs: CostModel::default(),
            epoch,
            next_step: StepId(0),
            sequences: HashMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            proposal: None,
            rounds: 0,
            in_flight: VecDeque::new(),
            holding_blocks: Vec::new(),
            on_executor: Vec::new(),
            changed: true,
            usage,
            suspects: 0,
            waiting_prompt_tokens: 0,
            preemptions: 0,
            pace: Pace::default(),
            events: Vec::new(),
        }
    }

    /// Takes in a new sequence, which waits from now on.
    ///
    /// Refused when it can never run or when the queue is full.
    pub fn admit(&mut self, new: NewSequence) -> Result<(), Refusal> {
        let request = RequestShape { prompt: new.prompt_tokens(), max_tokens: None, sequences: 1 };
        admission::check(&self.limits(), &request, &self.queue())?;
        self.enter(new)
    }

    /// Takes in a sequence that was admitted before, by a scheduler that was lost. A full queue does not keep
    /// it out. If its output is already complete, its end is at once in [`Scheduler::drain_events`].
    pub fn restore(&mut self, new: NewSequence) -> Result<(), Refusal> {
        let request = RequestShape { prompt: new.prompt_tokens(), max_tokens: None, sequences: 1 };
        admission::check_shape(&self.limits(), &request)?;
        self.enter(new)
    }

    /// Ends a sequence. No event follows, and its blocks go back with the next reservation. False when it is
    /// not there (any more).
    pub fn cancel(&mut self, sequence: SequenceId) -> bool {
        let live = self.sequences.get(&sequence).is_some_and(|record| !record.ended);
        if live {
            self.events.retain(|event| event.sequence() != sequence);
            self.end(sequence);
            self.changed = true;
        }
        live
    }

    /// Counts and times of a sequence that is still there.
    #[must_use]
    pub fn stats(&self, sequence: SequenceId) -> Option<SequenceStats> {
        self.sequences.get(&sequence).map(|record| record.stats)
    }

    /// Events that came up outside `complete` and `lose`: a preemption at a commit, the end of a restored
    /// sequence. Those two calls hand them out as well, so this is only for who does not want to wait.
    pub fn drain_events(&mut self) -> Vec<SchedulerEvent> {
        std::mem::take(&mut self.events)
    }

    /// The executor life that plans are made for.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What there is to do.
    #[must_use]
    pub fn load(&self) -> SchedulerLoad {
        SchedulerLoad {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            waiting_tokens: Tokens(u32::try_from(self.waiting_prompt_tokens).unwrap_or(u32::MAX)),
            steps_in_flight: self.in_flight.len() as u32,
            suspects: self.suspects,
            preemptions: self.preemptions,
            pace: self.pace.interval(),
            step_budget: self.step_budget,
            usage: self.usage,
        }
    }

    /// Whether there is nothing to plan, to wait for or to give back.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty()
            && self.proposal.is_none()
            && self.in_flight.is_empty()
            && self.holding_blocks.is_empty()
    }

    /// The waiting sequences, next to start first.
    pub fn waiting(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.waiting.iter().map(|place| place.sequence)
    }

    /// The running sequences, last to lose their blocks first.
    pub fn running(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.running.iter().map(|place| place.sequence)
    }

    fn limits(&self) -> Limits {
        Limits {
            max_model_len: self.config.max_model_len,
            block_size: self.config.block_size,
            pool: self.config.pool,
            max_waiting: self.config.max_waiting,
            max_waiting_tokens: None,
        }
    }

    fn queue(&self) -> QueueState {
        let load = self.load();
        QueueState { waiting: load.waiting, waiting_tokens: load.waiting_tokens, pace: load.pace }
    }

    fn enter(&mut self, new: NewSequence) -> Result<(), Refusal> {
        let id = new.sequence;
        if self.sequences.contains_key(&id) {
            return Err(Refusal::Duplicate);
        }
        let record = Sequence::new(new, &self.config);
        let complete = record.end_reason();
        self.suspects += u32::from(record.is_suspect());
        self.waiting.insert(record.place);
        self.waiting_prompt_tokens += record.prompt.len() as u64;
        self.sequences.insert(id, record);
        self.changed = true;
        if let Some(reason) = complete {
            self.finish(id, reason, None);
        }
        Ok(())
    }

    /// Takes a sequence out of everything. While a reservation names it, its record stays: its grant must
    /// still become a row.
    fn end(&mut self, id: SequenceId) {
        let Some(record) = self.sequences.get_mut(&id) else { return };
        record.ended = true;
        self.suspects -= u32::from(record.is_suspect());
        match record.stage {
            Stage::Waiting => {
                self.waiting.remove(&record.place);
                self.waiting_prompt_tokens -= record.prompt.len() as u64;
            }
            Stage::Running => {
                self.running.remove(&record.place);
            }
        }
        match &mut self.proposal {
            Some(proposal) if proposal.round == record.round => proposal.ended.push(id),
            _ => self.bury(id),
        }
    }

    /// Forgets an ended sequence and has its blocks and its place on the executor given back.
    fn bury(&mut self, id: SequenceId) {
        let Some(record) = self.sequences.remove(&id) else { return };
        if record.on_executor {
            self.holding_blocks.push(id);
            self.on_executor.push(id);
        }
    }

    /// Moves a sequence from running to waiting; everything but its tokens has to be computed again.
    fn suspend(&mut self, id: SequenceId) {
        let Some(record) = self.sequences.get_mut(&id) else { return };
        if record.stage == Stage::Running && !record.ended {
            self.running.remove(&record.place);
            self.waiting.insert(record.place);
            self.waiting_prompt_tokens += record.prompt.len() as u64;
        }
        record.suspend();
    }
}

#[cfg(test)]
mod tests;
