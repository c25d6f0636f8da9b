//! The permits that bound how much work can be in the house.
//!
//! Mailboxes have no bound of their own, so nothing enters one without a permit from here. A permit goes back
//! when the engine is done with the sequence, or when its client leaves, whatever happened to the actors
//! meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use updraft_core::admission::{self, Limits, QueueState, Refusal, RequestShape};
use updraft_core::{Millis, Tokens};

/// Weight of the newest observation in the average pace.
const PACE_WEIGHT: f64 = 0.2;

/// Counts sequences and tokens in the house; cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    limits: Arc<Limits>,
    /// Sequences that run at once; only those beyond them wait.
    max_running: u32,
    house: Arc<Mutex<House>>,
}

/// What is in the house.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Sequences inside, running or waiting.
    pub sequences: u32,
    /// Their prompt tokens.
    pub prompt_tokens: Tokens,
}

#[derive(Debug, Default)]
struct House {
    load: Load,
    last_exit: Option<Instant>,
    pace_ms: Option<f64>,
}

/// The right of one sequence to be in the house. Returned when the engine is done with it, whether or not its
/// client has read all of it, or on drop.
#[derive(Debug)]
pub struct Permit {
    gate: Gate,
    tokens: Tokens,
    returned: AtomicBool,
}

impl Gate {
    /// An empty house.
    #[must_use]
    pub fn new(limits: Limits, max_running: u32) -> Self {
        Self { limits: Arc::new(limits), max_running, house: Arc::default() }
    }

    /// Lets one sequence in, or says why not.
    pub fn enter(&self, prompt: Tokens) -> Result<Permit, Refusal> {
        let mut house = self.lock();
        let request = RequestShape { prompt, max_tokens: None, sequences: 1 };
        // One that can run at once does not wait, so it needs no place in the queue.
        if house.load.sequences < self.max_running {
            admission::check_shape(&self.limits, &request)?;
        } else {
            admission::check(&self.limits, &request, &house.queue(self.max_running))?;
        }
        house.load.sequences += 1;
        house.load.prompt_tokens += prompt;
        Ok(Permit { gate: self.clone(), tokens: prompt, returned: AtomicBool::new(false) })
    }

    /// What is in the house now.
    #[must_use]
    pub fn load(&self) -> Load {
        self.lock().load
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, House> {
        self.house.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl House {
    fn queue(&self, max_running: u32) -> QueueState {
        let inside = self.load.sequences.max(1);
        let waiting = self.load.sequences.saturating_sub(max_running);
        // Who of those inside waits is the scheduler's business; here an average prompt stands for each.
        let tokens = u64::from(self.load.prompt_tokens.0) * u64::from(waiting) / u64::from(inside);
        QueueState {
            waiting,
            waiting_tokens: Tokens(tokens as u32),
            pace: self.pace_ms.map(|pace| Millis(pace as u64)),
        }
    }
}

impl Permit {
    /// Gives the place back. Once is enough.
    pub fn give_back(&self) {
        if self.returned.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut house = self.gate.lock();
        let now = Instant::now();
        if house.load.sequences > self.gate.max_running
            && let Some(last) = house.last_exit
        {
            let gap = now.duration_since(last).as_secs_f64() * 1e3;
            let average = house.pace_ms.unwrap_or(gap);
            house.pace_ms = Some(average + PACE_WEIGHT * (gap - average));
        }
        house.last_exit = Some(now);
        house.load.sequences = house.load.sequences.saturating_sub(1);
        house.load.prompt_tokens -= self.tokens;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use updraft_core::Blocks;

    fn gate() -> Gate {
        let limits = Limits {
            max_model_len: Tokens(100),
            block_size: Tokens(16),
            pool: Blocks(100),
            max_waiting: 2,
            max_waiting_tokens: None,
        };
        Gate::new(limits, 3)
    }

    #[test]
    fn the_house_holds_what_runs_and_what_may_wait() {
        let gate = gate();
        let inside: Vec<_> = (0..5).map(|_| gate.enter(Tokens(10)).unwrap()).collect();
        assert_eq!(gate.load(), Load { sequences: 5, prompt_tokens: Tokens(50) });
        let full = gate.enter(Tokens(10)).unwrap_err();
        assert!(matches!(full, Refusal::QueueFull { waiting: 2, limit: 2, .. }), "{full:?}");
        drop(inside);
        assert_eq!(gate.load(), Load::default());
        assert!(gate.enter(Tokens(10)).is_ok());
    }

    #[test]
    fn what_can_never_run_is_refused_even_when_empty() {
        assert!(matches!(gate().enter(Tokens(100)), Err(Refusal::PromptTooLong { .. })));
        assert!(matches!(gate().enter(Tokens(0)), Err(Refusal::EmptyPrompt)));
    }
}
