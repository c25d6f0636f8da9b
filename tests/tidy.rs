//! The house rules that a machine can check, over every text file of the repository.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::path::{Path, PathBuf};

/// Lines a Rust file may have. A longer one has two subjects.
const LINES_MAX: usize = 500;
/// Crates that may hold `unsafe`.
const UNSAFE_CRATES: [&str; 3] = ["crates/kernels/", "crates/devices/", "crates/acl-sim/"];
/// Lines above an `unsafe` block in which its argument must begin.
const SAFETY_DISTANCE_MAX: usize = 12;
/// Files that may start an untracked task, each with its reason beside the call.
const SPAWNING_FILES: [&str; 0] = [];
/// Folders that are not ours to tidy: outputs, and inputs that are kept as they came.
const SKIPPED: [&str; 7] =
    ["target", ".git", ".venv", ".cache", "tests/fixtures", "tests/cases", "benches/results"];
/// Endings of text files.
const TEXTS: [&str; 9] = ["rs", "md", "toml", "py", "sh", "json", "yml", "yaml", "txt"];

/// A broken rule: where, and what to do.
type Finding = String;

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut findings = Vec::new();
    let mut rust_files = 0;
    for path in files(root, root) {
        let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let Ok(text) = std::fs::read_to_string(&path) else {
            findings.push(format!("{name}: is not UTF-8"));
            continue;
        };
        any_text(&name, &text, &mut findings);
        if has_ending(&path, "rs") {
            rust_files += 1;
            rust(&name, &text, &mut findings);
        }
        if has_ending(&path, "md") {
            links(&path, &name, &text, &mut findings);
        }
    }
    assert!(
        rust_files > 20,
        "only {rust_files} Rust files were looked at; is the list of skipped folders right?"
    );
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

fn any_text(name: &str, text: &str, findings: &mut Vec<Finding>) {
    // Written in two halves, so that this file does not find itself.
    let forbidden = [
        (concat!("..", "/shared"), "the repository stands alone"),
        (concat!("/wo", "rk/"), "no path of one machine"),
        (concat!("py", "pi.org"), "registries are reached by the tools' own settings"),
        (concat!("static.cra", "tes.io"), "registries are reached by the tools' own settings"),
        (concat!("FIX", "ME"), "fix it, or say what is missing where users look"),
        (concat!("TO", "DO"), "do it, or say what is missing where users look"),
    ];
    for (number, line) in numbered(text) {
        if line.ends_with([' ', '\t']) {
            findings.push(format!("{name}:{number}: ends with a blank"));
        }
        for (word, reason) in forbidden {
            if line.contains(word) {
                findings.push(format!("{name}:{number}: has {word:?}: {reason}"));
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(format!("{name}: does not end with a line feed"));
    }
}

fn rust(name: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > LINES_MAX {
        findings.push(format!("{name}: has {} lines, at most {LINES_MAX}; split it by subject", lines.len()));
    }
    if !text.starts_with("//!") {
        findings.push(format!(
            "{name}: does not open with //! (what it owns, what holds, what it refuses to know)"
        ));
    }
    // A test owns what it starts: it all ends with the test's runtime.
    let is_test = name.contains("tests/") || name.ends_with("/tests.rs");
    for (number, line) in numbered(text) {
        let code = line.split("//").next().unwrap_or_default();
        if code.contains(concat!("tokio::", "spawn(")) && !is_test && !SPAWNING_FILES.contains(&name) {
            findings.push(format!("{name}:{number}: starts a task nobody owns; use an actor or a JoinSet"));
        }
        if [concat!("uns", "afe {"), concat!("uns", "afe impl"), concat!("uns", "afe fn")]
            .iter()
            .any(|word| code.contains(word))
        {
            if !UNSAFE_CRATES.iter().any(|home| name.starts_with(home)) {
                findings.push(format!("{name}:{number}: unsafe outside of {}", UNSAFE_CRATES.join(", ")));
            }
            let above = &lines[number.saturating_sub(1 + SAFETY_DISTANCE_MAX)..number];
            if !above.iter().any(|line| line.contains("SAFETY:") || line.contains("# Safety")) {
                findings.push(format!("{name}:{number}: unsafe without its argument (// SAFETY: ...)"));
            }
        }
    }
}

/// Relative links of a page must lead somewhere.
fn links(path: &Path, name: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in numbered(text) {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let external = target.contains("://") || target.starts_with("mailto:");
            if !external && !file.is_empty() && !path.with_file_name("").join(file).exists() {
                findings.push(format!("{name}:{number}: links to {file}, which does not exist"));
            }
        }
    }
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn files(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if path.is_dir() {
            found.extend(files(root, &path));
        } else if TEXTS.contains(&ending) || matches!(name.as_str(), "Makefile" | ".ci/run") {
            found.push(path);
        }
    }
    found.sort();
    found
}
