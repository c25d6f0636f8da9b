//! `--speculative-config` in all its spellings, and what it answers when it cannot be.

use updraft_core::Tokens;
use updraft_core::speculation::{Method, NgramLengths, SpeculationConfig};

use super::super::environment::Environment;
use super::super::speculation::DRAFT_ROWS;
use super::super::{Loaded, load};
use super::{File, problem, read, words};

fn ngram(drafts: u32, min: u32, max: u32) -> SpeculationConfig {
    let method = Method::Ngram(NgramLengths { min, max });
    SpeculationConfig { method, drafts: Tokens(drafts), rows: DRAFT_ROWS }
}

fn speculation(loaded: &Loaded) -> Option<SpeculationConfig> {
    loaded.config.scheduling.speculative_config.clone()
}

#[test]
fn flag_short_flag_single_keys_environment_and_file_say_the_same() {
    let object =
        r#"{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4,"prompt_lookup_min":2}"#;
    for line in [
        format!("m --speculative-config {object}"),
        format!("m --speculative_config={object}"),
        format!("m -sc {object}"),
        "m --speculative-config.method ngram --speculative-config.num_speculative_tokens 4 \
         --speculative-config.prompt_lookup_max 4 --speculative-config.prompt_lookup_min 2"
            .to_owned(),
    ] {
        let loaded = read(&line).unwrap();
        assert_eq!((speculation(&loaded), loaded.notices), (Some(ngram(4, 2, 4)), vec![]), "{line}");
    }
    let environment = Environment::from([("UPDRAFT_SPECULATIVE_CONFIG", object)]);
    assert_eq!(speculation(&load(&words("m"), &environment).unwrap()), Some(ngram(4, 2, 4)));
    let file = File::new(
        "speculation.toml",
        "[speculative-config]\nmethod = \"ngram\"\nnum_speculative_tokens = 2\nprompt_lookup_max = 3\n",
    );
    assert_eq!(speculation(&read(&format!("m --config {}", file.path())).unwrap()), Some(ngram(2, 3, 3)));
    let loaded = read("m").unwrap();
    assert_eq!((speculation(&loaded), loaded.config.scheduling.draft_rows()), (None, Tokens::ZERO));
}

#[test]
fn what_cannot_be_is_one_sentence_that_names_its_place() {
    let message = problem(r#"m -sc {"method":"draft_model","model":"small","num_speculative_tokens":4}"#);
    assert!(message.starts_with("--speculative-config:"), "{message}");
    assert!(message.contains("no method \"draft_model\": the only one is \"ngram\""), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    let file = File::new(
        "unknown.json",
        r#"{"speculative_config": {"method": "ngram", "num_speculative_tokens": 4, "draft_tokens": 1}}"#,
    );
    let message = problem(&format!("m --config {}", file.path()));
    assert!(message.starts_with(&format!("speculative_config in {}", file.path())), "{message}");
    assert!(message.contains("unknown key \"draft_tokens\""), "{message}");
}
