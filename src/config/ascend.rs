//! Settings of Ascend devices that come as tables: `ascend_config` (JSON) or `[ascend]` (TOML) in a
//! configuration file, and everything in `--additional-config`.
//!
//! Always holds: both tables know the same keys, wherever they stand. Refuses to know: which wish wins.

pub mod additional;
pub mod table;

use serde_json::Value;

use super::error::ConfigError;
use super::keys::{Place, Reading};
use super::values::JsonObject;

/// Names of the table in a file and in `--additional-config`.
pub const TABLES: [&str; 2] = ["ascend_config", "ascend"];

/// Whether a key of a file names the table.
#[must_use]
pub fn is_table(key: &str) -> bool {
    TABLES.contains(&key.replace('-', "_").as_str())
}

/// Reads the tables that stand at the top of a file (`behind`: ` in FILE`), each with its name.
pub fn read_tables(tables: &[(String, Value)], behind: &str) -> Result<Reading, ConfigError> {
    let mut reading = Reading::default();
    for (name, value) in tables {
        read_table(&mut reading, name, value, behind)?;
    }
    Ok(reading)
}

/// Reads the value of `--additional-config` (`behind`: ` of --additional-config`).
pub fn read_additional(object: &JsonObject, behind: &str) -> Result<Reading, ConfigError> {
    let mut reading = Reading::default();
    let mut rest = JsonObject::new();
    for (name, value) in object {
        if is_table(name) {
            read_table(&mut reading, name, value, behind)?;
        } else {
            rest.insert(name.clone(), value.clone());
        }
    }
    let place = Place { before: String::new(), behind: behind.to_owned() };
    // A key of the table that stands outside of it is most likely a mistake: say where it belongs.
    let stray = rest.keys().find(|name| {
        let known = |keys: &[super::keys::Key]| {
            keys.iter().any(|key| key.path.split('.').next() == Some(name.as_str()))
        };
        !known(additional::KEYS) && known(table::KEYS)
    });
    if let Some(stray) = stray {
        return Err(ConfigError::Unknown {
            place: format!("{stray}{behind}"),
            nearest: Some(format!("{}.{stray}", TABLES[0])),
        });
    }
    reading.read(additional::KEYS, &rest, &place)?;
    Ok(reading)
}

fn read_table(reading: &mut Reading, name: &str, value: &Value, behind: &str) -> Result<(), ConfigError> {
    match value {
        Value::Null => Ok(()),
        Value::Object(keys) => {
            let place = Place { before: format!("{name}."), behind: behind.to_owned() };
            reading.read(table::KEYS, keys, &place)
        }
        _ => Err(ConfigError::Value {
            place: format!("{name}{behind}"),
            problem: "expected a table of keys, such as { acl_graph_mode = \"FULL_DECODE_ONLY\" }".to_owned(),
        }),
    }
}
