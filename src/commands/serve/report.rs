//! What start-up tells: the model, where memory goes, how long and how many sequences fit.

use super::Prepared;
use super::memory_plan::size;
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
    let (plan, model) = (&prepared.plan, &prepared.checkpoint.config);
    let mut lines = vec![
        format!(
            "model: {} ({}, {} parameters, {}, {} layers, vocabulary {})",
            config.model_name(),
            model.architecture,
            parameters(model.parameters),
            model.stored_dtype,
            model.layers,
            model.vocab,
        ),
        format!("compute: CPU, {} threads, dtype {}", prepared.threads, config.model.dtype),
        format!(
            "memory: weights {} + KV cache {} ({} tokens in {} blocks of {}, {}) + activations {}",
            size(prepared.model.weight_bytes()),
            size(plan.kv),
            plan.kv_tokens(),
            plan.blocks.0,
            plan.block_size,
            prepared.shape.kv,
            size(plan.activations),
        ),
        format!(
            "context: {} tokens; maximum concurrency at that length: {:.1} sequences",
            plan.max_model_len,
            plan.max_concurrency()
        ),
    ];
    if plan.shortened {
        lines.push(format!(
            "the model could read {} tokens, but the KV cache holds no more than {}; raise --kv-cache-memory-bytes for longer ones",
            model.context_length, plan.max_model_len
        ));
    }
    lines
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
