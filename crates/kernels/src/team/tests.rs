//! What a team must survive: panics anywhere, uneven work, many barriers, being dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Pinning, Team};

fn team(threads: usize) -> Team {
    Team::new(threads, &Pinning::Anywhere).unwrap()
}

#[test]
fn every_worker_runs_once_with_its_own_index() {
    for threads in 1..=4 {
        let mut team = team(threads);
        for _ in 0..50 {
            let seen: Vec<AtomicU32> = (0..threads).map(|_| AtomicU32::new(0)).collect();
            team.run(|worker| {
                assert_eq!(worker.count(), threads);
                seen[worker.index()].fetch_add(1, Ordering::Relaxed);
            });
            assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn a_barrier_separates_what_comes_before_from_what_comes_after() {
    let mut team = team(3);
    let rounds = 3000;
    let counts: Vec<AtomicUsize> = (0..rounds).map(|_| AtomicUsize::new(0)).collect();
    let started = Instant::now();
    team.run(|worker| {
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
            worker.barrier();
            assert_eq!(count.load(Ordering::Relaxed), 3);
        }
    });
    // Generous: three threads on two busy cores. A barrier that waits for time slices would take far longer.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn shared_loops_cover_every_item_once_without_barriers_between_them() {
    let mut team = team(3);
    let loops = [0, 1, 7, 100, 3, 0, 64];
    let touched: Vec<Vec<AtomicU32>> =
        loops.iter().map(|&items| (0..items).map(|_| AtomicU32::new(0)).collect()).collect();
    for round in 1..=20 {
        team.run(|worker| {
            for items in &touched {
                for range in worker.share(items.len(), 3) {
                    assert!(range.len() <= 3);
                    for item in &items[range] {
                        item.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        assert!(touched.iter().flatten().all(|times| times.load(Ordering::Relaxed) == round));
    }
}

#[test]
fn uneven_work_goes_to_whoever_is_free() {
    let mut team = team(2);
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    team.run(|worker| {
        for _ in worker.share(40, 1) {
            if worker.index() == 1 {
                std::thread::sleep(Duration::from_millis(5));
            } else {
                std::thread::sleep(Duration::from_micros(200));
            }
            counts[worker.index()].fetch_add(1, Ordering::Relaxed);
        }
    });
    let [fast, slow] = counts.map(AtomicUsize::into_inner);
    assert_eq!(fast + slow, 40);
    assert!(fast > slow, "the fast worker did {fast}, the slow one {slow}");
}

#[test]
fn a_panic_in_any_worker_reaches_the_caller_and_the_team_goes_on() {
    let mut team = team(3);
    for victim in 0..3 {
        let result = catch_unwind(AssertUnwindSafe(|| {
            team.run(|worker| {
                worker.barrier();
                if worker.index() == victim {
                    std::panic::resume_unwind(Box::new(victim));
                }
                for _ in 0..10 {
                    worker.barrier();
                }
            });
        }));
        assert_eq!(result.unwrap_err().downcast_ref::<usize>(), Some(&victim));
        let total = AtomicUsize::new(0);
        team.run(|worker| {
            worker.barrier();
            total.fetch_add(worker.index() + 1, Ordering::Relaxed);
            worker.barrier();
        });
        assert_eq!(total.into_inner(), 6);
    }
}

#[test]
fn a_panic_wakes_workers_that_already_sleep_at_the_barrier() {
    let mut team = team(3);
    let result = catch_unwind(AssertUnwindSafe(|| {
        team.run(|worker| {
            if worker.index() == 2 {
                std::thread::sleep(Duration::from_millis(20));
                std::panic::resume_unwind(Box::new("late"));
            }
            worker.barrier();
        });
    }));
    assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"late"));
}

#[test]
fn all_workers_may_panic_at_once() {
    let mut team = team(3);
    for _ in 0..20 {
        let result = catch_unwind(AssertUnwindSafe(|| {
            team.run(|worker| std::panic::resume_unwind(Box::new(worker.index())));
        }));
        assert!(result.unwrap_err().is::<usize>());
    }
}

#[test]
fn a_team_can_be_dropped_unused_after_work_and_after_a_panic() {
    drop(team(3));
    let mut used = team(3);
    used.run(|worker| {
        worker.barrier();
        worker.barrier();
    });
    drop(used);
    let mut broken = team(3);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        broken.run(|worker| {
            if worker.index() == 1 {
                std::panic::resume_unwind(Box::new(()));
            }
            worker.barrier();
        });
    }));
    drop(broken);
}

#[test]
fn a_sleeping_team_wakes_up() {
    let mut team = team(2);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(3));
        let total = AtomicUsize::new(0);
        team.run(|worker| {
            worker.barrier();
            total.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(total.into_inner(), 2);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn workers_run_where_they_are_told_to() {
    /// Where each worker may run.
    fn masks(pinning: &Pinning) -> Vec<Vec<usize>> {
        let masks: Vec<_> = (0..3).map(|_| std::sync::Mutex::new(Vec::new())).collect();
        let work = || {
            let mut team = Team::new(3, pinning).unwrap();
            team.run(|worker| *masks[worker.index()].lock().unwrap() = super::allowed_cpus());
        };
        // On a thread of its own, because it may be bound.
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        masks.into_iter().map(|mask| mask.into_inner().unwrap()).collect()
    }
    let allowed = super::allowed_cpus();
    let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
    let mut both = vec![first, last];
    both.dedup();
    assert_eq!(masks(&Pinning::Anywhere), [&allowed[..]; 3]);
    assert_eq!(masks(&Pinning::Among([last].into())), [&[last]; 3]);
    assert_eq!(masks(&Pinning::Each([first, last].into())), [&both[..], &[last], &[first]]);
    // A processor that is not there is refused by the system, and nothing changes.
    let absent = libc::CPU_SETSIZE as usize;
    assert_eq!(masks(&Pinning::Each([absent].into())), [&allowed[..]; 3]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_team_uses_no_processor_time() {
    let mut team = team(2);
    let helper = std::sync::Mutex::new(None);
    team.run(|worker| {
        if worker.index() == 1 {
            *helper.lock().unwrap() = Some(std::fs::read_link("/proc/thread-self").unwrap());
        }
    });
    let stat = std::path::Path::new("/proc").join(helper.into_inner().unwrap().unwrap()).join("stat");
    std::thread::sleep(Duration::from_millis(20));
    let before = ticks(&stat);
    std::thread::sleep(Duration::from_millis(200));
    assert!(ticks(&stat) - before <= 2, "the helper of an idle team ran");
    drop(team);
}

/// Hundredths of a second for which a thread has run.
#[cfg(target_os = "linux")]
fn ticks(stat: &std::path::Path) -> u64 {
    let text = std::fs::read_to_string(stat).unwrap();
    let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
