//! Capture and replay of graphs.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use super::{call, invalid, limit, put, put_text, text, wants};
use crate::machine::capture::{self, Mode, Status};
use crate::machine::faults::{self, Phase, Site, SiteClass};
use crate::machine::graph::Graph;
use crate::machine::refusal::{Answer, Refusal};
use crate::machine::table::lock;
use crate::machine::{codes, context, machine, stream, submit};

/// Bytes of a graph's name.
const NAME_MAX: usize = 256;

fn find(handle: *mut c_void) -> Answer<Arc<Graph>> {
    let context = context::current()?;
    let Some(graph) = machine().graphs.get(handle) else {
        return Refusal::answer(
            codes::INVALID_HANDLE,
            "the graph is null, was destroyed, or is still being captured",
        );
    };
    let ours = machine().contexts.get(graph.context as *const c_void);
    if ours.is_none_or(|owner| owner.device.id != context.device.id) {
        let detail = format!("graph {} belongs to another device; make a context of it current", graph.id);
        return Refusal::answer(codes::MODEL_CONTEXT, detail);
    }
    Ok(graph)
}

/// Begins a capture.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureBegin(handle: *mut c_void, mode: i32) -> i32 {
    call(|| {
        let mode = Mode::from_abi(mode)?;
        let stream = stream::find(handle)?;
        faults::at_call(&Site {
            class: SiteClass::Capture,
            operator: "capture",
            device: stream.device().id,
            stream: Some(stream.id),
            phase: Phase::Capture,
        })?;
        capture::begin(&stream, mode)
    })
}

/// Tells how the capture of a stream stands.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureGetInfo(
    handle: *mut c_void,
    status: *mut i32,
    model: *mut *mut c_void,
) -> i32 {
    call(|| {
        if status.is_null() && model.is_null() {
            return invalid("both results are null");
        }
        let (state, graph) = capture::info(&*stream::find(handle)?);
        if !status.is_null() {
            let number = match state {
                Status::None => 0,
                Status::Active => 1,
                Status::Invalidated => 2,
            };
            put(status, number)?;
        }
        if model.is_null() { Ok(()) } else { put(model, graph as *mut c_void) }
    })
}

/// Ends a capture.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureEnd(handle: *mut c_void, model: *mut *mut c_void) -> i32 {
    call(|| {
        wants(model)?;
        let stream = stream::find(handle)?;
        put(model, std::ptr::null_mut())?;
        put(model, capture::end(&stream)?.handle as *mut c_void)
    })
}

/// Exchanges the calling thread's mode.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureThreadExchangeMode(mode: *mut i32) -> i32 {
    call(|| {
        wants(mode)?;
        // SAFETY: not null, and the caller of the ABI vouches that it points to a mode.
        let wanted = Mode::from_abi(unsafe { mode.read_unaligned() })?;
        put(mode, capture::exchange_mode(wanted).to_abi())
    })
}

/// Replays a graph on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIExecuteAsync(model: *mut c_void, handle: *mut c_void) -> i32 {
    call(|| submit::replay(&stream::find(handle)?, find(model)?))
}

/// Replays a graph and waits for it.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIExecute(model: *mut c_void, ms: i32) -> i32 {
    call(|| {
        let limit: Option<Duration> = limit(ms)?;
        let stream = stream::find(std::ptr::null_mut())?;
        submit::replay(&stream, find(model)?)?;
        stream.synchronize(limit)
    })
}

/// Ends a graph.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIDestroy(model: *mut c_void) -> i32 {
    call(|| find(model)?.destroy())
}

/// Prints the nodes of a graph.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIDebugPrint(model: *mut c_void) -> i32 {
    call(|| {
        let text = find(model)?.describe();
        std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())
            .map_err(|error| Refusal::new(codes::FILE_OPEN, format!("standard output: {error}")))
    })
}

/// Writes the nodes of a graph into a file.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIDebugJsonPrint(model: *mut c_void, path: *const c_char, flags: u32) -> i32 {
    call(|| {
        if flags > 1 {
            return invalid(format!("{flags:#x} are no print flags"));
        }
        let (graph, path) = (find(model)?, text(path)?);
        std::fs::write(path, graph.json())
            .map_err(|error| Refusal::new(codes::FILE_OPEN, format!("{path}: {error}")))
    })
}

/// Names a graph.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRISetName(model: *mut c_void, name: *const c_char) -> i32 {
    call(|| {
        let (graph, name) = (find(model)?, text(name)?);
        if name.len() >= NAME_MAX {
            return invalid(format!("a name has fewer than {NAME_MAX} bytes"));
        }
        name.clone_into(&mut lock(&graph.name));
        Ok(())
    })
}

/// Tells its name.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIGetName(model: *mut c_void, room: u32, name: *mut c_char) -> i32 {
    call(|| {
        let graph = find(model)?;
        let text = lock(&graph.name).clone();
        put_text(name, room as usize, &text)
    })
}

/// Tells its number.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIGetId(model: *mut c_void, id: *mut u32) -> i32 {
    call(|| put(id, find(model)?.id))
}
