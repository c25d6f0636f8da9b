//! The ten-second line: what the engine did since the last one. A second one tells of drafts, if there were any.

use updraft_core::Millis;
use updraft_core::speculation::DraftCounts;

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
    drafts: DraftCounts,
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
            drafts: DraftCounts::default(),
            last: StepRecord::default(),
            idle_lines: IDLE_LINES_MAX,
        }
    }

    pub(super) fn add(&mut self, step: &StepRecord) {
        self.prompt_tokens += u64::from(step.prompt_tokens);
        self.generated_tokens += u64::from(step.generated_tokens);
        self.preemptions += u64::from(step.preemptions);
        self.drafts.add(&step.drafts);
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
        let mut line = format!(
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
        let drafts = std::mem::take(&mut self.drafts);
        if drafts.sequences > 0 {
            line = format!("{line}\n{}", of_drafts(&drafts, seconds));
        }
        (self.since, self.prompt_tokens, self.generated_tokens, self.preemptions) = (now, 0, 0, 0);
        (self.idle_lines <= IDLE_LINES_MAX).then_some(line)
    }
}

/// The line about drafts, in vLLM's words. The token that comes anyway counts into the length.
fn of_drafts(drafts: &DraftCounts, seconds: f64) -> String {
    let (accepted, drafted) = (drafts.accepted_in_all(), drafts.drafted);
    let sequences = f64::from(drafts.sequences.max(1));
    let places = drafts.accepted.iter().take_while(|accepted| **accepted > 0);
    let rates: Vec<String> =
        places.map(|accepted| format!("{:.3}", f64::from(*accepted) / sequences)).collect();
    format!(
        "SpecDecoding metrics: Mean acceptance length: {:.2}, Accepted throughput: {:.2} tokens/s, \
         Drafted throughput: {:.2} tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, \
         Per-position acceptance rate: {}, Avg Draft acceptance rate: {:.1}%",
        1.0 + f64::from(accepted) / sequences,
        f64::from(accepted) / seconds,
        f64::from(drafted) / seconds,
        if rates.is_empty() { "0.000".to_owned() } else { rates.join(", ") },
        percent(u64::from(accepted), u64::from(drafted)),
    )
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

    #[test]
    fn drafts_have_a_line_of_their_own() {
        let mut summary = Summary::new(Millis(0));
        let mut drafts = DraftCounts::default();
        for accepted in [0, 2, 1, 3] {
            drafts.plan(5);
            drafts.accept(accepted);
        }
        summary.add(&StepRecord { generated_tokens: 10, drafts, ..StepRecord::default() });
        summary.add(&StepRecord { generated_tokens: 1, ..StepRecord::default() });
        let line = summary.line(Millis(10_000)).unwrap();
        let said = "\nSpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 0.60 tokens/s, \
                    Drafted throughput: 2.00 tokens/s, Accepted: 6 tokens, Drafted: 20 tokens, \
                    Per-position acceptance rate: 0.750, 0.500, 0.250, Avg Draft acceptance rate: 30.0%";
        assert!(line.ends_with(said), "{line}");
        summary.add(&StepRecord { generated_tokens: 1, ..StepRecord::default() });
        assert!(!summary.line(Millis(20_000)).unwrap().contains("SpecDecoding"));
    }
}
