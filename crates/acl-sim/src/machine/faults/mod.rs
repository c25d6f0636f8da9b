//! Faults on demand: rules that say what goes wrong, where, and when.
//!
//! Always holds: without rules this costs one load of a flag; every rule counts what it saw and what it did.
//! Refuses to know: how an effect reaches the program, which is the business of whoever asks.

mod rule;
mod script;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub use rule::{Effect, Moment, Phase, Rule, Site, SiteClass};
pub use script::{Line, ScriptError, parse};

use super::refusal::{Answer, Refusal};
use super::table::lock;
use super::{Machine, codes, machine, worker};

/// Rules a script may hold.
pub const RULES_MAX: usize = 256;
/// How often a call that hangs looks up.
const POLL: std::time::Duration = std::time::Duration::from_millis(1);

static RULES: Mutex<Vec<Rule>> = Mutex::new(Vec::new());
static ARMED: AtomicBool = AtomicBool::new(false);
static AT_START: Mutex<Option<ScriptError>> = Mutex::new(None);

/// Whether there are rules at all.
pub fn armed() -> bool {
    ARMED.load(Ordering::Relaxed)
}

/// Reads a script and adds its rules.
pub fn load(machine: &Machine, text: &str) -> Result<usize, ScriptError> {
    let lines = parse(text)?;
    let mut rules = lock(&RULES);
    let count = lines.len();
    for line in lines {
        match line {
            Line::Rule(rule) if rules.len() < RULES_MAX => rules.push(*rule),
            Line::Rule(rule) => return Err(ScriptError::TooMany { line: rule.line, limit: RULES_MAX }),
            Line::Budget { device, memory, streams, events } => {
                let wanted = |id: i32| device.is_none_or(|device| device == id);
                for device in machine.devices().iter().filter(|device| wanted(device.id)) {
                    let budgets =
                        [(&device.memory, memory), (&device.streams, streams), (&device.events, events)];
                    for (budget, limit) in budgets {
                        if let Some(limit) = limit {
                            budget.set_limit(limit);
                        }
                    }
                }
            }
            Line::Clear => rules.clear(),
        }
    }
    ARMED.store(!rules.is_empty(), Ordering::Relaxed);
    Ok(count)
}

/// Reads the script of the environment; what is wrong with it is told by `aclInit`.
pub fn load_at_start(machine: &Machine, text: &str) {
    *lock(&AT_START) = load(machine, text).err();
}

/// What was wrong with the script of the environment.
pub fn script_error() -> Option<ScriptError> {
    lock(&AT_START).clone()
}

/// A line for each rule: what it says, what it saw, what it did.
pub fn describe() -> Vec<String> {
    let rules = lock(&RULES);
    let rules = rules.iter().enumerate();
    rules
        .map(|(index, rule)| format!("rule={index} seen={} hits={} {}", rule.seen, rule.hits, rule.text))
        .collect()
}

fn find(site: &Site<'_>, moment: Moment) -> Option<Effect> {
    let mut rules = lock(&RULES);
    let mut effect = None;
    for rule in rules.iter_mut().filter(|rule| rule.moment() == moment && rule.concerns(site)) {
        rule.seen += 1;
        if effect.is_none() && rule.fires() {
            rule.hits += 1;
            effect = Some(rule.effect.clone());
        }
    }
    drop(rules);
    if let Some(effect) = &effect
        && effect.aborts()
    {
        std::process::abort();
    }
    effect
}

/// What happens to a task that is about to run.
pub fn at_run(site: &Site<'_>) -> Option<Effect> {
    if armed() { find(site, Moment::Run) } else { None }
}

/// What happens to a call: an effect passes its time here, and its code is the answer.
pub fn at_call(site: &Site<'_>) -> Answer {
    if armed() { suffer(site, Moment::Call) } else { Ok(()) }
}

/// For calls that do their work themselves: rules about running concern them too.
pub fn at_call_as_run(site: &Site<'_>) -> Answer {
    if armed() { suffer(site, Moment::Run) } else { Ok(()) }
}

fn suffer(site: &Site<'_>, moment: Moment) -> Answer {
    let Some(effect) = find(site, moment) else { return Ok(()) };
    let device = machine().device(site.device).ok();
    effect.pass_time(POLL, || {
        worker::cancelled() || device.as_ref().is_some_and(|device| device.aborted.load(Ordering::Relaxed))
    });
    if let (Some((code, resets)), Some(device)) = (effect.loses_device(), device) {
        device.lose(code, resets);
        return Refusal::answer(code, format!("device {} was lost at {}", site.device, site.operator));
    }
    match effect.code() {
        Some(code) => {
            let meaning = codes::row(code).map_or("unknown code", |row| row.meaning);
            Refusal::answer(code, format!("{} failed on device {}: {meaning}", site.operator, site.device))
        }
        None => Ok(()),
    }
}
