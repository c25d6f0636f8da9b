//! The engine supervisor: owns the epoch, the actors of the step loop, and their restarts.
//!
//! A lost executor or block table begins a new epoch and the scheduler puts its sequences back; a lost
//! scheduler begins one too, and the clients' streams bring their sequences back themselves; a lost intake or
//! graphs actor loses nothing. A device that hangs is noticed by the watch tick and its executor replaced;
//! one that is worn out is replaced by a spare, or the engine goes out of service.

mod loss;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::watch;
use updraft_core::Epoch;
use updraft_core::fault::FaultClass;
use updraft_core::restart::{History, RestartPolicy};

use super::devices::InUse;
use super::{Devices, EnginePhase, Life, Mailbox, StatusBoard};
use crate::bus::{Bus, DeviceFaultRecord};
use crate::executor::{ExecutorActor, ExecutorArgs, ExecutorMsg, ExecutorParts, Order};
use crate::graphs::{GraphsActor, GraphsArgs, GraphsMsg};
use crate::intake::{IntakeActor, IntakeMsg};
use crate::kv_blocks::{KvBlocksActor, KvBlocksArgs, KvBlocksMsg};
use crate::scheduler::{SchedulerActor, SchedulerArgs, SchedulerMsg};

/// How often the watch looks for a stalled step.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// How long a new life waits for the thread of the one before to leave the device. A thread that is in the
/// middle of a step leaves in time; one that hangs cannot be ended.
const SEAT_WAIT_MAX: Duration = Duration::from_secs(2);
/// Time between two looks whether it has left.
const SEAT_LOOK_EVERY: Duration = Duration::from_millis(5);

/// The actor.
pub(crate) struct EngineActor;

/// Messages.
pub(crate) enum EngineMsg {
    /// The back-off is over: start this child again.
    Restart(FaultClass),
    /// The device of this executor life is open.
    DeviceUp(Arc<Life>),
    /// Look for a stalled step.
    Watch,
    /// End one child as a fault would (drills).
    Kill(FaultClass),
}

/// What every life of the engine needs.
#[derive(Clone)]
pub(crate) struct EngineArgs {
    pub executor: ExecutorParts,
    pub graphs: GraphsArgs,
    pub kv_blocks: KvBlocksArgs,
    pub scheduler: SchedulerArgs,
    pub policy: RestartPolicy,
    pub board: Arc<StatusBoard>,
    pub bus: Arc<Bus>,
    /// Where submitters find the intake.
    pub door: watch::Sender<Option<ActorRef<IntakeMsg>>>,
    /// Where the device thread finds the graphs actor.
    pub desk: watch::Sender<Option<ActorRef<GraphsMsg>>>,
    /// The devices and the epoch outlive the supervisor itself.
    pub devices: Arc<Devices>,
    pub epoch: Arc<std::sync::atomic::AtomicU64>,
}

/// What it keeps.
pub(crate) struct EngineState {
    args: EngineArgs,
    history: History,
    /// The executor is being ended because its device hangs: the watch's own sentence.
    hung: Option<String>,
    /// Since when a new life waits for the thread of the one before.
    seat_wait: Option<Instant>,
    executor: Option<ActorRef<ExecutorMsg>>,
    /// The executor's life, and whether its device is open.
    life: Arc<Life>,
    device_is_up: bool,
    /// Faults that ended a life, until there is a new one.
    troubles: Vec<(DeviceFaultRecord, Instant)>,
    kv_blocks: Option<ActorRef<KvBlocksMsg>>,
    scheduler: Option<ActorRef<SchedulerMsg>>,
    intake: Option<ActorRef<IntakeMsg>>,
    graphs: Option<ActorRef<GraphsMsg>>,
}

/// The children, in the order in which they are started.
const CHILDREN: [FaultClass; 5] = [
    FaultClass::Graphs,
    FaultClass::Executor,
    FaultClass::KvBlocks,
    FaultClass::Scheduler,
    FaultClass::Intake,
];

/// How a child ended.
struct Loss {
    detail: String,
    /// By itself, not by a kill.
    failed: bool,
}

impl Actor for EngineActor {
    type Msg = EngineMsg;
    type State = EngineState;
    type Arguments = EngineArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<EngineMsg>,
        args: EngineArgs,
    ) -> Result<EngineState, ActorProcessingErr> {
        let mut state = EngineState {
            args,
            history: History::default(),
            hung: None,
            seat_wait: None,
            executor: None,
            life: Arc::default(),
            device_is_up: false,
            troubles: Vec::new(),
            kv_blocks: None,
            scheduler: None,
            intake: None,
            graphs: None,
        };
        state.next_epoch();
        for class in CHILDREN {
            state.start(class, &myself).await?;
        }
        myself.send_interval(WATCH_EVERY, || EngineMsg::Watch);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<EngineMsg>,
        message: EngineMsg,
        state: &mut EngineState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            EngineMsg::Restart(class) => state.start(class, &myself).await,
            EngineMsg::DeviceUp(life) => {
                state.device_up(&life);
                Ok(())
            }
            EngineMsg::Watch => {
                if state.executor.is_some()
                    && state.hung.is_none()
                    && let Some(stall) = state.args.board.stall()
                {
                    let why = stall.to_string();
                    state.kill(FaultClass::Executor, &why);
                    state.hung = Some(why);
                }
                Ok(())
            }
            EngineMsg::Kill(class) => {
                state.kill(class, "killed on request");
                Ok(())
            }
        }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<EngineMsg>,
        event: SupervisionEvent,
        state: &mut EngineState,
    ) -> Result<(), ActorProcessingErr> {
        let (who, detail, failed) = match event {
            SupervisionEvent::ActorTerminated(who, _, reason) => (who, reason.unwrap_or_default(), false),
            SupervisionEvent::ActorFailed(who, error) => (who, error.to_string(), true),
            _ => return Ok(()),
        };
        match state.class_of(&who) {
            Some(class) => state.lost(class, &Loss { detail, failed }, &myself),
            // A child of a life that has been replaced already.
            None => Ok(()),
        }
    }
}

impl EngineState {
    fn class_of(&self, who: &ActorCell) -> Option<FaultClass> {
        let is = |known: Option<ractor::ActorId>| known == Some(who.get_id());
        if is(self.executor.as_ref().map(|known| known.get_id())) {
            Some(FaultClass::Executor)
        } else if is(self.kv_blocks.as_ref().map(|known| known.get_id())) {
            Some(FaultClass::KvBlocks)
        } else if is(self.scheduler.as_ref().map(|known| known.get_id())) {
            Some(FaultClass::Scheduler)
        } else if is(self.intake.as_ref().map(|known| known.get_id())) {
            Some(FaultClass::Intake)
        } else if is(self.graphs.as_ref().map(|known| known.get_id())) {
            Some(FaultClass::Graphs)
        } else {
            None
        }
    }

    async fn start(
        &mut self,
        class: FaultClass,
        myself: &ActorRef<EngineMsg>,
    ) -> Result<(), ActorProcessingErr> {
        let me = myself.get_cell();
        match class {
            FaultClass::KvBlocks => {
                let args = self.args.kv_blocks.clone();
                let kv_blocks = Actor::spawn_linked(None, KvBlocksActor, args, me).await?.0;
                self.tell_scheduler(SchedulerMsg::KvBlocksUp(kv_blocks.clone()));
                self.kv_blocks = Some(kv_blocks);
            }
            FaultClass::Scheduler => {
                let mut args = self.args.scheduler.clone();
                args.epoch = self.epoch();
                let scheduler = Actor::spawn_linked(None, SchedulerActor, args, me).await?.0;
                self.scheduler = Some(scheduler.clone());
                if let Some(kv_blocks) = &self.kv_blocks {
                    self.tell_scheduler(SchedulerMsg::KvBlocksUp(kv_blocks.clone()));
                }
                if let Some(executor) = self.executor.as_ref().filter(|_| self.device_is_up) {
                    self.tell_scheduler(SchedulerMsg::ExecutorUp(executor.clone()));
                }
                if let Some(reason) = self.args.board.why_out_of_service() {
                    self.tell_scheduler(SchedulerMsg::OutOfService(reason));
                }
                if let Some(intake) = &self.intake {
                    // An intake that is gone hears of the scheduler when it is back.
                    if intake.cast(IntakeMsg::SchedulerUp(scheduler)).is_ok() {
                        self.args.board.mailboxes().sent(Mailbox::Intake);
                    }
                }
            }
            FaultClass::Intake => {
                let intake =
                    Actor::spawn_linked(None, IntakeActor, Arc::clone(&self.args.board), me).await?.0;
                if let Some(scheduler) = &self.scheduler {
                    // It has just been started.
                    if intake.cast(IntakeMsg::SchedulerUp(scheduler.clone())).is_ok() {
                        self.args.board.mailboxes().sent(Mailbox::Intake);
                    }
                }
                self.args.door.send_replace(Some(intake.clone()));
                self.intake = Some(intake);
            }
            FaultClass::Graphs => {
                let graphs = Actor::spawn_linked(None, GraphsActor, self.args.graphs.clone(), me).await?.0;
                self.args.desk.send_replace(Some(graphs.clone()));
                self.graphs = Some(graphs);
                if let Some(executor) = &self.executor {
                    // An executor that is gone is about to be replaced, and the new one says what it has.
                    let _ = executor.cast(ExecutorMsg::Order(Order::Inventory));
                }
            }
            _ => return self.start_executor(myself).await,
        }
        self.note_complete();
        Ok(())
    }

    async fn start_executor(&mut self, myself: &ActorRef<EngineMsg>) -> Result<(), ActorProcessingErr> {
        // Without a device there is nothing to start, and the board says so.
        let Some(device) = self.device_to_open(myself) else { return Ok(()) };
        let life = Arc::new(Life::default());
        self.life = Arc::clone(&life);
        self.args.board.install(Arc::clone(&life));
        let mut parts = self.args.executor.clone();
        (parts.graphs.given_up, parts.graphs.deadly) = (device.without_graphs, device.deadly);
        let (ordinal, ledger, now) = (device.ordinal, device.ledger, self.args.board.now());
        let args = ExecutorArgs { parts, ordinal, ledger, now, life, supervisor: myself.clone() };
        self.executor = Some(Actor::spawn_linked(None, ExecutorActor, args, myself.get_cell()).await?.0);
        Ok(())
    }

    /// The device for the next life. None when there is none left, or when it is not free yet: then this is
    /// asked again.
    fn device_to_open(&mut self, myself: &ActorRef<EngineMsg>) -> Option<InUse> {
        let devices = &self.args.devices;
        let (seats, in_process) = (&self.args.executor.seats, self.args.executor.placement.is_process());
        let device = devices.current()?;
        // The threads that look after child processes wait for each other themselves.
        if in_process || seats.is_free(device.ordinal) {
            self.seat_wait = None;
            return Some(device);
        }
        if self.seat_wait.get_or_insert_with(Instant::now).elapsed() < SEAT_WAIT_MAX {
            myself.send_after(SEAT_LOOK_EVERY, || EngineMsg::Restart(FaultClass::Executor));
            return None;
        }
        self.seat_wait = None;
        if let Some((ordinal, spare)) = devices.set_aside(|ordinal| seats.is_free(ordinal)) {
            tracing::warn!(
                parent: None,
                ordinal,
                spare,
                "the thread of the life before still holds the device: a spare takes its place for now \
                 (--executor-isolation process would end the thread)"
            );
        } else {
            tracing::warn!(
                parent: None,
                ordinal = device.ordinal,
                "the thread of the life before still holds the device: it is opened once more beside it \
                 (--executor-isolation process would end the thread)"
            );
        }
        devices.current()
    }

    /// Puts the executor to work once its device is open.
    fn device_up(&mut self, life: &Arc<Life>) {
        let Some(executor) = self.executor.as_ref().filter(|_| Arc::ptr_eq(life, &self.life)) else { return };
        self.tell_scheduler(SchedulerMsg::ExecutorUp(executor.clone()));
        self.device_is_up = true;
        self.args.devices.life_began(self.args.board.now());
        self.note_recovered();
        self.note_complete();
    }

    fn note_complete(&self) {
        if self.is_complete() {
            self.args.board.set_phase(EnginePhase::Serving);
        }
    }

    fn is_complete(&self) -> bool {
        self.device_is_up && self.kv_blocks.is_some() && self.scheduler.is_some() && self.intake.is_some()
    }

    fn tell_scheduler(&self, message: SchedulerMsg) {
        if let Some(scheduler) = &self.scheduler {
            // A scheduler that is gone is told everything when it is started again.
            if scheduler.cast(message).is_ok() {
                self.args.board.mailboxes().sent(Mailbox::Scheduler);
            }
        }
    }

    fn kill(&self, class: FaultClass, why: &str) {
        tracing::warn!(parent: None, class = class.as_str(), why, "ending a part of the engine");
        let cell = match class {
            FaultClass::KvBlocks => self.kv_blocks.as_ref().map(ActorRef::get_cell),
            FaultClass::Scheduler => self.scheduler.as_ref().map(ActorRef::get_cell),
            FaultClass::Intake => self.intake.as_ref().map(ActorRef::get_cell),
            FaultClass::Graphs => self.graphs.as_ref().map(ActorRef::get_cell),
            _ => self.executor.as_ref().map(ActorRef::get_cell),
        };
        if let Some(cell) = cell {
            cell.kill();
        }
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.args.epoch.load(std::sync::atomic::Ordering::Acquire))
    }

    fn next_epoch(&self) -> Epoch {
        let epoch = Epoch(self.args.epoch.fetch_add(1, std::sync::atomic::Ordering::AcqRel) + 1);
        self.args.board.set_epoch(epoch);
        epoch
    }
}
