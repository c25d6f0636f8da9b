//! What a lost child means: who is told, whom it is held against, and what takes its place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ractor::{ActorProcessingErr, ActorRef};
use updraft_core::fault::FaultClass;
use updraft_core::restart::Decision;
use updraft_core::scheduler::Blame;

use super::{EngineMsg, EngineState, Loss};
use crate::bus::{DeviceFaultRecord, FaultRecord, GraphRecord, LossRecord};
use crate::executor::{LifeEnd, Trouble, Unsaid, log_fault};
use crate::graphs::GraphsMsg;
use crate::scheduler::SchedulerMsg;
use crate::supervisor::devices::{Change, Retired};
use crate::supervisor::{EnginePhase, Mailbox};

/// Faults of lives without a good one after them that are remembered until there is one; the oldest make
/// room.
const TROUBLES_MAX: usize = 64;

impl EngineState {
    /// Forgets a child that ended, tells those who depend on it, and plans its restart.
    pub(super) fn lost(
        &mut self,
        class: FaultClass,
        loss: &Loss,
        myself: &ActorRef<EngineMsg>,
    ) -> Result<(), ActorProcessingErr> {
        let of_executor = class == FaultClass::Executor;
        let hung = if of_executor { self.hung.take() } else { None };
        let is_hung = hung.is_some();
        let computing = of_executor && self.args.board.retire();
        let end = if of_executor { self.end_of_life(hung, computing) } else { None };
        // Suspected is what was being computed, unless the device says that it was its own fault, or the
        // executor was ended from outside.
        let blames = match &end {
            Some(end) => end.blames_sequences,
            None => loss.failed,
        };
        let blame = if of_executor && blames && (computing || end.is_some()) {
            Blame::OldestStep
        } else {
            Blame::Nobody
        };
        if class != FaultClass::Graphs {
            self.args.board.set_phase(EnginePhase::Restarting);
        }
        self.forget(class);
        if !matches!(class, FaultClass::Intake | FaultClass::Graphs) {
            let epoch = self.next_epoch();
            // A scheduler that is gone too is restarted into this epoch.
            self.tell_scheduler(SchedulerMsg::Lost { class, epoch, blame });
        }
        let detail = end.as_ref().map_or(&loss.detail, |end| &end.detail).clone();
        let epoch = self.epoch();
        let silent = end.as_ref().is_some_and(|end| end.unsaid == Some(Unsaid::Silence));
        let reported = if is_hung || silent { FaultClass::Hang } else { class };
        tracing::warn!(parent: None, class = reported.as_str(), %epoch, detail, "lost a part of the engine");
        if of_executor {
            self.note_deadly_capture();
        }
        let record = LossRecord { class: reported, epoch, detail: detail.clone() };
        self.args.bus.faults.publish(&FaultRecord::Lost(record));
        match end.and_then(|end| self.life_ended(*end)) {
            None => {}
            Some(Change::Retired(retired)) => {
                self.device_retired(&retired);
                if retired.replaced_by.is_none() {
                    return Ok(());
                }
            }
            Some(Change::SetAside { ordinal, replaced_by }) => tracing::warn!(
                parent: None,
                ordinal,
                replaced_by,
                "a device fell silent several times in a row: a spare takes its place for now"
            ),
            Some(Change::FailedToOpen(reason)) => {
                tracing::error!(parent: None, reason, "the engine cannot start");
                self.publish_troubles();
                self.args.board.fail_to_open(reason.as_str().into());
                return Err(reason.into());
            }
        }
        match self.args.policy.decide(self.args.board.now(), &mut self.history) {
            Decision::Restart { after } => {
                myself.send_after(Duration::from_millis(after.0), move || EngineMsg::Restart(class));
                Ok(())
            }
            Decision::Escalate => Err(format!("too many restarts, the last one: {detail}").into()),
        }
    }

    /// How the life of the executor ended, if it said so or if that is known without its word. `hung`: the
    /// watch's sentence, if nothing moved any more.
    fn end_of_life(&self, hung: Option<String>, computing: bool) -> Option<Box<LifeEnd>> {
        self.life.take_end().or_else(|| Some(Box::new(LifeEnd::silent(hung?, computing))))
    }

    /// Forgets the child itself.
    fn forget(&mut self, class: FaultClass) {
        let mailboxes = self.args.board.mailboxes();
        match class {
            FaultClass::KvBlocks => {
                self.kv_blocks = None;
                mailboxes.lost(Mailbox::KvBlocks);
            }
            FaultClass::Scheduler => {
                self.scheduler = None;
                mailboxes.lost(Mailbox::Scheduler);
            }
            FaultClass::Intake => {
                self.intake = None;
                mailboxes.lost(Mailbox::Intake);
                self.args.door.send_replace(None);
            }
            FaultClass::Graphs => {
                self.graphs = None;
                self.args.desk.send_replace(None);
            }
            _ => {
                self.executor = None;
                mailboxes.lost(Mailbox::Executor);
                self.device_is_up = false;
                self.args.bus.graphs.publish(&GraphRecord::AllVoid);
                if let Some(graphs) = &self.graphs {
                    // One that is gone knows of no device when it is back.
                    let _ = graphs.cast(GraphsMsg::DeviceLost);
                }
            }
        }
    }

    /// A life that ended in a capture: its device does without that graph from now on.
    fn note_deadly_capture(&self) {
        let Some(key) = self.life.deadly_capture() else { return };
        let without = self.args.devices.capture_was_deadly(key);
        tracing::error!(parent: None, graph = %key, "its capture ended a life of the device: not tried again");
        if without {
            tracing::error!(parent: None, "captures ended too many lives: this device does without graphs");
        }
    }

    /// Notes what ended a life, and says what that changes about the devices.
    fn life_ended(&mut self, end: LifeEnd) -> Option<Change> {
        let (board, seats) = (&self.args.board, &self.args.executor.seats);
        let times = (board.now(), board.last_step());
        let change = self.args.devices.life_ended(times, &end, |ordinal| seats.is_free(ordinal));
        let now = Instant::now();
        for Trouble { fault, moment, action, age_micros } in end.troubles {
            if self.troubles.len() >= TROUBLES_MAX {
                let (oldest, _) = self.troubles.remove(0);
                self.publish(oldest);
            }
            let since = now.checked_sub(Duration::from_micros(age_micros)).unwrap_or(now);
            let record = DeviceFaultRecord { fault, moment, action, recovered_micros: None };
            self.troubles.push((record, since));
        }
        change
    }

    /// A device is up: whatever ended the lives before is mended.
    pub(super) fn note_recovered(&mut self) {
        for (mut record, since) in std::mem::take(&mut self.troubles) {
            record.recovered_micros = Some(since.elapsed().as_micros() as u64);
            self.publish(record);
        }
    }

    /// No device is going to be up: nothing of it will be mended.
    fn publish_troubles(&mut self) {
        for (record, _) in std::mem::take(&mut self.troubles) {
            self.publish(record);
        }
    }

    fn publish(&self, record: DeviceFaultRecord) {
        log_fault(&record);
        self.args.bus.faults.publish(&FaultRecord::Device(Box::new(record)));
    }

    fn device_retired(&mut self, retired: &Retired) {
        let Retired { ordinal, replaced_by, reason } = retired;
        tracing::error!(parent: None, ordinal, ?replaced_by, reason, "a device was taken out of service");
        self.args.bus.faults.publish(&FaultRecord::Retired { ordinal: *ordinal, replaced_by: *replaced_by });
        if replaced_by.is_some() {
            return;
        }
        self.publish_troubles();
        let reason: Arc<str> = reason.as_str().into();
        self.args.board.take_out_of_service(Arc::clone(&reason));
        self.tell_scheduler(SchedulerMsg::OutOfService(reason));
    }
}
