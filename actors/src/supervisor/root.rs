//! The root supervisor: keeps the metrics and the engine alive, and ends the process when it cannot.
//!
//! Children are stopped in order, metrics last, so that the last figures are still counted.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::watch;
use updraft_core::fault::FaultClass;
use updraft_core::restart::{Decision, History, RestartPolicy};

use super::{EngineActor, EngineArgs, EngineMsg, EnginePhase};
use crate::bus::{FaultRecord, GraphRecord, LossRecord};
use crate::metrics::{MetricsActor, MetricsArgs, MetricsMsg};

/// How long the engine's children get to end at a stop.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// The actor.
pub(crate) struct RootActor;

/// Messages.
pub(crate) enum RootMsg {
    /// The back-off is over: start this child again.
    Restart(FaultClass),
    /// End one actor as a fault would (drills).
    Kill(FaultClass),
    /// Stop everything, in order.
    Stop(RpcReplyPort<()>),
}

/// What the root needs.
pub(crate) struct RootArgs {
    pub engine: EngineArgs,
    pub metrics: MetricsArgs,
    pub policy: RestartPolicy,
    /// Where readers find the metrics actor.
    pub desk: watch::Sender<Option<ActorRef<MetricsMsg>>>,
    /// Told when the restart budget is used up, or no device could ever be opened.
    pub exhausted: Arc<tokio::sync::Notify>,
}

/// What it keeps.
pub(crate) struct RootState {
    args: RootArgs,
    history: History,
    engine: Option<ActorRef<EngineMsg>>,
    metrics: Option<ActorRef<MetricsMsg>>,
}

impl Actor for RootActor {
    type Msg = RootMsg;
    type State = RootState;
    type Arguments = RootArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<RootMsg>,
        args: RootArgs,
    ) -> Result<RootState, ActorProcessingErr> {
        let mut state = RootState { args, history: History::default(), engine: None, metrics: None };
        state.start(FaultClass::Metrics, &myself).await?;
        state.start(FaultClass::Supervisor, &myself).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<RootMsg>,
        message: RootMsg,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RootMsg::Restart(class) => {
                if let Err(error) = state.start(class, &myself).await {
                    return state.lost(class, &error.to_string(), &myself);
                }
            }
            RootMsg::Kill(class) => state.kill(class),
            RootMsg::Stop(done) => {
                state.stop().await;
                // The one who asked may have stopped waiting.
                let _ = done.send(());
                myself.stop(None);
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<RootMsg>,
        event: SupervisionEvent,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let (who, detail) = match event {
            SupervisionEvent::ActorTerminated(who, _, reason) => (who, reason.unwrap_or_default()),
            SupervisionEvent::ActorFailed(who, error) => (who, error.to_string()),
            _ => return Ok(()),
        };
        match state.class_of(&who) {
            Some(class) => state.lost(class, &detail, &myself),
            None => Ok(()),
        }
    }
}

impl RootState {
    fn class_of(&self, who: &ActorCell) -> Option<FaultClass> {
        if self.engine.as_ref().is_some_and(|engine| engine.get_id() == who.get_id()) {
            Some(FaultClass::Supervisor)
        } else if self.metrics.as_ref().is_some_and(|metrics| metrics.get_id() == who.get_id()) {
            Some(FaultClass::Metrics)
        } else {
            None
        }
    }

    fn lost(
        &mut self,
        class: FaultClass,
        detail: &str,
        myself: &ActorRef<RootMsg>,
    ) -> Result<(), ActorProcessingErr> {
        let engine = &self.args.engine;
        if class == FaultClass::Metrics {
            self.metrics = None;
            self.args.desk.send_replace(None);
        } else {
            // Its children died with it, so nothing answers until it is back.
            self.engine = None;
            engine.door.send_replace(None);
            engine.desk.send_replace(None);
            engine.bus.graphs.publish(&GraphRecord::AllVoid);
            engine.board.set_phase(EnginePhase::Restarting);
            engine.board.retire();
        }
        let epoch = updraft_core::Epoch(engine.epoch.load(std::sync::atomic::Ordering::Acquire));
        tracing::warn!(parent: None, class = class.as_str(), detail, "lost an actor");
        engine.bus.faults.publish(&FaultRecord::Lost(LossRecord { class, epoch, detail: detail.to_owned() }));
        if let Some(reason) = engine.board.why_failed_to_open() {
            engine.board.set_phase(EnginePhase::Failed);
            self.args.exhausted.notify_one();
            return Err(reason.to_string().into());
        }
        match self.args.policy.decide(engine.board.now(), &mut self.history) {
            Decision::Restart { after } => {
                myself.send_after(Duration::from_millis(after.0), move || RootMsg::Restart(class));
                Ok(())
            }
            Decision::Escalate => {
                engine.board.set_phase(EnginePhase::Failed);
                self.args.exhausted.notify_one();
                Err(format!("restart budget used up, the last loss: {detail}").into())
            }
        }
    }

    async fn start(
        &mut self,
        class: FaultClass,
        myself: &ActorRef<RootMsg>,
    ) -> Result<(), ActorProcessingErr> {
        let me = myself.get_cell();
        if class == FaultClass::Metrics {
            let metrics = Actor::spawn_linked(None, MetricsActor, self.args.metrics.clone(), me).await?.0;
            self.args.desk.send_replace(Some(metrics.clone()));
            self.metrics = Some(metrics);
        } else {
            let engine = Actor::spawn_linked(None, EngineActor, self.args.engine.clone(), me).await?.0;
            self.engine = Some(engine);
        }
        Ok(())
    }

    fn kill(&self, class: FaultClass) {
        match (class, &self.engine, &self.metrics) {
            (FaultClass::Metrics, _, Some(metrics)) => metrics.kill(),
            (FaultClass::Supervisor, Some(engine), _) => engine.kill(),
            (_, Some(engine), _) => {
                // An engine that is gone has no child left to end.
                let _ = engine.cast(EngineMsg::Kill(class));
            }
            _ => {}
        }
    }

    async fn stop(&mut self) {
        self.args.engine.door.send_replace(None);
        self.args.desk.send_replace(None);
        if let Some(engine) = self.engine.take() {
            // Past the wait the runtime ends them with itself.
            let _ = engine.stop_and_wait(None, Some(STOP_WAIT_MAX)).await;
        }
        if let Some(metrics) = self.metrics.take() {
            let _ = metrics.stop_and_wait(None, Some(STOP_WAIT_MAX)).await;
        }
    }
}
