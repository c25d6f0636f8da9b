//! The server over real sockets: hang-ups, slow and heavy clients, shutdown.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;

struct Running {
    address: SocketAddr,
    engine: FakeEngine,
    shutdown: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

/// A server whose answers stop after a few tokens and hang.
async fn hanging(grace: Duration) -> Running {
    let bench = Bench::new(FakeEngine::new(|submission| {
        let mut steps = says(submission, SAID);
        steps.truncate(2);
        steps.push(Step::Hang);
        Ok(steps)
    }));
    start(&bench, grace).await
}

async fn start(bench: &Bench, grace: Duration) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = TaskTracker::new().spawn(serve(listener, Arc::clone(&bench.state), shutdown.clone(), grace));
    Running { address, engine: bench.engine.clone(), shutdown, server }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a chat request and waits until the engine has it.
    async fn ask(&self, more: Value) -> TcpStream {
        let stream = self.connect().await;
        let body = chat_body(more).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        send(&stream, (head + &body).as_bytes()).await;
        self.wait_for(|open| open > 0).await;
        stream
    }

    async fn wait_for(&self, reached: impl Fn(u32) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !reached(self.engine.open()) {
            assert!(Instant::now() < deadline, "{} sequences are open", self.engine.open());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Sends all of it, unless the other side closes before.
async fn send(stream: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        stream.writable().await.unwrap();
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// What comes until the other side closes. A reset after the answer is as good as an end.
async fn rest(stream: &TcpStream) -> String {
    let mut bytes = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        stream.readable().await.unwrap();
        let mut part = [0; 4096];
        match stream.try_read(&mut part) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(error) if error.kind() != ErrorKind::WouldBlock => break,
            _ => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_client_that_hangs_up_frees_its_sequences() {
    let running = hanging(Duration::ZERO).await;
    for more in [json!({"stream": true, "n": 2}), json!({"n": 2})] {
        let stream = running.ask(more).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(stream);
        running.wait_for(|open| open == 0).await;
    }
}

#[tokio::test]
async fn oversized_heads_are_refused_and_the_server_goes_on() {
    let running = hanging(Duration::ZERO).await;
    for head in [format!("X-A: {}\r\n", "a".repeat(2_000_000)), "X-B: b\r\n".repeat(20_000)] {
        let stream = running.connect().await;
        let request = format!("GET /health HTTP/1.1\r\nHost: x\r\n{head}\r\n");
        send(&stream, request.as_bytes()).await;
        let answer = rest(&stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    let stream = running.connect().await;
    send(&stream, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(rest(&stream).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_body_announced_too_large_is_refused_with_an_answer() {
    let running = hanging(Duration::ZERO).await;
    let stream = running.connect().await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9999999999\r\n\r\n";
    send(&stream, head.as_bytes()).await;
    let answer = rest(&stream).await;
    assert!(
        answer.contains("413 Payload Too Large") && answer.contains("larger than this server takes"),
        "{answer}"
    );
}

#[tokio::test]
async fn shutdown_lets_streams_end_and_tells_those_that_do_not() {
    let running = hanging(Duration::from_millis(100)).await;
    let idle = running.connect().await;
    send(&idle, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let stream = running.ask(json!({"stream": true})).await;
    let begun = Instant::now();
    running.shutdown.cancel();
    let text = rest(&stream).await;
    assert!(text.contains("shutting down") && text.contains("[DONE]"), "{text}");
    assert!(rest(&idle).await.contains("200 OK"));
    running.server.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(TcpStream::connect(running.address).await.is_err());
}

#[tokio::test]
async fn shutdown_waits_for_answers_that_come() {
    let bench = Bench::new(FakeEngine::new(|submission| {
        let mut steps = says(submission, SAID);
        steps.insert(1, Step::Wait(Duration::from_millis(200)));
        Ok(steps)
    }));
    let running = start(&bench, Duration::from_secs(20)).await;
    let stream = running.ask(json!({})).await;
    running.shutdown.cancel();
    let begun = Instant::now();
    assert!(rest(&stream).await.contains(SAID));
    running.server.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
}
