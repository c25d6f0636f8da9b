//! Every key of the Ascend tables, of `--additional-config` and of `--compilation-config` takes effect or
//! says why not.

use std::path::PathBuf;

use serde_json::{Value, json};
use updraft_core::graphs::GraphMode;

use super::super::ascend::{additional, table};
use super::super::compilation;
use super::super::device::Target;
use super::super::keys::{Effect, Key, Takes};
use super::super::memory::KvCacheType;
use super::super::platform::Platform;
use super::super::values::ContextLength;
use super::super::{Config, ConfigError, Environment, Level, Loaded, load};
use super::{File, problem, read};

/// Reads `m` with an option that holds this JSON.
fn with(option: &str, value: &Value) -> Result<Loaded, ConfigError> {
    load(&["m".to_owned(), format!("--{option}={value}")], &Environment::default())
}

/// The configuration that one key of `ascend_config` leads to.
#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
fn of_key(key: &str, value: Value) -> Loaded {
    with("additional-config", &json!({"ascend_config": {key: value}})).unwrap()
}

fn lines(loaded: &Loaded, target: Target) -> Vec<(Level, String)> {
    loaded.notices_on(target).map(|notice| (notice.level, notice.text.clone())).collect()
}

fn shipped(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config").join(name).display().to_string()
}

fn check_shipped(config: &Config) {
    assert_eq!(config.platform.mode, Some(GraphMode::FullDecodeOnly));
    assert_eq!(config.platform.max_size, Some(16));
    assert_eq!(config.platform.sizes, None);
    assert_eq!(config.platform.optimiser_level, 2);
    assert_eq!(config.model.max_model_len, Some(ContextLength::Tokens(8192)));
    assert_eq!(config.memory.block_size, Some(128));
    assert_eq!(config.memory.kv_cache_dtype, KvCacheType::Auto);
    assert_eq!(config.model.quantization.as_deref(), Some("ascend"));
}

#[test]
fn both_files_load_as_they_are_in_both_ways() {
    for name in ["ascend_graph_config.json", "ascend.toml"] {
        for option in ["config", "additional-config"] {
            let loaded = read(&format!("m --{option} {}", shipped(name))).unwrap();
            check_shipped(&loaded.config);
            let said = lines(&loaded, Target::Ascend);
            let text = |part: &str| said.iter().filter(|(_, text)| text.contains(part)).count();
            assert_eq!(text("acl_graph_max_seq_len"), 1, "{said:?}");
            assert_eq!(text("torchair_enabled"), 1, "{said:?}");
            assert_eq!(text("--quantization ascend"), 1, "{said:?}");
            let parts: Vec<String> = loaded
                .config
                .platform
                .unanswered
                .iter()
                .map(|key| key.answer("LlamaForCausalLM").text)
                .collect();
            assert!(parts.iter().any(|text| text.contains("eplb_enabled") && text.contains("no experts")));
            assert!(parts.iter().any(|text| text.contains("mla_adaptation") && text.contains("MLA")));
            let (experts, others) = if name.ends_with("json") { (3, 1) } else { (1, 2) };
            assert_eq!(parts.len(), experts + others, "{parts:?}");
        }
    }
}

#[test]
fn on_the_cpu_the_optimisers_keys_say_why_not() {
    let loaded = read(&format!("m --config {}", shipped("ascend_graph_config.json"))).unwrap();
    let said = lines(&loaded, Target::Cpu);
    for key in ["npu_graph_ex_enabled", "npu_graph_ex_optimization_level", "torchair_enabled"] {
        let found = said.iter().filter(|(_, text)| text.contains(&format!(".{key} "))).collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{key}: {said:?}");
        assert!(found[0].1.contains("no effect on the CPU"), "{found:?}");
        assert_eq!(found[0].0, Level::Warning);
    }
    assert!(said.iter().all(|(_, text)| !text.contains('\n')));
}

#[test]
fn the_default_mode_is_the_devices() {
    let platform = read("m").unwrap().config.platform;
    assert_eq!(platform.mode_on(Target::Ascend), GraphMode::FullAndPiecewise);
    assert_eq!(platform.mode_on(Target::Cpu), GraphMode::FullDecodeOnly);
    let eager = read("m --enforce-eager").unwrap();
    assert_eq!(eager.config.platform.mode_on(Target::Ascend), GraphMode::None);
    // What a device does not capture is said for that device.
    let pieces = read("m --compilation-config.cudagraph_mode PIECEWISE").unwrap();
    assert_eq!((lines(&pieces, Target::Cpu).len(), lines(&pieces, Target::Ascend).len()), (1, 0));
    assert_eq!(lines(&eager, Target::Cpu).len(), 0);
}

#[test]
fn graph_modes_go_by_name_or_number() {
    for (value, mode) in [
        (json!("NONE"), GraphMode::None),
        (json!("piecewise"), GraphMode::Piecewise),
        (json!("FULL"), GraphMode::Full),
        (json!("FULL_DECODE_ONLY"), GraphMode::FullDecodeOnly),
        (json!("FULL_AND_PIECEWISE"), GraphMode::FullAndPiecewise),
        (json!(0), GraphMode::None),
        (json!(2), GraphMode::Full),
    ] {
        assert_eq!(of_key("acl_graph_mode", value.clone()).config.platform.mode, Some(mode), "{value}");
        let loaded = with("compilation-config", &json!({"cudagraph_mode": value})).unwrap();
        assert_eq!(loaded.config.platform.mode, Some(mode));
    }
    let error = with("compilation-config", &json!({"cudagraph_mode": "DECODE"})).unwrap_err().to_string();
    for part in ["cudagraph_mode of --compilation-config", "\"DECODE\"", "FULL_DECODE_ONLY"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(with("compilation-config", &json!({"cudagraph_mode": 3})).is_err());
}

#[test]
fn each_key_of_the_table_has_its_effect() {
    let platform = |key: &str, value: Value| of_key(key, value).config.platform;
    assert_eq!(platform("acl_graph_batch_size", json!(24)).max_size, Some(24));
    let loaded = of_key("acl_graph_max_seq_len", json!(4096));
    assert_eq!(loaded.config.model.max_model_len, Some(ContextLength::Tokens(4096)));
    assert!(lines(&loaded, Target::Ascend)[0].1.contains("do not depend on a length"));

    let given = lines(&of_key("acl_graph_capture_stream", json!(true)), Target::Ascend);
    assert_eq!((given.len(), given[0].0), (1, Level::Note));
    let refused = lines(&of_key("acl_graph_capture_stream", json!(false)), Target::Ascend);
    assert_eq!((refused.len(), refused[0].0), (1, Level::Warning));

    assert_eq!(platform("npu_graph_ex_enabled", json!(true)).optimiser_level, 2);
    assert_eq!(platform("npu_graph_ex_enabled", json!(false)).optimiser_level, 0);
    for level in 0..=2 {
        assert_eq!(platform("npu_graph_ex_optimization_level", json!(level)).optimiser_level, level);
    }
    assert!(with("additional-config", &json!({"ascend": {"npu_graph_ex_optimization_level": 3}})).is_err());
    assert_eq!(platform("torchair_enabled", json!(true)).optimiser_level, 2);
    assert_eq!(lines(&of_key("torchair_enabled", json!(false)), Target::Ascend)[0].0, Level::Note);

    for key in ["torchair_mla_adaptation", "eplb_enabled", "eplb_policy", "eplb_update_interval"] {
        let value = if key == "eplb_update_interval" { json!(100) } else { json!(true) };
        assert_eq!(platform(key, value).unanswered.len(), 1, "{key}");
    }
    for (key, count) in [("mla_adaptation", 1), ("sfa_enabled", 1)] {
        let loaded = with("additional-config", &json!({"ascend": {"attention": {key: true}}})).unwrap();
        assert_eq!(loaded.config.platform.unanswered.len(), count);
        let off = with("additional-config", &json!({"ascend": {"attention": {key: false}}})).unwrap();
        assert_eq!(off.config.platform.unanswered, vec![]);
        assert!(lines(&off, Target::Cpu)[0].1.contains("off anyway"));
    }
    assert_eq!(of_key("paged_attention_block_size", json!(256)).config.memory.block_size, Some(256));
    let nested = json!({"ascend": {"attention": {"kv_cache_block_size": 32}}});
    assert_eq!(with("additional-config", &nested).unwrap().config.memory.block_size, Some(32));
    assert_eq!(of_key("kv_cache_dtype", json!("half")).config.memory.kv_cache_dtype, KvCacheType::Float16);
    let loaded = of_key("quantization", json!("ascend"));
    assert_eq!(loaded.config.model.quantization.as_deref(), Some("ascend"));
    assert!(lines(&loaded, Target::Ascend)[0].1.contains("ModelSlim"));
}

#[test]
fn flags_win_over_tables_and_tables_say_so() {
    let file = shipped("ascend_graph_config.json");
    let loaded = read(&format!(
        "m --config {file} --max-model-len 100 --block-size 16 --kv-cache-dtype float16 -q w8a8 \
         --cudagraph-capture-sizes 4 2 4 --max-cudagraph-capture-size 4 --enforce-eager"
    ))
    .unwrap();
    let config = &loaded.config;
    assert_eq!(config.model.max_model_len, Some(ContextLength::Tokens(100)));
    assert_eq!(config.memory.block_size, Some(16));
    assert_eq!(config.memory.kv_cache_dtype, KvCacheType::Float16);
    assert_eq!(config.model.quantization.as_deref(), Some("w8a8"));
    assert_eq!(config.platform.mode, Some(GraphMode::None));
    assert_eq!(config.platform.sizes, Some(vec![2, 4]));
    assert_eq!(config.platform.max_size, Some(4));
    let said = lines(&loaded, Target::Ascend);
    for (key, option) in [
        ("acl_graph_max_seq_len", "--max-model-len"),
        ("paged_attention_block_size", "--block-size"),
        ("kv_cache_dtype", "--kv-cache-dtype"),
        ("quantization", "--quantization"),
        ("acl_graph_batch_size", "--max-cudagraph-capture-size"),
        ("acl_graph_mode", "--enforce-eager"),
    ] {
        let line = format!("ascend_config.{key} in {file} gives way to {option}");
        let about: Vec<_> = said.iter().filter(|(_, text)| text.contains(&format!(".{key} "))).collect();
        assert!(about.len() == 1 && about[0].1 == line, "{line}: {said:?}");
    }
}

#[test]
fn sources_win_in_their_order() {
    let file = File::new("order.toml", "[ascend]\nacl_graph_mode = \"FULL\"\nacl_graph_batch_size = 8\n");
    let line = format!("m --config {}", file.path());
    assert_eq!(read(&line).unwrap().config.platform.mode, Some(GraphMode::Full));
    let line = format!("{line} --additional-config.ascend_config.acl_graph_mode PIECEWISE");
    let loaded = read(&line).unwrap();
    assert_eq!(loaded.config.platform.mode, Some(GraphMode::Piecewise));
    assert_eq!(loaded.config.platform.max_size, Some(8));
    let line = format!("{line} --compilation-config.cudagraph_mode FULL_DECODE_ONLY");
    let loaded = read(&line).unwrap();
    assert_eq!(loaded.config.platform.mode, Some(GraphMode::FullDecodeOnly));
    assert_eq!(lines(&loaded, Target::Ascend).len(), 2, "two gave way");
    // Environment variables are options given by themselves.
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let environment = Environment::from([("UPDRAFT_ENFORCE_EAGER", "true")]);
    let loaded = load(&words, &environment).unwrap();
    assert_eq!(loaded.config.platform.mode, Some(GraphMode::None));
    assert!(lines(&loaded, Target::Ascend).iter().any(|(_, text)| text.ends_with("UPDRAFT_ENFORCE_EAGER")));
}

#[test]
fn compilation_keys_take_effect() {
    let platform = |value: Value| with("compilation-config", &value).unwrap().config.platform;
    let sizes = platform(json!({"cudagraph_capture_sizes": [8, 1, 4, 4], "max_cudagraph_capture_size": 8}));
    assert_eq!((sizes.sizes, sizes.max_size), (Some(vec![1, 4, 8]), Some(8)));
    assert_eq!(platform(json!({"mode": 0})).optimiser_level, 0);
    assert_eq!(platform(json!({"mode": "VLLM_COMPILE"})).optimiser_level, 2);
    assert_eq!(platform(json!({"use_cudagraph": false})).mode, Some(GraphMode::None));
    assert_eq!(platform(json!({"full_cuda_graph": true})).mode, Some(GraphMode::Full));
    assert_eq!(platform(json!({"pass_config": {"fuse_rope_kvcache": false}})).optimiser_level, 1);
    assert_eq!(platform(json!({"cudagraph_mode": null})), Platform::default());
    let line = "m --compilation-config.cudagraph_capture_sizes [1,2] --max-cudagraph-capture-size 4";
    let message = problem(line);
    assert!(message.contains("--max-cudagraph-capture-size 4 is not the largest"), "{message}");
}

#[test]
fn additional_keys_take_effect() {
    let config = |value: Value| with("additional-config", &value).unwrap().config;
    let off = json!({"ascend_compilation_config": {"enable_npugraph_ex": false}});
    assert_eq!(config(off).platform.optimiser_level, 0);
    let rope = json!({"ascend_compilation_config": {"fuse_qknorm_rope": false}});
    assert_eq!(config(rope).platform.optimiser_level, 1);
    let sizes = json!({"torchair_graph_config": {"enabled": true, "graph_batch_sizes": [16, 1]}});
    assert_eq!(config(sizes).platform.sizes, Some(vec![1, 16]));
    let chunk = json!({"ascend_scheduler_config": {"long_prefill_token_threshold": 256}});
    assert_eq!(config(chunk).scheduling.long_prefill_token_threshold, 256);
    let kind = json!({"kv_cache_dtype": "bfloat16"});
    assert_eq!(config(kind).memory.kv_cache_dtype, KvCacheType::Bfloat16);
}

/// A value that a key takes and that asks for something.
fn sample(key: &Key) -> Value {
    match (key.effect, key.takes) {
        (Effect::GraphMode, _) => json!("FULL"),
        (Effect::BlockSize, _) => json!(64),
        (Effect::KvCacheType, _) => json!("float16"),
        (Effect::CompilationMode, _) => json!(3),
        (_, Takes::Switch) => json!(true),
        (_, Takes::Count | Takes::CountOrZero | Takes::Number) => json!(2),
        (_, Takes::Text | Takes::Anything) => json!("x"),
        (_, Takes::Sizes) => json!([1, 2]),
        (_, Takes::Words(words)) => json!(words[0]),
    }
}

fn nested(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, name| json!({name: inner}))
}

/// Whether a configuration differs from one without the key.
fn differs(config: &Config) -> bool {
    let plain = read("m").unwrap().config;
    let values = |config: &Config| {
        let platform = Platform { unanswered: Vec::new(), ..config.platform.clone() };
        let memory = &config.memory;
        let chunk = config.scheduling.long_prefill_token_threshold;
        (
            platform,
            config.model.max_model_len,
            config.model.quantization.clone(),
            memory.block_size,
            memory.kv_cache_dtype,
            chunk,
        )
    };
    values(config) != values(&plain)
}

#[test]
fn no_key_is_silent() {
    let wrapped = |path: &str, value| json!({"ascend_config": nested(path, value)});
    let mut seen = 0;
    for (option, keys, is_table) in [
        ("compilation-config", compilation::KEYS, false),
        ("additional-config", additional::KEYS, false),
        ("additional-config", table::KEYS, true),
    ] {
        for key in keys {
            let value = sample(key);
            let value = if is_table { wrapped(key.path, value) } else { nested(key.path, value) };
            let loaded = with(option, &value).unwrap_or_else(|error| panic!("{}: {error}", key.path));
            let said = lines(&loaded, Target::Ascend).len() + loaded.config.platform.unanswered.len();
            // A switch that asks for the default level changes nothing, and is in force.
            let in_force = matches!(key.effect, Effect::Optimiser | Effect::OptimiserLevel);
            assert!(said > 0 || in_force || differs(&loaded.config), "{} is silent", key.path);
            assert!(said <= 1 || key.effect == Effect::Quantization, "{} says {said} lines", key.path);
            assert_eq!(keys.iter().filter(|other| other.path == key.path).count(), 1, "{}", key.path);
            seen += 1;
        }
    }
    assert!(seen > 150, "only {seen} keys were looked at");
}

#[test]
fn unknown_keys_and_wrong_values_are_refused_with_a_way_out() {
    for (option, value, parts) in [
        (
            "compilation-config",
            json!({"cudagraph_capture_size": [1]}),
            vec!["cudagraph_capture_size of --compilation-config", "did you mean cudagraph_capture_sizes?"],
        ),
        (
            "additional-config",
            json!({"ascend_config": {"acl_graph_modes": "FULL"}}),
            vec!["ascend_config.acl_graph_modes", "did you mean ascend_config.acl_graph_mode?"],
        ),
        (
            "additional-config",
            json!({"acl_graph_mode": "FULL"}),
            vec!["acl_graph_mode of --additional-config", "did you mean ascend_config.acl_graph_mode?"],
        ),
        (
            "additional-config",
            json!({"torchair_graph_config": {"enable": true}}),
            vec!["did you mean torchair_graph_config.enabled?"],
        ),
        ("additional-config", json!({"zzz": 1}), vec!["zzz of --additional-config is not known"]),
        ("additional-config", json!({"ascend_config": true}), vec!["ascend_config", "table of keys"]),
        ("additional-config", json!({"eplb_config": 3}), vec!["eplb_config", "table of keys"]),
        (
            "additional-config",
            json!({"ascend_config": {"eplb_enabled": "perhaps"}}),
            vec!["eplb_enabled", "true or false"],
        ),
        (
            "additional-config",
            json!({"ascend_config": {"acl_graph_batch_size": 0}}),
            vec!["acl_graph_batch_size", "1 or more"],
        ),
        (
            "additional-config",
            json!({"ascend_config": {"paged_attention_block_size": 100}}),
            vec!["paged_attention_block_size", "16, 32, 64, 128, 256"],
        ),
        (
            "additional-config",
            json!({"ascend_config": {"kv_cache_dtype": "fp8"}}),
            vec!["kv_cache_dtype", "auto, float32, bfloat16, float16, int8"],
        ),
        (
            "additional-config",
            json!({"ascend_config": {"paged_attention_block_size": 64}, "ascend":
                   {"attention": {"kv_cache_block_size": 128}}}),
            vec!["paged_attention_block_size", "kv_cache_block_size", "differ"],
        ),
    ] {
        let message = with(option, &value).map(|_| ()).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{value} gave {message:?}, without {part:?}");
        }
        assert!(!message.contains('\n'), "{message:?}");
    }
    let file = File::new("wrong.json", r#"{"ascend_config": {"acl_graph_mod": "FULL"}}"#);
    for option in ["config", "additional-config"] {
        let message = problem(&format!("m --{option} {}", file.path()));
        assert!(message.contains("did you mean ascend_config.acl_graph_mode?"), "{message}");
    }
    let file = File::new("table.toml", "model = \"m\"\nascend = 3\n");
    assert!(problem(&format!("--config {}", file.path())).contains("ascend in"));
    assert!(problem("m --additional-config /no/such.json").contains(".json, .toml or .yaml"));
}

#[test]
fn the_level_is_settled_between_switch_level_and_bound() {
    let level = |value: Value| with("additional-config", &value).unwrap();
    let both =
        level(json!({"ascend": {"npu_graph_ex_enabled": false, "npu_graph_ex_optimization_level": 2}}));
    assert_eq!(both.config.platform.optimiser_level, 0);
    assert!(lines(&both, Target::Ascend)[0].1.contains("npu_graph_ex_optimization_level"), "{both:?}");
    let bound = level(json!({
        "ascend": {"npu_graph_ex_optimization_level": 2},
        "ascend_compilation_config": {"fuse_qknorm_rope": false},
    }));
    assert_eq!(bound.config.platform.optimiser_level, 1);
}
