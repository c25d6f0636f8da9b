//! The graphs of one device, on its thread: the first captures, captures in between, and what there is.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use updraft_core::graphs::{
    Dispatcher, GraphKey, GraphKind, GraphMode, GraphOptions, GraphPlan, GraphUse, Histogram, RetireReason,
    StepLimits,
};
use updraft_core::recovery::{Action, DeviceFault, Moment, RecoveryClass};
use updraft_devices::{Device, DeviceError};

use super::launch::{Launcher, Outcome};
use super::report::{DeviceEvent, LifeEnd};
use super::thread::Outlet;
use crate::bus::{CapturedGraph, GraphRecord};

/// Which graphs there are to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GraphSetup {
    /// What somebody wants of them.
    pub options: GraphOptions,
    /// How large steps get.
    pub limits: StepLimits,
    /// Whether this device is to do without, because captures killed it again and again.
    pub given_up: bool,
    /// Graphs whose captures have killed it before.
    pub deadly: Vec<GraphKey>,
}

/// What a device offers to graphs, and the graphs there are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Inventory {
    /// What it can capture.
    pub kinds: Vec<GraphKind>,
    /// What all of them together may take.
    pub budget: GraphUse,
    /// What each candidate would take.
    pub costs: Vec<(GraphKey, GraphUse)>,
    /// What has been captured.
    pub ready: Vec<CapturedGraph>,
    /// What could not be.
    pub failed: Vec<FailedGraph>,
}

/// A graph that could not be captured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FailedGraph {
    pub key: GraphKey,
    pub class: RecoveryClass,
    /// A sentence for people.
    pub detail: String,
}

impl Inventory {
    /// What `device` offers, before anything is captured.
    pub(super) fn of(device: &dyn Device, setup: &GraphSetup) -> Self {
        let properties = device.properties();
        let candidates = GraphPlan::candidates(&setup.options, setup.limits);
        let cost = |key: GraphKey| {
            let cost = device.graph_cost(key);
            (key, GraphUse { bytes: cost.bytes, streams: cost.streams })
        };
        Self {
            kinds: if setup.given_up { Vec::new() } else { properties.graph_kinds.clone() },
            budget: GraphUse {
                bytes: properties.graph_budget.bytes,
                streams: properties.graph_budget.streams,
            },
            costs: candidates.into_iter().map(cost).collect(),
            ready: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// The plan that follows from it.
    pub(crate) fn plan(&self, setup: &GraphSetup, traffic: &Histogram) -> GraphPlan {
        let cost = |key: GraphKey| {
            let known = self.costs.iter().find(|(known, _)| *known == key);
            known.map(|(_, cost)| *cost).unwrap_or_default()
        };
        let budget = setup.options.budget(self.budget);
        GraphPlan::new(&setup.options, setup.limits, &self.kinds, budget, &cost, traffic)
    }
}

/// A dispatcher that knows what is to come.
pub(super) fn dispatcher(plan: &GraphPlan) -> Dispatcher {
    // A device without graphs, or without room for any, is as good as one whose graphs are off.
    let mode = if plan.wanted().is_empty() { GraphMode::None } else { plan.mode() };
    let mut dispatcher = Dispatcher::new(mode);
    for key in plan.wanted() {
        dispatcher.want(*key);
    }
    dispatcher
}

impl From<FailedGraph> for GraphRecord {
    fn from(FailedGraph { key, class, detail }: FailedGraph) -> Self {
        Self::CaptureFailed { key, class, detail }
    }
}

impl Launcher {
    /// Captures what is needed before anything is served, except what has killed the device before.
    pub(super) fn capture_first(
        &mut self,
        plan: &GraphPlan,
        deadly: &[GraphKey],
        outlet: &dyn Outlet,
    ) -> Result<(), Box<LifeEnd>> {
        for key in deadly {
            let detail = "its capture ended an earlier life of this device".to_owned();
            self.note_failed(FailedGraph { key: *key, class: RecoveryClass::Unsupported, detail });
        }
        for key in plan.first().iter().filter(|key| !deadly.contains(key)) {
            outlet.deliver(DeviceEvent::Capturing(*key));
            self.capture(*key, None)?;
        }
        Ok(())
    }

    /// Captures one graph. Only what ends the life is an error; everything else is told to `outlet`, if there
    /// is one yet, and noted in the inventory.
    pub(super) fn capture(&mut self, key: GraphKey, outlet: Option<&dyn Outlet>) -> Result<(), Box<LifeEnd>> {
        let started = Instant::now();
        self.dispatcher.want(key);
        let record = match self.device.stream().capture(key) {
            Ok(graph) => {
                self.dispatcher.ready(key);
                let cost = GraphUse { bytes: graph.cost.bytes, streams: graph.cost.streams };
                let micros = started.elapsed().as_micros() as u64;
                let captured = CapturedGraph { key, cost, nodes: graph.nodes, micros };
                self.inventory.ready.retain(|known| known.key != key);
                self.inventory.failed.retain(|known| known.key != key);
                self.inventory.ready.push(captured);
                GraphRecord::Captured(captured)
            }
            Err(DeviceError::Fault(fault)) => {
                let failed = FailedGraph { key, class: fault.class, detail: fault.to_string() };
                self.capture_failed(key, *fault, outlet)?;
                self.note_failed(failed.clone());
                failed.into()
            }
            // It does not know such graphs: no fault, and no use in asking again.
            Err(error) => {
                let (class, detail) = (RecoveryClass::Unsupported, error.to_string());
                let failed = FailedGraph { key, class, detail };
                self.note_failed(failed.clone());
                failed.into()
            }
        };
        if let Some(outlet) = outlet {
            self.tell_recovered(outlet);
            outlet.deliver(DeviceEvent::Graph(record));
        }
        Ok(())
    }

    fn capture_failed(
        &mut self,
        key: GraphKey,
        fault: DeviceFault,
        outlet: Option<&dyn Outlet>,
    ) -> Result<(), Box<LifeEnd>> {
        match self.decide(fault, Moment::Capture, |action| match action {
            // A capture is never tried again on the spot: its bucket waits, and steps run eagerly.
            Action::RetryInPlace | Action::WaitMore => Action::DropGraph,
            other => other,
        })? {
            Action::RebuildStream => {
                self.rebuild_streams(outlet)?;
            }
            _ => self.device.stream().forget(key),
        }
        Ok(())
    }

    fn note_failed(&mut self, failed: FailedGraph) {
        self.dispatcher.failed(failed.key);
        self.inventory.ready.retain(|known| known.key != failed.key);
        self.inventory.failed.retain(|known| known.key != failed.key);
        self.inventory.failed.push(failed);
    }

    /// Drops a graph that nobody wants any more.
    pub(super) fn forget(&mut self, key: GraphKey, outlet: &dyn Outlet) {
        self.device.stream().forget(key);
        self.dispatcher.forget(key);
        self.inventory.ready.retain(|known| known.key != key);
        outlet.deliver(DeviceEvent::Graph(GraphRecord::Forgotten { key }));
    }

    /// Drops a graph that must not be replayed any more.
    pub(super) fn retire(&mut self, key: GraphKey, why: RetireReason, outlet: &dyn Outlet) {
        self.device.stream().forget(key);
        self.dispatcher.failed(key);
        self.inventory.ready.retain(|known| known.key != key);
        outlet.deliver(DeviceEvent::Graph(GraphRecord::Retired { key, why }));
    }

    /// New streams; all graphs are void.
    pub(super) fn rebuild_streams(&mut self, outlet: Option<&dyn Outlet>) -> Outcome<()> {
        let repaired = self.device.repair();
        self.dispatcher.void();
        self.replayed.clear();
        self.inventory.ready.clear();
        if let Some(outlet) = outlet {
            outlet.deliver(DeviceEvent::Graph(GraphRecord::AllVoid));
        }
        match repaired {
            Ok(()) => Ok(()),
            Err(DeviceError::Fault(fault)) => {
                // What cannot even be given new streams needs more than that.
                let action = self.ledger.decide(self.clock.now(), &fault, Moment::Open);
                let action = action.max(Action::RebuildGroup);
                self.note(*fault, Moment::Open, action);
                Err(self.end_of_life("the device could not be given new streams", action))
            }
            Err(error) => Err(Box::new(LifeEnd::of(error.to_string(), false))),
        }
    }
}
