//! The metrics actor: the only owner of the recorder.
//!
//! Everybody else publishes records on the bus; this actor drains them a few times a second and before each
//! scrape, so what a scrape shows is exact up to the moment it asks. Its queues and the recorder outlive the
//! actor: a restart loses no count. Also prints the ten-second summary line.

mod device;
mod graphs;
mod names;
mod record;
mod recorder;
mod speculation;
mod summary;

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

pub use names::{HISTOGRAMS, NAMES};
pub(crate) use recorder::Recorder;

use crate::bus::{Bus, FaultRecord, GraphRecord, RequestRecord, StepRecord, Subscription};
use crate::supervisor::StatusBoard;
use summary::Summary;

/// How often the queues are drained.
const DRAIN_EVERY: Duration = Duration::from_millis(100);

/// The actor.
pub(crate) struct MetricsActor;

/// Messages.
pub(crate) enum MetricsMsg {
    /// Count what waits on the bus.
    Drain,
    /// Count what waits and give the page for a scrape.
    Render(RpcReplyPort<String>),
}

/// What the actor needs; clones share queues and recorder.
#[derive(Clone)]
pub(crate) struct MetricsArgs {
    pub recorder: Arc<Recorder>,
    pub bus: Arc<Bus>,
    pub steps: Subscription<StepRecord>,
    pub requests: Subscription<RequestRecord>,
    pub faults: Subscription<FaultRecord>,
    pub graphs: Subscription<GraphRecord>,
    pub board: Arc<StatusBoard>,
    /// Whether the ten-second line is printed.
    pub log_summary: bool,
}

/// What it keeps.
pub(crate) struct MetricsState {
    args: MetricsArgs,
    summary: Summary,
}

impl Actor for MetricsActor {
    type Msg = MetricsMsg;
    type State = MetricsState;
    type Arguments = MetricsArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<MetricsMsg>,
        args: MetricsArgs,
    ) -> Result<MetricsState, ActorProcessingErr> {
        myself.send_interval(DRAIN_EVERY, || MetricsMsg::Drain);
        let summary = Summary::new(args.board.now());
        Ok(MetricsState { args, summary })
    }

    async fn handle(
        &self,
        _myself: ActorRef<MetricsMsg>,
        message: MetricsMsg,
        state: &mut MetricsState,
    ) -> Result<(), ActorProcessingErr> {
        state.drain();
        match message {
            MetricsMsg::Drain => {
                if let Some(line) = state.summary.line(state.args.board.now())
                    && state.args.log_summary
                {
                    line.lines().for_each(|line| tracing::info!(parent: None, "{line}"));
                }
            }
            MetricsMsg::Render(reply) => {
                // The one who asked may have stopped waiting.
                let _ = reply.send(state.args.recorder.render());
            }
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<MetricsMsg>,
        state: &mut MetricsState,
    ) -> Result<(), ActorProcessingErr> {
        state.drain();
        Ok(())
    }
}

impl MetricsState {
    fn drain(&mut self) {
        let args = &self.args;
        args.recorder.with(|labels| {
            for step in args.steps.drain() {
                self.summary.add(&step);
                record::step(&step, labels);
            }
            for request in args.requests.drain() {
                record::request(&request, labels);
            }
            for fault in args.faults.drain() {
                record::fault(&fault);
            }
            for graph in args.graphs.drain() {
                graphs::record(&graph, &args.recorder.graphs);
            }
            record::bus(&args.bus);
            record::board(&args.board);
        });
    }
}
