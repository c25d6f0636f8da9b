//! The KV block actor: owns the block table of the executor group.
//!
//! One reservation in, one answer out, a step. A reservation of a newer epoch voids the whole table first:
//! the cache it described is gone. Says on the bus what entered and left the prefix cache.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use updraft_core::Epoch;
use updraft_core::kv::{KvConfig, KvManager, Reservation};

use crate::bus::Bus;
use crate::scheduler::SchedulerMsg;
use crate::supervisor::{Mailbox, StatusBoard};

/// The actor.
pub(crate) struct KvBlocksActor;

/// Messages.
pub(crate) enum KvBlocksMsg {
    /// Reserve blocks for a step and tell the scheduler.
    Reserve { reservation: Reservation, reply_to: ActorRef<SchedulerMsg> },
}

/// What the actor needs to start.
#[derive(Clone)]
pub(crate) struct KvBlocksArgs {
    pub config: KvConfig,
    pub bus: Arc<Bus>,
    pub board: Arc<StatusBoard>,
}

/// What it keeps.
pub(crate) struct KvBlocksState {
    manager: KvManager,
    bus: Arc<Bus>,
    board: Arc<StatusBoard>,
}

impl Actor for KvBlocksActor {
    type Msg = KvBlocksMsg;
    type State = KvBlocksState;
    type Arguments = KvBlocksArgs;

    async fn pre_start(
        &self,
        _myself: ActorRef<KvBlocksMsg>,
        args: KvBlocksArgs,
    ) -> Result<KvBlocksState, ActorProcessingErr> {
        Ok(KvBlocksState {
            manager: KvManager::new(args.config, Epoch::default()),
            bus: args.bus,
            board: args.board,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<KvBlocksMsg>,
        message: KvBlocksMsg,
        state: &mut KvBlocksState,
    ) -> Result<(), ActorProcessingErr> {
        let KvBlocksMsg::Reserve { reservation, reply_to } = message;
        state.board.mailboxes().taken(Mailbox::KvBlocks);
        let grants = state.manager.reserve(&reservation);
        // A scheduler that is gone comes back in a new epoch, which voids these grants.
        state.board.mailboxes().sent(Mailbox::Scheduler);
        let _ = reply_to.cast(SchedulerMsg::Granted(grants));
        for event in state.manager.take_events() {
            state.bus.kv.publish(&event);
        }
        Ok(())
    }
}
