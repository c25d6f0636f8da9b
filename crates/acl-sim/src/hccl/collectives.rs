//! The collectives of the C ABI.
//!
//! Always holds: a refused argument is refused at the call; what goes wrong among ranks shows at the
//! synchronisation.
//!
//! Refuses to know: how parts travel.

use std::ffi::c_void;

use super::communicator::{Comm, Shared, find};
use super::exchange::{Belief, broken_code, fetch, launch, meet, reduce, store};
use super::hub::Limit;
use super::result::{PARA, PTR, Reduction, element};
use crate::launch::{cancelled, report};
use crate::tensor::dtype::DType;

fn refused(operator: &str, why: &str) -> i32 {
    report(107_000, &format!("{operator}: {why}"));
    PARA
}

/// The element type, or the result to give back.
fn typed(operator: &str, dtype: i32) -> Result<DType, i32> {
    element(dtype).ok_or_else(|| refused(operator, &format!("data type {dtype} is not known")))
}

macro_rules! some {
    ($value:expr) => {
        match $value {
            Ok(value) => value,
            Err(result) => return result,
        }
    };
}

/// Checks a reduction.
fn reduction(operator: &str, op: i32) -> Result<Reduction, i32> {
    Reduction::from_code(op).ok_or_else(|| refused(operator, &format!("reduction {op} is not known")))
}

fn ranks(comm: Comm) -> Result<(usize, u32), i32> {
    find(comm).map(|comm| (comm.ranks as usize, comm.rank))
}

/// Everybody gets the reduction of everybody's elements.
#[unsafe(no_mangle)]
pub extern "C" fn HcclAllReduce(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclAllReduce";
    let (kind, how) = (some!(typed(name, dtype)), some!(reduction(name, op)));
    let (send, recv, bytes) = (send as usize, recv as usize, kind.bytes(count as usize));
    let belief = Belief { operator: name, count, dtype, detail: op as u32 };
    launch(name, comm, stream, vec![(recv, bytes)], move |comm| {
        let all = meet(comm, &belief, &fetch(send, bytes)?)?;
        let parts: Vec<&[u8]> = all.iter().map(|part| &**part).collect();
        store(recv, &reduce(&parts, kind, how))
    })
}

/// The root alone gets the reduction.
#[unsafe(no_mangle)]
pub extern "C" fn HcclReduce(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    root: u32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclReduce";
    let (kind, how) = (some!(typed(name, dtype)), some!(reduction(name, op)));
    let (size, rank) = some!(ranks(comm));
    if root as usize >= size {
        return refused(name, "root is no rank");
    }
    let (send, recv, bytes) = (send as usize, recv as usize, kind.bytes(count as usize));
    let belief = Belief { operator: name, count, dtype, detail: root << 8 | op as u32 };
    let outputs = if rank == root { vec![(recv, bytes)] } else { Vec::new() };
    launch(name, comm, stream, outputs, move |comm| {
        let all = meet(comm, &belief, &fetch(send, bytes)?)?;
        if comm.rank != root {
            return Ok(());
        }
        let parts: Vec<&[u8]> = all.iter().map(|part| &**part).collect();
        store(recv, &reduce(&parts, kind, how))
    })
}

/// Everybody gets its share of the reduction.
#[unsafe(no_mangle)]
pub extern "C" fn HcclReduceScatter(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclReduceScatter";
    let (kind, how) = (some!(typed(name, dtype)), some!(reduction(name, op)));
    let (size, rank) = some!(ranks(comm));
    let (send, recv, bytes) = (send as usize, recv as usize, kind.bytes(count as usize));
    let belief = Belief { operator: name, count, dtype, detail: op as u32 };
    launch(name, comm, stream, vec![(recv, bytes)], move |comm| {
        let all = meet(comm, &belief, &fetch(send, bytes * size)?)?;
        let at = rank as usize * bytes;
        let parts: Vec<&[u8]> = all.iter().filter_map(|part| part.get(at..at + bytes)).collect();
        store(recv, &reduce(&parts, kind, how))
    })
}

/// Everybody gets everybody's elements.
#[unsafe(no_mangle)]
pub extern "C" fn HcclAllGather(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: i32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclAllGather";
    let kind = some!(typed(name, dtype));
    let (size, _) = some!(ranks(comm));
    let (send, recv, bytes) = (send as usize, recv as usize, kind.bytes(count as usize));
    let belief = Belief { operator: name, count, dtype, detail: 0 };
    launch(name, comm, stream, vec![(recv, bytes * size)], move |comm| {
        let all = meet(comm, &belief, &fetch(send, bytes)?)?;
        all.iter().enumerate().try_for_each(|(rank, part)| store(recv + rank * bytes, part))
    })
}

/// Everybody gets the root's elements.
#[unsafe(no_mangle)]
pub extern "C" fn HcclBroadcast(
    buffer: *mut c_void,
    count: u64,
    dtype: i32,
    root: u32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclBroadcast";
    let kind = some!(typed(name, dtype));
    let (size, rank) = some!(ranks(comm));
    if root as usize >= size {
        return refused(name, "root is no rank");
    }
    let (buffer, bytes) = (buffer as usize, kind.bytes(count as usize));
    let belief = Belief { operator: name, count, dtype, detail: root };
    let outputs = if rank == root { Vec::new() } else { vec![(buffer, bytes)] };
    launch(name, comm, stream, outputs, move |comm| {
        let mine = if comm.rank == root { fetch(buffer, bytes)? } else { Vec::new() };
        let all = meet(comm, &belief, &mine)?;
        match all.get(root as usize) {
            Some(part) if comm.rank != root => store(buffer, part),
            _ => Ok(()),
        }
    })
}

/// Everybody gets its share of the root's elements.
#[unsafe(no_mangle)]
pub extern "C" fn HcclScatter(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: i32,
    root: u32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclScatter";
    let kind = some!(typed(name, dtype));
    let (size, rank) = some!(ranks(comm));
    if root as usize >= size {
        return refused(name, "root is no rank");
    }
    let (send, recv, bytes) = (send as usize, recv as usize, kind.bytes(count as usize));
    let belief = Belief { operator: name, count, dtype, detail: root };
    launch(name, comm, stream, vec![(recv, bytes)], move |comm| {
        let mine = if comm.rank == root { fetch(send, bytes * size)? } else { Vec::new() };
        let all = meet(comm, &belief, &mine)?;
        let at = rank as usize * bytes;
        store(recv, all.get(root as usize).and_then(|part| part.get(at..at + bytes)).unwrap_or_default())
    })
}

/// What one rank sends where, and where it wants what it gets: lengths and places in bytes.
struct Traffic {
    send: usize,
    send_bytes: Vec<usize>,
    send_at: Vec<usize>,
    recv: usize,
    recv_bytes: Vec<usize>,
    recv_at: Vec<usize>,
}

impl Traffic {
    fn outputs(&self) -> Vec<(usize, usize)> {
        self.recv_at.iter().zip(&self.recv_bytes).map(|(at, bytes)| (self.recv + at, *bytes)).collect()
    }

    /// A part is the lengths for all ranks, then the bytes for all ranks.
    fn run(&self, comm: &Shared, belief: &Belief) -> Result<(), i32> {
        let mut payload = Vec::new();
        for bytes in &self.send_bytes {
            payload.extend((*bytes as u64).to_le_bytes());
        }
        for (at, bytes) in self.send_at.iter().zip(&self.send_bytes) {
            payload.extend(fetch(self.send + at, *bytes)?);
        }
        let all = meet(comm, belief, &payload)?;
        let ranks = self.send_bytes.len();
        for (from, part) in all.iter().enumerate() {
            let lengths: Vec<usize> = part
                .chunks_exact(8)
                .take(ranks)
                .map(|word| word.iter().rev().fold(0usize, |value, byte| value << 8 | usize::from(*byte)))
                .collect();
            let mine = comm.rank as usize;
            let start = ranks * 8 + lengths.iter().take(mine).sum::<usize>();
            let length = lengths.get(mine).copied().unwrap_or(0).min(self.recv_bytes[from]);
            store(self.recv + self.recv_at[from], part.get(start..start + length).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Everybody sends an equal share to everybody.
#[unsafe(no_mangle)]
pub extern "C" fn HcclAlltoAll(
    send: *const c_void,
    send_count: u64,
    send_type: i32,
    recv: *const c_void,
    recv_count: u64,
    recv_type: i32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclAlltoAll";
    let (out, into) = (some!(typed(name, send_type)), some!(typed(name, recv_type)));
    let (size, _) = some!(ranks(comm));
    let (send_bytes, recv_bytes) = (out.bytes(send_count as usize), into.bytes(recv_count as usize));
    if send_bytes != recv_bytes {
        return refused(name, "what is sent and what is received differ in length");
    }
    let traffic = Traffic {
        send: send as usize,
        send_bytes: vec![send_bytes; size],
        send_at: (0..size).map(|rank| rank * send_bytes).collect(),
        recv: recv as usize,
        recv_bytes: vec![recv_bytes; size],
        recv_at: (0..size).map(|rank| rank * recv_bytes).collect(),
    };
    let belief = Belief { operator: name, count: send_count, dtype: send_type, detail: 0 };
    launch(name, comm, stream, traffic.outputs(), move |comm| traffic.run(comm, &belief))
}

/// Everybody sends to everybody as much as the arrays say; they are copied at the call.
#[unsafe(no_mangle)]
pub extern "C" fn HcclAlltoAllV(
    send: *const c_void,
    send_counts: *const c_void,
    send_places: *const c_void,
    send_type: i32,
    recv: *const c_void,
    recv_counts: *const c_void,
    recv_places: *const c_void,
    recv_type: i32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclAlltoAllV";
    let (out, into) = (some!(typed(name, send_type)), some!(typed(name, recv_type)));
    let (size, _) = some!(ranks(comm));
    let arrays = [send_counts, send_places, recv_counts, recv_places];
    if arrays.iter().any(|array| array.is_null()) {
        return PTR;
    }
    let copied = |array: *const c_void, dtype: DType| -> Vec<usize> {
        // SAFETY: not null, and the ABI says that it has a 64-bit number for each rank.
        let all = unsafe { std::slice::from_raw_parts(array.cast::<u64>(), size) };
        all.iter().map(|count| dtype.bytes(*count as usize)).collect()
    };
    let traffic = Traffic {
        send: send as usize,
        send_bytes: copied(send_counts, out),
        send_at: copied(send_places, out),
        recv: recv as usize,
        recv_bytes: copied(recv_counts, into),
        recv_at: copied(recv_places, into),
    };
    let belief = Belief { operator: name, count: 0, dtype: send_type, detail: 0 };
    launch(name, comm, stream, traffic.outputs(), move |comm| traffic.run(comm, &belief))
}

/// Sends to one rank.
#[unsafe(no_mangle)]
pub extern "C" fn HcclSend(
    buffer: *mut c_void,
    count: u64,
    dtype: i32,
    peer: u32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclSend";
    let kind = some!(typed(name, dtype));
    let (size, rank) = some!(ranks(comm));
    if peer as usize >= size || peer == rank {
        return refused(name, "the peer is no other rank");
    }
    let (buffer, bytes) = (buffer as usize, kind.bytes(count as usize));
    launch(name, comm, stream, Vec::new(), move |comm| {
        let limit = Limit::within(comm.patience, cancelled);
        let part = fetch(buffer, bytes)?.into();
        comm.link
            .put(comm.generation(), comm.rank, peer, part, &limit)
            .map_err(|broken| broken_code(comm, broken))
    })
}

/// Receives from one rank.
#[unsafe(no_mangle)]
pub extern "C" fn HcclRecv(
    buffer: *mut c_void,
    count: u64,
    dtype: i32,
    peer: u32,
    comm: Comm,
    stream: *mut c_void,
) -> i32 {
    let name = "HcclRecv";
    let kind = some!(typed(name, dtype));
    let (size, rank) = some!(ranks(comm));
    if peer as usize >= size || peer == rank {
        return refused(name, "the peer is no other rank");
    }
    let (buffer, bytes) = (buffer as usize, kind.bytes(count as usize));
    launch(name, comm, stream, vec![(buffer, bytes)], move |comm| {
        let limit = Limit::within(comm.patience, cancelled);
        let part = comm
            .link
            .take(comm.generation(), peer, comm.rank, &limit)
            .map_err(|broken| broken_code(comm, broken))?;
        store(buffer, part.get(..bytes).unwrap_or(&part))
    })
}

/// Waits until every rank is here.
#[unsafe(no_mangle)]
pub extern "C" fn HcclBarrier(comm: Comm, stream: *mut c_void) -> i32 {
    let belief = Belief { operator: "HcclBarrier", count: 0, dtype: 0, detail: 0 };
    launch("HcclBarrier", comm, stream, Vec::new(), move |comm| meet(comm, &belief, &[]).map(|_| ()))
}
