//! The ten-second line: what the engine did since the last one.

use updraft_core::Millis;

use crate::bus::StepRecord;

/// Time between two lines.
const INTERVAL: Millis = Millis(10_000);
/// Idle lines printed before the summary falls silent.
const IDLE_LINES_MAX: u32 = 1;

/// Sums of one interval.
#[derive(Debug)]
pub(super) struct Summary {
    since: Millis,
    prompt_tokens: u64,
    generated_tokens: u64,
    preemptions: u64,
    last: StepRecord,
    idle_lines: u32,
}

impl Summary {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            since: now,
            prompt_tokens: 0,
            generated_tokens: 0,
            preemptions: 0,
            last: StepRecord::default(),
            idle_lines: IDLE_LINES_MAX,
        }
    }

    pub(super) fn add(&mut self, step: &StepRecord) {
        self.prompt_tokens += u64::from(step.prompt_tokens);
        self.generated_tokens += u64::from(step.generated_tokens);
        self.preemptions += u64::from(step.preemptions);
        self.last = *step;
    }

    /// The line when it is due, unless nothing has happened for a while.
    pub(super) fn line(&mut self, now: Millis) -> Option<String> {
        let elapsed = now - self.since;
        if elapsed < INTERVAL {
            return None;
        }
        let idle = self.prompt_tokens + self.generated_tokens == 0 && self.last.running == 0;
        self.idle_lines = if idle { self.idle_lines.saturating_add(1) } else { 0 };
        let seconds = elapsed.0 as f64 / 1e3;
        let kv = self.last.kv;
        let line = format!(
            "Engine 000: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} tokens/s, \
             Running: {} reqs, Waiting: {} reqs, Preemptions: {}, KV cache usage: {:.1}%, \
             Prefix cache hit rate: {:.1}%",
            self.prompt_tokens as f64 / seconds,
            self.generated_tokens as f64 / seconds,
            self.last.running,
            self.last.waiting,
            self.preemptions,
            percent(u64::from(kv.used), u64::from(kv.total)),
            percent(kv.prefix_hits, kv.prefix_queries),
        );
        (self.since, self.prompt_tokens, self.generated_tokens, self.preemptions) = (now, 0, 0, 0);
        (self.idle_lines <= IDLE_LINES_MAX).then_some(line)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_an_interval_then_silence_when_idle() {
        let mut summary = Summary::new(Millis(0));
        assert_eq!(summary.line(Millis(10_000)), None, "nothing ever ran");
        summary.add(&StepRecord { prompt_tokens: 100, generated_tokens: 50, ..StepRecord::default() });
        assert_eq!(summary.line(Millis(19_000)), None);
        let line = summary.line(Millis(20_000)).unwrap();
        assert!(line.contains("Avg prompt throughput: 10.0 tokens/s"), "{line}");
        assert!(line.contains("Avg generation throughput: 5.0 tokens/s"), "{line}");
        assert!(summary.line(Millis(30_000)).is_some(), "one idle line says that it is over");
        assert_eq!(summary.line(Millis(40_000)), None);
    }
}
