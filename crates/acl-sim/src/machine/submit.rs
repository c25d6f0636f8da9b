//! The three ways of a submission: onto the stream, into the capture, or into an update of a graph.
//!
//! Always holds: a refusal inside a capture breaks that capture.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::event::Event;
use super::faults::{self, Phase, Site, SiteClass};
use super::graph::{Graph, Replay};
use super::refusal::{Answer, Refusal};
use super::stream::Stream;
use super::task::{Class, Task};
use super::{capture, codes, event, process, update};
use crate::launch::Launch;

fn captured(stream: &Stream) -> bool {
    stream.capture.load(Ordering::Relaxed) != 0
}

/// Submits a launch.
pub fn work(stream: &Arc<Stream>, class: Class, launch: Launch) -> Answer {
    let capturing = captured(stream);
    if faults::armed() {
        let phase = if capturing { Phase::Capture } else { Phase::Eager };
        let class = match class {
            Class::Kernel => SiteClass::Operator,
            Class::Memcpy => SiteClass::Memcpy,
            Class::Other => SiteClass::Other,
        };
        let (device, operator) = (stream.device().id, launch.operator);
        faults::at_call(&Site { class, operator, device, stream: Some(stream.id), phase })
            .map_err(|refusal| capture::break_stream(stream, refusal))?;
    }
    if capturing {
        return capture::add_work(stream, class, launch);
    }
    if stream.updating.load(Ordering::Relaxed) {
        return update::add(stream, class, launch);
    }
    capture::forbid_default(stream)?;
    stream.push(Task::Work(class, launch))
}

/// Submits a record of an event; `outside` ones leave the capture they are in.
pub fn record(stream: &Arc<Stream>, event: &Arc<Event>, outside: bool) -> Answer {
    if captured(stream) {
        return capture::record(stream, event, outside);
    }
    capture::forbid_default(stream)?;
    if event.is_flag() {
        return stream.push(Task::Raise(Arc::clone(event)));
    }
    event.capture.store(0, Ordering::Relaxed);
    let ticket = event.draw(stream);
    stream.push(Task::Record(Arc::clone(event), ticket)).inspect_err(|_| event.reach(ticket))
}

/// Submits a wait for an event.
pub fn wait(stream: &Arc<Stream>, event: &Arc<Event>, limit: Option<Duration>, outside: bool) -> Answer {
    let limit = limit.or_else(process::wait_limit);
    let outside = outside || event.is_flag();
    if captured(stream) || (!outside && event.capture.load(Ordering::Relaxed) != 0) {
        return capture::wait(stream, event, outside);
    }
    capture::forbid_default(stream)?;
    if event.kind == event::Kind::Plain && event.flags & event::flags::SYNC == 0 && !event.is_flag() {
        let detail = format!("event {} was made without the sync flag; streams cannot wait for it", event.id);
        return Refusal::answer(codes::PARAM_INVALID, detail);
    }
    if event.is_flag() {
        return stream.push(Task::AwaitFlag(Arc::clone(event), false, limit));
    }
    let ticket = event.recorded();
    stream.push(Task::Wait(Arc::clone(event), ticket, limit))
}

/// Submits a reset of an event.
pub fn reset(stream: &Arc<Stream>, event: &Arc<Event>) -> Answer {
    if event.kind == event::Kind::Extended {
        let detail =
            format!("event {} was made by aclrtCreateEventExWithFlag, which allows no reset", event.id);
        return Err(capture::break_stream(stream, Refusal::new(codes::NOT_SUPPORTED, detail)));
    }
    if captured(stream) {
        return capture::reset(stream, event);
    }
    capture::forbid_default(stream)?;
    if event.is_flag() { stream.push(Task::Lower(Arc::clone(event))) } else { Ok(()) }
}

/// Submits a wait for a notify, which lowers it.
pub fn wait_notify(stream: &Arc<Stream>, notify: &Arc<Event>, limit: Option<Duration>) -> Answer {
    if captured(stream) {
        return capture::wait_notify(stream, notify);
    }
    capture::forbid_default(stream)?;
    stream.push(Task::AwaitFlag(Arc::clone(notify), true, limit))
}

/// Submits a replay.
pub fn replay(stream: &Arc<Stream>, graph: Arc<Graph>) -> Answer {
    let device = stream.device().id;
    faults::at_call(&Site {
        class: SiteClass::Replay,
        operator: "replay",
        device,
        stream: Some(stream.id),
        phase: Phase::Eager,
    })?;
    if captured(stream) {
        let detail = format!("stream {} is capturing; a graph cannot be replayed on it", stream.id);
        return Err(capture::break_stream(stream, Refusal::new(codes::STREAM_CAPTURED, detail)));
    }
    capture::forbid_default(stream)?;
    let replay = Replay::new(graph, stream);
    stream.push(Task::Replay(replay))
}
