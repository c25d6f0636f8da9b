//! One rule of the fault script: conditions, an effect, and counters.

use std::time::{Duration, Instant};

/// What kind of thing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteClass {
    /// An operator.
    Operator,
    /// A copy or a fill.
    Memcpy,
    /// Any other task.
    Other,
    /// A synchronisation.
    Sync,
    /// An allocation.
    Malloc,
    /// The begin of a capture.
    Capture,
    /// A replay of a graph as a whole.
    Replay,
}

/// In which life of an operator it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Submitted into a capture.
    Capture,
    /// Run by a replay.
    Replay,
    /// Submitted to a stream, or run by it.
    Eager,
}

/// Whether a rule acts on the call or on the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The call itself.
    Call,
    /// The work, later; it shows at a synchronisation.
    Run,
}

/// Something that happens, and where.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// Its kind.
    pub class: SiteClass,
    /// Its name.
    pub operator: &'a str,
    /// Its device.
    pub device: i32,
    /// Its stream, if it has one.
    pub stream: Option<i32>,
    /// Its phase.
    pub phase: Phase,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Everything.
    Any,
    /// An operator by name.
    Operator(String),
    /// Copies and fills.
    Memcpy,
    /// Synchronisations.
    Sync,
    /// Allocations.
    Malloc,
    /// Begins of captures.
    Capture,
    /// Replays as a whole.
    Replay,
    /// Submissions of any operator.
    Launch,
}

/// How often a rule acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// So many times.
    Count(u64),
    /// Whenever it matches.
    Always,
}

/// What takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// No progress for so long, or until an abort or a reset.
    Hang(Option<Duration>),
    /// So much more time.
    Slow(Duration),
}

/// What comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It fails with a code.
    Code(i32),
    /// It succeeds, and some bits of its output are wrong.
    Corrupt,
    /// The process ends.
    Abort,
    /// The device is lost with a code until it was reset so many times.
    Dead(i32, u32),
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Before.
    pub delay: Option<Delay>,
    /// After.
    pub outcome: Option<Outcome>,
}

impl Effect {
    /// Lets the time pass, unless `cancelled` becomes true.
    pub fn pass_time(&self, poll: Duration, cancelled: impl Fn() -> bool) {
        match self.delay {
            None => {}
            Some(Delay::Slow(time)) => std::thread::sleep(time),
            Some(Delay::Hang(limit)) => {
                let start = Instant::now();
                while !cancelled() && limit.is_none_or(|limit| start.elapsed() < limit) {
                    std::thread::sleep(poll);
                }
            }
        }
    }

    /// The code it fails with.
    pub fn code(&self) -> Option<i32> {
        match self.outcome {
            Some(Outcome::Code(code)) => Some(code),
            _ => None,
        }
    }

    /// The code the device is lost with, and the resets that bring it back.
    pub fn loses_device(&self) -> Option<(i32, u32)> {
        match self.outcome {
            Some(Outcome::Dead(code, resets)) => Some((code, resets)),
            _ => None,
        }
    }

    /// Whether outputs are spoilt.
    pub fn corrupts(&self) -> bool {
        self.outcome == Some(Outcome::Corrupt)
    }

    /// Whether the process ends.
    pub fn aborts(&self) -> bool {
        self.outcome == Some(Outcome::Abort)
    }
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its line in the script.
    pub line: usize,
    /// Its words.
    pub text: String,
    /// Only this device.
    pub device: Option<i32>,
    /// Only this stream.
    pub stream: Option<i32>,
    /// What it is about.
    pub target: Target,
    /// From which match on it acts, counted from 1.
    pub nth: u64,
    /// Not before so long after it was read.
    pub after: Option<Duration>,
    /// Only in this phase.
    pub phase: Option<Phase>,
    /// How often it acts.
    pub times: Times,
    /// On the call or on the work; without a word, what is usual for the target.
    pub at: Option<Moment>,
    /// What it does.
    pub effect: Effect,
    /// When it was read.
    pub since: Instant,
    /// Matches so far.
    pub seen: u64,
    /// Acts so far.
    pub hits: u64,
}

impl Rule {
    /// When it acts.
    pub fn moment(&self) -> Moment {
        self.at.unwrap_or(match self.target {
            Target::Sync | Target::Malloc | Target::Capture | Target::Launch => Moment::Call,
            _ if self.phase == Some(Phase::Capture) => Moment::Call,
            Target::Any | Target::Operator(_) | Target::Memcpy | Target::Replay => Moment::Run,
        })
    }

    /// Whether it is about something.
    pub fn concerns(&self, site: &Site<'_>) -> bool {
        let target = match &self.target {
            Target::Any => true,
            Target::Operator(name) => name == site.operator,
            Target::Memcpy => site.class == SiteClass::Memcpy,
            Target::Sync => site.class == SiteClass::Sync,
            Target::Malloc => site.class == SiteClass::Malloc,
            Target::Capture => site.class == SiteClass::Capture,
            Target::Replay => site.class == SiteClass::Replay,
            Target::Launch => site.class == SiteClass::Operator,
        };
        target
            && self.device.is_none_or(|device| device == site.device)
            && self.stream.is_none_or(|stream| Some(stream) == site.stream)
            && self.phase.is_none_or(|phase| phase == site.phase)
            && self.after.is_none_or(|after| self.since.elapsed() >= after)
    }

    /// Whether the match that was just counted makes it act.
    pub fn fires(&self) -> bool {
        let left = match self.times {
            Times::Always => true,
            Times::Count(times) => self.hits < times,
        };
        left && self.seen >= self.nth
    }
}
