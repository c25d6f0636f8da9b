//! The intake: the one door to the scheduler, and the waiting room while there is none.
//!
//! Everything that arrives here holds a permit of the gate, so what waits is bounded by it. A submission
//! whose stream went away meanwhile is dropped instead of passed on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use updraft_core::sampling::SamplingParams;
use updraft_core::{SequenceId, TokenId};

use crate::gate::Permit;
use crate::generation::Delivery;
use crate::scheduler::SchedulerMsg;
use crate::supervisor::{Mailbox, StatusBoard};

/// The actor.
pub(crate) struct IntakeActor;

/// A sequence on its way to the scheduler.
pub(crate) struct Admission {
    pub sequence: SequenceId,
    pub prompt: Arc<[TokenId]>,
    /// Tokens the client has already (after a restart).
    pub output: Vec<TokenId>,
    pub sampling: Arc<SamplingParams>,
    pub priority: i32,
    pub salt: Option<Arc<str>>,
    pub strikes: u8,
    pub arrived: Instant,
    /// Given back when the engine is done with it.
    pub permit: Arc<Permit>,
    pub deliveries: flume::Sender<Delivery>,
    /// Set by the client when it leaves because its answer is complete.
    pub complete: Arc<AtomicBool>,
}

/// Messages.
pub(crate) enum IntakeMsg {
    /// Pass a sequence on.
    Submit(Box<Admission>),
    /// A client went away.
    Cancel(SequenceId),
    /// There is a scheduler.
    SchedulerUp(ActorRef<SchedulerMsg>),
}

/// What the actor keeps.
pub(crate) struct IntakeState {
    scheduler: Option<ActorRef<SchedulerMsg>>,
    waiting: VecDeque<Box<Admission>>,
    board: Arc<StatusBoard>,
}

impl Actor for IntakeActor {
    type Msg = IntakeMsg;
    type State = IntakeState;
    type Arguments = Arc<StatusBoard>;

    async fn pre_start(
        &self,
        _myself: ActorRef<IntakeMsg>,
        board: Arc<StatusBoard>,
    ) -> Result<IntakeState, ActorProcessingErr> {
        Ok(IntakeState { scheduler: None, waiting: VecDeque::new(), board })
    }

    async fn handle(
        &self,
        _myself: ActorRef<IntakeMsg>,
        message: IntakeMsg,
        state: &mut IntakeState,
    ) -> Result<(), ActorProcessingErr> {
        state.board.mailboxes().taken(Mailbox::Intake);
        match message {
            IntakeMsg::Submit(admission) => state.pass_on(admission),
            IntakeMsg::Cancel(sequence) => state.cancel(sequence),
            IntakeMsg::SchedulerUp(scheduler) => {
                state.scheduler = Some(scheduler);
                for admission in std::mem::take(&mut state.waiting) {
                    state.pass_on(admission);
                }
            }
        }
        Ok(())
    }
}

impl IntakeState {
    fn pass_on(&mut self, admission: Box<Admission>) {
        if admission.deliveries.is_disconnected() {
            return;
        }
        let refused = match &self.scheduler {
            Some(scheduler) => match scheduler.cast(SchedulerMsg::Admit(admission)) {
                Ok(()) => {
                    self.board.mailboxes().sent(Mailbox::Scheduler);
                    return;
                }
                Err(ractor::MessagingErr::SendErr(SchedulerMsg::Admit(back))) => Some(back),
                Err(_) => None,
            },
            None => Some(admission),
        };
        self.scheduler = None;
        self.waiting.extend(refused);
    }

    fn cancel(&mut self, sequence: SequenceId) {
        self.waiting.retain(|admission| admission.sequence != sequence);
        if let Some(scheduler) = &self.scheduler {
            // A scheduler that is gone has nothing left to cancel.
            if scheduler.cast(SchedulerMsg::Cancel(sequence)).is_ok() {
                self.board.mailboxes().sent(Mailbox::Scheduler);
            }
        }
    }
}
