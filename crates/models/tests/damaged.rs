//! Folders that are incomplete, stale or of another kind: each is refused by name, and none makes it panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

#[path = "support/temp_dir.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several tests")]
mod temp_dir;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use temp_dir::TempDir;
use updraft_core::units::Tokens;
use updraft_models::{Checkpoint, OpenOptions};

const SINGLE: &str = "qwen3-bf16";
const SHARDED: &str = "llama-untied-sharded";
const QUERY_0: &str = "model.layers.0.self_attn.q_proj.weight";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models").join(name)
}

/// A copy of a fixture, without its expected results.
fn copy(name: &str) -> TempDir {
    let folder = TempDir::new(name);
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_string_lossy().starts_with("expected") {
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    folder
}

fn refusal(path: &Path) -> String {
    Checkpoint::open(path, &OpenOptions::default()).map(|_| ()).unwrap_err().to_string()
}

/// Damages a copy and expects a refusal that has all the parts.
fn refused(name: &str, damage: impl FnOnce(&Path), parts: &[&str]) {
    let folder = copy(name);
    damage(folder.path());
    let message = refusal(folder.path());
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    edit(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

fn edit_config(folder: &Path, key: &str, value: Value) {
    edit_json(&folder.join("config.json"), |config| config[key] = value);
}

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn edit_tensors(path: &Path, edit: impl FnOnce(&mut Tensors)) {
    let bytes = std::fs::read(path).unwrap();
    let mut tensors: Tensors = safetensors::SafeTensors::deserialize(&bytes)
        .unwrap()
        .iter()
        .map(|(name, view)| (name.to_owned(), (view.dtype(), view.shape().to_vec(), view.data().to_vec())))
        .collect();
    edit(&mut tensors);
    let views: BTreeMap<_, _> = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()))
        .collect();
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Rewrites the header of a safetensors file, whatever it says afterwards.
fn edit_header(path: &Path, edit: impl FnOnce(&mut Value)) {
    let bytes = std::fs::read(path).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    edit(&mut header);
    let header = header.to_string();
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(&bytes[8 + len..]);
    std::fs::write(path, out).unwrap();
}

fn cut(path: &Path, keep: usize) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..keep.min(bytes.len())]).unwrap();
}

#[test]
fn shards_and_their_index() {
    let shard = "model-00002-of-00003.safetensors";
    let index = "model.safetensors.index.json";
    refused(
        SHARDED,
        |dir| std::fs::remove_file(dir.join(shard)).unwrap(),
        &[shard, "is missing", index, "layers.0"],
    );
    refused(
        SHARDED,
        |dir| {
            edit_json(&dir.join(index), |index| {
                index["weight_map"]["model.norm.weight"] = json!("model-00001-of-00003.safetensors");
            });
        },
        &[index, "`model.norm.weight`", "model-00001-of-00003.safetensors", "does not hold it"],
    );
    refused(
        SHARDED,
        |dir| {
            edit_json(&dir.join(index), |index| {
                index["weight_map"]["model.norm.weight"] = json!("../other.safetensors");
            });
        },
        &[index, "`../other.safetensors`", "same folder"],
    );
    refused(
        SHARDED,
        |dir| {
            edit_json(&dir.join(index), |index| {
                drop(index["weight_map"].as_object_mut().unwrap().remove("lm_head.weight"));
            });
        },
        &["no tensor `lm_head.weight`", "tie_word_embeddings"],
    );
    refused(SHARDED, |dir| std::fs::write(dir.join(index), "{}").unwrap(), &[index, "weight_map"]);
    refused(
        SHARDED,
        |dir| std::fs::write(dir.join(index), r#"{"weight_map":{}}"#).unwrap(),
        &[index, "names no tensor"],
    );
    refused(
        SHARDED,
        |dir| std::fs::remove_file(dir.join(index)).unwrap(),
        &["model.safetensors", "is missing"],
    );
    refused(SHARDED, |dir| cut(&dir.join(shard), 20_000), &[shard, "cut short", "model.layers."]);
}

#[test]
fn damaged_weight_files() {
    let weights = |dir: &Path| dir.join("model.safetensors");
    let file = "model.safetensors";
    let len = std::fs::metadata(fixture(SINGLE).join(file)).unwrap().len() as usize;
    refused(SINGLE, |dir| cut(&weights(dir), len - 1), &[file, "cut short: tensor `model."]);
    refused(SINGLE, |dir| cut(&weights(dir), 100), &[file, "its header should have"]);
    refused(SINGLE, |dir| cut(&weights(dir), 5), &[file, "5 bytes are too few"]);
    refused(SINGLE, |dir| cut(&weights(dir), 0), &[file, "0 bytes are too few"]);
    refused(
        SINGLE,
        |dir| std::fs::write(weights(dir), vec![b'<'; 64]).unwrap(),
        &[file, "length of a safetensors header"],
    );
    refused(
        SINGLE,
        |dir| std::fs::write(weights(dir), b"\x04\0\0\0\0\0\0\0{]{]").unwrap(),
        &[file, "no JSON object"],
    );
    let append = |dir: &Path| {
        let mut bytes = std::fs::read(weights(dir)).unwrap();
        bytes.push(0);
        std::fs::write(weights(dir), bytes).unwrap();
    };
    refused(SINGLE, append, &[file, "1 bytes follow behind tensor `model."]);
    refused(
        SINGLE,
        |dir| edit_header(&weights(dir), |header| header[QUERY_0]["data_offsets"][0] = json!(0)),
        &[file, QUERY_0, "overlap"],
    );
    refused(
        SINGLE,
        |dir| {
            edit_header(&weights(dir), |header| header[QUERY_0]["shape"] = json!([1_u64 << 40, 1_u64 << 40]));
        },
        &[file, QUERY_0, "cannot have"],
    );
    refused(
        SINGLE,
        |dir| edit_header(&weights(dir), |header| header[QUERY_0]["dtype"] = json!("F7")),
        &[file, QUERY_0, "F7"],
    );
}

#[test]
fn tensors_that_do_not_belong() {
    let weights = |dir: &Path| dir.join("model.safetensors");
    let file = "model.safetensors";
    refused(
        SINGLE,
        |dir| edit_tensors(&weights(dir), |tensors| tensors.get_mut(QUERY_0).unwrap().1.reverse()),
        &[file, QUERY_0, "has shape [96, 128]", "makes it [128, 96]"],
    );
    refused(
        SINGLE,
        |dir| {
            edit_tensors(&weights(dir), |tensors| {
                let tensor = tensors.get_mut(QUERY_0).unwrap();
                *tensor = (Dtype::F64, tensor.1.clone(), vec![0; tensor.2.len() * 4]);
            });
        },
        &[file, QUERY_0, "stored as F64", "F32, F16, BF16"],
    );
    let removed = "model.layers.2.self_attn.k_norm.weight";
    refused(
        SINGLE,
        |dir| edit_tensors(&weights(dir), |tensors| drop(tensors.remove(removed))),
        &[file, removed, "has no tensor"],
    );
    // A stale configuration: of a shorter, a longer, a wider model, or of another family.
    refused(
        SINGLE,
        |dir| edit_config(dir, "num_hidden_layers", json!(3)),
        &[file, "`model.layers.3.", "3 layers"],
    );
    refused(
        SINGLE,
        |dir| edit_config(dir, "num_hidden_layers", json!(4000)),
        &[file, "`model.layers.3999.", "4000 layers"],
    );
    refused(SINGLE, |dir| edit_config(dir, "hidden_size", json!(128)), &[file, "[512, 96]", "[512, 128]"]);
    refused(
        SINGLE,
        |dir| edit_config(dir, "vocab_size", json!(600)),
        &[file, "`model.embed_tokens.weight`", "[600, 96]"],
    );
    refused(
        SINGLE,
        |dir| edit_config(dir, "architectures", json!(["LlamaForCausalLM"])),
        &[file, "k_norm.weight", "a llama model of 4 layers does not have"],
    );
    let becomes_qwen3 = |dir: &Path| {
        edit_config(dir, "architectures", json!(["Qwen3ForCausalLM"]));
        edit_config(dir, "head_dim", json!(16));
    };
    refused("qwen2-bias", becomes_qwen3, &[file, "q_norm.weight"]);
}

#[test]
fn vocabularies_larger_than_the_embedding() {
    let shrink = |dir: &Path, rows: usize| {
        edit_config(dir, "vocab_size", json!(rows));
        edit_tensors(&dir.join("model.safetensors"), |tensors| {
            let (_, shape, data) = tensors.get_mut("model.embed_tokens.weight").unwrap();
            data.truncate(data.len() / shape[0] * rows);
            shape[0] = rows;
        });
    };
    let parts = ["tokenizer.json", "model.safetensors", "`model.embed_tokens.weight`"];
    // In the middle of the vocabulary, and among the added tokens behind it.
    refused(SINGLE, |dir| shrink(dir, 300), &[&parts[..], &["only 300 rows"]].concat());
    refused(SINGLE, |dir| shrink(dir, 501), &[&parts[..], &["only 501 rows"]].concat());
    let add = |dir: &Path, content: &str| {
        edit_json(&dir.join("tokenizer.json"), |tokenizer| {
            tokenizer["added_tokens"].as_array_mut().unwrap().push(json!({
                "id": 512, "content": content, "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }));
        });
    };
    refused("gemma3-text", |dir| add(dir, "<extra>"), &["\"<extra>\" with id 512", "only 512 rows"]);
    // Gemma's text-only models share a tokenizer with larger ones, which have one more token.
    let shared = copy("gemma3-text");
    add(shared.path(), "<image_soft_token>");
    assert!(Checkpoint::open(shared.path(), &OpenOptions::default()).is_ok());
}

#[test]
fn folders_of_another_kind() {
    let remove = |name: &'static str| move |dir: &Path| std::fs::remove_file(dir.join(name)).unwrap();
    refused(SINGLE, remove("config.json"), &["config.json", "is missing"]);
    refused(SINGLE, remove("tokenizer.json"), &["tokenizer.json", "is missing"]);
    refused(SINGLE, remove("model.safetensors"), &["model.safetensors", "is missing", "index.json"]);
    refused(
        SINGLE,
        |dir| std::fs::rename(dir.join("model.safetensors"), dir.join("w.gguf")).unwrap(),
        &["`w.gguf`"],
    );
    refused(
        SINGLE,
        |dir| std::fs::rename(dir.join("model.safetensors"), dir.join("w.bin")).unwrap(),
        &["pickle"],
    );
    refused(
        SINGLE,
        |dir| std::fs::write(dir.join("config.json"), "{").unwrap(),
        &["config.json", "cannot be understood"],
    );
    refused(
        SINGLE,
        |dir| std::fs::write(dir.join("tokenizer.json"), "{}").unwrap(),
        &["tokenizer.json", "model"],
    );
    for (name, parts) in [
        ("mixtral", &["config.json", "MixtralForCausalLM", "known are LlamaForCausalLM"][..]),
        ("deepseek-v3", &["config.json", "DeepseekV3ForCausalLM"]),
        ("bert-cls", &["config.json", "BertModel"]),
        ("qwen3-w8a8-static", &["model.safetensors", "msmodelslim"]),
    ] {
        let message = refusal(&fixture(name));
        assert!(parts.iter().all(|part| message.contains(part)), "{name}: {message}");
    }
}

#[test]
fn paths_that_lead_nowhere() {
    let message = refusal(Path::new("/nowhere/at/all"));
    assert!(message.contains("`/nowhere/at/all` does not exist") && message.contains("hub id"), "{message}");
    let message = refusal(&fixture(SINGLE).join("model.safetensors"));
    assert!(message.contains("give the folder that it lies in"), "{message}");
    let folder = TempDir::new("other");
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "hello").unwrap();
    assert!(refusal(&text).contains("neither a folder nor a GGUF file"));
    assert!(refusal(folder.path()).contains("config.json` is missing"));
}

#[test]
fn a_context_beyond_the_model_is_refused() {
    let options = OpenOptions { max_model_len: Some(Tokens(2048)), ..OpenOptions::default() };
    let message = Checkpoint::open(&fixture(SINGLE), &options).map(|_| ()).unwrap_err().to_string();
    assert!(
        message.contains("2048") && message.contains("1024") && message.contains("config.json"),
        "{message}"
    );
}
