//! One collective as work of a stream: what a rank brings, and what it makes of everybody's parts.
//!
//! Always holds: each rank's part begins with what it believes the collective to be, and all must believe the
//! same; floats are reduced in the order of ranks in a wide type and rounded once.
//!
//! Refuses to know: the C ABI's argument lists.

use std::ffi::c_void;
use std::sync::Arc;

use super::communicator::{Comm, Shared, find};
use super::hub::{Broken, Limit, Part};
use super::result::{REMOTE, RUNTIME, Reduction, SUCCESS, SUSPENDING, TIMEOUT};
use crate::launch::{Launch, cancelled, report, submit};
use crate::machine::memory::is_device_range;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{Lane, gather, scatter};
use crate::tensor::view::View;

/// A collective that waited in vain.
const WAIT_FAULT: i32 = 507_048;
/// Ranks that disagree, or a buffer that is not there.
const FAULT: i32 = 507_049;
/// The work was aborted.
const ABORTED: i32 = 107_022;

/// Bytes of what a rank believes.
const HEAD: usize = 32;

/// What a rank believes a collective to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// Name of the function.
    pub operator: &'static str,
    /// Elements; the same for all ranks, or zero where ranks may differ.
    pub count: u64,
    /// Element type number.
    pub dtype: i32,
    /// Root or reduction, where there is one.
    pub detail: u32,
}

impl Belief {
    fn bytes(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        let name = self.operator.as_bytes().get(4..).unwrap_or_default();
        head[..name.len().min(16)].copy_from_slice(&name[..name.len().min(16)]);
        head[16..24].copy_from_slice(&self.count.to_le_bytes());
        head[24..28].copy_from_slice(&self.dtype.to_le_bytes());
        head[28..].copy_from_slice(&self.detail.to_le_bytes());
        head
    }
}

/// A copy of device memory, or a fault if it is not there.
pub fn fetch(address: usize, bytes: usize) -> Result<Vec<u8>, i32> {
    if bytes == 0 {
        return Ok(Vec::new());
    }
    if !is_device_range(address, bytes) {
        return Err(FAULT);
    }
    // SAFETY: the runtime says that the range is device memory.
    Ok(unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }.to_vec())
}

/// Writes device memory.
pub fn store(address: usize, bytes: &[u8]) -> Result<(), i32> {
    if bytes.is_empty() {
        return Ok(());
    }
    if !is_device_range(address, bytes.len()) {
        return Err(FAULT);
    }
    // SAFETY: the runtime says that the range is device memory.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    Ok(())
}

/// Meets the other ranks: leaves `payload`, gets everybody's in the order of ranks.
pub fn meet(comm: &Shared, belief: &Belief, payload: &[u8]) -> Result<Vec<Part>, i32> {
    let mut part = belief.bytes().to_vec();
    part.extend_from_slice(payload);
    let limit = Limit::within(comm.patience, cancelled);
    let all = comm
        .link
        .exchange(comm.next(), comm.ranks, comm.rank, part.into(), &limit)
        .map_err(|broken| broken_code(comm, broken))?;
    if all.iter().any(|part| part.get(..HEAD) != Some(&belief.bytes()[..])) {
        comm.fail(REMOTE);
        return Err(FAULT);
    }
    Ok(all.iter().map(|part| Part::from(&part[HEAD..])).collect())
}

/// The code of a broken exchange, noted in the communicator.
pub fn broken_code(comm: &Shared, broken: Broken) -> i32 {
    match broken {
        Broken::TimedOut => {
            comm.fail(TIMEOUT);
            WAIT_FAULT
        }
        Broken::Lost => {
            comm.fail(REMOTE);
            WAIT_FAULT
        }
        Broken::Cancelled => {
            comm.fail(SUSPENDING);
            ABORTED
        }
    }
}

/// Reduces parts of one length, rank 0 first.
#[must_use]
pub fn reduce(parts: &[&[u8]], dtype: DType, how: Reduction) -> Vec<u8> {
    fn fold<L: Lane>(parts: &[&[u8]], dtype: DType, how: impl Fn(L, L) -> L) -> Vec<u8> {
        let bytes = parts.first().map_or(0, |part| part.len());
        let count = (bytes * 8 / dtype.bits()) as i64;
        let view = |address: usize| View::dense(address, dtype, &[count]);
        let mut sum: Vec<L> = Vec::new();
        for part in parts {
            let Some(view) = view(part.as_ptr() as usize) else { continue };
            // SAFETY: the part holds `count` elements.
            let values: Vec<L> = unsafe { gather(&view) };
            if sum.is_empty() {
                sum = values;
            } else {
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum = how(*sum, value));
            }
        }
        let out = vec![0u8; bytes];
        if let Some(view) = view(out.as_ptr() as usize) {
            // SAFETY: `out` holds `count` elements and is ours alone.
            unsafe { scatter(&view, &sum) };
        }
        out
    }
    if dtype.is_float() {
        fold::<f64>(parts, dtype, |a, b| how.floats(a, b))
    } else {
        fold::<i64>(parts, dtype, |a, b| how.ints(a, b))
    }
}

/// Puts a collective on a stream.
pub fn launch(
    operator: &'static str,
    comm: Comm,
    stream: *mut c_void,
    outputs: Vec<(usize, usize)>,
    work: impl Fn(&Shared) -> Result<(), i32> + Send + Sync + 'static,
) -> i32 {
    let comm = match find(comm) {
        Ok(comm) => comm,
        Err(result) => {
            report(107_000, &format!("{operator}: the communicator takes no work"));
            return result;
        }
    };
    let outputs = outputs.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    let work = Arc::new(move || work(&comm));
    match submit(stream, Launch { operator, updatable: false, outputs, work }) {
        0 => SUCCESS,
        _ => RUNTIME,
    }
}
