//! Tests of the configuration as a whole: precedence, spellings, messages, the example and the page.

mod ascend;
mod documents;
mod latency;
mod speculation;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum as _;

use super::device::{DeviceKind, Isolation, Target};
use super::environment::Environment;
use super::model::ComputeType;
use super::options::Options;
use super::platform::Platform;
use super::scheduling::SchedulingPolicy;
use super::values::{ContextLength, LogprobsLimit};
use super::{ConfigError, Level, Loaded, command, foreign, load};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn read(line: &str) -> Result<Loaded, ConfigError> {
    load(&words(line), &Environment::default())
}

fn problem(line: &str) -> String {
    read(line).map(|_| ()).unwrap_err().to_string()
}

/// A configuration file that is removed with the value.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("updraft-config-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

#[test]
fn the_line_of_an_ascend_server_means_what_it_says() {
    let loaded = read(
        "/models/qwen36_27b_w8a8 --quantization ascend --tensor-parallel-size 8 --max-model-len 8192 \
         --gpu-memory-utilization 0.9 --block-size 128 --enable-prefix-caching --disable-log-requests --port 8000",
    )
    .unwrap();
    let config = &loaded.config;
    assert_eq!(config.model_name(), "/models/qwen36_27b_w8a8");
    assert_eq!(config.model.quantization.as_deref(), Some("ascend"));
    assert_eq!(config.device.tensor_parallel_size, 8);
    assert_eq!(config.model.max_model_len, Some(ContextLength::Tokens(8192)));
    assert!((config.memory.gpu_memory_utilization - 0.9).abs() < f64::EPSILON);
    assert_eq!(config.memory.block_size, Some(128));
    assert!(config.memory.enable_prefix_caching);
    assert!(!config.logging.enable_log_requests);
    assert_eq!(config.server.port, 8000);

    let texts = |level| -> Vec<&str> {
        loaded
            .notices_on(Target::Cpu)
            .filter(|notice| notice.level == level)
            .map(|notice| notice.text.as_str())
            .collect()
    };
    let warnings = texts(Level::Warning);
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    for option in ["--quantization ascend", "--tensor-parallel-size 8", "--gpu-memory-utilization 0.9"] {
        assert_eq!(warnings.iter().filter(|text| text.contains(option)).count(), 1, "{option}: {warnings:?}");
    }
    let notes = texts(Level::Note);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("--disable-log-requests"));
}

#[test]
fn defaults_are_those_of_the_page() {
    let Loaded { config, notices, .. } = read("m").unwrap();
    assert_eq!(notices, vec![]);
    assert_eq!((config.server.host.as_str(), config.server.port), ("0.0.0.0", 8000));
    assert_eq!(config.server.shutdown_timeout, Duration::from_secs(30));
    assert_eq!(config.served_names(), ["m"]);
    assert_eq!(config.model.dtype, ComputeType::Auto);
    assert_eq!(config.model.max_model_len, None);
    assert_eq!(config.scheduling.max_num_seqs, 256);
    assert_eq!(config.scheduling.batched_tokens(Target::Cpu), 512);
    assert_eq!(config.scheduling.scheduling_policy, SchedulingPolicy::Fcfs);
    assert_eq!(config.generation.max_logprobs, LogprobsLimit::Count(20));
    assert_eq!(config.device.device, DeviceKind::Auto);
    assert_eq!(config.device.executor_isolation, Isolation::Thread);
    assert_eq!((config.device.verify_replay, config.device.executor_timeout), (0, None));
    assert_eq!(config.platform, Platform::default());
    assert!(config.server.api_key.is_empty());
    assert!(config.server.allowed_origins.0.is_empty());
}

#[test]
fn flags_win_over_environment_and_environment_over_file() {
    let file = File::new(
        "a.toml",
        "model = \"from-file\"\nport = 1\nmax-num-seqs = 11\nseed = 5\nblock_size = 32\n",
    );
    let environment =
        Environment::from([("UPDRAFT_PORT", "2"), ("UPDRAFT_MAX_NUM_SEQS", "22"), ("UPDRAFT_DTYPE", "")]);
    let line = format!("--config {} --port 3", file.path());
    let config = load(&words(&line), &environment).unwrap().config;
    assert_eq!(config.server.port, 3);
    assert_eq!(config.scheduling.max_num_seqs, 22);
    assert_eq!(config.model.seed, 5);
    assert_eq!(config.memory.block_size, Some(32));
    assert_eq!(config.model_name(), "from-file");
    let named = format!("--config {} from-flag", file.path());
    assert_eq!(load(&words(&named), &environment).unwrap().config.model_name(), "from-flag");
    let message = problem(&format!("--config {} --port x", file.path()));
    assert!(message.starts_with("--port: \"x\""), "the flag is to blame, not the file: {message}");

    // The file itself can be named by the environment.
    let environment = Environment::from([("UPDRAFT_CONFIG", file.path())]);
    assert_eq!(load(&[], &environment).unwrap().config.model.seed, 5);
}

#[test]
fn the_three_formats_mean_the_same() {
    let texts = [
        (
            "b.toml",
            "model = \"m\"\nserved_model_name = [\"a\", \"b\"]\nenable-prefix-caching = false\n\
                    override_generation_config = { temperature = 0.5 }\nallowed-origins = [\"http://x\"]\n",
        ),
        (
            "b.yaml",
            "model: m\nserved-model-name: [a, b]\nenable_prefix_caching: false\n\
                    override-generation-config: {temperature: 0.5}\nallowed-origins: [\"http://x\"]\napi-key: null\n",
        ),
        (
            "b.json",
            r#"{"model": "m", "served_model_name": ["a", "b"], "enable_prefix_caching": false,
                       "override_generation_config": {"temperature": 0.5}, "allowed_origins": "http://x"}"#,
        ),
    ];
    for (name, text) in texts {
        let file = File::new(name, text);
        let config = read(&format!("--config={}", file.path())).unwrap().config;
        assert_eq!(config.served_names(), ["a", "b"], "{name}");
        assert!(!config.memory.enable_prefix_caching, "{name}");
        assert_eq!(config.generation.override_generation_config.unwrap()["temperature"], 0.5, "{name}");
        assert_eq!(config.server.allowed_origins.0, ["http://x"], "{name}");
    }
}

#[test]
fn faults_of_a_file_are_named_with_file_and_key() {
    for (name, text, parts) in [
        (
            "c.toml",
            "model = 'm'\nmax_model_length = 5",
            vec!["max_model_length in", "c.toml", "did you mean max-model-len?"],
        ),
        ("c.toml", "model = 'm'\nport = 'eighty'", vec!["port in", "c.toml", "\"eighty\"", "65535"]),
        ("c.toml", "model = 'm'\nport = [1, 2]", vec!["port in", "c.toml"]),
        ("c.toml", "model = 'm'\nport =", vec!["c.toml", "line 2"]),
        ("c.toml", "model = 'm'\n[server]\nport = 1", vec!["server in"]),
        ("c.yaml", "model: m\nseed: {a: 1}", vec!["seed in", "table"]),
        ("c.yaml", "port: 1\nmodel: m\nmax-num-seqs: 1\nmax_num_seqs: 2", vec!["the same as max-num-seqs"]),
        ("c.json", "[1]", vec!["c.json", "keys and values"]),
        ("c.ini", "a=1", vec!["c.ini", ".toml"]),
        ("c.yaml", "model: m\nssl-certfile: x", vec!["ssl-certfile in", "proxy"]),
        ("c.yaml", "model: m\ndtype: fp8", vec!["dtype in", "float32"]),
    ] {
        let file = File::new(name, text);
        let message = problem(&format!("--config {}", file.path()));
        for part in parts {
            assert!(message.contains(part), "{text:?} gave {message:?}, without {part:?}");
        }
        assert!(!message.contains('\n'), "{message:?}");
    }
    assert!(problem("--config /nonexistent.toml").contains("/nonexistent.toml"));
}

#[test]
fn spellings_of_vllm_are_understood() {
    let config = read(
        "m --max_model_len=25.6k -tp 2 -pp=1 --no-enable-chunked-prefill --no_enable_prefix_caching \
         --served-model-name a b --api-key k1 --api-key k2 --compilation-config.mode 3 \
         --compilation-config.pass_config.enable_sp true --max-logprobs -1 -q w8a8 --dtype half --port 1 --port 2",
    )
    .unwrap()
    .config;
    assert_eq!(config.model.max_model_len, Some(ContextLength::Tokens(25_600)));
    assert_eq!(config.device.tensor_parallel_size, 2);
    assert!(!config.scheduling.enable_chunked_prefill);
    assert!(!config.memory.enable_prefix_caching);
    assert_eq!(config.served_names(), ["a", "b"]);
    assert_eq!(config.server.api_key.len(), 2);
    assert_eq!(
        serde_json::Value::Object(config.device.compilation_config.unwrap()),
        serde_json::json!({"mode": 3, "pass_config": {"enable_sp": true}})
    );
    assert_eq!(config.generation.max_logprobs, LogprobsLimit::Vocabulary);
    assert_eq!(config.model.dtype, ComputeType::Float16);
    assert_eq!(config.server.port, 2, "the last one counts");
    assert_eq!(read("m --max-model-len -1").unwrap().config.model.max_model_len, Some(ContextLength::Auto));
    assert_eq!(read("m --max-model-len auto").unwrap().config.model.max_model_len, Some(ContextLength::Auto));
    assert_eq!(read("--model m").unwrap().config.model_name(), "m");
    assert_eq!(read("m --allowed-origins [\"*\"]").unwrap().config.server.allowed_origins.0, ["*"]);
}

#[test]
fn wrong_values_get_one_sentence_that_says_what_is_right() {
    for (line, parts) in [
        ("", vec!["no model given", "updraft serve MODEL"]),
        ("m --model n", vec!["\"m\"", "\"n\""]),
        ("m x", vec!["\"x\"", "one model"]),
        ("m --port", vec!["--port", "missing"]),
        ("m --port 70000", vec!["--port", "\"70000\"", "1 to 65535"]),
        ("m --dtype fp8", vec!["--dtype", "\"fp8\"", "auto, float32, bfloat16, float16"]),
        ("m --block-size 100", vec!["--block-size", "16, 32, 64, 128, 256"]),
        ("m --gpu-memory-utilization 90", vec!["--gpu-memory-utilization", "0.9"]),
        ("m --max-model-len long", vec!["--max-model-len", "8192"]),
        ("m --max-modal-len 5", vec!["--max-modal-len is not known", "did you mean --max-model-len?"]),
        ("m --xyzzy", vec!["--xyzzy is not known", "--help"]),
        ("m -z", vec!["-z is not known"]),
        ("m --no-port", vec!["--no-port", "switches"]),
        ("m --no-enable-prefix-caching=true", vec!["no value"]),
        ("m --enable-prefix-caching=maybe", vec!["--enable-prefix-caching", "true or false"]),
        ("m --max-num-seqs 64 --max-num-batched-tokens 32", vec!["--max-num-batched-tokens 32", "64"]),
        ("m --override-generation-config {\"temp\":1}", vec!["unknown key \"temp\""]),
        ("m --compilation-config 3", vec!["--compilation-config", "JSON object"]),
        ("m --device cuda", vec!["--device", "auto, cpu, ascend"]),
        ("m --executor-isolation fork", vec!["--executor-isolation", "thread, process"]),
        ("m --executor-timeout 0", vec!["--executor-timeout", "above 0"]),
        ("m --step-deadline never", vec!["--step-deadline", "above 0"]),
        ("m --cudagraph-capture-sizes 0", vec!["--cudagraph-capture-sizes", "1 or more"]),
        ("m --additional-config 3", vec!["--additional-config", "JSON object", ".toml"]),
        ("m --uds /tmp/x", vec!["--uds", "TCP"]),
        ("m --enable-lora", vec!["--enable-lora", "LoRA"]),
    ] {
        let message = problem(line);
        for part in parts {
            assert!(message.contains(part), "{line:?} gave {message:?}, without {part:?}");
        }
        assert!(!message.contains('\n'), "{message:?}");
    }
}

#[test]
fn faults_of_the_environment_name_the_variable() {
    let environment = Environment::from([("UPDRAFT_PORT", "http")]);
    let message = load(&words("m"), &environment).unwrap_err().to_string();
    assert!(message.starts_with("UPDRAFT_PORT: \"http\""), "{message}");
    // A flag wins, so the variable is not even read.
    assert_eq!(load(&words("m --port 7"), &environment).unwrap().config.server.port, 7);

    let environment = Environment::from([("UPDRAFT_MAX_MODAL_LEN", "1"), ("UPDRAFT_LOG", "info")]);
    let notices = load(&words("m"), &environment).unwrap().notices;
    assert_eq!(notices.len(), 1);
    assert!(notices[0].text.contains("did you mean UPDRAFT_MAX_MODEL_LEN?"), "{notices:?}");
}

#[test]
fn keys_come_from_both_variables_and_are_never_printed() {
    let keys = |environment: Environment, line: &str| -> Vec<String> {
        let config = load(&words(line), &environment).unwrap().config;
        assert!(!format!("{config:?}").contains("key-"), "{config:?}");
        config.server.api_key.iter().map(|key| key.expose().to_owned()).collect()
    };
    assert_eq!(keys(Environment::from([("VLLM_API_KEY", "key-1,2")]), "m"), ["key-1,2"]);
    assert_eq!(
        keys(Environment::from([("VLLM_API_KEY", "key-1"), ("UPDRAFT_API_KEY", "key-2,key-3")]), "m"),
        ["key-2", "key-3"]
    );
    assert_eq!(keys(Environment::from([("VLLM_API_KEY", "key-1")]), "m --api-key key-4"), ["key-4"]);
    let words = ["m".to_owned(), "--api-key".to_owned(), "se cret".to_owned()];
    let message = load(&words, &Environment::default()).unwrap_err().to_string();
    assert!(!message.contains("cret"), "{message}");
}

#[test]
fn options_of_vllm_are_answered() {
    let loaded =
        read("m --swap-space 4 --cudagraph-metrics -O3 -O 2 --no-enable-lora --stream-interval 1 --port 9")
            .unwrap();
    assert_eq!(loaded.config.server.port, 9);
    assert_eq!(loaded.config.model_name(), "m");
    assert_eq!(loaded.notices.len(), 5, "{:?}", loaded.notices);

    let options = Options::of(&mut command());
    for known in foreign::FOREIGN {
        assert!(options.get(known.name).is_none(), "{} exists here", known.name);
        assert_eq!(
            foreign::FOREIGN.iter().filter(|other| other.name == known.name).count(),
            1,
            "{}",
            known.name
        );
    }
}

#[test]
fn device_only_options_warn_once_each_and_only_when_given() {
    let on = |line: &str, target| -> Vec<String> {
        let loaded = read(line).unwrap();
        loaded.notices_on(target).map(|notice| notice.text.clone()).collect()
    };
    let line = "m --enforce-eager --data-parallel-size 2 --pipeline-parallel-size 2 --verify-replay 9 \
                --cudagraph-capture-sizes 1 2 --max-cudagraph-capture-size 2 --cann-path /x --enforce-eager";
    assert_eq!(on(line, Target::Cpu).len(), 3, "{:?}", on(line, Target::Cpu));
    let warnings = on(line, Target::Ascend);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("--data-parallel-size 2"), "{warnings:?}");
    assert_eq!(read("m -tp 1 --no-enforce-eager --verify-replay 0").unwrap().notices, vec![]);
    let environment = Environment::from([("UPDRAFT_GPU_MEMORY_UTILIZATION", "0.8")]);
    let loaded = load(&words("m"), &environment).unwrap();
    assert_eq!(loaded.notices_on(Target::Cpu).count(), 1);
    assert_eq!(loaded.notices_on(Target::Ascend).count(), 0);
}

#[test]
fn help_is_no_error_and_shows_examples() {
    let Err(ConfigError::Help(help)) = read("--help") else { panic!("expected help") };
    let text = help.to_string();
    assert!(text.contains("Examples:"), "{text}");
    assert!(text.contains("--max-model-len"), "{text}");
}

#[test]
fn names_of_types_are_those_of_the_command_line() {
    for kind in ComputeType::value_variants() {
        assert_eq!(kind.to_possible_value().unwrap().get_name(), kind.to_string());
    }
}
