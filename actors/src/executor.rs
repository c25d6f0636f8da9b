//! The executor: owns one device and the thread, or the process, that drives it.
//!
//! The actor is a shell: it hands orders to the device thread and turns the thread's end into its own. All
//! computing happens on that thread; answers go from it straight to the scheduler that asked. Plans and
//! answers carry the epoch, so nothing of a lost life is ever mistaken for the present one.

mod batch;
mod canary;
mod drill;
mod driver;
mod graphs;
mod launch;
mod logs;
mod placement;
mod process;
mod relay;
mod report;
mod seat;
mod sequence;
mod thread;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use updraft_core::Millis;
use updraft_core::recovery::Ledger;
use updraft_core::step::StepPlan;

pub use drill::{Drill, DrillSwitch};
pub(crate) use graphs::{GraphSetup, Inventory};
pub(crate) use logs::fault as log_fault;
pub use placement::{DeviceFactory, Placement};
pub use process::child as executor_child;
pub use process::{ChildSpec, CodecError, SILENT_AFTER};
pub(crate) use report::{LifeEnd, Order, Trouble, Unsaid};
pub(crate) use seat::Seats;

use crate::bus::Bus;
use crate::scheduler::SchedulerMsg;
use crate::supervisor::{EngineMsg, Life, Mailbox, StatusBoard};
use placement::Hands;
use relay::{GraphsDesk, Relay};
use report::Setup;

/// The actor.
pub(crate) struct ExecutorActor;

/// Messages.
pub(crate) enum ExecutorMsg {
    /// Run a step and tell the scheduler.
    Execute { plan: StepPlan, reply_to: ActorRef<SchedulerMsg> },
    /// Do something about the graphs.
    Order(Order),
    /// The device is gone; the life knows why.
    DeviceLost,
}

/// What every life of the executor needs.
#[derive(Clone)]
pub(crate) struct ExecutorParts {
    pub placement: Placement,
    pub block_size: updraft_core::Tokens,
    pub graphs: GraphSetup,
    pub verify_replay: u32,
    pub step_deadline: std::time::Duration,
    pub drills: DrillSwitch,
    pub board: Arc<StatusBoard>,
    pub bus: Arc<Bus>,
    pub desk: GraphsDesk,
    pub seats: Seats,
}

/// What one life of the executor needs.
pub(crate) struct ExecutorArgs {
    pub parts: ExecutorParts,
    pub ordinal: u32,
    pub ledger: Ledger,
    pub now: Millis,
    pub life: Arc<Life>,
    /// Told when the device is open.
    pub supervisor: ActorRef<EngineMsg>,
}

/// What the actor keeps.
pub(crate) struct ExecutorState {
    hands: Hands,
    relay: Arc<Relay>,
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
        let parts = args.parts;
        let setup = Setup {
            ordinal: args.ordinal,
            block_size: parts.block_size,
            graphs: parts.graphs,
            verify_replay: parts.verify_replay,
            step_deadline: parts.step_deadline,
            ledger: args.ledger,
            now: args.now,
        };
        let board = Arc::clone(&parts.board);
        let figures = (Arc::clone(&board), parts.bus);
        let relay = Arc::new(Relay::new(args.life, figures, args.supervisor, myself, parts.desk));
        let hands = Hands::start(parts.placement, parts.seats, setup, parts.drills, &relay)?;
        Ok(ExecutorState { hands, relay, board })
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
                state.relay.answer_to(reply_to);
                Ok(state.hands.submit(Order::Plan(plan))?)
            }
            ExecutorMsg::Order(order) => Ok(state.hands.submit(order)?),
            ExecutorMsg::DeviceLost => Err("the device is lost".into()),
        }
    }
}
