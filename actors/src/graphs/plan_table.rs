//! The plan of a device's graphs as a table, one log line a row.

use updraft_core::graphs::{GraphPlan, PlanRow};

pub(super) fn print(plan: &GraphPlan) {
    if plan.rows().is_empty() {
        return;
    }
    tracing::info!(
        parent: None,
        mode = plan.mode().as_str(),
        wanted = plan.wanted().len(),
        first = plan.first().len(),
        dropped = plan.dropped().len(),
        "graphs planned"
    );
    for row in plan.rows() {
        tracing::info!(parent: None, "{}", line(row));
    }
}

fn line(row: &PlanRow) -> String {
    let memory = row.cost.bytes.0 as f64 / f64::from(1 << 20);
    let share = row.share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0));
    let verdict = match row.verdict {
        Ok(place) => format!("captured as number {}", place + 1),
        Err(reason) => format!("not captured: {reason}"),
    };
    format!(
        "graph {:<16} {memory:>9.1} MiB {:>3} streams {share:>7} of steps  {verdict}",
        row.key.to_string(),
        row.cost.streams
    )
}

#[cfg(test)]
mod tests {
    use updraft_core::Bytes;
    use updraft_core::graphs::{DropReason, GraphKey, GraphKind, GraphUse};

    use super::*;

    #[test]
    fn a_row_says_bucket_memory_share_and_verdict() {
        let row = PlanRow {
            key: GraphKey { kind: GraphKind::Decode, rows: 8 },
            cost: GraphUse { bytes: Bytes(3 << 20), streams: 2 },
            share: Some(0.25),
            verdict: Ok(0),
        };
        let text = line(&row);
        for part in ["decode x8", "3.0 MiB", "2 streams", "25.0%", "number 1"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let dropped = PlanRow { verdict: Err(DropReason::OverMemory), share: None, ..row };
        assert!(line(&dropped).contains("not captured: not enough memory"), "{}", line(&dropped));
    }
}
