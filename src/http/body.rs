//! Reading a request's body within bounds: of size, of time, and of memory over all requests.

use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::OwnedSemaphorePermit;
use updraft_protocol::ErrorKind;

use super::errors::Failure;
use super::state::AppState;

/// A body that sends nothing for this long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A body that is not complete after this long is given up, however steadily it comes.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Larger bodies take one of a few places.
const LARGE: usize = 1 << 20;
/// How long a large body waits for its place.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(5);
/// When a sender that got none may try again.
const RETRY_AFTER_SECS: u64 = 5;
/// How long a body that is too large is read on, so that its sender gets to read the answer.
const FAREWELL: Duration = Duration::from_secs(2);

/// A body, and the place it takes if it is large. Keep it until the body's content is not needed any more.
pub(super) struct Received {
    pub(super) bytes: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

/// Reads the body of a request that should hold JSON.
pub(super) async fn read(state: &AppState, request: Request) -> Result<Received, Failure> {
    match tokio::time::timeout(TIME_MAX, receive(state, request)).await {
        Ok(received) => received,
        Err(_) => Err(too_slow(&format!("was not complete after {} s", TIME_MAX.as_secs()))),
    }
}

async fn receive(state: &AppState, request: Request) -> Result<Received, Failure> {
    let max = state.options.max_body_bytes;
    check_headers(request.headers())?;
    let announced = announced_len(request.headers());
    let mut body = request.into_body();
    let mut received = BytesMut::with_capacity(announced.unwrap_or_default().min(LARGE as u64) as usize);
    let mut place = None;
    if announced.is_some_and(|len| len > max as u64) {
        discard(&mut body).await;
        return Err(too_large(max));
    }
    loop {
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await.map_err(|_| silent())?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| {
            Failure::new(400, ErrorKind::InvalidRequest, "the body ended before it was complete").closing()
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if received.len() + data.len() > max {
            drop(received);
            discard(&mut body).await;
            return Err(too_large(max));
        }
        received.extend_from_slice(&data);
        if received.len() > LARGE && place.is_none() {
            place = Some(large_place(state).await?);
        }
    }
    Ok(Received { bytes: received.freeze(), _place: place })
}

/// A place for a large body. Slow senders can hold all of them, so nobody waits for one for long.
async fn large_place(state: &AppState) -> Result<OwnedSemaphorePermit, Failure> {
    let wait = state.large_bodies.clone().acquire_owned();
    if let Ok(Ok(place)) = tokio::time::timeout(PLACE_WAIT_MAX, wait).await {
        return Ok(place);
    }
    let message = "too many large requests are being received at once; try again in a few seconds";
    Err(Failure::busy(message, RETRY_AFTER_SECS).closing())
}

fn check_headers(headers: &HeaderMap) -> Result<(), Failure> {
    let unsupported = |message: String| Err(Failure::new(415, ErrorKind::InvalidRequest, message).closing());
    if let Some(coding) = headers.get(CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return unsupported("compressed bodies are not read; send the JSON as it is".to_owned());
    }
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let kind = kind.to_str().unwrap_or_default().to_ascii_lowercase();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence == "application/json" || essence.ends_with("+json") {
        return Ok(());
    }
    let shown: String = essence.chars().take(60).collect();
    unsupported(format!(
        "the body is announced as `{shown}`; send JSON with the header `Content-Type: application/json`"
    ))
}

fn announced_len(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads on without keeping anything: a sender that is still writing would otherwise see a broken connection
/// instead of the answer.
async fn discard(body: &mut axum::body::Body) {
    let drained = async { while let Some(Ok(_)) = body.frame().await {} };
    // Whether it ended in time makes no difference: the connection is closed after the answer.
    let _ = tokio::time::timeout(FAREWELL, drained).await;
}

fn too_large(max: usize) -> Failure {
    let message = format!("the body is larger than this server takes ({max} bytes)");
    Failure::new(413, ErrorKind::InvalidRequest, message).closing()
}

fn silent() -> Failure {
    too_slow(&format!("sent nothing for {} s", SILENCE_MAX.as_secs()))
}

fn too_slow(how: &str) -> Failure {
    Failure::new(408, ErrorKind::InvalidRequest, format!("the body {how}")).closing()
}
