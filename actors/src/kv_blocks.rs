//! The KV block actor: owns the block table of the executor group.
//!
//! One reservation in, one answer out, a step. A reservation of a newer epoch voids the whole table first:
//! the cache it described is gone. Says on the bus what entered and left the prefix cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use updraft_core::Epoch;
use updraft_core::kv::{KvConfig, KvManager, KvUsage, Reservation};

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
    /// Prefix-cache counts of all lives of this actor.
    pub totals: Arc<PrefixTotals>,
}

/// Tokens looked up and found since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct PrefixTotals {
    queries: AtomicU64,
    hits: AtomicU64,
}

/// What it keeps.
pub(crate) struct KvBlocksState {
    manager: KvManager,
    bus: Arc<Bus>,
    board: Arc<StatusBoard>,
    totals: Arc<PrefixTotals>,
    /// What earlier lives had counted.
    before: (u64, u64),
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
        let before = (args.totals.queries.load(Ordering::Relaxed), args.totals.hits.load(Ordering::Relaxed));
        Ok(KvBlocksState {
            manager: KvManager::new(args.config, Epoch::default()),
            bus: args.bus,
            board: args.board,
            totals: args.totals,
            before,
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
        let mut grants = state.manager.reserve(&reservation);
        state.count(&mut grants.usage);
        // A scheduler that is gone comes back in a new epoch, which voids these grants.
        if reply_to.cast(SchedulerMsg::Granted(grants)).is_ok() {
            state.board.mailboxes().sent(Mailbox::Scheduler);
        }
        for event in state.manager.take_events() {
            state.bus.kv.publish(&event);
        }
        Ok(())
    }
}

impl KvBlocksState {
    /// Makes the manager's counts go on from those of earlier lives.
    fn count(&self, usage: &mut KvUsage) {
        usage.prefix_queries += self.before.0;
        usage.prefix_hits += self.before.1;
        self.totals.queries.store(usage.prefix_queries, Ordering::Relaxed);
        self.totals.hits.store(usage.prefix_hits, Ordering::Relaxed);
    }
}
