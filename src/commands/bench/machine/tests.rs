//! What is measured and how it is told; never how fast it was.
#![allow(clippy::expect_used, reason = "all of this is a test")]

use clap::Parser;
use serde_json::Value;
use updraft_kernels::machine::{Arithmetic, Probe};

use super::measure::{Rate, Task};
use super::{MachineOptions, measured};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: MachineOptions,
}

fn options(words: &[&str]) -> Result<MachineOptions, clap::Error> {
    Line::try_parse_from([&["bench"], words].concat()).map(|line| line.options)
}

fn probe() -> Probe {
    Probe::selected().expect("the instruction set can be used")
}

#[test]
fn every_task_gives_a_figure_for_one_thread_and_for_all() {
    let line = ["--threads", "2", "--runs", "1", "--memory-mib", "8"];
    let report = measured(&options(&line).expect("the line is right"), probe()).expect("two threads");
    let json: Value = serde_json::to_value(&report).expect("it is JSON");
    let figures = json["figures"].as_array().expect("figures are a list");
    assert_eq!(figures.len(), Task::all(probe(), 2, 8 << 20).len());
    for figure in figures {
        for threads in ["one_thread", "all_threads"] {
            let median = figure[threads]["median"].as_f64().expect("a number");
            assert!(median.is_finite() && median > 0.0, "{figure}");
        }
    }
    // What other programs look up.
    let names: Vec<_> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
    for name in ["read_memory", "read_16_kib", "read_256_kib", "read_4096_kib", "int8", "fp32"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let text = report.to_string();
    for words in ["read 8 MiB of memory", "int8: ", "fp32: ", "1 thread", "2 threads"] {
        assert!(text.contains(words), "{words:?} is missing in:\n{text}");
    }
}

#[test]
fn working_sets_larger_than_a_thread_s_memory_are_left_out() {
    let tasks = Task::all(probe(), 2, 1 << 20);
    assert!(tasks.contains(&Task::Cached { bytes: 256 << 10 }));
    assert!(!tasks.contains(&Task::Cached { bytes: 4 << 20 }));
    let has_bf16 =
        tasks.iter().any(|task| matches!(task, Task::Multiply { arithmetic: Arithmetic::Bf16, .. }));
    assert_eq!(has_bf16, probe().instruction(Arithmetic::Bf16).is_some());
}

#[test]
fn a_rate_is_the_median_with_its_range() {
    let rate = Rate::of(vec![3.0, 1.0, 2.0, 9.0, 2.5]);
    assert_eq!(rate, Some(Rate { median: 2.5, low: 1.0, high: 9.0 }));
    assert_eq!(Rate::of(Vec::new()), None);
}

#[test]
fn senseless_counts_are_refused() {
    for words in [["--runs", "0"], ["--threads", "0"], ["--memory-mib", "0"], ["--runs", "many"]] {
        assert!(options(&words).is_err(), "{words:?}");
    }
}
