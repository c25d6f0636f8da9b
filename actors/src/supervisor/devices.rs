//! The devices of the engine: which one is in use, what each has been through, and which one comes next.
//!
//! Always: a device is taken out of service only for what it said itself, or for crashes when there is a
//! spare; silence is never held against it. Before the first life came up, what lies in the configuration or
//! the installation ends the engine instead.
//!
//! Outlives the engine supervisor: a device that was taken out of service does not come back with a new
//! supervisor.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use updraft_core::Millis;
use updraft_core::graphs::GraphKey;
use updraft_core::recovery::{Action, Ledger, Moment, RecoveryClass, RecoveryPolicy, Spares};

use crate::executor::{LifeEnd, Unsaid};

/// Lives of a device that may end in captures before it has to do without graphs. A graph whose capture ended
/// one is not captured on this device again; so few of them do not use up what the ledger allows.
const DEADLY_CAPTURES_MAX: usize = 3;
/// Lives of a device that may end in silence, without a step between them, before a spare takes its place for
/// now.
const SILENT_LIVES_MAX: u32 = 3;

/// The devices.
#[derive(Debug)]
pub(crate) struct Devices {
    policy: RecoveryPolicy,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    spares: Spares,
    /// What each device that has been in use has been through.
    cards: BTreeMap<u32, Card>,
    /// When the present life began.
    began: Millis,
    /// Whether any life has come up.
    served: bool,
}

/// One device.
#[derive(Clone, Debug)]
struct Card {
    /// The one that counts lives with the device and comes back with the end of its life.
    ledger: Ledger,
    /// Graphs whose captures ended its lives.
    deadly: Vec<GraphKey>,
    /// Lives in a row that ended in silence without a step.
    silent_lives: u32,
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

/// What the end of a life changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A device was taken out of service.
    Retired(Retired),
    /// A spare takes its place; it is a spare itself from now on.
    SetAside {
        /// Which one.
        ordinal: u32,
        /// Which one takes its place.
        replaced_by: u32,
    },
    /// No device could ever be opened, for this reason, and none will be.
    FailedToOpen(String),
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
        let spares = Spares::new(ordinals);
        let books = Books { spares, cards: BTreeMap::new(), began: Millis(0), served: false };
        Self { policy, books: Mutex::new(books) }
    }

    /// The device in use; none when all are out of service.
    pub(crate) fn current(&self) -> Option<InUse> {
        let mut books = self.books();
        let ordinal = books.spares.current()?;
        let card = books.card(ordinal, &self.policy);
        Some(InUse {
            ordinal,
            ledger: card.ledger.clone(),
            deadly: card.deadly.clone(),
            without_graphs: card.deadly.len() >= DEADLY_CAPTURES_MAX,
        })
    }

    /// The capture of this graph ended a life of the device in use. Says whether it has to do without any
    /// from now on.
    pub(crate) fn capture_was_deadly(&self, key: GraphKey) -> bool {
        let mut books = self.books();
        let Some(ordinal) = books.spares.current() else { return false };
        let card = books.card(ordinal, &self.policy);
        if !card.deadly.contains(&key) {
            card.deadly.push(key);
        }
        card.deadly.len() >= DEADLY_CAPTURES_MAX
    }

    /// The device in use is open.
    pub(crate) fn life_began(&self, now: Millis) {
        let mut books = self.books();
        (books.began, books.served) = (now, true);
        if let Some(ordinal) = books.spares.current() {
            books.card(ordinal, &self.policy).ledger.began_life(now);
        }
    }

    /// Lets a spare that `is_free` take the place of the device in use, if there is one. Gives both.
    pub(crate) fn set_aside(&self, is_free: impl Fn(u32) -> bool) -> Option<(u32, u32)> {
        let mut books = self.books();
        let ordinal = books.spares.current()?;
        Some((ordinal, books.spares.set_aside(is_free)?))
    }

    /// Notes how a life of the device in use ended, and says what that changes. `last_step`: when a step
    /// ended last, in this life or in an earlier one; `is_free`: whether nothing of an earlier life is left on
    /// a device.
    pub(crate) fn life_ended(
        &self,
        (now, last_step): (Millis, Millis),
        end: &LifeEnd,
        is_free: impl Fn(u32) -> bool,
    ) -> Option<Change> {
        let mut books = self.books();
        let ordinal = books.spares.current()?;
        if end.hopeless && !books.served {
            return Some(Change::FailedToOpen(failed_to_open(end)));
        }
        let (computed, has_spare) = (last_step > books.began, books.spares.left() > 0);
        let card = books.card(ordinal, &self.policy);
        let mut action = end.action;
        match (&end.ledger, end.unsaid) {
            (Some(ledger), _) => card.ledger = ledger.clone(),
            (None, Some(Unsaid::Crash)) if has_spare => {
                if computed {
                    card.ledger.step_succeeded(last_step);
                }
                action = action.max(card.ledger.decide_class(now, RecoveryClass::Process, Moment::Decode));
            }
            (None, Some(Unsaid::Silence)) => {
                card.silent_lives = if computed { 1 } else { card.silent_lives + 1 };
                if card.silent_lives >= SILENT_LIVES_MAX {
                    card.silent_lives = 0;
                    let replaced_by = books.spares.set_aside(is_free)?;
                    return Some(Change::SetAside { ordinal, replaced_by });
                }
            }
            // Without a spare, a device that may crash again is better than none.
            (None, _) => {}
        }
        (action == Action::RetireDevice).then(|| Change::Retired(books.retire(ordinal, end)))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn card(&mut self, ordinal: u32, policy: &RecoveryPolicy) -> &mut Card {
        self.cards.entry(ordinal).or_insert_with(|| Card {
            ledger: Ledger::new(policy.clone()),
            deadly: Vec::new(),
            silent_lives: 0,
        })
    }

    fn retire(&mut self, ordinal: u32, end: &LifeEnd) -> Retired {
        let detail = &end.detail;
        let last = end.troubles.last().map(|trouble| &trouble.fault);
        let device = last.map_or_else(|| format!("device {ordinal}"), |fault| fault.device.clone());
        let of_installation = last.is_some_and(|fault| {
            matches!(fault.class, RecoveryClass::Environment | RecoveryClass::Unsupported)
        });
        if of_installation {
            self.spares.retire_all();
            let reason = format!(
                "{device} was taken out of service: {detail}; the installation is the same for every device, \
                 so no spare takes its place: mend it, then restart the server"
            );
            return Retired { ordinal, replaced_by: None, reason };
        }
        let replaced_by = self.spares.retire();
        let reason = match replaced_by {
            Some(spare) => {
                format!("{device} was taken out of service, device {spare} takes its place: {detail}")
            }
            None => format!(
                "{device} was taken out of service and no spare is left: {detail}; repair or replace it, \
                 then restart the server"
            ),
        };
        Retired { ordinal, replaced_by, reason }
    }
}

/// The sentence for a server that never served, with what may help.
fn failed_to_open(end: &LifeEnd) -> String {
    let help = match end.troubles.last().map(|trouble| trouble.fault.class) {
        Some(RecoveryClass::Environment) => "mend the installation of its driver and libraries",
        Some(RecoveryClass::Unsupported) => "choose a model and options that this device can do",
        Some(RecoveryClass::Memory) => "free memory on it, or ask for less of it",
        Some(_) => "the server made a call that the device's library refuses, so their versions may not fit",
        None => "see the lines above for why",
    };
    format!("no device could be opened: {}; {help}", end.detail)
}

#[cfg(test)]
mod tests;
