//! Dense fixtures on the Ascend backend, over a real CANN if `ASCEND_HOME_PATH` names one, else over the simulated one:
//! logits are the reference's within the precision of bfloat16, eagerly and from graphs.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use safetensors::SafeTensors;
use serde_json::Value;
use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::step::{SequenceSpan, StepInputs};
use updraft_core::{BlockId, Blocks, SlotId, Tokens};
use updraft_devices::Device;
use updraft_devices::ascend::{AscendDevice, AscendOptions, Compute, Library, SearchPath};
use updraft_models::{Checkpoint, OpenOptions};

/// Share of the largest logit that bfloat16 may be off.
const TOLERANCE: f32 = 0.05;
/// Tokens of the prompt with logits at every position.
const PROMPT: u32 = 7;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn library() -> &'static Arc<Library> {
    static LIBRARY: OnceLock<Arc<Library>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(home) = std::env::var_os("ASCEND_HOME_PATH") {
            let search = SearchPath::from_environment(Some(Path::new(&home)));
            return Library::load(&search).expect("a complete library");
        }
        let program = std::env::current_exe().expect("this program");
        let simulated = program.parent().expect("its folder").join("libacl_sim.so");
        let folder = std::env::temp_dir().join(format!("ascend-fixtures-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libascendcl.so", "libnnopbase.so", "libopapi.so"] {
            let link = folder.join(name);
            std::fs::remove_file(&link).ok();
            std::os::unix::fs::symlink(&simulated, link).expect("a link");
        }
        Library::load(&SearchPath::only(&folder)).expect("a complete library")
    })
}

fn prompt(name: &str) -> Vec<u32> {
    let path = fixtures().join("models").join(name).join("expected.json");
    let expected = std::fs::read_to_string(path).expect("is there");
    let expected: Value = serde_json::from_str(&expected).expect("is JSON");
    let mut cases = expected["cases"].as_array().expect("a list").iter();
    let case = cases.find(|case| case["name"] == "len7").expect("there is such a case");
    let ids = case["prompt_ids"].as_array().expect("a list");
    ids.iter().map(|id| id.as_u64().expect("a number") as u32).collect()
}

fn reference(name: &str) -> Vec<f32> {
    let path = fixtures().join("models").join(name).join("expected.safetensors");
    let bytes = std::fs::read(path).expect("is there");
    let tensors = SafeTensors::deserialize(&bytes).expect("is a safetensors file");
    let logits = tensors.tensor("len7.logits").expect("has the logits");
    let values = logits.data().chunks_exact(4);
    values.map(|four| f32::from_le_bytes(four.try_into().expect("four bytes"))).collect()
}

/// A step over some tokens of the prompt, whose blocks lie at the start of the cache.
fn inputs(prompt: &[u32], start: u32, count: u32) -> StepInputs {
    StepInputs {
        token_ids: prompt[start as usize..(start + count) as usize].to_vec(),
        positions: (start..start + count).collect(),
        slots: (start..start + count).map(SlotId).collect(),
        spans: vec![SequenceSpan {
            row_start: 0,
            row_count: count,
            context: start + count,
            table_start: 0,
            table_len: 1,
        }],
        block_tables: vec![BlockId(0)],
        logit_rows: (0..count).collect(),
    }
}

fn check(what: &str, device: &AscendDevice, reference: &[f32], start: u32, count: u32) {
    let vocab = device.properties().vocab;
    let largest = reference.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    for row in 0..count as usize {
        let expected = &reference[(start as usize + row) * vocab..][..vocab];
        for (token, (ours, theirs)) in device.logits(row).iter().zip(expected).enumerate() {
            let off = (ours - theirs).abs() / largest;
            assert!(off < TOLERANCE, "{what}: row {row}, token {token}: {ours} and not {theirs}");
        }
    }
}

fn check_model(name: &str) {
    let path = fixtures().join("models").join(name);
    let checkpoint = Checkpoint::open(&path, &OpenOptions::default()).expect("the fixture opens");
    let options = AscendOptions {
        ordinal: 0,
        compute: Compute::Bf16,
        blocks: Blocks(4),
        block_size: Tokens(128),
        max_rows: 16,
        max_logit_rows: 16,
        max_sequences: 4,
        max_model_len: 64,
        avoid: Vec::new(),
    };
    let mut device =
        AscendDevice::open(library(), &checkpoint.program, &checkpoint, &options, &|_| ()).expect("a device");
    let (prompt, reference) = (prompt(name), reference(name));
    device.run(&inputs(&prompt, 0, PROMPT)).expect("a step");
    check(&format!("{name} eagerly"), &device, &reference, 0, PROMPT);
    for (kind, rows, start, count) in [
        (GraphKind::Mixed, 8, 0, PROMPT),
        (GraphKind::Piecewise, 8, 2, PROMPT - 2),
        (GraphKind::Decode, 2, PROMPT - 1, 1),
    ] {
        let key = GraphKey { kind, rows };
        device.stream().capture(key).expect("a graph");
        device.stream().replay(key, &inputs(&prompt, start, count)).expect("a replay");
        device.stream().synchronize(Duration::from_secs(60)).expect("a step");
        check(&format!("{name} from {key}"), &device, &reference, start, count);
    }
}

macro_rules! dense {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            check_model($name);
        }
    )*};
}

dense! {
    llama_untied_sharded: "llama-untied-sharded";
    llama3_rope_tied: "llama3-rope-tied";
    mistral_sliding_window: "mistral-swa";
    qwen2_bias: "qwen2-bias";
    qwen3_bfloat16: "qwen3-bf16";
    gemma3_text: "gemma3-text";
}
