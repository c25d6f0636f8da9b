//! The error codes of the ABI by the names this crate uses, and the table of all of them.
//!
//! Always holds: every code that is ever returned is a row of `errors.tsv`.

use std::collections::HashMap;
use std::sync::OnceLock;

macro_rules! codes {
    ($($name:ident = $code:literal;)*) => {
        $(#[doc = concat!("Code ", stringify!($code), "; its row in `errors.tsv` says what it means.")]
        pub const $name: i32 = $code;)*
        #[cfg(test)]
        const ALL: &[i32] = &[$($code),*];
    };
}

codes! {
    SUCCESS = 0;
    INVALID_PARAM = 100_000;
    UNINITIALIZE = 100_001;
    REPEAT_INITIALIZE = 100_002;
    INVALID_FILE = 100_003;
    REPEAT_FINALIZE = 100_037;
    PARAM_INVALID = 107_000;
    INVALID_DEVICE = 107_001;
    CONTEXT_NULL = 107_002;
    STREAM_CONTEXT = 107_003;
    MODEL_CONTEXT = 107_004;
    EVENT_TIMESTAMP_INVALID = 107_006;
    EVENT_TIMESTAMP_REVERSAL = 107_007;
    FILE_OPEN = 107_009;
    STREAM_SUBSCRIBE = 107_011;
    THREAD_SUBSCRIBE = 107_012;
    INVALID_HANDLE = 107_017;
    INVALID_MALLOC_TYPE = 107_018;
    WAIT_TIMEOUT = 107_019;
    SYSPARAM_NOT_SET = 107_021;
    DEVICE_TASK_ABORT = 107_022;
    STREAM_ABORT = 107_023;
    CAPTURE_DEPENDENCY = 107_024;
    STREAM_UNJOINED = 107_025;
    STREAM_CAPTURED = 107_027;
    EVENT_CAPTURED = 107_028;
    STREAM_NOT_CAPTURED = 107_029;
    CAPTURE_MODE = 107_030;
    CAPTURE_IMPLICIT = 107_031;
    CAPTURE_CONFLICT = 107_032;
    GROUP_STATUS = 107_033;
    GROUP_INTERRUPTED = 107_034;
    CAPTURE_UNMATCHED = 107_036;
    MODEL_RUNNING = 107_037;
    CAPTURE_WRONG_THREAD = 107_038;
    MODEL_UPDATE_FAILED = 107_040;
    BAD_ALLOC = 200_000;
    API_NOT_SUPPORT = 200_001;
    NOT_SUPPORTED = 207_000;
    MEMORY_ALLOCATION = 207_001;
    MEMORY_FREE = 207_002;
    NO_EVENT = 207_007;
    NO_STREAM = 207_008;
    NO_NOTIFY = 207_009;
    DEVICE_OOM = 207_018;
    UPDATE_NOT_SUPPORTED = 207_019;
    TASK_TYPE = 507_009;
    LOST_HEARTBEAT = 507_010;
    MODEL_EXECUTE = 507_011;
    REPORT_TIMEOUT = 507_012;
    AICORE_EXCEPTION = 507_015;
    STREAM_SYNC_TIMEOUT = 507_046;
    EVENT_SYNC_TIMEOUT = 507_047;
    DEVICE_MEM_ERROR = 507_053;
    HBM_ECC_ERROR = 507_054;
    DRV_INTERNAL = 507_899;
    SOCKET_CLOSE = 507_901;
    CAPTURE_INVALIDATED = 507_903;
    HOST_ALREADY_REGISTERED = 507_910;
    HOST_NOT_REGISTERED = 507_911;
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Name of the constant in the public headers.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// Looks a code up.
pub fn row(code: i32) -> Option<Row> {
    static TABLE: OnceLock<HashMap<i32, Row>> = OnceLock::new();
    TABLE.get_or_init(|| rows().collect()).get(&code).copied()
}

fn rows() -> impl Iterator<Item = (i32, Row)> {
    include_str!("../errors.tsv").lines().skip(1).filter_map(|line| {
        let mut fields = line.split('\t');
        let code = fields.next()?.parse().ok()?;
        Some((code, Row { name: fields.next()?, meaning: fields.next()? }))
    })
}

/// The word that opens the recent-error text for a code.
pub fn word(code: i32) -> &'static str {
    match code {
        STREAM_SYNC_TIMEOUT | EVENT_SYNC_TIMEOUT => "EE1002",
        STREAM_CAPTURED | EVENT_CAPTURED | CAPTURE_MODE => "EE1016",
        CAPTURE_IMPLICIT => "EE1017",
        DEVICE_OOM | MEMORY_ALLOCATION => "EL0004",
        161_001..=161_002 | 561_000..=561_999 | 361_001 => "EZ9999",
        _ => "EE9999",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_code_has_a_row() {
        for code in ALL {
            assert!(row(*code).is_some(), "{code} is not in errors.tsv");
        }
        assert!(rows().count() > 200);
    }
}
