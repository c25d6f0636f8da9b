//! The watch beside the loops: how much work each is given, and what it did in a second.
//!
//! Always holds: every thread of a team does the same amount of work at the same time, on memory that it
//! wrote first itself (so that it lies near its processor). Refuses to know how a figure is shown.

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use updraft_kernels::machine::{Arithmetic, LINE, Probe, ROUNDS_MAX};
use updraft_kernels::memory::AlignedVec;
use updraft_kernels::team::{Pinning, Team};

/// A measurement lasts at least this long, so that starting the team does not show.
const SHORTEST: Duration = Duration::from_millis(20);
/// Passes over a working set, or calls of a loop, at most: what ends the search for a long enough
/// measurement.
const REPEATS_MAX: u32 = 1 << 24;
/// Working sets that stay in the first, second and third cache of most processors, in bytes a thread.
const CACHED: [u64; 3] = [16 << 10, 256 << 10, 4 << 20];
/// Bytes of a line.
const LINE_BYTES: u64 = 4 * LINE as u64;
/// Rounds of one call of a loop: a few hundred microseconds at most.
const ROUNDS: u32 = 1 << 16;
const _: () = assert!(ROUNDS <= ROUNDS_MAX);
/// The same where a round is a whole dot product.
const ROUNDS_PORTABLE: u32 = 1 << 10;

/// One figure to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Reading all memory once, shared out among the threads.
    Memory { bytes: u64 },
    /// Reading a small working set of each thread's own over and over.
    Cached { bytes: u64 },
    /// Multiplying in registers.
    Multiply { arithmetic: Arithmetic, instruction: &'static str },
}

impl Task {
    /// What can be measured on this machine, when each thread has this much memory.
    pub(super) fn all(probe: Probe, threads: usize, memory: u64) -> Vec<Self> {
        let part = memory / threads.max(1) as u64;
        let cached = CACHED.into_iter().filter(|bytes| *bytes <= part).map(|bytes| Self::Cached { bytes });
        let multiply = Arithmetic::ALL.into_iter().filter_map(|arithmetic| {
            probe.instruction(arithmetic).map(|instruction| Self::Multiply { arithmetic, instruction })
        });
        std::iter::once(Self::Memory { bytes: memory }).chain(cached).chain(multiply).collect()
    }
}

/// Units a second (bytes or operations): the median of some rounds, the lowest and the highest.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Rate {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Rate {
    /// The rate of some rounds; none when there were none.
    pub(super) fn of(mut rounds: Vec<f64>) -> Option<Self> {
        rounds.sort_unstable_by(f64::total_cmp);
        let (low, high) = (*rounds.first()?, *rounds.last()?);
        let median = *rounds.get(rounds.len() / 2)?;
        Some(Self { median, low, high })
    }
}

/// What one task gave.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) task: Task,
    pub(super) one: Rate,
    pub(super) all: Rate,
}

/// Teams and memory.
pub(super) struct Measure {
    probe: Probe,
    solo: Team,
    team: Team,
    /// A part for each thread of the team.
    parts: Vec<Mutex<AlignedVec<[u32; LINE]>>>,
}

/// Rounds so far, and how often a task repeats its work.
#[derive(Default)]
struct Series {
    repeats: Option<u32>,
    rates: Vec<f64>,
}

impl Measure {
    /// Starts the threads and fills the memory.
    pub(super) fn new(probe: Probe, threads: usize, memory: u64) -> Result<Self> {
        let start =
            |threads| Team::new(threads, &Pinning::Anywhere).context("the system gives no more threads");
        let (solo, mut team) = (start(1)?, start(threads)?);
        let lines = (memory / LINE_BYTES / threads.max(1) as u64).max(1) as usize;
        let parts: Vec<_> =
            (0..threads).map(|_| Mutex::new(AlignedVec::zeroed(lines).with_large_pages())).collect();
        team.run(|worker| {
            if let Some(part) = parts.get(worker.index()) {
                lock(part).fill([1; LINE]);
            }
        });
        Ok(Self { probe, solo, team, parts })
    }

    /// All figures, task after task in every round. Calls `done` after each task.
    pub(super) fn rows(&mut self, tasks: &[Task], rounds: u32, done: &dyn Fn()) -> Vec<Row> {
        let mut series: Vec<_> = tasks.iter().map(|_| [Series::default(), Series::default()]).collect();
        for _ in 0..rounds {
            for (task, [one, all]) in tasks.iter().zip(&mut series) {
                one.rates.push(self.rate(*task, false, &mut one.repeats));
                all.rates.push(self.rate(*task, true, &mut all.repeats));
                done();
            }
        }
        let rows = tasks.iter().zip(series).filter_map(|(task, [one, all])| {
            Some(Row { task: *task, one: Rate::of(one.rates)?, all: Rate::of(all.rates)? })
        });
        rows.collect()
    }

    /// Units a second of one measurement. The first one also finds out how often the work must be repeated.
    fn rate(&mut self, task: Task, together: bool, repeats: &mut Option<u32>) -> f64 {
        let mut count = repeats.unwrap_or(1);
        loop {
            let start = Instant::now();
            let units = self.work(task, together, count);
            let time = start.elapsed();
            if repeats.is_some() || time >= SHORTEST || count >= REPEATS_MAX {
                *repeats = Some(count);
                return units as f64 / time.as_secs_f64();
            }
            count = count.saturating_mul(2).min(REPEATS_MAX);
        }
    }

    /// Does a task `count` times on one thread or on all; returns the bytes read or the operations done.
    fn work(&mut self, task: Task, together: bool, count: u32) -> u64 {
        let (probe, parts) = (self.probe, &self.parts);
        let team = if together { &mut self.team } else { &mut self.solo };
        let total = Mutex::new(0_u64);
        team.run(|worker| {
            let mine = match task {
                Task::Memory { .. } if together => {
                    parts.get(worker.index()).map_or(0, |part| read(probe, &lock(part), count))
                }
                Task::Memory { .. } => parts.iter().map(|part| read(probe, &lock(part), count)).sum(),
                Task::Cached { bytes } => parts.get(worker.index()).map_or(0, |part| {
                    let part = lock(part);
                    let lines = ((bytes / LINE_BYTES) as usize).min(part.len());
                    read(probe, part.get(..lines).unwrap_or_default(), count)
                }),
                Task::Multiply { arithmetic, .. } => multiply(probe, arithmetic, count),
            };
            *lock(&total) += mine;
        });
        total.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(probe: Probe, lines: &[[u32; LINE]], passes: u32) -> u64 {
    for _ in 0..passes {
        black_box(probe.read(black_box(lines)));
    }
    size_of_val(lines) as u64 * u64::from(passes)
}

fn multiply(probe: Probe, arithmetic: Arithmetic, count: u32) -> u64 {
    let portable = probe.isa() == updraft_kernels::cpu_features::Isa::Portable;
    let rounds = if portable { ROUNDS_PORTABLE } else { ROUNDS };
    let call = || black_box(probe.multiply(arithmetic, rounds)).map_or(0, |done| done.operations);
    (0..count).map(|_| call()).sum()
}

/// A lock that only one thread wants at a time; one that panicked has broken nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
