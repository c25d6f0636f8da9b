//! The devices of the engine: which one is in use, what it has been through, and which one comes next.
//!
//! Outlives the engine supervisor: a device that was taken out of service does not come back with a new
//! supervisor.

use std::sync::{Mutex, MutexGuard, PoisonError};

use updraft_core::Millis;
use updraft_core::graphs::GraphKey;
use updraft_core::recovery::{Action, Ledger, Moment, RecoveryClass, RecoveryPolicy, Spares};

use crate::executor::LifeEnd;

/// Lives of a device that may end in captures before it has to do without graphs. A graph whose capture ended
/// one is not captured on this device again; so few of them do not use up what the ledger allows.
const DEADLY_CAPTURES_MAX: usize = 3;

/// The devices.
#[derive(Debug)]
pub(crate) struct Devices {
    policy: RecoveryPolicy,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    spares: Spares,
    /// Of the device in use. The one that counts lives with the device and comes back with the end of its
    /// life.
    ledger: Ledger,
    /// When the present life began.
    began: Millis,
    /// Graphs whose captures ended its lives.
    deadly: Vec<GraphKey>,
}

/// The device in use.
#[derive(Clone, Debug)]
pub(crate) struct InUse {
    /// Which one.
    pub ordinal: u32,
    /// What it has been through.
    pub ledger: Ledger,
    /// Graphs that are not to be captured on it.
    pub deadly: Vec<GraphKey>,
    /// Whether it has to do without any.
    pub without_graphs: bool,
}

/// A device that was taken out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    /// Which one.
    pub ordinal: u32,
    /// Which one takes its place.
    pub replaced_by: Option<u32>,
    /// A sentence for people.
    pub reason: String,
}

impl Devices {
    pub(crate) fn new(ordinals: &[u32], policy: RecoveryPolicy) -> Self {
        let books = Books {
            spares: Spares::new(ordinals),
            ledger: Ledger::new(policy.clone()),
            began: Millis(0),
            deadly: Vec::new(),
        };
        Self { policy, books: Mutex::new(books) }
    }

    /// The device in use; none when all are out of service.
    pub(crate) fn current(&self) -> Option<InUse> {
        let books = self.books();
        books.spares.current().map(|ordinal| InUse {
            ordinal,
            ledger: books.ledger.clone(),
            deadly: books.deadly.clone(),
            without_graphs: books.deadly.len() >= DEADLY_CAPTURES_MAX,
        })
    }

    /// The capture of this graph ended a life of the device in use. Says whether it has to do without any
    /// from now on.
    pub(crate) fn capture_was_deadly(&self, key: GraphKey) -> bool {
        let mut books = self.books();
        if !books.deadly.contains(&key) {
            books.deadly.push(key);
        }
        books.deadly.len() >= DEADLY_CAPTURES_MAX
    }

    /// The device in use is open.
    pub(crate) fn life_began(&self, now: Millis) {
        let mut books = self.books();
        books.began = now;
        books.ledger.began_life(now);
    }

    /// Notes how a life of the device in use ended. Says so when it was its last. `last_step`: when a step
    /// ended last, in this life or in an earlier one.
    pub(crate) fn life_ended(&self, now: Millis, last_step: Millis, end: &LifeEnd) -> Option<Retired> {
        let mut books = self.books();
        let ordinal = books.spares.current()?;
        let mut action = end.action;
        if let Some(ledger) = &end.ledger {
            books.ledger = ledger.clone();
        } else if let Some(class) = end.unsaid {
            if last_step > books.began {
                books.ledger.step_succeeded(last_step);
            }
            action = action.max(books.ledger.decide_class(now, class, Moment::Decode));
        }
        if action != Action::RetireDevice {
            return None;
        }
        books.ledger = Ledger::new(self.policy.clone());
        books.deadly.clear();
        let replaced_by = books.spares.retire();
        let faulty = end.troubles.last().map(|trouble| trouble.fault.device.clone());
        let device = faulty.unwrap_or_else(|| format!("device {ordinal}"));
        let reason = match replaced_by {
            Some(spare) => {
                format!("{device} was taken out of service, device {spare} takes its place: {}", end.detail)
            }
            None => format!(
                "{device} was taken out of service and no spare is left: {}; repair or replace it, then \
                 restart the server",
                end.detail
            ),
        };
        Some(Retired { ordinal, replaced_by, reason })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What it means for a device with a process of its own that it stopped moving.
pub(crate) fn stuck(detail: String, computing: bool) -> LifeEnd {
    LifeEnd { unsaid: Some(RecoveryClass::Process), ..LifeEnd::of(detail, computing) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worn_out() -> LifeEnd {
        LifeEnd { action: Action::RetireDevice, ..LifeEnd::of("worn out".to_owned(), false) }
    }

    #[test]
    fn spares_serve_in_turn_and_then_nobody() {
        let devices = Devices::new(&[2, 5], RecoveryPolicy::default());
        assert_eq!(devices.current().map(|device| device.ordinal), Some(2));
        assert_eq!(
            devices.life_ended(Millis(0), Millis(0), &LifeEnd::of("a mistake".to_owned(), true)),
            None
        );
        let first = devices.life_ended(Millis(1), Millis(0), &worn_out()).unwrap();
        assert_eq!((first.ordinal, first.replaced_by), (2, Some(5)));
        let last = devices.life_ended(Millis(2), Millis(0), &worn_out()).unwrap();
        assert_eq!((last.ordinal, last.replaced_by), (5, None));
        assert!(last.reason.contains("device 5") && last.reason.contains("worn out"), "{}", last.reason);
        assert!(devices.current().is_none());
        assert_eq!(devices.life_ended(Millis(3), Millis(0), &worn_out()), None);
    }

    #[test]
    fn a_device_whose_processes_keep_dying_is_retired() {
        let devices = Devices::new(&[0], RecoveryPolicy::default());
        let hangs = stuck("it hangs".to_owned(), true);
        let retired = (0..10).find_map(|at| devices.life_ended(Millis(at), Millis(0), &hangs));
        assert!(retired.is_some());
    }

    #[test]
    fn one_whose_processes_die_once_in_a_while_is_not() {
        let devices = Devices::new(&[0], RecoveryPolicy::default());
        let hangs = stuck("it hangs".to_owned(), true);
        for day in 1..50_u64 {
            let began = day * 86_400_000;
            devices.life_began(Millis(began));
            let last_step = Millis(began + 3_600_000);
            assert_eq!(devices.life_ended(last_step, last_step, &hangs), None);
        }
    }
}
