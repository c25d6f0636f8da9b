//! Captured graphs: nodes in lanes, and their replay.
//!
//! Always holds: nodes of a lane run in order; a node that waits for another lane's mark runs after it; among
//! nodes that could run, the one captured first runs first, so a replay is the same every time. A graph runs
//! once at a time, and cannot be destroyed while it runs. Refuses to know: how it was captured.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::device::Device;
use super::event::Event;
use super::faults::Phase;
use super::refusal::{Answer, Refusal};
use super::stream::Stream;
use super::table::lock;
use super::task::Class;
use super::worker::{TaskFailure, execute, waited};
use super::{codes, machine};
use crate::launch::Launch;

/// How often a replay whose lanes all wait looks again.
const LANE_POLL: Duration = Duration::from_micros(50);

/// The arguments of a kernel in a graph, which an update replaces.
pub struct Slot {
    launch: Mutex<Arc<Launch>>,
}

impl Slot {
    /// A slot with its first arguments.
    pub fn new(launch: Launch) -> Self {
        Self { launch: Mutex::new(Arc::new(launch)) }
    }

    /// What the next run does.
    pub fn get(&self) -> Arc<Launch> {
        Arc::clone(&lock(&self.launch))
    }

    /// Replaces it.
    pub fn set(&self, launch: Launch) {
        *lock(&self.launch) = Arc::new(launch);
    }
}

/// What a node does.
#[derive(Clone)]
pub enum Action {
    /// Runs a launch.
    Work(Class, Arc<Slot>),
    /// A point that other lanes wait for.
    Mark,
    /// Waits for a mark, by its node.
    After(usize),
    /// Raises an outside flag.
    Raise(Arc<Event>),
    /// Waits for an outside flag.
    AwaitFlag(Arc<Event>, bool),
    /// Lowers an outside flag.
    Lower(Arc<Event>),
    /// Records an outside event.
    Record(Arc<Event>),
    /// Waits for what an outside event last recorded before the launch.
    Await(Arc<Event>),
}

impl Action {
    fn describe(&self) -> String {
        match self {
            Self::Work(_, slot) => slot.get().operator.to_owned(),
            Self::Mark => "mark".into(),
            Self::After(node) => format!("after node {node}"),
            Self::Raise(event) | Self::Record(event) => format!("record event {}", event.id),
            Self::AwaitFlag(event, _) | Self::Await(event) => format!("wait for event {}", event.id),
            Self::Lower(event) => format!("reset event {}", event.id),
        }
    }
}

/// A node of a graph.
#[derive(Clone)]
pub struct Node {
    /// The stream it was captured on, counted from 0.
    pub lane: usize,
    /// What it does.
    pub action: Action,
}

/// Kernels that may get new arguments together.
pub struct TaskGroup {
    /// What the program holds.
    pub handle: usize,
    /// The graph it is in.
    pub graph: usize,
    /// Its kernels in order.
    pub slots: Vec<Arc<Slot>>,
}

/// A graph that can be replayed.
pub struct Graph {
    /// What the program holds.
    pub handle: usize,
    /// The number in logs.
    pub id: u32,
    /// The context it was captured in.
    pub context: usize,
    /// Its name.
    pub name: Mutex<String>,
    device: Arc<Device>,
    nodes: Vec<Node>,
    lanes: Vec<Vec<usize>>,
    groups: Vec<usize>,
    outside: usize,
    pending: AtomicUsize,
    busy: AtomicBool,
    retired: AtomicBool,
}

impl Graph {
    /// Makes a graph of captured nodes; its hardware streams, one a lane, were taken from the device already.
    pub fn new(
        handle: usize,
        context: usize,
        device: Arc<Device>,
        nodes: Vec<Node>,
        lanes: usize,
        groups: Vec<usize>,
    ) -> Self {
        static IDS: AtomicU32 = AtomicU32::new(0);
        let mut order = vec![Vec::new(); lanes];
        for (index, node) in nodes.iter().enumerate() {
            if let Some(lane) = order.get_mut(node.lane) {
                lane.push(index);
            }
        }
        let outside =
            nodes.iter().filter(|node| matches!(node.action, Action::Record(_) | Action::Await(_))).count();
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Self {
            handle,
            id,
            context,
            name: Mutex::new(format!("graph_{id}")),
            device,
            nodes,
            lanes: order,
            groups,
            outside,
            pending: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        }
    }

    /// The nodes in the order of their capture.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Refuses while a replay is queued or runs.
    pub fn destroy(&self) -> Answer {
        if self.pending.load(Ordering::Acquire) > 0 {
            let detail = format!("graph {} is still running; synchronise its stream first", self.id);
            return Refusal::answer(codes::MODEL_RUNNING, detail);
        }
        machine().graphs.remove(self.handle);
        self.retire();
        Ok(())
    }

    /// Gives its streams and groups back.
    pub fn retire(&self) {
        if self.retired.swap(true, Ordering::Relaxed) {
            return;
        }
        self.device.streams.give(self.lanes.len() as u64);
        for group in &self.groups {
            machine().groups.remove(*group);
        }
    }

    /// A line for each node.
    pub fn describe(&self) -> String {
        use std::fmt::Write;

        let mut text = format!("graph {} ({}): {} nodes\n", self.id, lock(&self.name), self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(text, "  {index} lane {} {}", node.lane, node.action.describe());
        }
        text
    }

    /// The nodes as JSON.
    pub fn json(&self) -> String {
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| {
                format!("{{\"id\":{index},\"stream\":{},\"task\":\"{}\"}}", node.lane, node.action.describe())
            })
            .collect();
        format!("{{\"model\":{},\"tasks\":[{}]}}\n", self.id, nodes.join(","))
    }
}

/// One queued run of a graph.
pub struct Replay {
    graph: Arc<Graph>,
    /// Tickets of outside events, in node order.
    tickets: Vec<u64>,
}

impl Replay {
    /// Prepares a run that is about to be submitted on `stream`: outside events are fixed now.
    pub fn new(graph: Arc<Graph>, stream: &Arc<Stream>) -> Self {
        graph.pending.fetch_add(1, Ordering::AcqRel);
        let mut tickets = Vec::new();
        if graph.outside > 0 {
            tickets.extend(graph.nodes.iter().filter_map(|node| match &node.action {
                Action::Record(event) => Some(event.draw(stream)),
                Action::Await(event) => Some(event.recorded()),
                _ => None,
            }));
        }
        Self { graph, tickets }
    }

    /// What runs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The run is over, or will never be: those who wait for its records go on.
    fn abandon(&self) {
        for (node, ticket) in self.outside() {
            if let Action::Record(event) = &node.action {
                event.reach(ticket);
            }
        }
    }

    fn outside(&self) -> impl Iterator<Item = (&Node, u64)> {
        let nodes = self.graph.nodes.iter();
        nodes
            .filter(|node| matches!(node.action, Action::Record(_) | Action::Await(_)))
            .zip(self.tickets.iter().copied())
    }

    /// Runs the graph on the thread of `stream`.
    pub fn run(&self, stream: &Arc<Stream>) -> Result<(), TaskFailure> {
        while self.graph.busy.swap(true, Ordering::Acquire) {
            if stream.cancel.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(LANE_POLL);
        }
        let outcome =
            if self.graph.lanes.len() == 1 { self.run_in_order(stream) } else { self.run_lanes(stream) };
        self.graph.busy.store(false, Ordering::Release);
        outcome
    }

    fn run_in_order(&self, stream: &Arc<Stream>) -> Result<(), TaskFailure> {
        let mut tickets = self.tickets.iter().copied();
        for node in &self.graph.nodes {
            if stream.cancel.load(Ordering::Relaxed) {
                return Ok(());
            }
            let ticket = match node.action {
                Action::Record(_) | Action::Await(_) => tickets.next().unwrap_or(0),
                _ => 0,
            };
            let outcome = match &node.action {
                Action::AwaitFlag(event, lower) => event.wait_flag(*lower, None, &stream.cancel),
                Action::Await(event) => event.wait(ticket, None, &stream.cancel),
                action => {
                    act(stream, action, ticket)?;
                    continue;
                }
            };
            waited(stream, outcome)?;
        }
        Ok(())
    }

    fn run_lanes(&self, stream: &Arc<Stream>) -> Result<(), TaskFailure> {
        let nodes = &self.graph.nodes;
        let mut tickets = vec![0; nodes.len()];
        let mut next = self.tickets.iter().copied();
        for (slot, node) in tickets.iter_mut().zip(nodes) {
            if matches!(node.action, Action::Record(_) | Action::Await(_)) {
                *slot = next.next().unwrap_or(0);
            }
        }
        let mut done = vec![false; nodes.len()];
        let mut heads = vec![0usize; self.graph.lanes.len()];
        let mut left = nodes.len();
        while left > 0 && !stream.cancel.load(Ordering::Relaxed) {
            let open = self.graph.lanes.iter().zip(&heads).enumerate();
            let mut waiting: Vec<(usize, usize)> =
                open.filter_map(|(lane, (order, head))| Some((*order.get(*head)?, lane))).collect();
            waiting.sort_unstable();
            let ready = waiting.into_iter().find(|(index, _)| {
                nodes.get(*index).is_some_and(|node| match &node.action {
                    Action::After(mark) => done.get(*mark).copied().unwrap_or(true),
                    Action::AwaitFlag(event, lower) => event.try_flag(*lower),
                    Action::Await(event) => event.has_reached(tickets.get(*index).copied().unwrap_or(0)),
                    _ => true,
                })
            });
            let Some((index, lane)) = ready else {
                std::thread::sleep(LANE_POLL);
                continue;
            };
            if let Some(node) = nodes.get(index) {
                act(stream, &node.action, tickets.get(index).copied().unwrap_or(0))?;
            }
            if let (Some(done), Some(head)) = (done.get_mut(index), heads.get_mut(lane)) {
                *done = true;
                *head += 1;
            }
            left -= 1;
        }
        Ok(())
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.abandon();
        self.graph.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Does what a node that need not wait does.
fn act(stream: &Arc<Stream>, action: &Action, ticket: u64) -> Result<(), TaskFailure> {
    match action {
        Action::Work(class, slot) => return execute(stream, *class, &slot.get(), Phase::Replay),
        Action::Raise(event) => event.raise(),
        Action::Lower(event) => event.lower(),
        Action::Record(event) => event.reach(ticket),
        Action::Mark | Action::After(_) | Action::AwaitFlag(..) | Action::Await(_) => {}
    }
    Ok(())
}
