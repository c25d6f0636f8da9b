//! Device memory in pieces: one allocation holds many, and what each is for is counted.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::rc::Rc;

use super::{Api, DeviceBuffer};
use crate::ascend::error::Fault;

/// Pieces start at multiples of this.
const ALIGNMENT: usize = 64;
/// Kernels may read so far behind a piece, whose size they round up to it as well.
const SLACK: usize = 32;
/// Small pieces share allocations of this size.
const CHUNK: usize = 32 << 20;
/// A workspace grows to multiples of this.
const WORKSPACE_STEP: usize = 1 << 20;

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ascend) enum Purpose {
    Weights,
    Kv,
    Activations,
}

/// A piece of device memory; clones share it, and keep its allocation alive.
#[derive(Clone, Debug)]
pub(in crate::ascend) struct Slice {
    buffer: Rc<DeviceBuffer>,
    offset: usize,
    bytes: usize,
}

impl Slice {
    pub(in crate::ascend) fn address(&self) -> *mut c_void {
        // SAFETY: the piece lies inside its allocation (only this module makes and narrows pieces).
        unsafe { self.buffer.address().cast::<u8>().add(self.offset).cast() }
    }

    pub(in crate::ascend) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The part behind the first `offset` bytes.
    pub(in crate::ascend) fn skip(&self, offset: usize) -> Self {
        let offset = offset.min(self.bytes);
        Self { buffer: Rc::clone(&self.buffer), offset: self.offset + offset, bytes: self.bytes - offset }
    }

    pub(in crate::ascend) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        debug_assert!(offset + bytes.len() <= self.bytes);
        self.buffer.write(self.offset + offset, bytes)
    }

    pub(in crate::ascend) fn zero(&self) -> Result<(), Fault> {
        self.buffer.zero(self.offset, self.bytes)
    }
}

/// Hands out pieces. They are freed when nobody holds a piece of their allocation any more.
#[derive(Debug)]
pub(in crate::ascend) struct Pool {
    api: Rc<Api>,
    open: Option<(Rc<DeviceBuffer>, usize)>,
    taken: [usize; 3],
}

impl Pool {
    pub(in crate::ascend) fn new(api: &Rc<Api>) -> Self {
        Self { api: Rc::clone(api), open: None, taken: [0; 3] }
    }

    pub(in crate::ascend) fn take(&mut self, purpose: Purpose, bytes: usize) -> Result<Slice, Fault> {
        let padded = padded(bytes);
        self.taken[purpose as usize] += padded;
        if padded > CHUNK / 4 {
            let buffer = Rc::new(DeviceBuffer::new(&self.api, padded)?);
            return Ok(Slice { buffer, offset: 0, bytes });
        }
        let (buffer, used) = match self.open.take() {
            Some((buffer, used)) if used + padded <= buffer.bytes() => (buffer, used),
            _ => (Rc::new(DeviceBuffer::new(&self.api, CHUNK)?), 0),
        };
        let slice = Slice { buffer: Rc::clone(&buffer), offset: used, bytes };
        self.open = Some((buffer, used + padded));
        Ok(slice)
    }

    /// Bytes handed out for a purpose.
    pub(in crate::ascend) fn taken(&self, purpose: Purpose) -> u64 {
        self.taken[purpose as usize] as u64
    }
}

/// Size of a piece with its slack, such that the next one is aligned.
fn padded(bytes: usize) -> usize {
    (bytes.next_multiple_of(SLACK) + SLACK).next_multiple_of(ALIGNMENT)
}

/// Scratch memory for the operators of one stream: they run in order, so one after the other may use the same.
#[derive(Debug)]
pub(in crate::ascend) struct Workspace {
    api: Rc<Api>,
    current: RefCell<Option<Slice>>,
    /// Outgrown ones, which queued work may still use.
    outgrown: RefCell<Vec<Slice>>,
    largest: Cell<usize>,
}

impl Workspace {
    pub(in crate::ascend) fn new(api: &Rc<Api>) -> Self {
        let (current, outgrown) = (RefCell::new(None), RefCell::new(Vec::new()));
        Self { api: Rc::clone(api), current, outgrown, largest: Cell::new(0) }
    }

    /// Lends at least so many bytes, until the next call.
    pub(in crate::ascend) fn lend(&self, bytes: usize) -> Result<Option<Slice>, Fault> {
        if bytes == 0 {
            return Ok(None);
        }
        let mut current = self.current.borrow_mut();
        if current.as_ref().is_none_or(|slice| slice.bytes() < bytes) {
            let size = bytes.max(self.largest.get() + self.largest.get() / 2);
            let buffer = DeviceBuffer::new(&self.api, padded(size).next_multiple_of(WORKSPACE_STEP))?;
            let bytes = buffer.bytes();
            let slice = Slice { buffer: Rc::new(buffer), offset: 0, bytes };
            self.largest.set(bytes);
            self.outgrown.borrow_mut().extend(current.replace(slice));
        }
        Ok(current.clone())
    }

    /// All queued work is done: outgrown memory goes.
    pub(in crate::ascend) fn settled(&self) {
        let mut outgrown = self.outgrown.borrow_mut();
        if !outgrown.is_empty() {
            outgrown.clear();
        }
    }

    pub(in crate::ascend) fn bytes(&self) -> u64 {
        self.current.borrow().as_ref().map_or(0, |slice| slice.bytes() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::padded;

    #[test]
    fn a_piece_has_its_slack_and_the_next_one_is_aligned() {
        for bytes in [1, 31, 32, 33, 64, 100, 4096] {
            let size = padded(bytes);
            assert!(size >= bytes.next_multiple_of(32) + 32 && size.is_multiple_of(64), "{bytes}: {size}");
        }
    }
}
