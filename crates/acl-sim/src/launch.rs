//! How operators reach a stream: the one seam between arithmetic and the runtime.
//!
//! An operator's second phase hands a [`Launch`] to [`submit`]. The runtime runs it on the stream's own
//! thread, or keeps it in a graph when the stream is being captured and runs it again at every replay.

use std::ffi::c_void;
use std::sync::Arc;

use crate::machine::refusal::{self, Answer};
use crate::machine::task::Class;
use crate::machine::{codes, context, stream, submit, worker};
use crate::settings::settings;

/// One kernel with all its arguments: raw device addresses, shapes, host arrays by value. Running it twice
/// does the same work twice on whatever the memory holds by then.
#[derive(Clone)]
pub struct Launch {
    /// Name of the operator, such as `aclnnAdd`: what a fault script names.
    pub operator: &'static str,
    /// Whether a captured task of it may be updated with new host arguments.
    pub updatable: bool,
    /// Output buffers (address, bytes). They must lie in device memory when the kernel runs, or it fails with
    /// 507015 instead of running; a fault script may corrupt them.
    pub outputs: Vec<(usize, usize)>,
    /// The arithmetic. An error is an ACL code, which shows at the next synchronisation.
    pub work: Arc<dyn Fn() -> Result<(), i32> + Send + Sync>,
}

/// Puts a kernel on a stream (null: the default stream of the current context). Returns an ACL code: a
/// refusal to take the work, never its outcome. The refusal is in the thread's recent text already.
pub fn submit(stream: *mut c_void, launch: Launch) -> i32 {
    answered(stream::find(stream).and_then(|stream| submit::work(&stream, Class::Kernel, launch)))
}

/// Whether the task that runs on this thread was aborted: kernels that wait for something outside, such as a
/// peer of a collective, ask this while they wait and return when it is true.
pub fn cancelled() -> bool {
    worker::cancelled()
}

/// Adds a sentence to what `aclGetRecentErrMsg` tells the calling thread, and returns `code`.
pub fn report(code: i32, detail: &str) -> i32 {
    refusal::report(code, detail);
    code
}

/// Whether this installation has an operator (`ACL_SIM_MISSING` lists those it lacks).
pub fn has_operator(name: &str) -> bool {
    settings().missing.iter().all(|missing| missing != name)
}

/// The device of the calling thread's context.
pub fn current_device() -> Result<i32, i32> {
    context::current().map(|context| context.device.id).map_err(|refusal| refusal::note(&refusal))
}

/// Waits until the work of a stream has ended (null: the default stream) and gives its code.
pub fn synchronise(stream: *mut c_void) -> i32 {
    answered(stream::find(stream).and_then(|stream| stream.synchronize(None)))
}

fn answered(answer: Answer) -> i32 {
    match answer {
        Ok(()) => codes::SUCCESS,
        Err(refusal) => refusal::note(&refusal),
    }
}
