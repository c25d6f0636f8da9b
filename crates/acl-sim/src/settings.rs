//! Everything the environment decides about the simulated machine, read once at first use.
//!
//! Always holds: a value that cannot be read falls back to its default and is remembered in `complaints`,
//! which the first `aclInit` reports. Refuses to know: what the values are used for.

use std::sync::OnceLock;

/// How many devices the machine has.
pub const DEVICES: &str = "ACL_SIM_DEVICES";
/// Name of the chip.
pub const SOC: &str = "ACL_SIM_SOC";
/// Device memory of each device, in bytes.
pub const MEMORY_BYTES: &str = "ACL_SIM_MEMORY_BYTES";
/// Hardware streams of each device.
pub const STREAMS: &str = "ACL_SIM_STREAMS";
/// Events of each device.
pub const EVENTS: &str = "ACL_SIM_EVENTS";
/// Fault script, or `@path` of a file that holds one.
pub const FAULTS: &str = "ACL_SIM_FAULTS";
/// Path of the Unix socket that takes script lines at run time.
pub const CONTROL: &str = "ACL_SIM_CONTROL";
/// The CANN version that is reported.
pub const VERSION: &str = "ACL_SIM_VERSION";
/// Comma list of operators that this installation lacks.
pub const MISSING: &str = "ACL_SIM_MISSING";
/// Comma list of the devices the process may see.
pub const VISIBLE: &str = "ASCEND_RT_VISIBLE_DEVICES";

/// More devices than any real host has.
const DEVICES_MAX: u32 = 64;
/// 2 GiB: room for a small model, and an honest limit for tests.
const DEFAULT_MEMORY: u64 = 2 << 30;
/// What A2 and A3 have.
const DEFAULT_STREAMS: u64 = 1984;
const DEFAULT_EVENTS: u64 = 65536;

/// The machine as configured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Physical ids of the visible devices; the index is the id that the process uses.
    pub devices: Vec<i32>,
    /// Name of the chip.
    pub soc: String,
    /// Bytes of memory a device has.
    pub memory: u64,
    /// Streams a device has.
    pub streams: u64,
    /// Events a device has.
    pub events: u64,
    /// The script itself (already read from its file).
    pub faults: Option<String>,
    /// Socket path.
    pub control: Option<String>,
    /// Reported version.
    pub version: String,
    /// Operators that are not there.
    pub missing: Vec<String>,
    /// What could not be understood.
    pub complaints: Vec<String>,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The settings of this process.
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok()))
}

impl Settings {
    /// Reads the settings through `look`, which stands for the environment.
    pub fn read(look: impl Fn(&str) -> Option<String>) -> Self {
        let mut complaints = Vec::new();
        let mut number = |name: &str, default: u64| match look(name) {
            None => default,
            Some(text) => text.trim().parse().unwrap_or_else(|_| {
                complaints.push(format!("{name}={text} is not a number; {default} is used"));
                default
            }),
        };
        let installed = number(DEVICES, 2).min(u64::from(DEVICES_MAX)) as u32;
        let memory = number(MEMORY_BYTES, DEFAULT_MEMORY);
        let streams = number(STREAMS, DEFAULT_STREAMS);
        let events = number(EVENTS, DEFAULT_EVENTS);
        let devices = visible(installed, look(VISIBLE).as_deref());
        let faults = match look(FAULTS) {
            Some(text) => match text.strip_prefix('@') {
                Some(path) => match std::fs::read_to_string(path) {
                    Ok(text) => Some(text),
                    Err(error) => {
                        complaints.push(format!("{FAULTS}: {path} cannot be read: {error}"));
                        None
                    }
                },
                None => Some(text),
            },
            None => None,
        };
        let missing = look(MISSING).unwrap_or_default();
        let missing = missing.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self {
            devices,
            soc: look(SOC).unwrap_or_else(|| "Ascend910B3".into()),
            memory,
            streams,
            events,
            faults,
            control: look(CONTROL).filter(|path| !path.is_empty()),
            version: look(VERSION).unwrap_or_else(|| "9.1.0".into()),
            missing: missing.map(str::to_owned).collect(),
            complaints,
        }
    }

    /// The version as CANN packs it into one number: 9.1.0 is 90100000.
    pub fn version_number(&self) -> i32 {
        let mut parts = self.version.split(['.', '-']).map(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<i32>().unwrap_or(0).clamp(0, 99)
        });
        let mut next = || parts.next().unwrap_or(0);
        next() * 10_000_000 + next() * 100_000 + next() * 1000
    }

    /// Whether the reported release counts references of `aclInit` instead of refusing the second one.
    pub fn counts_initialisations(&self) -> bool {
        self.version_number() >= 90_000_000
    }
}

/// Applies the visibility list: ascending ids, reading stops at the first entry that is not valid.
fn visible(installed: u32, list: Option<&str>) -> Vec<i32> {
    let all = 0..installed as i32;
    let Some(list) = list else { return all.collect() };
    let mut chosen: Vec<i32> = Vec::new();
    for entry in list.split(',') {
        match entry.trim().parse::<i32>() {
            Ok(id) if all.contains(&id) && chosen.last().is_none_or(|last| *last < id) => chosen.push(id),
            _ => break,
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Settings {
        Settings::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into()))
    }

    #[test]
    fn visibility_stops_at_the_first_invalid_entry() {
        assert_eq!(from(&[(DEVICES, "4")]).devices, [0, 1, 2, 3]);
        assert_eq!(from(&[(DEVICES, "4"), (VISIBLE, "1,3")]).devices, [1, 3]);
        assert_eq!(from(&[(DEVICES, "4"), (VISIBLE, "1,9,2")]).devices, [1]);
        assert_eq!(from(&[(DEVICES, "4"), (VISIBLE, "2,1")]).devices, [2], "the list must be ascending");
        assert!(from(&[(DEVICES, "4"), (VISIBLE, "x")]).devices.is_empty());
    }

    #[test]
    fn versions_become_numbers() {
        assert_eq!(from(&[(VERSION, "9.0.0")]).version_number(), 90_000_000);
        assert_eq!(from(&[(VERSION, "8.5.1")]).version_number(), 80_501_000);
        assert_eq!(from(&[(VERSION, "8.1.RC1")]).version_number(), 80_100_000);
        assert!(!from(&[(VERSION, "8.1.RC1")]).counts_initialisations());
    }

    #[test]
    fn a_bad_number_is_told() {
        let settings = from(&[(STREAMS, "many")]);
        assert_eq!(settings.streams, DEFAULT_STREAMS);
        assert!(settings.complaints.iter().any(|text| text.contains(STREAMS)));
    }
}
