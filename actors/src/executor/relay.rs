//! From the device's events to whoever has to know: steps to the scheduler, graphs to their actor, faults and
//! figures to the bus and the log, the end of the life to the supervisor.
//!
//! One a life. What a thread of an earlier life still says about its device is dropped here; a step's result
//! carries its epoch and is judged, and counted, where it arrives.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ractor::ActorRef;
use tokio::sync::watch;

use super::report::{DeviceEvent, LifeEnd};
use super::thread::Outlet;
use super::{ExecutorMsg, logs};
use crate::bus::{Bus, FaultRecord, GraphRecord};
use crate::graphs::GraphsMsg;
use crate::scheduler::SchedulerMsg;
use crate::supervisor::{EngineMsg, Life, Mailbox, StatusBoard};

/// Where readers find the graphs actor.
pub(crate) type GraphsDesk = watch::Receiver<Option<ActorRef<GraphsMsg>>>;

/// See the module page.
pub(super) struct Relay {
    pub life: Arc<Life>,
    pub board: Arc<StatusBoard>,
    pub bus: Arc<Bus>,
    pub supervisor: ActorRef<EngineMsg>,
    pub executor: ActorRef<ExecutorMsg>,
    pub graphs: GraphsDesk,
    /// Who asked last: results go there.
    scheduler: Mutex<Option<ActorRef<SchedulerMsg>>>,
    graph_name: OnceLock<String>,
}

impl Relay {
    pub(super) fn new(
        life: Arc<Life>,
        (board, bus): (Arc<StatusBoard>, Arc<Bus>),
        supervisor: ActorRef<EngineMsg>,
        executor: ActorRef<ExecutorMsg>,
        graphs: GraphsDesk,
    ) -> Self {
        let (scheduler, graph_name) = (Mutex::new(None), OnceLock::new());
        Self { life, board, bus, supervisor, executor, graphs, scheduler, graph_name }
    }

    /// Answers go to this scheduler from now on.
    pub(super) fn answer_to(&self, scheduler: ActorRef<SchedulerMsg>) {
        *self.scheduler.lock().unwrap_or_else(PoisonError::into_inner) = Some(scheduler);
    }

    /// The life is over: leaves word for the supervisor, and ends the actor.
    pub(super) fn lost(&self, end: Box<LifeEnd>) {
        self.life.leave(end);
        // An actor that is gone needs no word.
        let _ = self.executor.cast(ExecutorMsg::DeviceLost);
    }

    fn step_done(&self, result: updraft_core::step::StepResult) {
        self.board.count_step();
        let scheduler = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A scheduler that is gone is replaced in a new epoch, which voids this result anyway.
        if let Some(scheduler) = scheduler
            && scheduler.cast(SchedulerMsg::StepDone(result)).is_ok()
        {
            self.board.mailboxes().sent(Mailbox::Scheduler);
        }
    }

    fn tell_graphs(&self, message: GraphsMsg) {
        if let Some(graphs) = self.graphs.borrow().as_ref() {
            // One that is gone asks for everything when it is back.
            let _ = graphs.cast(message);
        }
    }

    fn graph(&self, record: GraphRecord) {
        logs::graph(self.graph_name.get().map_or("graph", String::as_str), &record);
        self.bus.graphs.publish(&record);
        self.tell_graphs(GraphsMsg::Happened(record));
    }
}

impl Outlet for Relay {
    fn deliver(&self, event: DeviceEvent) {
        if self.life.is_retired() && !matches!(event, DeviceEvent::StepDone(_)) {
            return;
        }
        match event {
            DeviceEvent::StepDone(result) => self.step_done(result),
            DeviceEvent::Up(report) => {
                self.life.capturing(None);
                logs::device_up(&report);
                // There is one report a life.
                let _ = self.graph_name.set(report.graph_name.clone());
                for captured in &report.inventory.ready {
                    let record = GraphRecord::Captured(*captured);
                    logs::graph(&report.graph_name, &record);
                    self.bus.graphs.publish(&record);
                }
                for failed in &report.inventory.failed {
                    let record = GraphRecord::from(failed.clone());
                    logs::graph(&report.graph_name, &record);
                    self.bus.graphs.publish(&record);
                }
                self.tell_graphs(GraphsMsg::DeviceUp(Box::new(report.inventory), self.executor.clone()));
                // A supervisor that is gone is replaced, and so is this executor.
                let _ = self.supervisor.cast(EngineMsg::DeviceUp(Arc::clone(&self.life)));
            }
            DeviceEvent::Inventory(inventory) => {
                self.tell_graphs(GraphsMsg::DeviceUp(inventory, self.executor.clone()));
            }
            DeviceEvent::Stale => self.board.count_stale(),
            DeviceEvent::Capturing(key) => self.life.capturing(Some(key)),
            DeviceEvent::Graph(record) => {
                self.life.capturing(None);
                self.graph(record);
            }
            DeviceEvent::Recovered(record) => {
                logs::fault(&record);
                self.bus.faults.publish(&FaultRecord::Device(record));
            }
            DeviceEvent::Lost(end) => self.lost(end),
        }
    }
}
