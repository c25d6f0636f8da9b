//! New arguments for the tasks of a graph: `TaskUpdateBegin … TaskUpdateEnd`.
//!
//! Always holds: an update is a task of the stream it was made on, so an event recorded after it says that it
//! is done; kernels are replaced by kernels of the same name, one for one.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::graph::TaskGroup;
use super::refusal::{Answer, Refusal};
use super::stream::Stream;
use super::table::lock;
use super::task::{Class, Task};
use super::{codes, machine};
use crate::launch::Launch;

/// An update that was begun.
pub struct Update {
    group: Arc<TaskGroup>,
    next: usize,
}

/// Begins an update on a stream that is not being captured.
pub fn begin(stream: &Arc<Stream>, handle: *mut c_void) -> Answer {
    if stream.capture.load(Ordering::Relaxed) != 0 {
        let detail = format!("stream {} is capturing; update tasks on another stream", stream.id);
        return Refusal::answer(codes::STREAM_CAPTURED, detail);
    }
    let group = machine()
        .groups
        .get(handle)
        .filter(|group| machine().graphs.get(group.graph as *const c_void).is_some());
    let Some(group) = group else {
        return Refusal::answer(
            codes::INVALID_HANDLE,
            "the task group is gone, or its graph was not ended yet",
        );
    };
    let mut update = lock(&stream.update);
    if update.is_some() {
        let detail = format!("stream {} is updating a task group already; end that first", stream.id);
        return Refusal::answer(codes::GROUP_STATUS, detail);
    }
    *update = Some(Update { group, next: 0 });
    stream.updating.store(true, Ordering::Relaxed);
    Ok(())
}

/// Takes a launch as the next kernel of the group that is being updated.
pub fn add(stream: &Arc<Stream>, class: Class, launch: Launch) -> Answer {
    if class != Class::Kernel {
        let detail = format!("{} is no operator; an update takes operators only", launch.operator);
        return Refusal::answer(codes::TASK_TYPE, detail);
    }
    if !launch.updatable {
        return Refusal::answer(
            codes::UPDATE_NOT_SUPPORTED,
            format!("{} cannot be updated", launch.operator),
        );
    }
    let slot = {
        let mut update = lock(&stream.update);
        let Some(update) = update.as_mut() else {
            return Refusal::answer(codes::GROUP_STATUS, format!("stream {} is not updating", stream.id));
        };
        let Some(slot) = update.group.slots.get(update.next) else {
            let detail =
                format!("the task group holds {} tasks, and this is one more", update.group.slots.len());
            return Refusal::answer(codes::MODEL_UPDATE_FAILED, detail);
        };
        let before = slot.get().operator;
        if before != launch.operator {
            let detail = format!(
                "{} cannot take the place of {before}; update with the same operator",
                launch.operator
            );
            return Refusal::answer(codes::TASK_TYPE, detail);
        }
        update.next += 1;
        Arc::clone(slot)
    };
    stream.push(Task::Update(slot, launch))
}

/// Ends an update; all kernels of the group must have been given.
pub fn end(stream: &Arc<Stream>) -> Answer {
    stream.updating.store(false, Ordering::Relaxed);
    let Some(update) = lock(&stream.update).take() else {
        return Refusal::answer(
            codes::GROUP_STATUS,
            format!("stream {} is not updating a task group", stream.id),
        );
    };
    let (given, wanted) = (update.next, update.group.slots.len());
    if given != wanted {
        let detail =
            format!("{given} of {wanted} tasks of the group were updated; give all of them, in order");
        return Refusal::answer(codes::MODEL_UPDATE_FAILED, detail);
    }
    Ok(())
}
