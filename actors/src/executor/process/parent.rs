//! The executor's side of a child process: starts it, passes orders and events, and makes sure that it ends.
//!
//! Two threads for each child: one writes orders, the keeper reads events. A child that is dead, says nothing
//! for [`ChildSpec::silent_after`] or belongs to a life that is over (its device stopped moving, or its
//! executor was ended) is killed and reaped before the loss is told, so that the next one finds the device
//! free.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::codec::{self, CodecError, Frames};
use super::frame::{FromChild, ToChild};
use crate::executor::relay::Relay;
use crate::executor::report::{DeviceEvent, LifeEnd, Order, Setup};
use crate::executor::seat::{Seated, Seats};
use crate::executor::thread::{self, Outlet as _, QUEUE_MAX, ThreadError};

/// A child that says nothing for this long is stopped or hangs: it beats ten times a second.
pub const SILENT_AFTER: Duration = Duration::from_millis(1_500);
/// How long the first word of a child may take: a process has to be loaded before it can speak.
const START_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a child gets to end by itself after the last order.
const BYE_WAIT_MAX: Duration = Duration::from_millis(500);
/// How long a killed child is waited for; past it, it is stuck in the kernel and left to the system.
const REAP_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long one read waits: the keeper looks at the clock in between.
const READ_WAIT: Duration = Duration::from_millis(20);
/// Time between two looks at a process that is ending.
const REAP_EVERY: Duration = Duration::from_millis(2);

/// How a child is started.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// The program: usually this one.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables in addition to this process's own.
    pub environment: Vec<(String, String)>,
    /// Silence after which it counts as hung; [`SILENT_AFTER`] unless there is a reason.
    pub silent_after: Duration,
}

/// The actor's end of a child. Dropping it ends the child: at once when its life is over, else when it has
/// done what was ordered.
pub(crate) struct ChildProcess {
    orders: flume::Sender<Order>,
}

impl ChildProcess {
    pub(crate) fn start(
        spec: ChildSpec,
        seats: Seats,
        setup: Setup,
        relay: Arc<Relay>,
    ) -> Result<Self, ThreadError> {
        let (orders, waiting) = flume::bounded(QUEUE_MAX);
        let name = format!("child-{}", setup.ordinal);
        std::thread::Builder::new().name(name).spawn(move || {
            // The queue stays open until the loss is told, or its actor would end without knowing why.
            if let Some(end) = keep(&spec, &seats, setup, &relay, waiting.clone()) {
                relay.deliver(DeviceEvent::Lost(end));
            }
            drop(waiting);
        })?;
        Ok(Self { orders })
    }

    pub(crate) fn submit(&self, order: Order) -> Result<(), ThreadError> {
        thread::submit(&self.orders, order)
    }
}

/// How the talk with a child ended.
enum Talk {
    /// The child said why it ends.
    Said(Box<LifeEnd>),
    /// It closed the socket without a word.
    Closed,
    /// It said nothing for too long.
    Silent(Duration),
    /// What it said made no sense.
    Garbled(CodecError),
    /// It is not wanted any more.
    Over,
}

/// One child from its start to its end. Says how its life ended, if that was not ordered.
fn keep(
    spec: &ChildSpec,
    seats: &Seats,
    setup: Setup,
    relay: &Relay,
    orders: flume::Receiver<Order>,
) -> Option<Box<LifeEnd>> {
    let seated = seats.wait_and_sit(setup.ordinal, REAP_WAIT_MAX + BYE_WAIT_MAX);
    if seated.is_crowded() {
        tracing::warn!(parent: None, "the last executor process does not end; another starts beside it");
    }
    if relay.life.is_retired() {
        return None;
    }
    let (mut child, socket) = match spawn(spec) {
        Ok(started) => started,
        Err(error) => {
            let program = spec.program.display();
            let detail = format!("the executor process {program} could not be started: {error}");
            return Some(Box::new(LifeEnd::not_made(detail)));
        }
    };
    let pid = child.id();
    tracing::info!(parent: None, pid, "executor process started");
    let opening = ToChild::Open { setup: Box::new(setup), is_crowded: seated.is_crowded() };
    let talk = converse(spec, opening, relay, orders, &socket);
    // The writing thread ends with the socket.
    let _ = socket.shutdown(Shutdown::Both);
    let status = end(&mut child, matches!(talk, Talk::Closed | Talk::Over));
    let ended = status.map_or_else(|| "is still not gone".to_owned(), described);
    tracing::info!(parent: None, pid, ended, "executor process ended");
    if status.is_none() {
        leave_to_the_system(child, seated);
    }
    match talk {
        Talk::Over => None,
        Talk::Said(end) => Some(end),
        Talk::Silent(time) => {
            let detail = format!("the executor process {pid} said nothing for {} ms", time.as_millis());
            Some(Box::new(LifeEnd::silent(detail, false)))
        }
        Talk::Garbled(error) => Some(Box::new(LifeEnd::of(error.to_string(), false))),
        Talk::Closed => {
            let detail = format!("the executor process {pid} {ended}");
            let end = LifeEnd::of_process(detail, is_crash(status), relay.life.is_computing());
            // One that leaves of its own accord has seen what it cannot work with, and the log says what.
            let hopeless = status.is_some_and(|status| status.code().is_some());
            Some(Box::new(LifeEnd { hopeless, ..end }))
        }
    }
}

fn spawn(spec: &ChildSpec) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(READ_WAIT))?;
    let child = Command::new(&spec.program)
        .args(&spec.arguments)
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        // An interrupt from the keyboard is for the server, which lets its streams end first.
        .process_group(0)
        .spawn()?;
    Ok((child, ours))
}

/// Passes orders and events until one side ends it.
fn converse(
    spec: &ChildSpec,
    opening: ToChild,
    relay: &Relay,
    orders: flume::Receiver<Order>,
    socket: &UnixStream,
) -> Talk {
    let said_bye = Arc::new(AtomicBool::new(false));
    let writing = socket.try_clone().map_err(CodecError::from).and_then(|writing| {
        let said_bye = Arc::clone(&said_bye);
        let write = move || write_all(opening, &orders, writing, &said_bye);
        Ok(std::thread::Builder::new().name("child-orders".to_owned()).spawn(write)?)
    });
    let reading = writing.and_then(|_| Ok(socket.try_clone()?));
    let mut frames = match reading {
        Ok(reading) => Frames::new(reading),
        Err(error) => return Talk::Garbled(error),
    };
    let (mut heard, mut patience) = (Instant::now(), START_WAIT_MAX);
    let mut bye_at = None;
    loop {
        match frames.next() {
            Ok(Some(frame)) => {
                (heard, patience) = (Instant::now(), spec.silent_after);
                match frame {
                    FromChild::Beat { progress, doing } => relay.life.beat(progress, doing),
                    FromChild::Event(DeviceEvent::Lost(end)) => return Talk::Said(end),
                    FromChild::Event(event) => {
                        relay.life.moved();
                        relay.deliver(event);
                    }
                }
            }
            Ok(None) => {}
            Err(CodecError::Ended | CodecError::Truncated) if bye_at.is_some() => return Talk::Over,
            Err(CodecError::Ended | CodecError::Truncated) => return Talk::Closed,
            Err(CodecError::Socket(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Talk::Closed;
            }
            Err(error) => return Talk::Garbled(error),
        }
        if bye_at.is_none() && said_bye.load(Ordering::Acquire) {
            bye_at = Some(Instant::now());
        }
        let late = bye_at.is_some_and(|at: Instant| at.elapsed() > BYE_WAIT_MAX);
        if late || relay.life.is_retired() {
            return Talk::Over;
        }
        if heard.elapsed() > patience {
            return Talk::Silent(heard.elapsed());
        }
    }
}

/// Writes all orders, and goodbye after the last one. A child that does not read keeps only this thread
/// waiting.
fn write_all(
    opening: ToChild,
    orders: &flume::Receiver<Order>,
    mut socket: UnixStream,
    said_bye: &AtomicBool,
) {
    let mut buffer = Vec::new();
    let mut frame = opening;
    loop {
        if let Err(error) = codec::write(&frame, &mut socket, &mut buffer) {
            if !matches!(error, CodecError::Socket(_)) {
                tracing::error!(parent: None, %error, "an order did not reach the executor process");
                // Without it, nothing that follows makes sense: the keeper sees the end.
                let _ = socket.shutdown(Shutdown::Both);
            }
            return;
        }
        if matches!(frame, ToChild::Bye) {
            said_bye.store(true, Ordering::Release);
            return;
        }
        frame = orders.recv().map_or(ToChild::Bye, ToChild::Order);
    }
}

/// Ends a child: after a moment of its own if it is ending anyway, else at once. None when it does not go.
fn end(child: &mut Child, is_ending: bool) -> Option<ExitStatus> {
    if is_ending && let Some(status) = reap(child, BYE_WAIT_MAX / 5) {
        return Some(status);
    }
    // One that is gone already is as good as killed.
    let _ = child.kill();
    reap(child, REAP_WAIT_MAX)
}

/// Keeps the seat of a child that does not go, for as long as it has the device's memory.
fn leave_to_the_system(mut child: Child, seated: Seated) {
    let wait = move || {
        let _ = child.wait();
        drop(seated);
    };
    // Without a thread for it the seat is given up: the next child must not wait for ever.
    let _ = std::thread::Builder::new().name("child-reaper".to_owned()).spawn(wait);
}

fn reap(child: &mut Child, wait_max: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Err(_) => return None,
            Ok(None) if started.elapsed() >= wait_max => return None,
            Ok(None) => std::thread::sleep(REAP_EVERY),
        }
    }
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Whether a process ended by its own doing: it left, or did something that the system ends a process for.
/// One that was killed or told to end was not at fault, and neither were its sequences.
fn is_crash(status: Option<ExitStatus>) -> bool {
    /// Interrupt, kill, terminate, hang-up: sent from outside.
    const FROM_OUTSIDE: [i32; 4] = [2, 9, 15, 1];
    status.is_some_and(|status| !status.signal().is_some_and(|signal| FROM_OUTSIDE.contains(&signal)))
}
