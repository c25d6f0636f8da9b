//! Hub ids, the choice of files, and fetching from a small hub on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::{Checkpoint, OpenOptions};

use crate::temp_dir::TempDir;

const COMMIT: &str = "0123abcd";

#[test]
fn ids_are_told_from_paths() {
    let parsed = |text: &str| HubId::parse(text, None).map(|id| id.to_string());
    assert_eq!(parsed("Qwen/Qwen3-0.6B").as_deref(), Some("Qwen/Qwen3-0.6B@main"));
    assert_eq!(parsed("org/name@v1.0").as_deref(), Some("org/name@v1.0"));
    assert_eq!(parsed("org/name@refs/pr/1").as_deref(), Some("org/name@refs/pr/1"));
    assert_eq!(HubId::parse("org/name", Some("dev")).unwrap().revision, "dev");
    for path in [
        "model",
        "/org/name",
        "./name",
        "../name",
        "~/name",
        "a/b/c",
        "org/",
        "/name",
        "org/na me",
        "org/name@",
        "org/name@../x",
        "folder/model.gguf",
        "org\\name",
        "org/..",
        "",
    ] {
        assert_eq!(parsed(path), None, "{path}");
    }
}

#[test]
fn files_of_a_checkpoint_are_chosen() {
    let chosen = |names: &[&str]| choose(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    let files = |names: &[&str]| chosen(names).unwrap().files;
    let single = [
        "README.md",
        "config.json",
        "model.safetensors",
        "model-00001-of-00001.safetensors",
        "onnx/model.safetensors",
    ];
    assert_eq!(files(&single), ["config.json", "model.safetensors"]);
    let sharded = [
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "chat_template.jinja",
        "expected.safetensors",
    ];
    assert_eq!(files(&sharded), &sharded[..3]);
    assert!(chosen(&["a.gguf", "README.md"]).unwrap().is_one_file);
    assert!(chosen(&["a.gguf", "b.gguf"]).unwrap_err().contains("2 .gguf files"));
    assert!(chosen(&["pytorch_model.bin"]).unwrap_err().contains("neither"));
}

fn hub(cache: &Path, endpoint: &str, offline: bool) -> Hub {
    Hub {
        cache: Some(Cache::new(cache.to_owned())),
        endpoint: Some(endpoint.to_owned()),
        offline,
        token: None,
        show_progress: false,
    }
}

fn tiny() -> HubId {
    HubId::parse("org/tiny", None).unwrap()
}

#[test]
fn an_unreachable_hub_says_what_to_do() {
    let cache = TempDir::new("hub");
    // Port 9 of this machine: nothing listens there.
    for offline in [false, true] {
        let message =
            hub(cache.path(), "http://127.0.0.1:9", offline).fetch(&tiny()).unwrap_err().to_string();
        for part in ["`org/tiny@main`", "HF_HOME", "HF_ENDPOINT", "http://127.0.0.1:9"] {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
        assert_eq!(message.contains("HF_HUB_OFFLINE is set"), offline, "{message}");
    }
}

/// The HTTP client sends even what is meant for this machine to a proxy, which cannot find the small hub.
fn has_proxy() -> bool {
    ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"]
        .iter()
        .any(|name| std::env::var_os(name).or(std::env::var_os(name.to_lowercase())).is_some())
}

#[test]
fn a_model_is_fetched_once_and_found_again() {
    if has_proxy() {
        eprintln!("skipped: a proxy is set, and the small hub of this test is not behind it");
        return;
    }
    let fixture =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/llama-untied-sharded"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(|stream| drop(answer(&stream.unwrap(), fixture))));

    let cache = TempDir::new("hub");
    let folder = hub(cache.path(), &endpoint, false).fetch(&tiny()).unwrap();
    let checkpoint = Checkpoint::open(&folder, &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.config.layers, 3);
    assert!(!folder.join("expected.safetensors").exists(), "no part of the checkpoint");
    assert!(folder.ends_with(COMMIT));

    // The second time, and without the hub, nothing is fetched.
    assert_eq!(hub(cache.path(), &endpoint, false).fetch(&tiny()).unwrap(), folder);
    assert_eq!(hub(cache.path(), &endpoint, true).fetch(&tiny()).unwrap(), folder);
    assert_eq!(hub(cache.path(), "http://127.0.0.1:9", false).fetch(&tiny()).unwrap(), folder);
    let by_commit = HubId::parse(&format!("org/tiny@{COMMIT}"), None).unwrap();
    assert_eq!(hub(cache.path(), &endpoint, true).fetch(&by_commit).unwrap(), folder);

    let unknown = HubId::parse("org/unknown", None).unwrap();
    let message = hub(cache.path(), &endpoint, false).fetch(&unknown).unwrap_err().to_string();
    assert!(message.contains("the hub does not have it"), "{message}");
}

/// Answers one request as a hub does.
fn answer(stream: &TcpStream, folder: &Path) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut range = (0, usize::MAX);
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some((start, end)) = line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-'))
        {
            range = (start.parse().unwrap(), end.parse().unwrap_or(usize::MAX));
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    if path == "/api/models/org/tiny/revision/main" {
        let files: Vec<_> = std::fs::read_dir(folder)?
            .map(|entry| serde_json::json!({"rfilename": entry.unwrap().file_name().to_str().unwrap()}))
            .collect();
        let body = serde_json::json!({"sha": COMMIT, "siblings": files}).to_string();
        return respond(stream, "200 OK", "", body.as_bytes());
    }
    let prefix = format!("/org/tiny/resolve/{COMMIT}/");
    let Some(content) = path.strip_prefix(&prefix).and_then(|name| std::fs::read(folder.join(name)).ok())
    else {
        return respond(stream, "404 Not Found", "", b"");
    };
    let end = content.len().min(range.1.saturating_add(1));
    let headers = format!(
        "etag: \"{}\"\r\nx-repo-commit: {COMMIT}\r\ncontent-range: bytes {}-{}/{}\r\n",
        path.rsplit('/').next().unwrap_or_default(),
        range.0,
        end.saturating_sub(1),
        content.len()
    );
    respond(stream, "206 Partial Content", &headers, content.get(range.0..end).unwrap_or_default())
}

fn respond(mut stream: &TcpStream, status: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)
}
