//! The child's side: a device thread whose orders come out of a socket and whose events go into it.
//!
//! Three threads: this one reads orders, the device thread works, a third says ten times a second that
//! the process lives and whether the device moves. When the parent is gone the socket ends, and so does
//! [`serve`]; the process is expected to end with it.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::codec::{self, CodecError, Frames};
use super::frame::{FromChild, ToChild};
use crate::executor::report::DeviceEvent;
use crate::executor::seat::Seats;
use crate::executor::thread::{DeviceThread, Job, Outlet};
use crate::executor::{DeviceFactory, DrillSwitch};
use crate::supervisor::Life;

/// Time between two signs of life.
const BEAT_EVERY: Duration = Duration::from_millis(100);
/// How long the device gets to be closed after the last order.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(2);

/// What somebody is told who starts a child by hand.
const BY_HAND: &str =
    "this command is started by the server itself; use `updraft serve --executor-isolation process`";

/// The child cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The socket or what came out of it.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The parent ended, or gave up on this child.
    #[error("the server that this executor belongs to is gone")]
    ParentGone,
    /// The first frame was another one.
    #[error("the first frame did not open a device; this command is started by the server, not by hand")]
    NotOpened,
    /// The device was opened already.
    #[error("the server asked for a second device")]
    OpenedTwice,
    /// The system gives no thread.
    #[error("a thread of the executor could not be started: {0}")]
    Thread(io::Error),
    /// The device thread ended before the parent did.
    #[error("the device thread has ended: {0}")]
    Device(String),
}

/// The socket to the parent: this process's standard input.
///
/// # Errors
/// When it is no socket, because somebody started this process by hand; or when the system gives no second
/// handle of it.
pub fn socket() -> io::Result<UnixStream> {
    socket_of(io::stdin().as_fd())
}

fn socket_of(input: BorrowedFd<'_>) -> io::Result<UnixStream> {
    let input = File::from(input.try_clone_to_owned()?);
    if !input.metadata()?.file_type().is_socket() {
        return Err(io::Error::other(BY_HAND));
    }
    Ok(UnixStream::from(OwnedFd::from(input)))
}

/// Runs a device for the parent at the other end of `socket`, until it says goodbye.
///
/// # Errors
/// When the parent is gone, or what it says makes no sense, or the device cannot go on (the parent knows
/// why).
pub fn serve(socket: UnixStream, factory: DeviceFactory) -> Result<(), ChildError> {
    let writing = socket.try_clone().map_err(CodecError::from)?;
    let mut frames = Frames::new(socket);
    let ToChild::Open { setup, is_crowded } = next(&mut frames)? else {
        return Err(ChildError::NotOpened);
    };
    let life = Arc::new(Life::default());
    let outlet = Arc::new(Socket(Mutex::new((writing, Vec::new()))));
    let beating = {
        let (life, outlet) = (Arc::clone(&life), Arc::clone(&outlet));
        std::thread::Builder::new().name("beat".to_owned()).spawn(move || beat(&life, &outlet))
    };
    beating.map_err(ChildError::Thread)?;
    let job = Job { setup: *setup, factory, life: Arc::clone(&life), drills: DrillSwitch::default(), outlet };
    // Who sits there is known to the parent only; here it is somebody.
    let seats = Seats::default();
    let _beside = is_crowded.then(|| seats.sit(job.setup.ordinal));
    let seated = seats.sit(job.setup.ordinal);
    let thread = DeviceThread::start(job, seated).map_err(|error| ChildError::Device(error.to_string()))?;
    let ended = loop {
        match next(&mut frames) {
            Ok(ToChild::Order(order)) => {
                if let Err(error) = thread.submit(order) {
                    break Err(ChildError::Device(error.to_string()));
                }
            }
            Ok(ToChild::Bye) => break Ok(()),
            Ok(ToChild::Open { .. }) => break Err(ChildError::OpenedTwice),
            Err(error) => break Err(error),
        }
    };
    if ended.is_ok() {
        thread.finish(FINISH_WAIT_MAX);
    }
    // Nobody is told any more that this process lives.
    life.retire();
    ended
}

fn next(frames: &mut Frames<UnixStream>) -> Result<ToChild, ChildError> {
    loop {
        match frames.next() {
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => {}
            Err(CodecError::Ended | CodecError::Truncated) => return Err(ChildError::ParentGone),
            Err(error) => return Err(error.into()),
        }
    }
}

fn beat(life: &Life, outlet: &Socket) {
    while !life.is_retired() {
        let frame = FromChild::Beat { progress: life.reading(), doing: life.doing() };
        if outlet.write(&frame).is_err() {
            return;
        }
        std::thread::sleep(BEAT_EVERY);
    }
}

/// The writing end, with scratch memory for a frame.
struct Socket(Mutex<(UnixStream, Vec<u8>)>);

impl Socket {
    fn write(&self, frame: &FromChild) -> Result<(), CodecError> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (socket, buffer) = &mut *guard;
        codec::write(frame, socket, buffer)
    }
}

impl Outlet for Socket {
    fn deliver(&self, event: DeviceEvent) {
        if let Err(error) = self.write(&FromChild::Event(event)) {
            tracing::error!(parent: None, %error, "an event did not reach the server");
            // The server would wait for it for ever: let it see the end instead.
            let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = guard.0.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_started_by_hand_says_how_it_is_meant() {
        let input = File::open("/dev/null").unwrap();
        let error = socket_of(input.as_fd()).unwrap_err();
        assert!(error.to_string().contains("started by the server itself"), "{error}");
        assert!(std::error::Error::source(&error).is_none(), "it is said once");
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(socket_of(ours.as_fd()).is_ok());
    }
}
