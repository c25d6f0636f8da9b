//! A conversation with a server made of canned answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;

const MODELS: &str = r#"{"object":"list","data":[{"id":"tiny","object":"model"}]}"#;

/// Answers one connection with each of `answers`, and gives back the requests.
fn server(answers: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        answers
            .into_iter()
            .map(|answer| {
                let (mut socket, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(socket.try_clone().unwrap());
                let (mut request, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if let Some((name, value)) = line.split_once(':')
                        && name.eq_ignore_ascii_case("content-length")
                    {
                        length = value.trim().parse().unwrap();
                    }
                    request.push_str(&line);
                    if line == "\r\n" {
                        break;
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                request.push_str(&String::from_utf8(body).unwrap());
                socket.write_all(answer.as_bytes()).unwrap();
                request
            })
            .collect()
    });
    (url, thread)
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}")
}

fn stream(pieces: &[&str]) -> String {
    let mut body =
        String::from("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n");
    for piece in pieces {
        let chunk = serde_json::json!({"choices": [{"delta": {"content": piece}}]});
        body.push_str("data: ");
        body.push_str(&chunk.to_string());
        body.push_str("\n\n");
    }
    body.push_str("data: [DONE]\n\n");
    answer("200 OK", "text/event-stream", &body)
}

fn options(url: &str) -> ChatOptions {
    ChatOptions {
        question: None,
        url: url.to_owned(),
        model: None,
        system: Some("be brief".to_owned()),
        api_key: Some("k".to_owned()),
        max_tokens: Some(7),
        temperature: None,
    }
}

fn talk(url: &str, lines: &str) -> (Result<()>, String) {
    let mut out = Vec::new();
    let result = Client::connect(&options(url)).and_then(|client| {
        let mut chat =
            Chat { client, messages: Vec::new(), system: Some("be brief".to_owned()), out: &mut out };
        chat.clear();
        chat.converse(lines.as_bytes(), false)
    });
    (result, String::from_utf8(out).unwrap())
}

#[test]
fn a_piped_conversation_prints_answers_and_remembers_them() {
    let models = answer("200 OK", "application/json", MODELS);
    let (url, thread) = server(vec![models, stream(&["Hel", "lo", "!"]), stream(&["Bye"])]);
    let (result, out) = talk(&url, "hi\n\n/help\nciao\n/exit\nunseen\n");
    result.unwrap();
    assert_eq!(out, format!("Hello!\n{HELP}\nBye\n"));

    let requests = thread.join().unwrap();
    assert!(requests[0].starts_with("GET /v1/models "), "{}", requests[0]);
    assert!(requests[0].to_lowercase().contains("authorization: bearer k"), "{}", requests[0]);
    let body: serde_json::Value =
        serde_json::from_str(requests[2].split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["model"], "tiny");
    assert_eq!(body["max_completion_tokens"], 7);
    let said: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(said, ["be brief", "hi", "Hello!", "ciao"]);
}

#[test]
fn what_goes_wrong_is_said_in_the_servers_words() {
    let models = answer("200 OK", "application/json", MODELS);
    let denied = r#"{"error":{"message":"the key is wrong","type":"invalid_request_error"}}"#;
    let (url, _thread) = server(vec![models.clone(), answer("401 Unauthorized", "application/json", denied)]);
    let error = talk(&url, "hi\n").0.unwrap_err();
    assert!(format!("{error:#}").contains("401 Unauthorized: the key is wrong"), "{error:#}");

    let broken = answer("200 OK", "text/event-stream", "data: {\"choices\":[]}\n\n");
    let (url, _thread) = server(vec![models, broken]);
    assert!(format!("{:#}", talk(&url, "hi\n").0.unwrap_err()).contains("in the middle"));
}

#[test]
fn a_missing_server_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = talk(&format!("http://{closed}/v1/"), "hi\n").0.unwrap_err();
    assert!(format!("{error:#}").contains(&format!("no server answers at http://{closed} ")), "{error:#}");
    assert!(format!("{:#}", talk("ftp://x", "").0.unwrap_err()).contains("http://"));
}
