//! The meeting place of a communicator's ranks: they leave parts there and take those of the others.
//!
//! Always holds: a round is over when all ranks left their part, and is forgotten when all took it; a wait
//! ends with its limit, or when the waiting work is aborted.
//!
//! Refuses to know: what the bytes mean, and where ranks live.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiting rank looks whether its work was aborted.
pub const LOOK: Duration = Duration::from_millis(10);

/// Messages between two ranks that may wait to be taken.
const UNREAD: usize = 1024;

/// What a rank leaves.
pub type Part = Arc<[u8]>;

/// Which exchange among all of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// How often the communicator was resumed.
    pub generation: u64,
    /// Number of the collective, counted by each rank.
    pub sequence: u64,
}

/// Why an exchange did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Not all ranks arrived within the limit.
    #[error("not all ranks arrived in time: look which rank stopped, or raise HCCL_EXEC_TIMEOUT")]
    TimedOut,
    /// The waiting work was aborted.
    #[error("the work was aborted while it waited for its peers")]
    Cancelled,
    /// The meeting place is gone.
    #[error("the process that keeps the meeting place is gone: make new root information")]
    Lost,
}

/// How long a wait may take.
#[derive(Clone, Copy)]
pub struct Limit {
    /// When it ends, if it does.
    pub deadline: Option<Instant>,
    /// Whether the waiting work was aborted.
    pub cancelled: fn() -> bool,
}

impl Limit {
    /// From now on; no time means for ever.
    #[must_use]
    pub fn within(time: Option<Duration>, cancelled: fn() -> bool) -> Self {
        Self { deadline: time.and_then(|time| Instant::now().checked_add(time)), cancelled }
    }

    /// Whether the wait must end now.
    pub fn check(&self) -> Result<(), Broken> {
        if (self.cancelled)() {
            return Err(Broken::Cancelled);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Broken::TimedOut);
        }
        Ok(())
    }

    /// Milliseconds that are left.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).as_millis() as u64)
    }
}

struct Round {
    parts: Vec<Option<Part>>,
    taken: usize,
}

#[derive(Default)]
struct State {
    rounds: HashMap<Key, Round>,
    messages: HashMap<(u64, u32, u32), VecDeque<Part>>,
}

/// The meeting place.
#[derive(Default)]
pub struct Hub {
    state: Mutex<State>,
    changed: Condvar,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: &Limit) -> Result<MutexGuard<'a, State>, Broken> {
        limit.check()?;
        Ok(self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Leaves a part and takes those of all ranks, in their order.
    pub fn exchange(
        &self,
        key: Key,
        ranks: usize,
        rank: usize,
        part: Part,
        limit: &Limit,
    ) -> Result<Vec<Part>, Broken> {
        let mut state = self.lock();
        let round = state.rounds.entry(key).or_insert_with(|| Round { parts: vec![None; ranks], taken: 0 });
        if let Some(slot) = round.parts.get_mut(rank) {
            *slot = Some(part);
        }
        self.changed.notify_all();
        loop {
            if let Some(round) = state.rounds.get_mut(&key) {
                let all: Option<Vec<Part>> = round.parts.iter().cloned().collect();
                if let Some(all) = all {
                    round.taken += 1;
                    if round.taken == round.parts.len() {
                        state.rounds.remove(&key);
                    }
                    return Ok(all);
                }
            }
            match self.wait(state, limit) {
                Ok(next) => state = next,
                Err(broken) => {
                    // What this rank left must not complete a round that it is no part of any more.
                    let mut state = self.lock();
                    if let Some(round) = state.rounds.get_mut(&key) {
                        if let Some(slot) = round.parts.get_mut(rank) {
                            *slot = None;
                        }
                        if round.parts.iter().all(Option::is_none) {
                            state.rounds.remove(&key);
                        }
                    }
                    return Err(broken);
                }
            }
        }
    }

    /// Leaves a message of rank `from` for rank `to`.
    pub fn put(&self, generation: u64, from: u32, to: u32, part: Part, limit: &Limit) -> Result<(), Broken> {
        let mut state = self.lock();
        loop {
            let queue = state.messages.entry((generation, from, to)).or_default();
            if queue.len() < UNREAD {
                queue.push_back(part);
                self.changed.notify_all();
                return Ok(());
            }
            state = self.wait(state, limit)?;
        }
    }

    /// Takes the oldest message of rank `from` for rank `to`.
    pub fn take(&self, generation: u64, from: u32, to: u32, limit: &Limit) -> Result<Part, Broken> {
        let mut state = self.lock();
        loop {
            if let Some(part) = state.messages.get_mut(&(generation, from, to)).and_then(VecDeque::pop_front)
            {
                self.changed.notify_all();
                return Ok(part);
            }
            state = self.wait(state, limit)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_does_not_come_ends_in_a_time_out() {
        let hub = Hub::default();
        let key = Key { generation: 0, sequence: 1 };
        let limit = Limit::within(Some(Duration::from_millis(30)), || false);
        assert_eq!(hub.exchange(key, 2, 0, Arc::from([1u8]), &limit), Err(Broken::TimedOut));
        assert_eq!(hub.take(0, 1, 0, &limit), Err(Broken::TimedOut));
        let aborted = Limit::within(None, || true);
        assert_eq!(hub.exchange(key, 2, 1, Arc::from([2u8]), &aborted), Err(Broken::Cancelled));
    }

    #[test]
    fn parts_come_in_the_order_of_ranks() {
        let hub = Hub::default();
        let key = Key { generation: 0, sequence: 1 };
        let limit = Limit::within(None, || false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| hub.exchange(key, 2, 1, Arc::from([9u8]), &limit));
            let mine = hub.exchange(key, 2, 0, Arc::from([7u8]), &limit).unwrap();
            assert_eq!(mine.iter().map(|part| part[0]).collect::<Vec<_>>(), [7, 9]);
            assert_eq!(other.join().unwrap().unwrap(), mine);
        });
        assert!(hub.lock().rounds.is_empty());
    }
}
