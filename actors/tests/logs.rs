//! What the log says about graphs and faults: each thing once, never once a step.
#![allow(clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test that cannot go on ends")]

mod common;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use common::{Setup, collect, expected, metric, start, submission, wait_until};
use tracing::field::{Field, Visit};
use updraft_core::graphs::GraphMode;
use updraft_core::recovery::{Moment, RecoveryClass};
use updraft_devices::twin::{TwinFault, TwinFaults, TwinTrouble};

/// Keeps every line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string takes everything");
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut Line(&mut line));
        self.0.lock().expect("nobody panics with it").push(line);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

impl Lines {
    fn with(&self, text: &str) -> Vec<String> {
        let lines = self.0.lock().expect("nobody panics with it");
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graphs_and_faults_are_told_once() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("this is the only test of its program");
    let faults = TwinFaults::default();
    let engine =
        start(&Setup { faults: faults.clone(), mode: GraphMode::FullDecodeOnly, ..Setup::default() }).await;
    let captured = async || metric(&engine, "updraft_graph_captures_total{outcome=\"captured\"}").await;
    wait_until("all graphs are captured", async || captured().await == 11.0).await;
    // Memory that is short for a moment is mended in place, so nothing is captured a second time.
    let fault = TwinFault { code: 207_018, class: RecoveryClass::Memory };
    faults.arm(Moment::Replay, 5, 1, TwinTrouble::Fault(fault));
    for round in 0..2 {
        let streams: Vec<_> = (0..20).map(|index| engine.submit(submission(index, 30))).collect();
        for (index, stream) in futures::future::join_all(streams).await.into_iter().enumerate() {
            let (tokens, _) = collect(stream.expect("there is room")).await;
            assert_eq!(tokens, expected(&submission(index as u32, 30)), "round {round}");
        }
    }
    assert!(metric(&engine, "updraft_graph_hits_total").await > 40.0);
    engine.stop().await;

    assert_eq!(lines.with("twin graph captured").len(), 11);
    // One line a row of the plan, with bucket, memory and share.
    assert!(lines.with("MiB").iter().any(|line| line.contains("graph decode x8")), "{:?}", lines.with("MiB"));
    let replays = lines.with("NPUGraph replay");
    let mut keys = replays.clone();
    keys.sort_unstable();
    keys.dedup();
    assert!(!replays.is_empty() && replays.len() <= 11, "{replays:?}");
    assert_eq!(keys.len(), replays.len(), "once a graph: {replays:?}");
    let told = lines.with("device fault");
    assert_eq!(told.len(), 1, "{told:?}");
    for field in [
        "device=\"twin:0\"",
        "code=207018",
        "name=TWIN_TROUBLE",
        "meaning=trouble on request",
        "class=\"memory\"",
        "moment=\"replay\"",
        "action=\"retry_in_place\"",
        "recovered_micros=",
    ] {
        assert!(told[0].contains(field), "{field} is not in {}", told[0]);
    }
}
