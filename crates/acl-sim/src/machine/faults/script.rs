//! The language of the fault script: one rule a line, or between semicolons.
//!
//! Always holds: a script is taken whole or refused with the line that is wrong.

use std::time::{Duration, Instant};

use super::rule::{Delay, Effect, Moment, Outcome, Phase, Rule, Target, Times};
use crate::machine::codes;
use crate::machine::device::NEVER;

/// One entry of a script.
#[derive(Debug, Clone)]
pub enum Line {
    /// A rule.
    Rule(Box<Rule>),
    /// New limits for one device, or all.
    Budget {
        /// Only this device.
        device: Option<i32>,
        /// Bytes.
        memory: Option<u64>,
        /// Streams.
        streams: Option<u64>,
        /// Events.
        events: Option<u64>,
    },
    /// Drops all rules.
    Clear,
}

/// What is wrong with a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// A word that means nothing.
    #[error(
        "line {line}: `{word}` is unknown; conditions are device, stream, operator, nth, after_ms, phase, times, \
         at; effects are code, hang, slow, corrupt, abort, dead"
    )]
    Unknown {
        /// Where.
        line: usize,
        /// Which.
        word: String,
    },
    /// A value that does not fit its word.
    #[error("line {line}: `{value}` is no value for `{word}`; {expected} is expected")]
    Value {
        /// Where.
        line: usize,
        /// Whose.
        word: String,
        /// What was written.
        value: String,
        /// What could be.
        expected: &'static str,
    },
    /// A word that stands twice, or beside one that excludes it.
    #[error("line {line}: `{word}` says what another word of the line says already; keep one")]
    Twice {
        /// Where.
        line: usize,
        /// Which.
        word: String,
    },
    /// A rule that does nothing.
    #[error("line {line}: the rule has no effect; add one of code=, hang, slow=, corrupt, abort, dead")]
    NoEffect {
        /// Where.
        line: usize,
    },
    /// A rule that is about nothing.
    #[error("line {line}: the rule has no target; add operator=NAME, or operator=any")]
    NoTarget {
        /// Where.
        line: usize,
    },
    /// More rules than are kept.
    #[error("line {line}: more than {limit} rules; clear some")]
    TooMany {
        /// Where.
        line: usize,
        /// How many are kept.
        limit: usize,
    },
}

/// Reads a script.
pub fn parse(text: &str) -> Result<Vec<Line>, ScriptError> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        for entry in line.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            lines.push(entry_of(index + 1, entry)?);
        }
    }
    Ok(lines)
}

fn entry_of(line: usize, text: &str) -> Result<Line, ScriptError> {
    let mut words = text.split_whitespace().peekable();
    match words.peek() {
        Some(&"clear") => Ok(Line::Clear),
        Some(&"budget") => {
            words.next();
            budget(line, words)
        }
        _ => Reader { line }.rule(text, words),
    }
}

fn budget<'a>(line: usize, words: impl Iterator<Item = &'a str>) -> Result<Line, ScriptError> {
    let reader = Reader { line };
    let (mut device, mut memory, mut streams, mut events) = (None, None, None, None);
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "device" => device = Some(reader.number(name, value)?),
            "memory" => memory = Some(reader.number(name, value)?),
            "streams" => streams = Some(reader.number(name, value)?),
            "events" => events = Some(reader.number(name, value)?),
            _ => return Err(ScriptError::Unknown { line, word: name.into() }),
        }
    }
    Ok(Line::Budget { device, memory, streams, events })
}

struct Reader {
    line: usize,
}

impl Reader {
    fn number<T: std::str::FromStr>(&self, word: &str, value: &str) -> Result<T, ScriptError> {
        value.parse().map_err(|_| self.value(word, value, "a number"))
    }

    fn value(&self, word: &str, value: &str, expected: &'static str) -> ScriptError {
        ScriptError::Value { line: self.line, word: word.into(), value: value.into(), expected }
    }

    fn once<T>(&self, slot: &mut Option<T>, word: &str, value: T) -> Result<(), ScriptError> {
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(ScriptError::Twice { line: self.line, word: word.into() }),
        }
    }

    fn code(&self, value: &str) -> Result<i32, ScriptError> {
        let code = self.number("code", value)?;
        match codes::row(code) {
            Some(_) if code != codes::SUCCESS => Ok(code),
            _ => Err(self.value("code", value, "an error code of the table in errors.tsv")),
        }
    }

    fn target(&self, value: &str) -> Result<Target, ScriptError> {
        Ok(match value {
            "" => {
                return Err(self.value(
                    "operator",
                    value,
                    "a name, or any, memcpy, sync, malloc, capture, replay, launch",
                ));
            }
            "any" => Target::Any,
            "memcpy" => Target::Memcpy,
            "sync" => Target::Sync,
            "malloc" => Target::Malloc,
            "capture" => Target::Capture,
            "replay" => Target::Replay,
            "launch" => Target::Launch,
            name => Target::Operator(name.into()),
        })
    }

    fn rule<'a>(&self, text: &str, words: impl Iterator<Item = &'a str>) -> Result<Line, ScriptError> {
        let (mut device, mut stream, mut target, mut nth) = (None, None, None, None);
        let (mut after, mut phase, mut times, mut at) = (None, None, None, None);
        let (mut code, mut delay, mut special, mut dead) = (None, None, None, None);
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "device" => self.once(&mut device, name, self.number(name, value)?)?,
                "stream" => self.once(&mut stream, name, self.number(name, value)?)?,
                "operator" => self.once(&mut target, name, self.target(value)?)?,
                "nth" => self.once(&mut nth, name, self.number(name, value)?)?,
                "after_ms" => {
                    self.once(&mut after, name, Duration::from_millis(self.number(name, value)?))?;
                }
                "phase" => {
                    let value = match value {
                        "capture" => Phase::Capture,
                        "replay" => Phase::Replay,
                        "eager" => Phase::Eager,
                        _ => return Err(self.value(name, value, "capture, replay or eager")),
                    };
                    self.once(&mut phase, name, value)?;
                }
                "times" if value == "always" => self.once(&mut times, name, Times::Always)?,
                "times" => self.once(&mut times, name, Times::Count(self.number(name, value)?))?,
                "always" => self.once(&mut times, name, Times::Always)?,
                "at" => {
                    let value = match value {
                        "call" => Moment::Call,
                        "sync" => Moment::Run,
                        _ => return Err(self.value(name, value, "call or sync")),
                    };
                    self.once(&mut at, name, value)?;
                }
                "code" => self.once(&mut code, name, self.code(value)?)?,
                "hang" => {
                    let limit = if value.is_empty() {
                        None
                    } else {
                        Some(Duration::from_millis(self.number(name, value)?))
                    };
                    self.once(&mut delay, name, Delay::Hang(limit))?;
                }
                "slow" => self.once(
                    &mut delay,
                    name,
                    Delay::Slow(Duration::from_micros(self.number(name, value)?)),
                )?,
                "corrupt" => self.once(&mut special, name, Outcome::Corrupt)?,
                "abort" => self.once(&mut special, name, Outcome::Abort)?,
                "dead" => {
                    let resets =
                        if matches!(value, "" | "always") { NEVER } else { self.number(name, value)? };
                    self.once(&mut dead, name, resets)?;
                }
                _ => return Err(ScriptError::Unknown { line: self.line, word: name.into() }),
            }
        }
        let outcome = match (special, dead, code) {
            (None, Some(resets), code) => Some(Outcome::Dead(code.unwrap_or(codes::DRV_INTERNAL), resets)),
            (None, None, Some(code)) => Some(Outcome::Code(code)),
            (special, None, None) => special,
            _ => {
                return Err(ScriptError::Twice {
                    line: self.line,
                    word: "code, corrupt, abort or dead".into(),
                });
            }
        };
        if outcome.is_none() && delay.is_none() {
            return Err(ScriptError::NoEffect { line: self.line });
        }
        let Some(target) = target else { return Err(ScriptError::NoTarget { line: self.line }) };
        Ok(Line::Rule(Box::new(Rule {
            line: self.line,
            text: text.into(),
            device,
            stream,
            target,
            nth: nth.unwrap_or(1),
            after,
            phase,
            times: times.unwrap_or(Times::Count(1)),
            at,
            effect: Effect { delay, outcome },
            since: Instant::now(),
            seen: 0,
            hits: 0,
        })))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]
    use super::super::rule::{Site, SiteClass};
    use super::*;

    fn rule(text: &str) -> Rule {
        match parse(text).expect("script").into_iter().next() {
            Some(Line::Rule(rule)) => *rule,
            other => panic!("{other:?}"),
        }
    }

    fn site(operator: &str) -> Site<'_> {
        Site { class: SiteClass::Operator, operator, device: 0, stream: Some(3), phase: Phase::Eager }
    }

    #[test]
    fn a_rule_acts_from_its_match_on_and_no_oftener_than_it_says() {
        let mut rule = rule("device=0 operator=aclnnMm nth=2 times=2 code=507015");
        let mut acts = Vec::new();
        for _ in 0..5 {
            assert!(rule.concerns(&site("aclnnMm")));
            rule.seen += 1;
            let fires = rule.fires();
            rule.hits += u64::from(fires);
            acts.push(fires);
        }
        assert_eq!(acts, [false, true, true, false, false]);
        assert!(!rule.concerns(&site("aclnnAdd")));
        assert!(!rule.concerns(&Site { device: 1, ..site("aclnnMm") }));
        assert_eq!(rule.moment(), Moment::Run);
    }

    #[test]
    fn effects_combine_when_they_can() {
        let timed = rule("operator=any hang=500 code=507014");
        assert_eq!(timed.effect.delay, Some(Delay::Hang(Some(Duration::from_millis(500)))));
        assert_eq!(timed.effect.code(), Some(507_014));
        let dead = rule("operator=sync dead=2 code=507010");
        assert_eq!(dead.effect.loses_device(), Some((507_010, 2)));
        assert_eq!(dead.moment(), Moment::Call);
        assert_eq!(rule("operator=any dead").effect.loses_device(), Some((507_899, NEVER)));
        assert_eq!(rule("operator=aclnnMm phase=capture code=507015").moment(), Moment::Call);
        assert_eq!(rule("operator=malloc at=sync code=207001").moment(), Moment::Run);
    }

    #[test]
    fn errors_name_their_line() {
        let error = |text: &str| parse(text).expect_err("must be refused");
        assert_eq!(error("# fine\noperator=any cod=1"), ScriptError::Unknown { line: 2, word: "cod".into() });
        assert_eq!(error("operator=any"), ScriptError::NoEffect { line: 1 });
        assert_eq!(error("corrupt"), ScriptError::NoTarget { line: 1 });
        assert!(matches!(error("operator=any code=12"), ScriptError::Value { line: 1, .. }));
        assert!(matches!(error("operator=any nth=x corrupt"), ScriptError::Value { .. }));
        assert!(matches!(error("operator=any corrupt code=507015"), ScriptError::Twice { .. }));
        assert!(matches!(error("operator=any nth=1 nth=2 corrupt"), ScriptError::Twice { .. }));
        assert!(matches!(error("budget memory=1 rooms=2"), ScriptError::Unknown { .. }));
    }

    #[test]
    fn semicolons_and_comments_separate() {
        let lines = parse("operator=any slow=5; budget streams=3 # tight\n\nclear").unwrap();
        assert_eq!(lines.len(), 3);
        assert!(matches!(lines.get(1), Some(Line::Budget { streams: Some(3), memory: None, .. })));
        assert!(matches!(lines.get(2), Some(Line::Clear)));
    }
}
