//! The reference page of the configuration, written from the clap definition.
//!
//! `docs/reference/configuration.md` is this text; a test fails when it is stale.

use std::fmt::Write as _;

use clap::Arg;

use super::foreign::{FOREIGN, Outcome};
use super::keys::{Effect, Key};
use super::{ascend, compilation, environment};

/// Where the page lies in the repository.
pub const PAGE: &str = "docs/reference/configuration.md";
/// What writes it anew.
pub const REGENERATE: &str = "cargo run -- config-reference > docs/reference/configuration.md";

const INTRODUCTION: &str = "\
An option can be given as a flag, as an environment variable, or as a key of a file named by `--config` (TOML,
YAML or JSON, told by its ending). Flags win over the environment, the environment over the file. Names are
those of `vllm serve` wherever the thing exists here.

- Flags: `--max-model-len 8k`, `--max-model-len=8k` and `--max_model_len 8k` are the same. A switch is turned
  off by `--no-NAME` or `--NAME=false`. Single keys of a JSON option can be given as `--NAME.key value`.
- File: keys are flat, with dashes or underscores: `max_model_len = 8192`. Unknown keys are errors.
  [`config/updraft.toml`](../../config/updraft.toml) lists all of them. Only the Ascend table is a table, see
  [`config/ascend.toml`](../../config/ascend.toml) and
  [`config/ascend_graph_config.json`](../../config/ascend_graph_config.json).
- Environment: `UPDRAFT_` and the name in capitals: `UPDRAFT_MAX_MODEL_LEN=8k`. An empty variable counts as not
  set. Lists are written `a,b` or `[\"a\", \"b\"]`.
- Numbers: `8k` is 8000, `8K` is 8192; likewise `m`/`M` and `g`/`G`. Sizes may end in `iB`: `4GiB`.
";

const COMPILATION: &str = "\
Options given by themselves win over these keys, and these over those of the next two sections. A key that is not
listed is an error.";
const TABLE: &str = "\
The table may stand at the top of the file of `--config`, or in `--additional-config`. An option given by itself wins
over it.";
const ADDITIONAL: &str = "\
The keys that vllm-ascend has, or had until they were removed. Each takes effect or is answered with one line.";

/// The whole page, in Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = String::from("# Configuration of `updraft serve`\n\n");
    let _ = writeln!(page, "<!-- Generated; do not edit. Written by: {REGENERATE} -->\n");
    page.push_str(INTRODUCTION);

    let mut command = super::command();
    command.build();
    let mut heading = "";
    for arg in command.get_arguments().filter(|arg| arg.get_id() != "help") {
        let group = arg.get_help_heading().unwrap_or("General");
        if group != heading {
            heading = group;
            let _ = writeln!(page, "\n## {heading}\n\n| option | default | meaning |\n| --- | --- | --- |");
        }
        let _ = writeln!(page, "| {} | {} | {} |", spelling(arg), default(arg), meaning(arg));
    }

    for (heading, introduction, keys) in [
        ("Keys of `--compilation-config`", COMPILATION, compilation::KEYS),
        ("Keys of the table `ascend_config`, or `ascend`", TABLE, ascend::table::KEYS),
        ("Keys of `--additional-config`", ADDITIONAL, ascend::additional::KEYS),
    ] {
        keys_section(&mut page, heading, introduction, keys);
    }

    let _ = writeln!(
        page,
        "\n## Environment variables that are no options\n\n| variable | meaning |\n| --- | --- |"
    );
    for (name, meaning) in [
        (environment::CONFIG, "Configuration file, as `--config`."),
        (
            environment::LOG,
            "What is logged: `warn`, `info` (default), `debug`, or a filter such as `updraft=debug`.",
        ),
        (environment::VLLM_API_KEY, "One API key; `UPDRAFT_API_KEY` wins over it."),
        (environment::URL, "Server that `updraft chat` talks to."),
        (environment::CACHE, "Folder in which the scripts keep the demo models."),
    ] {
        let _ = writeln!(page, "| `{name}` | {meaning} |");
    }

    page.push_str(
        "\n## Options of vLLM without a counterpart\n\n\
         They are recognised. Those that would change what clients get are refused; the others are answered with one\n\
         line and the server starts.\n\n| option | what happens | why |\n| --- | --- | --- |\n",
    );
    for known in FOREIGN {
        let outcome = match known.outcome {
            Outcome::Given => "not needed",
            Outcome::Ignored => "ignored",
            Outcome::Refused => "refused",
        };
        let _ = writeln!(page, "| `--{}` | {outcome} | {} |", known.name, cell(known.text));
    }
    page
}

fn keys_section(page: &mut String, heading: &str, introduction: &str, keys: &[Key]) {
    let _ = writeln!(
        page,
        "\n## {heading}\n\n{introduction}\n\n| key | what happens | meaning, or why it has none |\n| --- | --- | --- |"
    );
    for key in keys {
        let outcome = match key.effect {
            Effect::Always => "the case anyway",
            Effect::Never => "ignored, with a line",
            Effect::Part(_) => "no effect, with a line: no served model has it",
            effect if effect.missing_on_the_cpu().is_some() => "takes effect on an NPU",
            _ => "takes effect",
        };
        let _ = writeln!(page, "| `{}` | {outcome} | {} |", key.path, cell(key.text));
    }
}

fn spelling(arg: &Arg) -> String {
    let value =
        arg.get_value_names().unwrap_or_default().first().map(ToString::to_string).unwrap_or_default();
    let Some(long) = arg.get_long() else {
        return format!("`{value}` (positional)");
    };
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let written = if arg.is_require_equals_set() {
        format!("{short}`--{long}`, `--no-{long}`")
    } else {
        format!("{short}`--{long} {}`", value.replace('|', "\\|"))
    };
    match arg.get_all_aliases().unwrap_or_default().as_slice() {
        [] => written,
        aliases => format!("{written} (also `--{}`)", aliases.join("`, `--")),
    }
}

fn default(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let text = values.join(" ");
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| !arg.is_require_equals_set())
        .map(|choice| format!("`{}`", choice.get_name()))
        .collect();
    let choices = if choices.is_empty() { String::new() } else { format!(" One of {}.", choices.join(", ")) };
    format!("{}{choices}", cell(&help))
}

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
