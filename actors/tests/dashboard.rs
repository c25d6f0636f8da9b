//! The dashboard asks for nothing that is not on the metrics page.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

mod common;

use std::collections::BTreeSet;

use common::{Setup, collect, start, submission};
use updraft_core::graphs::GraphMode;

/// Ends of names that belong to the series of a histogram.
const SERIES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Our own names in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(|letter| !is_part(letter)).filter(|word| word.starts_with("updraft_")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_of_the_dashboard_is_on_the_page() {
    let asked = include_str!("../../dashboards/updraft.json");
    // Without graphs, as on a device that captures none.
    let engine = start(&Setup { mode: GraphMode::None, ..Setup::default() }).await;
    let streams = [1, 2].map(|index| engine.submit(submission(index, 20)));
    for stream in futures::future::join_all(streams).await {
        collect(stream.expect("there is room")).await;
    }
    let page = engine.render_metrics().await;
    let present = names(&page);
    let asked = names(asked);
    assert!(asked.len() > 20, "{asked:?}");
    for name in asked {
        let base = SERIES.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(present.contains(base), "{name} is not on the page");
    }
    engine.stop().await;
}
