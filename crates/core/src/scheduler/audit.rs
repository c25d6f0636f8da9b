//! Whether the scheduler's books agree with each other. For tests: takes time in proportion to its size.

use std::collections::HashMap;

use super::{Scheduler, Stage};
use crate::ids::SequenceId;
use crate::invariants::Violation;

impl Scheduler {
    /// Checks every count against what it counts, and every limit.
    pub fn audit(&self) -> Result<(), Violation> {
        self.audit_limits()?;
        let mut pending: HashMap<SequenceId, u32> = HashMap::new();
        for row in self.in_flight.iter().flat_map(|flight| &flight.rows) {
            *pending.entry(row.sequence).or_default() += u32::from(row.samples);
        }
        let (mut live, mut suspects, mut waiting_prompt_tokens) = (0, 0, 0);
        for (id, record) in &self.sequences {
            let broken = |why| Err(Violation::Books { sequence: *id, why });
            if record.ended {
                if !self.proposal.as_ref().is_some_and(|proposal| proposal.ended.contains(id)) {
                    return broken("has ended but is kept");
                }
                continue;
            }
            live += 1;
            suspects += u32::from(record.is_suspect());
            let waits = self.waiting.contains(&record.place);
            let runs = self.running.contains(&record.place);
            if (waits, runs) != (record.stage == Stage::Waiting, record.stage == Stage::Running) {
                return broken("is not where its stage says");
            }
            if waits {
                waiting_prompt_tokens += record.prompt.len() as u64;
            }
            if record.pending != pending.get(id).copied().unwrap_or(0) {
                return broken("counts tokens on their way that no step in flight yields");
            }
            if record.computed > record.target() || record.on_executor != runs {
                return broken("is ahead of itself");
            }
            if record.end_reason().is_some() {
                return broken("has a complete output but goes on");
            }
        }
        let counts = (self.waiting.len() + self.running.len(), self.suspects, self.waiting_prompt_tokens);
        if counts != (live, suspects, waiting_prompt_tokens) {
            return Err(Violation::Books { sequence: SequenceId(0), why: "totals differ from their parts" });
        }
        Ok(())
    }

    fn audit_limits(&self) -> Result<(), Violation> {
        let limits = [
            ("running sequences", self.running.len(), self.config.max_sequences),
            ("steps in flight", self.in_flight.len(), self.config.steps_in_flight),
        ];
        match limits.into_iter().find(|(_, count, limit)| *count > *limit as usize) {
            Some((what, count, limit)) => Err(Violation::OverLimit { what, count, limit }),
            None => Ok(()),
        }
    }
}
