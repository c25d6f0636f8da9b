//! Fault drills: faults on demand, to show that they cost nobody a token.
//!
//! A drill is armed from outside and goes off on the device thread. Nothing is armed unless a test or an
//! operator asks.

use std::sync::{Arc, Mutex, PoisonError};

use updraft_core::TokenId;
use updraft_core::step::{Phase, StepPlan};

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drill {
    /// Panic once, at the next step that has a row of this phase.
    PanicAt(Phase),
    /// Panic at every step in which a sequence has this token in its prompt.
    PanicOnToken(TokenId),
    /// Stop making progress once, for this long, at the next step.
    Hang(std::time::Duration),
}

/// Arms and disarms drills; clones share the switch.
#[derive(Clone, Debug, Default)]
pub struct DrillSwitch(Arc<Mutex<Option<Drill>>>);

impl DrillSwitch {
    /// Arms `drill` in place of what was armed.
    pub fn arm(&self, drill: Drill) {
        *self.lock() = Some(drill);
    }

    /// Whether something is still armed.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.lock().is_some()
    }

    /// Disarms.
    pub fn disarm(&self) {
        *self.lock() = None;
    }

    /// Goes off when the armed drill fits this step.
    ///
    /// # Panics
    /// That is its purpose.
    #[expect(clippy::panic, reason = "a drill is a fault on purpose")]
    pub(super) fn check(&self, plan: &StepPlan, prompt_has: impl Fn(TokenId) -> bool) {
        let fired = {
            let mut armed = self.lock();
            match *armed {
                None => None,
                Some(Drill::PanicAt(phase)) => {
                    plan.scheduled.iter().any(|row| row.phase == phase).then(|| armed.take()).flatten()
                }
                Some(Drill::PanicOnToken(token)) => prompt_has(token).then_some(*armed).flatten(),
                Some(Drill::Hang(_)) => armed.take(),
            }
        };
        match fired {
            None => {}
            Some(Drill::Hang(time)) => std::thread::sleep(time),
            Some(drill) => std::panic::panic_any(format!("fault drill: {drill:?}")),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Drill>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
