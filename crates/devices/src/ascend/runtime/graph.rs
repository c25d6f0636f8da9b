//! Captured graphs, and the one operation in them that takes new arguments before each replay.

use std::ffi::c_void;
use std::rc::Rc;
use std::time::Duration;

use super::{Api, Stream};
use crate::ascend::codes;
use crate::ascend::error::Fault;

/// `ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL`: other threads go on as they like.
const THREAD_LOCAL: i32 = 1;

/// How often a graph that still runs is asked to go: its stream was destroyed, and takes a moment to notice.
const DESTROY_TRIES: u32 = 50;
/// How long it is given in between.
const DESTROY_PAUSE: Duration = Duration::from_millis(10);

/// A captured graph.
#[derive(Debug)]
pub(in crate::ascend) struct GraphHandle {
    api: Rc<Api>,
    handle: *mut c_void,
}

/// Records what `work` puts on the stream. Whatever happens, the stream does not capture any more afterwards.
pub(in crate::ascend) fn capture(
    stream: &Stream,
    work: impl FnOnce() -> Result<(), Fault>,
) -> Result<GraphHandle, Fault> {
    let api = stream.api();
    // SAFETY: a live handle.
    let status = unsafe { (api.library.runtime.capture_begin)(stream.handle(), THREAD_LOCAL) };
    api.check(status, "aclmdlRICaptureBegin")?;
    let recorded = work();
    let mut handle = std::ptr::null_mut();
    // SAFETY: a live handle, and a place for another.
    let status = unsafe { (api.library.runtime.capture_end)(stream.handle(), &raw mut handle) };
    let ended = api.check(status, "aclmdlRICaptureEnd");
    let graph = (!handle.is_null()).then(|| GraphHandle { api: Rc::clone(api), handle });
    // The first thing that went wrong says more than what followed from it.
    recorded?;
    ended?;
    graph.ok_or_else(|| api.fault(STREAM_CAPTURE_INVALIDATED, "aclmdlRICaptureEnd"))
}

/// The capture was broken: there is no graph.
const STREAM_CAPTURE_INVALIDATED: i32 = 507_903;

impl GraphHandle {
    /// Puts the graph onto a stream.
    pub(in crate::ascend) fn execute(&self, stream: &Stream) -> Result<(), Fault> {
        // SAFETY: two live handles; what the graph has baked in is kept by its owner.
        let status = unsafe { (self.api.library.runtime.graph_execute_async)(self.handle, stream.handle()) };
        self.api.check(status, "aclmdlRIExecuteAsync")
    }

    /// Destroys it. When it runs on nevertheless, it is left to run, and this says so: what it has baked in must stay.
    pub(in crate::ascend) fn destroy(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let handle = std::mem::replace(&mut self.handle, std::ptr::null_mut());
        if handle.is_null() {
            return true;
        }
        for _ in 0..DESTROY_TRIES {
            // SAFETY: a live handle: it is given up only when this call has not refused.
            let status = unsafe { (self.api.library.runtime.graph_destroy)(handle) };
            if status == 0 {
                return true;
            }
            // The message belongs to no fault that anybody hears of.
            self.api.library.recent_message();
            if status != codes::MODEL_RUNNING {
                // The device is in trouble already, or gone; nothing runs there.
                return true;
            }
            std::thread::sleep(DESTROY_PAUSE);
        }
        false
    }
}

impl Drop for GraphHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Names one operation of a graph. Lives as long as its graph.
#[derive(Debug)]
pub(in crate::ascend) struct TaskGroup(*mut c_void);

impl TaskGroup {
    /// Records `work`, which is one operator, as a group.
    pub(in crate::ascend) fn record(
        stream: &Stream,
        work: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<Self, Fault> {
        let api = stream.api();
        // SAFETY: a live handle.
        let status = unsafe { (api.library.runtime.task_group_begin)(stream.handle()) };
        api.check(status, "aclmdlRICaptureTaskGrpBegin")?;
        work()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live handle, and a place for another.
        let status = unsafe { (api.library.runtime.task_group_end)(stream.handle(), &raw mut handle) };
        api.check(status, "aclmdlRICaptureTaskGrpEnd")?;
        Ok(Self(handle))
    }

    /// Gives the operation new arguments: `work` calls the same operator on the update stream.
    pub(in crate::ascend) fn update(
        &self,
        stream: &Stream,
        work: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let api = stream.api();
        // SAFETY: live handles: the graph of this group is alive, and so is the stream.
        let status = unsafe { (api.library.runtime.task_update_begin)(stream.handle(), self.0) };
        api.check(status, "aclmdlRICaptureTaskUpdateBegin")?;
        let called = work();
        // SAFETY: a live handle; ends what was begun even when the call in between failed.
        let status = unsafe { (api.library.runtime.task_update_end)(stream.handle()) };
        let ended = api.check(status, "aclmdlRICaptureTaskUpdateEnd");
        called?;
        ended
    }
}
