//! The executor: owns one device and the thread that drives it.
//!
//! The actor is a shell: it hands plans to the device thread and turns the thread's end into its own. All
//! computing happens on that thread; answers go from it straight to the scheduler that asked. Plans and
//! answers carry the epoch, so nothing of a lost life is ever mistaken for the present one.

mod batch;
mod drill;
mod sequence;
mod thread;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use updraft_core::step::StepPlan;
use updraft_devices::Device;

pub use drill::{Drill, DrillSwitch};

use crate::scheduler::SchedulerMsg;
use crate::supervisor::{EngineMsg, Mailbox, StatusBoard, StepClock};
use thread::{DeviceThread, Work};

/// Makes the device of a new executor life. Called on the device thread, which owns the result.
pub type DeviceFactory = Arc<dyn Fn() -> Result<Box<dyn Device>, String> + Send + Sync>;

/// The actor.
pub(crate) struct ExecutorActor;

/// Messages.
pub(crate) enum ExecutorMsg {
    /// Run a step and tell the scheduler.
    Execute { plan: StepPlan, reply_to: ActorRef<SchedulerMsg> },
    /// The device thread ended: the device is gone.
    DeviceLost { detail: String },
}

/// What every life of the executor needs.
#[derive(Clone)]
pub(crate) struct ExecutorParts {
    pub factory: DeviceFactory,
    pub block_size: updraft_core::Tokens,
    pub drills: DrillSwitch,
    pub board: Arc<StatusBoard>,
}

/// What one life of the executor needs.
pub(crate) struct ExecutorArgs {
    pub parts: ExecutorParts,
    pub clock: Arc<StepClock>,
    /// Told when the device is open.
    pub supervisor: ActorRef<EngineMsg>,
}

/// What the actor keeps.
pub(crate) struct ExecutorState {
    thread: DeviceThread,
    board: Arc<StatusBoard>,
}

impl Actor for ExecutorActor {
    type Msg = ExecutorMsg;
    type State = ExecutorState;
    type Arguments = ExecutorArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<ExecutorMsg>,
        args: ExecutorArgs,
    ) -> Result<ExecutorState, ActorProcessingErr> {
        let board = Arc::clone(&args.parts.board);
        Ok(ExecutorState { thread: DeviceThread::start(args, myself)?, board })
    }

    async fn handle(
        &self,
        _myself: ActorRef<ExecutorMsg>,
        message: ExecutorMsg,
        state: &mut ExecutorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ExecutorMsg::Execute { plan, reply_to } => {
                state.board.mailboxes().taken(Mailbox::Executor);
                Ok(state.thread.submit(Work { plan, reply_to })?)
            }
            ExecutorMsg::DeviceLost { detail } => Err(detail.into()),
        }
    }
}
