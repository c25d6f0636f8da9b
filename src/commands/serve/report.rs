//! What start-up tells: the model, the device, its graphs, where memory goes, how long and how many sequences
//! fit.

use updraft_kernels::topology::Choice;

use super::fit::Fitted;
use super::hardware::Hardware;
use super::memory_plan::size;
use super::{Prepared, assemble};
use crate::config::Config;

/// Logs the report, one subject a line.
pub(super) fn print(config: &Config, prepared: &Prepared) {
    for line in lines(config, prepared) {
        tracing::info!("{line}");
    }
    for note in prepared.text.notes() {
        tracing::info!("{note}");
    }
}

fn lines(config: &Config, prepared: &Prepared) -> Vec<String> {
    let fitted = &prepared.fitted;
    let (plan, model) = (&fitted.plan, &fitted.checkpoint.config);
    let mut lines = vec![format!(
        "model: {} ({}, {} parameters, {}, {} layers, vocabulary {})",
        config.model_name(),
        model.architecture,
        parameters(model.parameters),
        model.stored_dtype,
        model.layers,
        model.vocab,
    )];
    lines.extend(device(config, prepared));
    lines.push(graphs(config, fitted));
    lines.extend(fitted.optimised.as_ref().map(|report| format!("optimiser: {report}")));
    lines.extend([
        format!(
            "memory: weights {} + KV cache {} ({} tokens in {} blocks of {}, {}) + activations {}",
            size(plan.weights),
            size(plan.kv),
            plan.kv_tokens(),
            plan.blocks.0,
            plan.block_size,
            fitted.types.kv_name(),
            size(plan.activations),
        ),
        format!(
            "context: {} tokens; maximum concurrency at that length: {:.1} sequences",
            plan.max_model_len,
            plan.max_concurrency()
        ),
    ]);
    if plan.shortened {
        lines.push(format!(
            "the model could read {} tokens, but the KV cache holds no more than {}; raise --kv-cache-memory-bytes for longer ones",
            model.context_length, plan.max_model_len
        ));
    }
    lines
}

fn device(config: &Config, prepared: &Prepared) -> Vec<String> {
    let fitted = &prepared.fitted;
    let place = if prepared.placement.is_process() { "in a process of its own" } else { "on a thread" };
    match &fitted.hardware {
        Hardware::Cpu => {
            let mut lines = vec![format!("compute: CPU, dtype {}, executor {place}", config.model.dtype)];
            // A child finds its own place, and tells it.
            if !prepared.placement.is_process() {
                lines.push(threads(&prepared.team));
            }
            lines
        }
        Hardware::Ascend(npu) => {
            let facts = npu.facts.as_ref();
            let spares: Vec<_> = fitted.hardware.ordinals().iter().skip(1).map(ToString::to_string).collect();
            let spares = if spares.is_empty() { "none".to_owned() } else { spares.join(", ") };
            vec![
                format!(
                    "compute: {} with CANN {}, dtype {}, executor {place}",
                    facts.map_or("an NPU", |facts| facts.soc.as_str()),
                    npu.library.version().map_or("of unknown version", |version| version.text.as_str()),
                    fitted.types.kv_name(),
                ),
                format!(
                    "NPU: ascend:0, {} of {} free; spares: {spares}",
                    size(facts.map(|facts| facts.memory_free).unwrap_or_default()),
                    size(facts.map(|facts| facts.memory_total).unwrap_or_default()),
                ),
            ]
        }
    }
}

/// Threads that compute, where, and why.
pub(in crate::commands) fn threads(team: &Choice) -> String {
    format!("threads: {team}")
}

fn graphs(config: &Config, fitted: &Fitted) -> String {
    let options = assemble::graph_options(config, fitted.hardware.target());
    let mode = options.mode.as_str();
    let sizes = match (&options.sizes, options.max_size) {
        (Some(sizes), _) => {
            let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
            format!(", for {} rows", sizes.join(", "))
        }
        (None, Some(largest)) => format!(", for up to {largest} rows"),
        (None, None) => String::new(),
    };
    format!("graphs: {mode}{sizes}")
}

/// `134.5 M`.
fn parameters(count: u64) -> String {
    let number = count as f64;
    match count {
        1_000_000_000.. => format!("{:.1} B", number / 1e9),
        1_000_000.. => format!("{:.1} M", number / 1e6),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::parameters;

    #[test]
    fn parameters_are_readable() {
        assert_eq!(parameters(134_515_008), "134.5 M");
        assert_eq!(parameters(27_000_000_000), "27.0 B");
        assert_eq!(parameters(9_000), "9000");
    }
}
