//! The graphs actor: owns the lifecycles of a device's captured graphs.
//!
//! It watches the steps on the bus, says between them what the device is to capture or to drop, and hears
//! what came of it. It only ever proposes: the device thread replays what is there and runs everything else
//! eagerly, so the loss of this actor disturbs nothing. A new one asks the device for what there is and goes
//! on from that.
//!
//! Refuses to know: how a graph is captured, and which one a step uses.

mod plan_table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use updraft_core::graphs::{Command, GraphEvent, GraphKey, LifecyclePolicy, Lifecycles};
use updraft_core::{Epoch, Millis};

use crate::bus::{CapturedGraph, GraphRecord, StepRecord, Subscription};
use crate::executor::{ExecutorMsg, GraphSetup, Inventory, Order};
use crate::supervisor::StatusBoard;

/// How often the steps are looked at and something is asked of the device.
const TICK_EVERY: Duration = Duration::from_millis(100);
/// Commands of one tick at most: each but the last is answered from what is known already.
const COMMANDS_IN_A_TICK_MAX: usize = 256;

/// The actor.
pub(crate) struct GraphsActor;

/// Messages.
pub(crate) enum GraphsMsg {
    /// Look at the steps, and go on.
    Tick,
    /// A device is open, or says what it has; so far, nothing was known of it.
    DeviceUp(Box<Inventory>, ActorRef<ExecutorMsg>),
    /// The device is gone with all its graphs.
    DeviceLost,
    /// Something happened to a graph.
    Happened(GraphRecord),
}

/// What the actor needs; clones share the queue.
#[derive(Clone)]
pub(crate) struct GraphsArgs {
    pub setup: GraphSetup,
    pub policy: LifecyclePolicy,
    pub steps: Subscription<StepRecord>,
    pub board: Arc<StatusBoard>,
}

/// What it keeps.
pub(crate) struct GraphsState {
    args: GraphsArgs,
    machine: Lifecycles,
    executor: Option<ActorRef<ExecutorMsg>>,
    /// The device's life, counted by this actor.
    life: Epoch,
    /// Graphs that the device had before anybody asked for them.
    there: BTreeMap<GraphKey, CapturedGraph>,
    failed: BTreeMap<GraphKey, updraft_core::recovery::RecoveryClass>,
    /// Nothing runs, as far as the last step said.
    idle: bool,
}

impl Actor for GraphsActor {
    type Msg = GraphsMsg;
    type State = GraphsState;
    type Arguments = GraphsArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<GraphsMsg>,
        args: GraphsArgs,
    ) -> Result<GraphsState, ActorProcessingErr> {
        myself.send_interval(TICK_EVERY, || GraphsMsg::Tick);
        Ok(GraphsState {
            machine: Lifecycles::new(args.policy.clone()),
            args,
            executor: None,
            life: Epoch::default(),
            there: BTreeMap::new(),
            failed: BTreeMap::new(),
            idle: true,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<GraphsMsg>,
        message: GraphsMsg,
        state: &mut GraphsState,
    ) -> Result<(), ActorProcessingErr> {
        let now = state.args.board.now();
        match message {
            GraphsMsg::Tick => state.look(),
            GraphsMsg::DeviceUp(inventory, executor) => state.device_up(&inventory, executor, now),
            GraphsMsg::DeviceLost => {
                state.executor = None;
                state.machine.device_lost(now);
            }
            GraphsMsg::Happened(record) => state.happened(&record, now),
        }
        state.go_on(now);
        Ok(())
    }
}

impl GraphsState {
    /// Counts the steps since the last look.
    fn look(&mut self) {
        for step in self.args.steps.drain() {
            self.idle = step.running == 0;
            if step.computed_tokens > 0 {
                self.machine.observe(step.computed_tokens, step.prompt_tokens == 0);
            }
        }
    }

    fn device_up(&mut self, inventory: &Inventory, executor: ActorRef<ExecutorMsg>, now: Millis) {
        let plan = inventory.plan(&self.args.setup, self.machine.traffic());
        plan_table::print(&plan);
        self.life = self.life.next();
        self.there = inventory.ready.iter().map(|graph| (graph.key, *graph)).collect();
        self.failed = inventory.failed.iter().map(|graph| (graph.key, graph.class)).collect();
        self.executor = Some(executor);
        for key in self.there.keys().filter(|key| !plan.wanted().contains(key)) {
            self.order(Order::Forget(*key));
        }
        self.machine.device_up(self.life, plan, now);
    }

    fn happened(&mut self, record: &GraphRecord, now: Millis) {
        let life = self.life;
        match record {
            GraphRecord::Captured(graph) => {
                self.machine.captured(life, graph.key, graph.cost, graph.micros, now);
            }
            GraphRecord::CaptureFailed { key, class, .. } => {
                self.machine.capture_failed(life, *key, *class, now);
            }
            GraphRecord::Retired { key, why } => {
                self.there.remove(key);
                self.machine.retired(life, *key, *why, now);
            }
            GraphRecord::AllVoid => {
                self.there.clear();
                self.machine.voided(life);
            }
            GraphRecord::FirstReplay { .. } | GraphRecord::Checked { .. } | GraphRecord::Forgotten { .. } => {
            }
        }
    }

    /// Does what is to be done now: at most one thing of the device.
    fn go_on(&mut self, now: Millis) {
        if self.executor.is_none() {
            return;
        }
        for _ in 0..COMMANDS_IN_A_TICK_MAX {
            match self.machine.next(now, self.idle) {
                None => break,
                Some(Command::Forget(key)) => {
                    self.order(Order::Forget(key));
                }
                Some(Command::Capture(key)) => {
                    if let Some(graph) = self.there.remove(&key) {
                        self.machine.captured(self.life, key, graph.cost, graph.micros, now);
                    } else if let Some(class) = self.failed.remove(&key) {
                        self.machine.capture_failed(self.life, key, class, now);
                    } else {
                        self.order(Order::Capture(key));
                        break;
                    }
                }
            }
        }
        for event in self.machine.drain_events() {
            log(&event);
        }
    }

    fn order(&self, order: Order) {
        if let Some(executor) = &self.executor {
            // One that is gone took its graphs along; its supervisor is about to say so.
            let _ = executor.cast(ExecutorMsg::Order(order));
        }
    }
}

/// What nobody else tells.
fn log(event: &GraphEvent) {
    match event {
        GraphEvent::Proposed(key) => {
            tracing::info!(parent: None, graph = %key, "steps of this size are frequent: they get a graph");
        }
        GraphEvent::Shrunk(budget) => tracing::warn!(
            parent: None,
            bytes = budget.bytes.0,
            streams = budget.streams,
            "the device ran short: graphs may take no more than they do now"
        ),
        GraphEvent::Failed { key, times, again: None, .. } => tracing::warn!(
            parent: None,
            graph = %key,
            times,
            "given up: steps of this size run eagerly until the device starts anew"
        ),
        other => tracing::debug!(parent: None, event = ?other, "graphs"),
    }
}
