//! A rank's way to the meeting place: the place itself, or a socket to the process that keeps it.
//!
//! Always holds: one request is on a socket at a time; after a broken one the socket is closed, never read
//! again.
//!
//! Refuses to know: what the bytes mean.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::hub::{Broken, Hub, Key, LOOK, Limit, Part};

/// Bytes of one part at most; a longer one is a broken frame.
const MAX_PART: u64 = 1 << 32;

/// What is asked of the meeting place.
enum Request {
    Exchange { key: Key, ranks: u32, rank: u32, part: Part },
    Put { generation: u64, from: u32, to: u32, part: Part },
    Take { generation: u64, from: u32, to: u32 },
}

/// The way.
pub enum Link {
    /// In this process.
    Here(Arc<Hub>),
    /// In another one.
    There {
        /// Socket of the process that keeps it.
        path: PathBuf,
        /// The connection, once there is one.
        stream: Mutex<Option<UnixStream>>,
    },
}

impl Link {
    /// Leaves a part and takes those of all ranks.
    pub fn exchange(
        &self,
        key: Key,
        ranks: u32,
        rank: u32,
        part: Part,
        limit: &Limit,
    ) -> Result<Vec<Part>, Broken> {
        match self {
            Self::Here(hub) => hub.exchange(key, ranks as usize, rank as usize, part, limit),
            Self::There { .. } => self.ask(&Request::Exchange { key, ranks, rank, part }, limit),
        }
    }

    /// Leaves a message.
    pub fn put(&self, generation: u64, from: u32, to: u32, part: Part, limit: &Limit) -> Result<(), Broken> {
        match self {
            Self::Here(hub) => hub.put(generation, from, to, part, limit),
            Self::There { .. } => self.ask(&Request::Put { generation, from, to, part }, limit).map(|_| ()),
        }
    }

    /// Takes a message.
    pub fn take(&self, generation: u64, from: u32, to: u32, limit: &Limit) -> Result<Part, Broken> {
        match self {
            Self::Here(hub) => hub.take(generation, from, to, limit),
            Self::There { .. } => self
                .ask(&Request::Take { generation, from, to }, limit)
                .and_then(|parts| parts.into_iter().next().ok_or(Broken::Lost)),
        }
    }

    fn ask(&self, request: &Request, limit: &Limit) -> Result<Vec<Part>, Broken> {
        let Self::There { path, stream } = self else { return Err(Broken::Lost) };
        let mut held = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let mut socket = match held.take() {
            Some(socket) => socket,
            None => connect(path, limit)?,
        };
        let answer = send(&mut socket, request, limit).and_then(|()| receive(&mut socket, limit));
        if answer.is_ok() {
            *held = Some(socket);
        }
        answer?
    }
}

fn connect(path: &Path, limit: &Limit) -> Result<UnixStream, Broken> {
    loop {
        if let Ok(socket) = UnixStream::connect(path) {
            socket.set_read_timeout(Some(LOOK)).map_err(|_| Broken::Lost)?;
            return Ok(socket);
        }
        limit.check().map_err(|broken| if broken == Broken::TimedOut { Broken::Lost } else { broken })?;
        std::thread::sleep(LOOK);
    }
}

fn send(socket: &mut UnixStream, request: &Request, limit: &Limit) -> Result<(), Broken> {
    // The other side ends a wait by itself, so that it does not keep a round that nobody is in.
    let left = limit.left().unwrap_or(u64::MAX);
    let (kind, a, b, c, d, part): (u8, u64, u64, u32, u32, &[u8]) = match request {
        Request::Exchange { key, ranks, rank, part } => {
            (0, key.generation, key.sequence, *ranks, *rank, part)
        }
        Request::Put { generation, from, to, part } => (1, *generation, 0, *from, *to, part),
        Request::Take { generation, from, to } => (2, *generation, 0, *from, *to, &[]),
    };
    let mut head = vec![kind];
    for word in [a, b, left, part.len() as u64] {
        head.extend(word.to_le_bytes());
    }
    head.extend(c.to_le_bytes());
    head.extend(d.to_le_bytes());
    socket.write_all(&head).and_then(|()| socket.write_all(part)).map_err(|_| Broken::Lost)
}

/// Reads exactly, looking at the limit while nothing comes.
fn fill(socket: &mut UnixStream, buffer: &mut [u8], limit: Option<&Limit>) -> Result<(), Broken> {
    let mut done = 0;
    while done < buffer.len() {
        match socket.read(&mut buffer[done..]) {
            Ok(0) => return Err(Broken::Lost),
            Ok(count) => done += count,
            Err(error) => match (error.kind(), limit) {
                (ErrorKind::Interrupted, _) => {}
                (ErrorKind::WouldBlock | ErrorKind::TimedOut, Some(limit)) => limit.check()?,
                _ => return Err(Broken::Lost),
            },
        }
    }
    Ok(())
}

fn word(socket: &mut UnixStream, limit: Option<&Limit>) -> Result<u64, Broken> {
    let mut bytes = [0; 8];
    fill(socket, &mut bytes, limit)?;
    Ok(u64::from_le_bytes(bytes))
}

fn blob(socket: &mut UnixStream, length: u64, limit: Option<&Limit>) -> Result<Part, Broken> {
    if length > MAX_PART {
        return Err(Broken::Lost);
    }
    let mut bytes = vec![0; length as usize];
    fill(socket, &mut bytes, limit)?;
    Ok(bytes.into())
}

type Answer = Result<Vec<Part>, Broken>;

fn receive(socket: &mut UnixStream, limit: &Limit) -> Result<Answer, Broken> {
    let limit = Some(limit);
    match word(socket, limit)? {
        0 => {
            let count = word(socket, limit)?;
            let mut parts = Vec::new();
            for _ in 0..count {
                let length = word(socket, limit)?;
                parts.push(blob(socket, length, limit)?);
            }
            Ok(Ok(parts))
        }
        1 => Ok(Err(Broken::TimedOut)),
        2 => Ok(Err(Broken::Cancelled)),
        _ => Ok(Err(Broken::Lost)),
    }
}

/// Requests that the meeting place is answering for other processes.
#[derive(Default)]
pub struct Service {
    busy: AtomicUsize,
}

impl Service {
    /// Whether an answer is on its way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }

    /// Serves a hub on a socket, for as long as the process lives or until the socket's file is taken away
    /// and woken.
    pub fn listen(self: &Arc<Self>, listener: UnixListener, hub: &Arc<Hub>) -> std::io::Result<()> {
        let (service, hub) = (Arc::clone(self), Arc::clone(hub));
        std::thread::Builder::new().name("hccl-accept".into()).spawn(move || {
            for socket in listener.incoming().flatten() {
                let (service, hub) = (Arc::clone(&service), Arc::clone(&hub));
                let spawned = std::thread::Builder::new()
                    .name("hccl-serve".into())
                    .spawn(move || while service.serve(&socket, &hub).is_ok() {});
                if spawned.is_err() {
                    break;
                }
            }
        })?;
        Ok(())
    }

    fn serve(&self, socket: &UnixStream, hub: &Hub) -> Result<(), Broken> {
        let mut socket = socket.try_clone().map_err(|_| Broken::Lost)?;
        let mut kind = [0; 1];
        fill(&mut socket, &mut kind, None)?;
        let [a, b, left, length] = {
            let mut words = [0; 4];
            for slot in &mut words {
                *slot = word(&mut socket, None)?;
            }
            words
        };
        let pair = word(&mut socket, None)?;
        let (c, d) = (pair as u32, (pair >> 32) as u32);
        let part = blob(&mut socket, length, None)?;
        let time = (left != u64::MAX).then(|| Duration::from_millis(left));
        let limit = Limit::within(time, || false);
        self.busy.fetch_add(1, Ordering::SeqCst);
        let answer: Answer = match kind[0] {
            0 => {
                let key = Key { generation: a, sequence: b };
                hub.exchange(key, c as usize, d as usize, part, &limit)
            }
            1 => hub.put(a, c, d, part, &limit).map(|()| Vec::new()),
            2 => hub.take(a, c, d, &limit).map(|part| vec![part]),
            _ => Err(Broken::Lost),
        };
        let written = reply(&mut socket, &answer);
        self.busy.fetch_sub(1, Ordering::SeqCst);
        written.map_err(|_| Broken::Lost)
    }
}

fn reply(socket: &mut UnixStream, answer: &Answer) -> std::io::Result<()> {
    let code = |code: u64| code.to_le_bytes();
    match answer {
        Ok(parts) => {
            let mut head = code(0).to_vec();
            head.extend(code(parts.len() as u64));
            socket.write_all(&head)?;
            for part in parts {
                socket.write_all(&code(part.len() as u64))?;
                socket.write_all(part)?;
            }
            Ok(())
        }
        Err(Broken::TimedOut) => socket.write_all(&code(1)),
        Err(Broken::Cancelled) => socket.write_all(&code(2)),
        Err(Broken::Lost) => socket.write_all(&code(3)),
    }
}
