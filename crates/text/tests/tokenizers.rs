//! Tokenizers against the reference ids and texts, and streams of tokens against decoding all at once.

#![allow(clippy::unwrap_used, reason = "a failed look-up is a failed test")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value as Json;
use updraft_text::{
    ChatInput, GgufVocabulary, StreamStart, TextError, TextModel, TextSource, TokenizerSource,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn read(path: &Path) -> Json {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic_at(path, &error));
    serde_json::from_str(&text).unwrap()
}

#[allow(clippy::panic, reason = "says which file")]
fn panic_at(path: &Path, error: &std::io::Error) -> String {
    panic!("{}: {error}", path.display())
}

fn ids(value: &Json) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn model(tokenizer: TokenizerSource) -> TextModel {
    TextModel::new(TextSource { tokenizer, chat_template: None, bos_token: None, eos_token: None }).unwrap()
}

fn hugging_face(name: &str) -> TextModel {
    model(TokenizerSource::HuggingFace { path: fixtures().join("tokenizers").join(name) })
}

fn sets() -> Vec<Json> {
    read(&fixtures().join("tokenizers/tokenizer_cases.json"))["sets"].as_array().unwrap().clone()
}

fn cases_of(name: &str) -> Vec<Json> {
    sets().iter().find(|set| set["tokenizer"] == name).unwrap()["cases"].as_array().unwrap().clone()
}

/// The deltas of a token stream, flushed at the end.
fn stream(model: &TextModel, ids: &[u32], skip_special: bool) -> Vec<String> {
    let mut decoder = model.decoder(skip_special, StreamStart::Text);
    let mut deltas: Vec<String> = ids.iter().map(|&id| decoder.push(id).to_owned()).collect();
    deltas.push(decoder.flush().to_owned());
    deltas
}

#[test]
fn ids_and_texts_equal_the_reference() {
    let sets = sets();
    assert_eq!(sets.len(), 4);
    for set in &sets {
        let name = set["tokenizer"].as_str().unwrap();
        let model = hugging_face(name);
        assert_eq!(model.vocab_size(), set["vocab_size"].as_u64().unwrap() as usize, "{name}");
        for case in set["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let all = ids(&case["ids"]);
            let plain = ids(&case["ids_without_added_specials"]);
            assert_eq!(model.encode(text, true).unwrap(), all, "{name}: {text:?}");
            assert_eq!(model.encode(text, false).unwrap(), plain, "{name}: {text:?}");
            assert_eq!(model.decode(&plain, false).unwrap(), case["decoded"].as_str().unwrap(), "{name}");
            assert_eq!(model.decode(&plain, true).unwrap(), case["decoded_skip_special"].as_str().unwrap());
        }
    }
}

#[test]
fn streams_show_complete_characters_only() {
    let mut prefixes = 0;
    for set in &sets() {
        let name = set["tokenizer"].as_str().unwrap();
        let model = hugging_face(name);
        for case in set["cases"].as_array().unwrap() {
            let Some(expected) = case["decoded_prefixes"].as_array() else { continue };
            let tokens = ids(&case["ids_without_added_specials"]);
            assert_eq!(tokens.len(), expected.len());
            let mut shown = String::new();
            for (at, delta) in stream(&model, &tokens, false).iter().enumerate() {
                shown.push_str(delta);
                assert!(!shown.contains('\u{FFFD}'), "{name}: {shown:?}");
                let Some(expected) = expected.get(at) else { continue };
                let complete = expected.as_str().unwrap().trim_end_matches('\u{FFFD}');
                // A run of byte tokens is held until it ends, so the stream may be behind; it is never ahead or wrong.
                assert!(complete.starts_with(&shown), "{name}: {shown:?} against {complete:?}");
                let is_byte_level = name == "bl512.json";
                assert!(!is_byte_level || shown == complete, "{name}: {shown:?} not {complete:?}");
                prefixes += 1;
            }
            assert_eq!(shown, case["decoded"].as_str().unwrap());
        }
    }
    assert!(prefixes > 500, "{prefixes}");
}

#[test]
fn invalid_runs_of_bytes_decode_as_the_reference_does() {
    let path = fixtures().join("models/llama-untied-sharded/expected.json");
    let expected = read(&path);
    let case = expected["cases"].as_array().unwrap().iter().find(|case| case["name"] == "chat").unwrap();
    let tokens = ids(&case["greedy_ids"]);
    let text = case["completion_text"].as_str().unwrap();
    let model = hugging_face("sp600.json");
    assert_eq!(model.decode(&tokens, true).unwrap(), text);
    assert_eq!(stream(&model, &tokens, true).concat(), text);
}

#[test]
fn chats_of_the_model_fixtures_render_encode_and_decode() {
    let mut chats = 0;
    for entry in std::fs::read_dir(fixtures().join("models")).unwrap() {
        let folder = entry.unwrap().path();
        let config = read(&folder.join("tokenizer_config.json"));
        let Some(template) = config["chat_template"].as_str() else { continue };
        let special = |key: &str| config[key].as_str().map(str::to_owned);
        let model = TextModel::new(TextSource {
            tokenizer: TokenizerSource::HuggingFace { path: folder.join("tokenizer.json") },
            chat_template: Some(template.to_owned()),
            bos_token: special("bos_token"),
            eos_token: special("eos_token"),
        });
        let model = model.unwrap();
        let expected = read(&folder.join("expected.json"));
        for case in expected["cases"].as_array().unwrap().iter().filter(|case| case["name"] == "chat") {
            let messages = case["messages"].as_array().unwrap();
            let input = ChatInput { messages, add_generation_prompt: true, ..ChatInput::default() };
            let text = model.render_chat(&input).unwrap();
            assert_eq!(text, case["prompt_text"].as_str().unwrap(), "{}", folder.display());
            assert_eq!(model.encode(&text, false).unwrap(), ids(&case["prompt_ids"]), "{}", folder.display());
            let completion = model.decode(&ids(&case["greedy_ids"]), true).unwrap();
            assert_eq!(completion, case["completion_text"].as_str().unwrap(), "{}", folder.display());
            chats += 1;
        }
    }
    assert!(chats >= 10, "{chats}");
}

#[test]
fn texts_of_the_embedding_fixtures_encode_with_their_special_tokens() {
    let mut texts = 0;
    for name in ["qwen3-embedding", "bert-cls"] {
        let folder = fixtures().join("models").join(name);
        let model = model(TokenizerSource::HuggingFace { path: folder.join("tokenizer.json") });
        let expected = read(&folder.join("expected.json"));
        for case in expected["cases"].as_array().unwrap().iter().filter(|case| case["text_pair"].is_null()) {
            let text = case["text"].as_str().unwrap();
            assert_eq!(model.encode(text, true).unwrap(), ids(&case["input_ids"]), "{name}: {text:?}");
            texts += 1;
        }
    }
    assert!(texts >= 8, "{texts}");
}

#[test]
fn a_model_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<TextModel>();
    shared::<updraft_text::IncrementalDecoder>();
    shared::<updraft_text::StopChecker>();
}

/// A `tokenizer.json` with byte pair merges, written as the metadata of a GGUF file would have it.
fn as_gguf(name: &str, model: &str) -> GgufVocabulary {
    let file = read(&fixtures().join("tokenizers").join(name));
    let vocab = file["model"]["vocab"].as_object().unwrap();
    let added = file["added_tokens"].as_array().unwrap();
    let size =
        vocab.values().chain(added.iter().map(|token| &token["id"])).map(|id| id.as_u64().unwrap()).max();
    let size = size.unwrap() as usize + 1;
    let (mut tokens, mut types) = (vec![String::new(); size], vec![1; size]);
    for (text, id) in vocab {
        let id = id.as_u64().unwrap() as usize;
        tokens[id].clone_from(text);
        if model == "llama" && text.starts_with("<0x") && text.len() == 6 {
            types[id] = 6;
        }
    }
    for token in added {
        let id = token["id"].as_u64().unwrap() as usize;
        token["content"].as_str().unwrap().clone_into(&mut tokens[id]);
        types[id] = if token["special"].as_bool().unwrap() { 3 } else { 4 };
    }
    let merges: Vec<String> = file["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
    // A SentencePiece model ranks pieces, not pairs: the earlier the merge that makes it, the higher the score.
    let rank_of = |token: &String| merges.iter().position(|merge| merge.replacen(' ', "", 1) == *token);
    let scores = tokens.iter().map(|token| rank_of(token).map_or(0.0, |rank| -(rank as f32))).collect();
    GgufVocabulary { model: model.to_owned(), tokens, types, scores, merges, ..GgufVocabulary::default() }
}

fn merge(value: &Json) -> String {
    match value.as_array() {
        Some(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        None => value.as_str().unwrap().to_owned(),
    }
}

#[test]
fn gguf_byte_pair_equals_the_reference() {
    let vocabulary = GgufVocabulary { pre: Some("qwen2".to_owned()), ..as_gguf("bl512.json", "gpt2") };
    let model = model(TokenizerSource::Vocabulary(vocabulary));
    assert!(model.notes().is_empty(), "{:?}", model.notes());
    for case in cases_of("bl512.json") {
        let text = case["text"].as_str().unwrap();
        let expected = ids(&case["ids_without_added_specials"]);
        assert_eq!(model.encode(text, true).unwrap(), expected, "{text:?}");
        assert_eq!(model.decode(&expected, false).unwrap(), case["decoded"].as_str().unwrap());
        assert_eq!(model.decode(&expected, true).unwrap(), case["decoded_skip_special"].as_str().unwrap());
    }
    assert_eq!(model.token_id("<|im_end|>"), Some(502));
    assert!(model.is_special(502) && !model.is_special(508));
}

#[test]
fn gguf_sentence_piece_equals_the_reference() {
    let vocabulary = GgufVocabulary { bos: Some(1), unknown: Some(0), ..as_gguf("sp600.json", "llama") };
    let model = model(TokenizerSource::Vocabulary(vocabulary));
    for case in cases_of("sp600.json") {
        let text = case["text"].as_str().unwrap();
        let expected = ids(&case["ids_without_added_specials"]);
        assert_eq!(model.encode(text, false).unwrap(), expected, "{text:?}");
        assert_eq!(model.encode(text, true).unwrap(), ids(&case["ids"]), "{text:?}");
        assert_eq!(model.decode(&expected, false).unwrap(), case["decoded"].as_str().unwrap());
    }
}

#[test]
fn gguf_metadata_decides_on_added_tokens_and_spaces() {
    let base =
        GgufVocabulary { bos: Some(1), eos: Some(2), unknown: Some(0), ..as_gguf("sp600.json", "llama") };
    let encode = |vocabulary: GgufVocabulary| {
        let model = model(TokenizerSource::Vocabulary(vocabulary));
        model.encode("Hello", true).unwrap()
    };
    let both = encode(GgufVocabulary { add_eos: Some(true), ..base.clone() });
    assert_eq!((both.first(), both.last()), (Some(&1), Some(&2)));
    let bare = encode(GgufVocabulary { add_bos: Some(false), add_space_prefix: Some(false), ..base.clone() });
    assert_ne!(bare.first(), Some(&1));
    assert_ne!(bare, both[1..both.len() - 1]);
}

#[test]
fn unsound_vocabularies_are_refused() {
    let base = as_gguf("sp600.json", "llama");
    let cases = [
        (GgufVocabulary { model: "t5".to_owned(), ..base.clone() }, "t5"),
        (GgufVocabulary { scores: vec![0.0], ..base.clone() }, "1 scores"),
        (GgufVocabulary { types: vec![1], ..base.clone() }, "1 token types"),
        (GgufVocabulary { bos: Some(5000), ..base.clone() }, "5000"),
        (
            GgufVocabulary { tokens: Vec::new(), ..GgufVocabulary { model: "gpt2".into(), ..base.clone() } },
            "no tokens",
        ),
        (GgufVocabulary { merges: vec!["ab".to_owned()], model: "gpt2".into(), ..base }, "merge 0"),
    ];
    for (vocabulary, word) in cases {
        let tokenizer = TokenizerSource::Vocabulary(vocabulary);
        let source = TextSource { tokenizer, chat_template: None, bos_token: None, eos_token: None };
        let error = TextModel::new(source).err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
    let path = fixtures().join("tokenizers/tokenizer_cases.json");
    let tokenizer = TokenizerSource::HuggingFace { path };
    let source = TextSource { tokenizer, chat_template: None, bos_token: None, eos_token: None };
    assert!(matches!(TextModel::new(source).err().unwrap(), TextError::TokenizerFile { .. }));
}

#[test]
fn tokens_have_exact_bytes() {
    let model = hugging_face("bl512.json");
    let tokens = model.encode("今天 x", false).unwrap();
    let bytes: Vec<u8> = tokens.iter().flat_map(|&id| model.token_bytes(id)).collect();
    assert_eq!(bytes, "今天 x".as_bytes());
    assert!(tokens.iter().any(|&id| model.token_text(id).unwrap().contains('\u{FFFD}')));
    assert_eq!(model.token_text(502).unwrap(), "<|im_end|>");
    assert_eq!((model.token_text(600), model.token_bytes(600)), (None, Vec::new()));
    assert!(matches!(model.decode(&[1, 600], true), Err(TextError::UnknownToken { id: 600, vocab: 512 })));
    let spaced = hugging_face("sp600.json");
    let words = spaced.bad_word_ids("the").unwrap();
    assert_eq!(words[0], spaced.encode("the", false).unwrap());
    let words = model.bad_word_ids("the").unwrap();
    assert!(words.iter().all(|word| ["the", " the"].contains(&model.decode(word, false).unwrap().as_str())));
}

#[test]
fn long_texts_are_refused_before_and_after_encoding() {
    let model = hugging_face("bl512.json");
    let text = "a b ".repeat(100);
    let count = model.encode(&text, false).unwrap().len();
    assert_eq!(model.encode_within(&text, false, count).unwrap().len(), count);
    let error = model.encode_within(&text, false, count - 1).unwrap_err();
    assert!(matches!(error, TextError::TooManyTokens { tokens, .. } if tokens == count));
    let error = model.encode_within(&"a".repeat(1_000_000), false, 100).unwrap_err();
    assert!(matches!(error, TextError::TooLong { bytes: 1_000_000, limit: 100 }));
}

#[test]
fn a_line_feed_is_given_out_at_once() {
    let model = hugging_face("sp600.json");
    let tokens = model.encode("a\nb", false).unwrap();
    let deltas = stream(&model, &tokens, true);
    assert_eq!(deltas, ["a", "\n", "b", ""]);
}

#[test]
fn a_continuation_keeps_its_leading_space() {
    let model = hugging_face("sp600.json");
    let tokens = model.encode("Hello", false).unwrap();
    let text = |start| {
        let mut decoder = model.decoder(true, start);
        tokens.iter().map(|&id| decoder.push(id).to_owned()).collect::<String>()
    };
    assert_eq!((text(StreamStart::Text), text(StreamStart::Continuation)), ("Hello".into(), " Hello".into()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn deltas_add_up_to_the_whole(
        name in prop::sample::select(vec!["bl512.json", "sp600.json", "wp600.json", "uni600.json"]),
        tokens in prop::collection::vec(0_u32..495, 0..60),
        skip: bool,
    ) {
        thread_local! {
            static MODELS: Vec<(&'static str, TextModel)> =
                ["bl512.json", "sp600.json", "wp600.json", "uni600.json"].map(|n| (n, hugging_face(n))).into();
        }
        MODELS.with(|models| {
            let model = &models.iter().find(|(known, _)| *known == name).unwrap().1;
            let whole = model.decode(&tokens, skip).unwrap();
            prop_assert_eq!(stream(model, &tokens, skip).concat(), whole);
            Ok(())
        })?;
    }

    #[test]
    fn decoding_equals_that_of_the_tokenizers_crate(
        at in 0_usize..4,
        tokens in prop::collection::vec(0_u32..495, 0..60),
        skip: bool,
    ) {
        const NAMES: [&str; 4] = ["bl512.json", "sp600.json", "wp600.json", "uni600.json"];
        thread_local! {
            static PAIRS: Vec<(TextModel, tokenizers::Tokenizer)> = NAMES.map(|name| {
                let path = fixtures().join("tokenizers").join(name);
                (hugging_face(name), tokenizers::Tokenizer::from_file(path).unwrap())
            }).into();
        }
        // A line feed that is a byte token is given out at once, before the rest of its run is known.
        let is_line_feed = |id: &u32| NAMES[at] == "sp600.json" && *id == 13;
        let tokens: Vec<u32> = tokens.into_iter().filter(|id| !is_line_feed(id)).collect();
        PAIRS.with(|pairs| {
            let (model, reference) = &pairs[at];
            prop_assert_eq!(model.decode(&tokens, skip).unwrap(), reference.decode(&tokens, skip).unwrap());
            Ok(())
        })?;
    }

    #[test]
    fn any_text_survives_byte_level_and_byte_fallback(text in "\\PC{0,40}") {
        thread_local! {
            static MODELS: [TextModel; 2] = {
                let qwen = Some("smollm".to_owned());
                [
                    model(TokenizerSource::Vocabulary(GgufVocabulary { pre: qwen, ..as_gguf("bl512.json", "gpt2") })),
                    model(TokenizerSource::Vocabulary(as_gguf("sp600.json", "llama"))),
                ]
            };
        }
        prop_assume!(!text.contains('\u{2581}'));
        MODELS.with(|models| {
            for model in models {
                let tokens = model.encode(&text, false).unwrap();
                prop_assert_eq!(model.decode(&tokens, false).unwrap(), text.clone());
            }
            Ok(())
        })?;
    }
}
