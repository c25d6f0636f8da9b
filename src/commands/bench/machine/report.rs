//! The figures as a table and as JSON.
//!
//! Names of figures in JSON are a promise: programs that draw limits beside measurements look them up.

use std::fmt;

use serde::Serialize;

use super::measure::{Rate, Row, Task};

/// All figures of a machine.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Name of the processor, as the system tells it.
    processor: String,
    instruction_set: &'static str,
    threads: usize,
    runs: u32,
    figures: Vec<Figure>,
}

/// One figure; rates are in bytes or operations a second.
#[derive(Debug, Serialize)]
struct Figure {
    name: String,
    what: String,
    unit: &'static str,
    one_thread: Rate,
    all_threads: Rate,
}

impl Report {
    pub(super) fn new(instruction_set: &'static str, threads: usize, runs: u32, rows: Vec<Row>) -> Self {
        let figures = rows.into_iter().map(Figure::new).collect();
        Self { processor: processor(), instruction_set, threads, runs, figures }
    }
}

impl Figure {
    fn new(Row { task, one, all }: Row) -> Self {
        let (name, what, unit) = match task {
            Task::Memory { bytes } => {
                ("read_memory".to_owned(), format!("read {} of memory", size(bytes)), "B/s")
            }
            Task::Cached { bytes } => {
                let name = format!("read_{}_kib", bytes >> 10);
                (name, format!("read {} a thread, again and again", size(bytes)), "B/s")
            }
            Task::Multiply { arithmetic, instruction } => {
                let name = arithmetic.name();
                (name.to_owned(), format!("{name}: {instruction}"), "op/s")
            }
        };
        Self { name, what, unit, one_thread: one, all_threads: all }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, instruction_set, threads, runs, figures } = self;
        let rounds = if *runs == 1 { "1 round".to_owned() } else { format!("median of {runs} rounds") };
        writeln!(f, "{processor}, instruction set {instruction_set}, {rounds}")?;
        let width = figures.iter().map(|figure| figure.what.chars().count()).max().unwrap_or_default();
        write!(f, "{:width$} {:>14}", "", "1 thread")?;
        if *threads > 1 {
            write!(f, " {:>14}", format!("{threads} threads"))?;
        }
        writeln!(f)?;
        for figure in figures {
            write!(f, "{:width$} {:>14}", figure.what, shown(figure.one_thread, figure.unit))?;
            if *threads > 1 {
                write!(f, " {:>14}", shown(figure.all_threads, figure.unit))?;
            }
            writeln!(f)?;
        }
        if !figures.iter().any(|figure| figure.name == "bf16") {
            writeln!(f, "This set multiplies no bf16: such weights are widened and run at the fp32 rate.")?;
        }
        Ok(())
    }
}

/// In the unit that people compare: 10^9 a second.
fn shown(rate: Rate, unit: &str) -> String {
    let unit = if unit == "B/s" { "GB/s" } else { "GOP/s" };
    format!("{:.1} {unit}", rate.median / 1e9)
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| "this processor".to_owned(), |(_, name)| name.trim().to_owned())
}
