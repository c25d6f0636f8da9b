//! CANN's status codes: their names, meanings, and what it takes to go on after each.
//!
//! The table is read once from `codes.tsv`. Codes that say nothing by themselves take the class of whatever the
//! library's recent message names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use updraft_core::recovery::RecoveryClass;

use super::library::Version;

/// Our own time limit at a synchronisation.
pub(super) const STREAM_SYNC_TIMEOUT: i32 = 507_046;
/// Initialised before; older releases say so.
pub(super) const REPEAT_INITIALIZE: i32 = 100_002;
/// A graph that still runs cannot be destroyed.
pub(super) const MODEL_RUNNING: i32 = 107_037;
/// The interface is not there.
pub(super) const API_NOT_SUPPORT: i32 = 200_001;
/// A stream still has work.
pub(super) const STREAM_NOT_COMPLETE: i32 = 507_004;
/// A name that two bundles use for different things.
const SUB_GRAPH_OR_OPERATION: i32 = 107_045;
/// The newest release in which [`SUB_GRAPH_OR_OPERATION`] means a captured sub-graph.
const LAST_SUB_GRAPH_RELEASE: (u32, u32) = (9, 1);

/// What is known about a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) name: Cow<'static, str>,
    pub(super) meaning: Cow<'static, str>,
    pub(super) class: RecoveryClass,
}

/// What a code means in a release.
pub(super) fn lookup(code: i32, version: Option<&Version>) -> Code {
    let newer = version.is_some_and(|version| (version.major, version.minor) > LAST_SUB_GRAPH_RELEASE);
    if code == SUB_GRAPH_OR_OPERATION && newer {
        return Code {
            name: "ACL_ERROR_RT_STREAM_NOT_SUPPORT_OPERA".into(),
            meaning: "the stream does not take this operation".into(),
            class: RecoveryClass::Graph,
        };
    }
    table().get(&code).cloned().unwrap_or(Code {
        name: "ACL_ERROR_UNKNOWN".into(),
        meaning: "a code that is in no table".into(),
        class: RecoveryClass::Unclear,
    })
}

/// The class of a code, with the help of the library's recent message where the code alone does not tell.
pub(super) fn classify(code: &Code, text: &str) -> RecoveryClass {
    match code.class {
        RecoveryClass::Unclear => class_in(text).unwrap_or(RecoveryClass::Process),
        // The replay failed because something in it did; when that is worse than a dead graph, it decides.
        RecoveryClass::GraphDead => class_in(text)
            .filter(|class| *class > RecoveryClass::GraphDead && *class < RecoveryClass::Unclear)
            .unwrap_or(RecoveryClass::GraphDead),
        class => class,
    }
}

/// The class that a message of the library speaks of, by a code or by words.
fn class_in(text: &str) -> Option<RecoveryClass> {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| digits.len() == 6);
    let codes = numbers.filter_map(|digits| digits.parse().ok()).filter_map(|code: i32| table().get(&code));
    let telling = |class: &RecoveryClass| !matches!(class, RecoveryClass::Unclear | RecoveryClass::GraphDead);
    let by_code = codes.map(|code| code.class).find(telling);
    let lower = text.to_lowercase();
    let by_words = || WORDS.iter().find(|(words, _)| lower.contains(words)).map(|(_, class)| *class);
    by_code.or_else(by_words)
}

/// Words in messages, lower case, in the order in which they are looked for.
const WORDS: [(&str, RecoveryClass); 14] = [
    ("suspect remote error", RecoveryClass::Remote),
    ("hccl op retry failed", RecoveryClass::Remote),
    ("suspect device mem error", RecoveryClass::DeviceMemory),
    ("hbm multi-bit ecc error", RecoveryClass::DeviceMemory),
    ("device mem error", RecoveryClass::DeviceMemory),
    ("link error", RecoveryClass::Device),
    ("el0004", RecoveryClass::Memory),
    ("failed to allocate", RecoveryClass::Memory),
    ("ee1002", RecoveryClass::WaitMore),
    ("ee1016", RecoveryClass::Graph),
    ("ee1017", RecoveryClass::Graph),
    ("ei0002", RecoveryClass::Remote),
    ("ei0006", RecoveryClass::Remote),
    ("e30006", RecoveryClass::Environment),
];

fn table() -> &'static BTreeMap<i32, Code> {
    static TABLE: OnceLock<BTreeMap<i32, Code>> = OnceLock::new();
    TABLE.get_or_init(|| include_str!("codes.tsv").lines().skip(1).filter_map(row).collect())
}

fn row(line: &'static str) -> Option<(i32, Code)> {
    let mut columns = line.split('\t');
    let code = columns.next()?.parse().ok()?;
    let (name, meaning) = (columns.next()?.into(), columns.next()?.into());
    Some((code, Code { name, meaning, class: class(columns.next()?)? }))
}

fn class(word: &str) -> Option<RecoveryClass> {
    Some(match word {
        "CALL" => RecoveryClass::Call,
        "ENV" => RecoveryClass::Environment,
        "UNSUPPORTED" => RecoveryClass::Unsupported,
        "MEMORY" => RecoveryClass::Memory,
        "RETRY" => RecoveryClass::Retry,
        "WAITMORE" => RecoveryClass::WaitMore,
        "GRAPH" => RecoveryClass::Graph,
        "GRAPHDEAD" => RecoveryClass::GraphDead,
        "STREAM" => RecoveryClass::Stream,
        "DEVICE" => RecoveryClass::Device,
        "HBM" => RecoveryClass::DeviceMemory,
        "REMOTE" => RecoveryClass::Remote,
        "PROCESS" => RecoveryClass::Process,
        "READMSG" => RecoveryClass::Unclear,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(code: i32, text: &str) -> RecoveryClass {
        classify(&lookup(code, None), text)
    }

    #[test]
    fn every_row_of_the_table_is_understood() {
        let failures = include_str!("codes.tsv").lines().skip(1).filter(|line| !line.ends_with("\tOK"));
        assert_eq!(table().len(), failures.count());
        assert!(table().len() > 200);
    }

    #[test]
    fn codes_have_their_class() {
        assert_eq!(class_of(507_015, ""), RecoveryClass::Stream);
        assert_eq!(class_of(207_018, ""), RecoveryClass::Memory);
        assert_eq!(class_of(507_054, ""), RecoveryClass::DeviceMemory);
        assert_eq!(class_of(507_046, ""), RecoveryClass::WaitMore);
        assert_eq!(class_of(107_025, ""), RecoveryClass::Graph);
    }

    #[test]
    fn a_code_that_says_nothing_takes_the_class_of_the_message() {
        assert_eq!(class_of(507_000, ""), RecoveryClass::Process);
        assert_eq!(
            class_of(507_000, "EZ9999: aicore exception, error code = 507015."),
            RecoveryClass::Stream
        );
        assert_eq!(class_of(507_000, "reason=[HCCL OP retry failed]"), RecoveryClass::Remote);
        assert_eq!(class_of(361_001, "EL0004: out of memory"), RecoveryClass::Memory);
        assert_eq!(class_of(361_001, "task 1507015 failed"), RecoveryClass::Process);
        assert_eq!(class_of(999_999, ""), RecoveryClass::Process);
    }

    #[test]
    fn a_dead_graph_takes_the_class_of_what_killed_it() {
        assert_eq!(class_of(507_011, ""), RecoveryClass::GraphDead);
        assert_eq!(class_of(507_011, "root cause 507053"), RecoveryClass::DeviceMemory);
        assert_eq!(class_of(507_011, "root cause 107000"), RecoveryClass::GraphDead);
    }

    #[test]
    fn a_number_with_two_meanings_is_read_by_release() {
        let version = |major, minor| Version { text: String::new(), major, minor };
        assert!(lookup(107_045, Some(&version(9, 1))).name.contains("SUB_ACLGRAPH"));
        assert!(lookup(107_045, Some(&version(9, 2))).name.contains("NOT_SUPPORT_OPERA"));
    }
}
