//! The scheduler actor: drives the scheduling machine and hands each sequence's events to its stream.
//!
//! It keeps two steps in flight (one while there are drafts): while the device computes one, the next is
//! reserved and planned. Tokens go
//! straight from here into each stream's bounded channel, whose bound is the sequence's own `max_tokens`: a
//! slow reader never holds anybody up. A stream that went away frees its blocks with the next step.

mod flight;
mod streams;

use std::sync::Arc;
use std::time::Instant;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use updraft_core::fault::FaultClass;
use updraft_core::kv::{Grants, KvUsage};
use updraft_core::scheduler::{Blame, NewSequence, Scheduler, SchedulerConfig, SchedulerEvent};
use updraft_core::step::StepResult;
use updraft_core::{Epoch, SequenceId};

use crate::bus::{Bus, StepRecord};
use crate::executor::ExecutorMsg;
use crate::generation::{GenerationError, OUT_OF_SERVICE_RETRY_AFTER_SECS};
use crate::intake::Admission;
use crate::kv_blocks::KvBlocksMsg;
use crate::supervisor::{Mailbox, StatusBoard};
use flight::Flights;
use streams::Streams;

/// The actor.
pub(crate) struct SchedulerActor;

/// Messages.
pub(crate) enum SchedulerMsg {
    /// A sequence arrived.
    Admit(Box<Admission>),
    /// Nobody wants this sequence any more.
    Cancel(SequenceId),
    /// The block actor answered.
    Granted(Grants),
    /// The executor answered.
    StepDone(StepResult),
    /// Something was lost; a new epoch begins.
    Lost { class: FaultClass, epoch: Epoch, blame: Blame },
    /// There is a block actor.
    KvBlocksUp(ActorRef<KvBlocksMsg>),
    /// There is an executor.
    ExecutorUp(ActorRef<ExecutorMsg>),
    /// There will be no executor any more: no device is left.
    OutOfService(Arc<str>),
}

/// What the actor needs to start.
#[derive(Clone)]
pub(crate) struct SchedulerArgs {
    pub config: SchedulerConfig,
    pub epoch: Epoch,
    pub bus: Arc<Bus>,
    pub board: Arc<StatusBoard>,
}

/// What it keeps.
pub(crate) struct SchedulerState {
    machine: Scheduler,
    streams: Streams,
    flights: Flights,
    usage: KvUsage,
    kv_blocks: Option<ActorRef<KvBlocksMsg>>,
    executor: Option<ActorRef<ExecutorMsg>>,
    /// Why nothing will be computed any more.
    out_of_service: Option<Arc<str>>,
    bus: Arc<Bus>,
    board: Arc<StatusBoard>,
}

impl Actor for SchedulerActor {
    type Msg = SchedulerMsg;
    type State = SchedulerState;
    type Arguments = SchedulerArgs;

    async fn pre_start(
        &self,
        _myself: ActorRef<SchedulerMsg>,
        args: SchedulerArgs,
    ) -> Result<SchedulerState, ActorProcessingErr> {
        Ok(SchedulerState {
            machine: Scheduler::new(args.config, args.epoch),
            streams: Streams::new(Arc::clone(&args.bus)),
            flights: Flights::default(),
            usage: KvUsage::default(),
            kv_blocks: None,
            executor: None,
            out_of_service: None,
            bus: args.bus,
            board: args.board,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SchedulerMsg>,
        message: SchedulerMsg,
        state: &mut SchedulerState,
    ) -> Result<(), ActorProcessingErr> {
        state.board.mailboxes().taken(Mailbox::Scheduler);
        match message {
            SchedulerMsg::Admit(admission) => state.admit(*admission),
            SchedulerMsg::Cancel(sequence) => state.cancel(sequence),
            SchedulerMsg::Granted(grants) => state.granted(grants, &myself),
            SchedulerMsg::StepDone(result) => state.step_done(&result),
            SchedulerMsg::Lost { class, epoch, blame } => state.lost(class, epoch, blame),
            SchedulerMsg::KvBlocksUp(kv_blocks) => state.kv_blocks = Some(kv_blocks),
            SchedulerMsg::ExecutorUp(executor) => state.executor = Some(executor),
            SchedulerMsg::OutOfService(reason) => state.out_of_service(reason),
        }
        state.plan(&myself);
        Ok(())
    }
}

impl SchedulerState {
    fn admit(&mut self, admission: Admission) {
        let sequence = admission.sequence;
        // The gate has let it in, so a queue that is full by now does not keep it out.
        let admitted = self.machine.restore(NewSequence {
            sequence,
            prompt: Arc::clone(&admission.prompt),
            output: admission.output.clone(),
            sampling: Arc::clone(&admission.sampling),
            priority: admission.priority,
            salt: admission.salt.clone(),
            arrival: self.board.millis_of(admission.arrived),
            strikes: admission.strikes,
        });
        let arrived = self.board.millis_of(admission.arrived);
        self.streams.open(admission, arrived);
        if let Err(refusal) = admitted {
            self.streams.fail(sequence, GenerationError::Refused(refusal), self.board.now());
        }
        // What came back complete ends at once.
        let events = self.machine.drain_events();
        self.deliver(events);
        if let Some(reason) = self.out_of_service.clone() {
            self.turn_away(sequence, &reason);
        }
    }

    /// Ends every stream: nothing will be computed any more.
    fn out_of_service(&mut self, reason: Arc<str>) {
        for sequence in self.streams.sequences() {
            self.turn_away(sequence, &reason);
        }
        self.out_of_service = Some(reason);
        self.note_idle();
    }

    fn turn_away(&mut self, sequence: SequenceId, reason: &Arc<str>) {
        self.machine.cancel(sequence);
        let error = GenerationError::OutOfService {
            reason: Arc::clone(reason),
            retry_after_secs: OUT_OF_SERVICE_RETRY_AFTER_SECS,
        };
        self.streams.fail(sequence, error, self.board.now());
    }

    fn cancel(&mut self, sequence: SequenceId) {
        let stats = self.machine.stats(sequence).unwrap_or_default();
        self.machine.cancel(sequence);
        self.streams.abandon(sequence, &stats, self.board.now());
        self.note_idle();
    }

    /// Asks for the blocks of the next step, when one can be planned and all who are needed are there.
    fn plan(&mut self, myself: &ActorRef<SchedulerMsg>) {
        let (Some(kv_blocks), Some(_)) = (&self.kv_blocks, &self.executor) else { return };
        let Some(reservation) = self.machine.propose() else { return };
        // A block actor that is gone begins a new epoch, and this is planned again.
        if kv_blocks.cast(KvBlocksMsg::Reserve { reservation, reply_to: myself.clone() }).is_ok() {
            self.board.mailboxes().sent(Mailbox::KvBlocks);
        }
    }

    fn granted(&mut self, grants: Grants, myself: &ActorRef<SchedulerMsg>) {
        if grants.epoch != self.machine.epoch() {
            self.board.count_stale();
            return;
        }
        self.usage = grants.usage;
        let preemptions = grants.preempted.len() as u32;
        match (self.machine.commit(grants, self.board.now()), &self.executor) {
            (Some(plan), Some(executor)) => {
                self.flights.launch(&plan, preemptions);
                // An executor that is gone begins a new epoch, and this is planned again.
                if executor.cast(ExecutorMsg::Execute { plan, reply_to: myself.clone() }).is_ok() {
                    self.board.mailboxes().sent(Mailbox::Executor);
                }
            }
            (Some(_), None) => {}
            (None, _) => self.note_idle(),
        }
    }

    fn step_done(&mut self, result: &StepResult) {
        if result.epoch != self.machine.epoch() {
            self.board.count_stale();
            return;
        }
        let events = self.machine.complete(result, self.board.now());
        // Rows of sequences that ended meanwhile produced nothing.
        let is_token = |event: &&SchedulerEvent| matches!(event, SchedulerEvent::Token { .. });
        let generated_tokens = events.iter().filter(is_token).count() as u32;
        self.deliver(events);
        let load = self.machine.load();
        let flight = self.flights.land(result, load.running + load.waiting > 0);
        self.bus.steps.publish(&StepRecord {
            running: load.running,
            waiting: load.waiting,
            step_budget: load.step_budget.0,
            computed_tokens: flight.computed_tokens,
            prompt_tokens: flight.prompt_tokens,
            generated_tokens,
            preemptions: flight.preemptions,
            kv: self.usage,
            device_micros: result.device_micros,
            launch_micros: result.launch_micros,
            launched: result.launched,
            host_micros: flight.host_micros,
            drafts: flight.drafts,
        });
    }

    fn lost(&mut self, class: FaultClass, epoch: Epoch, blame: Blame) {
        match class {
            FaultClass::KvBlocks => self.kv_blocks = None,
            _ => self.executor = None,
        }
        self.flights.clear();
        let events = self.machine.lose(epoch, blame);
        self.deliver(events);
    }

    /// Hands events to their streams; a sequence nobody listens to any more is cancelled.
    fn deliver(&mut self, events: Vec<SchedulerEvent>) {
        let (now, at) = (self.board.now(), Instant::now());
        for event in events {
            if let Some(left) = self.streams.deliver(event, now, at) {
                let stats = self.machine.stats(left).unwrap_or_default();
                self.machine.cancel(left);
                self.streams.abandon(left, &stats, now);
            }
        }
    }

    /// Shows an empty house on the gauges at once, not at the next step.
    fn note_idle(&self) {
        let load = self.machine.load();
        let record = StepRecord {
            running: load.running,
            waiting: load.waiting,
            step_budget: load.step_budget.0,
            kv: self.usage,
            ..StepRecord::default()
        };
        self.bus.steps.publish(&record);
    }
}
