//! What happens to work on a stream that is being captured: it becomes nodes.
//!
//! Always holds: a node belongs to the lane of its stream; a stream becomes a lane by waiting for a mark.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Capture, Captures, Lane, Mark, take_stream, with};
use crate::launch::Launch;
use crate::machine::codes;
use crate::machine::event::{Event, Kind};
use crate::machine::graph::{Action, Node, Slot, TaskGroup};
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::stream::Stream;
use crate::machine::table::next_handle;
use crate::machine::task::Class;

impl Capture {
    fn lane_of(&self, stream: &Stream) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.stream.handle == stream.handle)
    }

    fn refuse_broken(&self) -> Answer {
        match &self.broken {
            Some(cause) => Refusal::answer(
                codes::CAPTURE_INVALIDATED,
                format!("the capture is broken; end it. Cause: {cause}"),
            ),
            None => Ok(()),
        }
    }

    /// Adds a node to a lane and returns its number.
    fn add(&mut self, lane: usize, action: Action) -> usize {
        self.nodes.push(Node { lane, action });
        if let Some(lane_state) = self.lanes.get_mut(lane) {
            lane_state.count += 1;
            if lane_state.clock.len() <= lane {
                lane_state.clock.resize(lane + 1, 0);
            }
            if let Some(own) = lane_state.clock.get_mut(lane) {
                *own += 1;
            }
        }
        self.nodes.len() - 1
    }

    /// A node that is no kernel has no place in a task group.
    fn refuse_in_group(&self, lane: usize, what: &str) -> Answer {
        if self.lanes.get(lane).is_some_and(|lane| lane.group.is_some()) {
            let detail = format!("{what} interrupts a task group; a group holds operators only");
            return Refusal::answer(codes::GROUP_INTERRUPTED, detail);
        }
        Ok(())
    }
}

/// Runs `act` on the capture of a stream; a refusal breaks it.
fn inside<T>(stream: &Arc<Stream>, act: impl FnOnce(&mut Capture, usize) -> Answer<T>) -> Answer<T> {
    stream.device().takes_work()?;
    with(|captures| {
        let id = stream.capture.load(Ordering::Relaxed);
        let Some(capture) = captures.active.get_mut(&id) else {
            let detail = format!("stream {} is not capturing", stream.id);
            return Refusal::answer(codes::STREAM_NOT_CAPTURED, detail);
        };
        capture.refuse_broken()?;
        let Some(lane) = capture.lane_of(stream) else {
            return Refusal::answer(
                codes::STREAM_NOT_CAPTURED,
                format!("stream {} is in no capture", stream.id),
            );
        };
        act(capture, lane).map_err(|refusal| capture.break_by(refusal))
    })
}

/// Keeps a launch as a node.
pub fn add_work(stream: &Arc<Stream>, class: Class, launch: Launch) -> Answer {
    inside(stream, |capture, lane| {
        let slot = Arc::new(Slot::new(launch));
        if let Some(group) = capture.lanes.get_mut(lane).and_then(|lane| lane.group.as_mut()) {
            let launch = slot.get();
            if class != Class::Kernel {
                let detail = format!("{} is no operator; a task group holds operators only", launch.operator);
                return Refusal::answer(codes::TASK_TYPE, detail);
            }
            if !launch.updatable {
                let detail = format!("{} cannot be updated; keep it out of task groups", launch.operator);
                return Refusal::answer(codes::UPDATE_NOT_SUPPORTED, detail);
            }
            group.push(Arc::clone(&slot));
        }
        capture.add(lane, Action::Work(class, slot));
        Ok(())
    })
}

/// Records an event: a mark, or for outside work a node that records it at every replay.
pub fn record(stream: &Arc<Stream>, event: &Arc<Event>, outside: bool) -> Answer {
    inside(stream, |capture, lane| {
        capture.refuse_in_group(lane, "a record")?;
        if event.is_flag() {
            capture.add(lane, Action::Raise(Arc::clone(event)));
            return Ok(());
        }
        if outside {
            capture.add(lane, Action::Record(Arc::clone(event)));
            return Ok(());
        }
        let node = capture.add(lane, Action::Mark);
        let clock = capture.lanes.get(lane).map(|lane| lane.clock.clone()).unwrap_or_default();
        event.capture.store(capture.id, Ordering::Relaxed);
        capture.marks.insert(event.handle, Mark { event: Arc::clone(event), node, clock });
        Ok(())
    })
}

/// Resets an event: only flags have anything to reset.
pub fn reset(stream: &Arc<Stream>, event: &Arc<Event>) -> Answer {
    inside(stream, |capture, lane| {
        capture.refuse_in_group(lane, "a reset")?;
        if event.is_flag() {
            capture.add(lane, Action::Lower(Arc::clone(event)));
        }
        Ok(())
    })
}

/// Waits for a notify and lowers it.
pub fn wait_notify(stream: &Arc<Stream>, notify: &Arc<Event>) -> Answer {
    inside(stream, |capture, lane| {
        capture.refuse_in_group(lane, "a wait")?;
        capture.add(lane, Action::AwaitFlag(Arc::clone(notify), true));
        Ok(())
    })
}

/// Waits for an event; this is how a stream joins a capture, and how it comes back.
pub fn wait(stream: &Arc<Stream>, event: &Arc<Event>, outside: bool) -> Answer {
    if outside {
        return inside(stream, |capture, lane| {
            capture.refuse_in_group(lane, "a wait")?;
            let event = Arc::clone(event);
            let action = if event.is_flag() { Action::AwaitFlag(event, false) } else { Action::Await(event) };
            capture.add(lane, action);
            Ok(())
        });
    }
    stream.device().takes_work()?;
    with(|captures| {
        let own = stream.capture.load(Ordering::Relaxed);
        let other = event.capture.load(Ordering::Relaxed);
        if own == 0 {
            return join(captures, other, stream, event);
        }
        if other != 0 && other != own {
            let detail = format!("event {} belongs to another capture; captures cannot meet", event.id);
            let refusal = Refusal::new(codes::CAPTURE_CONFLICT, detail);
            for id in [own, other] {
                if let Some(capture) = captures.active.get_mut(&id) {
                    capture.break_by(refusal.clone());
                }
            }
            return Err(refusal);
        }
        let Some(capture) = captures.active.get_mut(&own) else {
            return Refusal::answer(
                codes::STREAM_NOT_CAPTURED,
                format!("stream {} is in no capture", stream.id),
            );
        };
        capture.refuse_broken()?;
        let Some(lane) = capture.lane_of(stream) else {
            return Refusal::answer(
                codes::STREAM_NOT_CAPTURED,
                format!("stream {} is in no capture", stream.id),
            );
        };
        follow(capture, lane, event).map_err(|refusal| capture.break_by(refusal))
    })
}

/// A stream that captures nothing waits for an event of a capture, and is part of it from here on.
fn join(captures: &mut Captures, id: u64, stream: &Arc<Stream>, event: &Event) -> Answer {
    let Some(capture) = captures.active.get_mut(&id) else {
        // The capture ended meanwhile: there is nothing to wait for.
        return Ok(());
    };
    capture.refuse_broken()?;
    if stream.context.is_default(stream) {
        let detail = "the default stream cannot join a capture; create a stream";
        return Err(capture.break_by(Refusal::new(codes::CAPTURE_IMPLICIT, detail)));
    }
    if let Err(refusal) = take_stream(stream) {
        return Err(capture.break_by(refusal));
    }
    stream.capture.store(id, Ordering::Relaxed);
    let lane = capture.lanes.len();
    capture.lanes.push(Lane { stream: Arc::clone(stream), clock: vec![0; lane + 1], count: 0, group: None });
    follow(capture, lane, event).map_err(|refusal| capture.break_by(refusal))
}

fn follow(capture: &mut Capture, lane: usize, event: &Event) -> Answer {
    capture.refuse_in_group(lane, "a wait")?;
    let Some(mark) =
        capture.marks.get(&event.handle).filter(|mark| mark.event.capture.load(Ordering::Relaxed) != 0)
    else {
        let kind = if event.kind == Kind::Extended { "" } else { " (or make it with the external flag)" };
        let detail = format!("event {} was not recorded in this capture{kind}; record it first", event.id);
        return Refusal::answer(codes::CAPTURE_DEPENDENCY, detail);
    };
    let (node, seen) = (mark.node, mark.clock.clone());
    if let Some(lane) = capture.lanes.get_mut(lane) {
        if lane.clock.len() < seen.len() {
            lane.clock.resize(seen.len(), 0);
        }
        for (mine, theirs) in lane.clock.iter_mut().zip(seen) {
            *mine = (*mine).max(theirs);
        }
    }
    capture.add(lane, Action::After(node));
    Ok(())
}

/// Opens a task group on a stream.
pub fn group_begin(stream: &Arc<Stream>) -> Answer {
    inside(stream, |capture, lane| {
        let Some(lane) = capture.lanes.get_mut(lane) else { return Ok(()) };
        if lane.group.is_some() {
            let detail = format!("stream {} is in a task group already; groups do not nest", stream.id);
            return Refusal::answer(codes::GROUP_STATUS, detail);
        }
        lane.group = Some(Vec::new());
        Ok(())
    })
}

/// Closes it and gives its handle.
pub fn group_end(stream: &Arc<Stream>) -> Answer<usize> {
    inside(stream, |capture, lane| {
        let slots = capture.lanes.get_mut(lane).and_then(|lane| lane.group.take());
        let Some(slots) = slots.filter(|slots| !slots.is_empty()) else {
            let detail = format!("stream {} has no open task group with an operator in it", stream.id);
            return Refusal::answer(codes::GROUP_STATUS, detail);
        };
        let group = TaskGroup { handle: next_handle(), graph: capture.handle, slots };
        let handle = group.handle;
        capture.groups.push(Arc::new(group));
        Ok(handle)
    })
}
