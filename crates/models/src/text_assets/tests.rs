//! The places in which templates, special tokens and defaults may lie.

use std::path::Path;

use super::*;

use crate::temp_dir::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new("text");
    std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn read(files: &[(&str, &str)]) -> TextAssets {
    hf::read(folder(files).path(), vec![2], 100).unwrap()
}

fn template(files: &[(&str, &str)]) -> Option<String> {
    read(files).chat_template
}

#[test]
fn templates_are_found_in_all_places() {
    let in_config = ("tokenizer_config.json", r#"{"chat_template": "config"}"#);
    let in_file = ("chat_template.jinja", "file");
    let in_old_file = ("chat_template.json", r#"{"chat_template": "old"}"#);
    let named = r#"{"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]}"#;
    let unnamed_default = r#"{"chat_template": [{"name": "rag", "template": "rag"}]}"#;
    assert_eq!(template(&[]), None);
    assert_eq!(template(&[in_config]).as_deref(), Some("config"));
    assert_eq!(template(&[in_old_file]).as_deref(), Some("old"));
    assert_eq!(template(&[in_config, in_old_file]).as_deref(), Some("config"));
    assert_eq!(template(&[in_config, in_file]).as_deref(), Some("file"));
    assert_eq!(template(&[("tokenizer_config.json", named)]).as_deref(), Some("plain"));
    assert_eq!(template(&[("tokenizer_config.json", unnamed_default)]).as_deref(), Some("rag"));
    assert_eq!(template(&[("tokenizer_config.json", r#"{"chat_template": []}"#)]), None);
}

#[test]
fn special_tokens_are_texts_or_objects() {
    let assets = read(&[(
        "tokenizer_config.json",
        r#"{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>"}"#,
    )]);
    assert_eq!((assets.bos_token.as_deref(), assets.eos_token.as_deref()), (Some("<s>"), Some("</s>")));
    let older = read(&[
        ("tokenizer_config.json", r#"{"bos_token": null}"#),
        ("special_tokens_map.json", r#"{"bos_token": "[B]", "eos_token": {"content": "[E]"}}"#),
    ]);
    assert_eq!((older.bos_token.as_deref(), older.eos_token.as_deref()), (Some("[B]"), Some("[E]")));
}

#[test]
fn end_tokens_are_the_union_within_the_vocabulary() {
    let one = read(&[("generation_config.json", r#"{"eos_token_id": 7}"#)]);
    assert_eq!(one.eos_token_ids, [2, 7]);
    let several =
        read(&[("generation_config.json", r#"{"eos_token_id": [9, 2, 5, 9, 100], "temperature": 1}"#)]);
    assert_eq!(several.eos_token_ids, [2, 5, 9]);
    assert_eq!(several.generation.temperature, Some(1.0));
}

#[test]
fn refusals_name_file_and_key() {
    let refusal =
        |files: &[(&str, &str)]| hf::read(folder(files).path(), vec![], 10).unwrap_err().to_string();
    let cases = [
        ("tokenizer_config.json", "{", "cannot be understood"),
        ("tokenizer_config.json", "[]", "it holds no object"),
        ("tokenizer_config.json", r#"{"chat_template": 5}"#, "`chat_template`"),
        ("tokenizer_config.json", r#"{"eos_token": 5}"#, "`eos_token`"),
        ("generation_config.json", r#"{"temperature": "hot"}"#, "`temperature`"),
        ("chat_template.json", r#"{"chat_template": [{}]}"#, "`chat_template`"),
    ];
    for (file, content, expected) in cases {
        let message = refusal(&[(file, content)]);
        assert!(message.contains(file) && message.contains(expected), "{message}");
    }
    let empty = TempDir::new("text");
    std::fs::write(empty.path().join("tokenizer.model"), "").unwrap();
    let message = hf::read(empty.path(), vec![], 10).unwrap_err().to_string();
    assert!(
        message.contains("tokenizer.json` is missing") && message.contains("`tokenizer.model` only"),
        "{message}"
    );
    assert!(hf::read(Path::new("/nowhere"), vec![], 10).is_err());
}
