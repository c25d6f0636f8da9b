//! The Prometheus recorder with the labels every engine metric carries.

use std::collections::BTreeSet;
use std::sync::Mutex;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

use updraft_core::graphs::GraphKey;

use super::names;

/// Recorder and common labels. Never installed globally: several engines can live in one process.
pub(crate) struct Recorder {
    prometheus: PrometheusRecorder,
    labels: Labels,
    /// Graphs whose size has been shown: what is gone has to be shown as nothing.
    pub(super) graphs: Mutex<BTreeSet<GraphKey>>,
}

/// Labels of every engine metric.
pub(crate) type Labels = [(&'static str, String); 2];

impl Recorder {
    /// A recorder with the documented buckets and one gauge that names the cache configuration.
    pub(crate) fn new(
        model_name: &str,
        max_model_len: u32,
        cache_config: &[(&'static str, String)],
    ) -> Result<Self, metrics_exporter_prometheus::BuildError> {
        let tokens = names::token_buckets(max_model_len);
        let fixed = names::HISTOGRAMS.iter().copied();
        let counted = names::TOKEN_HISTOGRAMS.iter().map(|name| (*name, tokens.as_slice()));
        let mut builder = PrometheusBuilder::new();
        for (name, buckets) in fixed.chain(counted) {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
        }
        let labels = [("model_name", model_name.to_owned()), ("engine", "0".to_owned())];
        let made = Self { prometheus: builder.build_recorder(), labels, graphs: Mutex::default() };
        made.with(|_| {
            let mut described: Vec<(&'static str, String)> = cache_config.to_vec();
            described.push(("engine", "0".to_owned()));
            metrics::gauge!(names::CACHE_CONFIG, &described).set(1.0);
            super::record::first_values(&made.labels);
        });
        Ok(made)
    }

    /// Shows the metrics of drafts from now on, for up to so many behind one token.
    pub(crate) fn show_drafts(&self, drafts: u32) {
        self.with(|labels| super::speculation::first_values(drafts, labels));
    }

    /// Runs `work` with this recorder as the target of the metric macros.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Labels) -> T) -> T {
        metrics::with_local_recorder(&self.prometheus, || work(&self.labels))
    }

    /// The page for a scrape.
    pub(crate) fn render(&self) -> String {
        let handle = self.prometheus.handle();
        handle.run_upkeep();
        handle.render()
    }
}
