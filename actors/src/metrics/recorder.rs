//! The Prometheus recorder with the labels every engine metric carries.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

use super::names;

/// Recorder and common labels. Never installed globally: several engines can live in one process.
pub(crate) struct Recorder {
    recorder: PrometheusRecorder,
    labels: Labels,
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
        let made = Self { recorder: builder.build_recorder(), labels };
        made.with(|_| {
            let mut described: Vec<(&'static str, String)> = cache_config.to_vec();
            described.push(("engine", "0".to_owned()));
            metrics::gauge!(names::CACHE_CONFIG, &described).set(1.0);
            super::record::first_values(&made.labels);
        });
        Ok(made)
    }

    /// Runs `work` with this recorder as the target of the metric macros.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Labels) -> T) -> T {
        metrics::with_local_recorder(&self.recorder, || work(&self.labels))
    }

    /// The page for a scrape.
    pub(crate) fn render(&self) -> String {
        let handle = self.recorder.handle();
        handle.run_upkeep();
        handle.render()
    }
}
