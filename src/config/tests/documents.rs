//! The shipped example and the reference page say what the struct says.

use std::path::PathBuf;

use super::super::options::Options;
use super::super::{command, reference, settings};
use super::{File, read};

/// The shipped example with every commented-out `# key = value` line made active.
fn uncommented(text: &str) -> String {
    let active = |line: &str| {
        let rest = line.strip_prefix("# ")?;
        let (key, _) = rest.split_once(" = ")?;
        key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then(|| rest.to_owned())
    };
    text.lines().map(|line| active(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

#[test]
fn the_example_file_is_complete_and_shows_defaults() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/updraft.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let loaded = read(&format!("--config {}", path.display())).unwrap();
    assert_eq!(loaded.notices, vec![]);

    let mut built = command();
    let options = Options::of(&mut built);
    let mut settings = settings::Settings::default();
    settings.add_file(&path, &options).unwrap();
    let active: Vec<String> = settings.keys().map(str::to_owned).collect();
    let example = settings.apply(command());
    for id in &active {
        let default = |command: &clap::Command| -> Vec<String> {
            let arg = command.get_arguments().find(|arg| arg.get_id() == id.as_str()).unwrap();
            arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect()
        };
        if id != "model" {
            assert_eq!(
                default(&example),
                default(&built),
                "{id} is active with another value than the default"
            );
        }
    }

    let all: toml::Table = toml::from_str(&uncommented(&text)).unwrap();
    for facts in options.iter().filter(|facts| facts.id != "config") {
        assert!(all.contains_key(&facts.id), "{} is missing in {}", facts.id, path.display());
    }
    let file = File::new("all.toml", &uncommented(&text));
    read(&format!("--config {}", file.path())).unwrap();
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(reference::PAGE);
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == reference::page(),
        "{} is stale; write it anew with: {}",
        reference::PAGE,
        reference::REGENERATE
    );
}
