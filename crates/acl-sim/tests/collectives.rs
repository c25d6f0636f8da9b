//! Collectives among threads of one process and among two processes.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests")]
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call the C ABI on their own memory"
)]
#![allow(missing_docs, reason = "test names say what is tested")]

mod support;

use std::ffi::c_void;
use std::process::Command;
use std::ptr::null_mut;

use acl_sim::hccl::collectives::*;
use acl_sim::hccl::communicator::*;
use acl_sim::hccl::root::{HcclGetRootInfo, ROOT_INFO_BYTES};
use acl_sim::tensor::dtype::DType::{BF16, F32, I32};
use support::{Bench, Dev};

fn at(dev: &Dev) -> *mut c_void {
    dev.view.data as *mut c_void
}

/// Runs `rank(number, communicator, bench)` on two devices at once.
fn two(body: impl Fn(u32, Comm, &Bench) + Sync) {
    Bench::new();
    let mut info = [0u8; ROOT_INFO_BYTES];
    assert_eq!(HcclGetRootInfo(info.as_mut_ptr()), 0);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (info, body) = (&info, &body);
            scope.spawn(move || {
                let bench = Bench::on(rank as i32);
                let mut comm = null_mut();
                assert_eq!(HcclCommInitRootInfo(2, info.as_ptr(), rank, &raw mut comm), 0);
                body(rank, comm, &bench);
                assert_eq!(HcclCommDestroy(comm), 0);
                assert_ne!(HcclCommDestroy(comm), 0);
            });
        }
    });
}

/// Every collective once; the numbers depend on the rank, so a mix-up shows.
fn all_collectives(rank: u32, comm: Comm, bench: &Bench) {
    let sync = || assert_eq!(bench.synchronise(), 0);
    let mine: Vec<f64> = (0..4).map(|i| f64::from(rank * 10 + i)).collect();
    let (send, recv) = (Dev::new(F32, &[4], &mine), Dev::zeros(F32, &[8]));
    assert_eq!(HcclAllReduce(at(&send), at(&recv), 4, 4, 0, comm, bench.stream), 0);
    sync();
    assert_eq!(recv.values()[..4], [10.0, 12.0, 14.0, 16.0]);
    assert_eq!(HcclAllGather(at(&send), at(&recv), 4, 4, comm, bench.stream), 0);
    sync();
    assert_eq!(recv.values(), [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]);
    assert_eq!(HcclReduceScatter(at(&send), at(&recv), 2, 4, 2, comm, bench.stream), 0);
    sync();
    assert_eq!(recv.values()[..2], [[10.0, 11.0], [12.0, 13.0]][rank as usize]);
    assert_eq!(HcclAlltoAll(at(&send), 2, 4, at(&recv), 2, 4, comm, bench.stream), 0);
    sync();
    assert_eq!(recv.values()[..4], [[0.0, 1.0, 10.0, 11.0], [2.0, 3.0, 12.0, 13.0]][rank as usize]);
    let shared = Dev::new(I32, &[2], &[f64::from(rank), 7.0]);
    assert_eq!(HcclBroadcast(at(&shared), 2, 2, 1, comm, bench.stream), 0);
    sync();
    assert_eq!(shared.values(), [1.0, 7.0]);
    if rank == 0 {
        assert_eq!(HcclSend(at(&send), 4, 4, 1, comm, bench.stream), 0);
    } else {
        assert_eq!(HcclRecv(at(&recv), 4, 4, 0, comm, bench.stream), 0);
    }
    assert_eq!(HcclBarrier(comm, bench.stream), 0);
    sync();
    if rank == 1 {
        assert_eq!(recv.values()[..4], [0.0, 1.0, 2.0, 3.0]);
    }
    // Rank 0 gives one element to itself and three to rank 1; rank 1 keeps two and gives two.
    let (counts, places): ([u64; 2], [u64; 2]) = if rank == 0 { ([1, 3], [0, 1]) } else { ([2, 2], [0, 2]) };
    let (from, into): ([u64; 2], [u64; 2]) = if rank == 0 { ([1, 2], [0, 1]) } else { ([3, 2], [0, 3]) };
    let [counts, places, from, into] = [&counts, &places, &from, &into].map(|all| all.as_ptr().cast());
    let result = HcclAlltoAllV(at(&send), counts, places, 4, at(&recv), from, into, 4, comm, bench.stream);
    assert_eq!(result, 0);
    sync();
    let want: &[f64] = if rank == 0 { &[0.0, 10.0, 11.0] } else { &[1.0, 2.0, 3.0, 12.0, 13.0] };
    assert_eq!(recv.values()[..want.len()], *want);
}

#[test]
fn two_devices_of_one_process_exchange() {
    two(all_collectives);
    two(|rank, comm, bench| {
        let (mut size, mut id) = (0, 9);
        HcclGetRankSize(comm, &raw mut size);
        HcclGetRankId(comm, &raw mut id);
        assert_eq!((size, id), (2, rank));
        let half = Dev::new(BF16, &[1], &[1.0]);
        assert_eq!(HcclAllReduce(at(&half), at(&half), 1, 11, 1, comm, bench.stream), 0);
        assert_eq!(HcclAllReduce(at(&half), at(&half), 1, 99, 1, comm, bench.stream), 1);
        assert_eq!(bench.synchronise(), 0);
        assert_eq!(half.values(), [1.0]);
    });
}

#[test]
fn ranks_that_disagree_fail_at_the_synchronisation() {
    two(|rank, comm, bench| {
        let data = Dev::zeros(F32, &[4]);
        let count = 2 + u64::from(rank);
        assert_eq!(HcclAllReduce(at(&data), at(&data), count, 4, 0, comm, bench.stream), 0);
        assert_eq!(bench.synchronise(), 507_049);
        let mut failure = 0;
        assert_eq!(HcclGetCommAsyncError(comm, &raw mut failure), 0);
        assert_eq!(failure, 21);
    });
}

#[test]
fn communicators_of_all_devices_are_made_at_once_and_resumed() {
    Bench::new();
    let mut comms = [null_mut(); 2];
    assert_eq!(HcclCommInitAll(2, [0, 1].as_ptr(), comms.as_mut_ptr()), 0);
    assert_eq!(HcclCommSuspend(comms[0]), 0);
    assert_eq!(HcclBarrier(comms[0], null_mut()), 22, "a suspended communicator takes nothing");
    assert_eq!((HcclCommResume(comms[0]), HcclCommResume(comms[1])), (0, 0));
    let ends = comms.map(|comm| comm as usize);
    std::thread::scope(|scope| {
        for (rank, comm) in ends.into_iter().enumerate() {
            scope.spawn(move || all_collectives(rank as u32, comm as Comm, &Bench::on(rank as i32)));
        }
    });
}

/// Runs this test binary again for one test, as another process.
fn again(test: &str, info: &std::path::Path, patience: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("COLLECTIVES_ROOT", info)
        .env("HCCL_EXEC_TIMEOUT", patience)
        .spawn()
        .unwrap()
}

fn root_file(name: &str) -> std::path::PathBuf {
    Bench::new();
    let mut info = [0u8; ROOT_INFO_BYTES];
    assert_eq!(HcclGetRootInfo(info.as_mut_ptr()), 0);
    let path = std::env::temp_dir().join(format!("collectives-{name}-{}", std::process::id()));
    std::fs::write(&path, info).unwrap();
    path
}

fn meet(path: &std::path::Path, rank: u32) -> (Bench, Comm) {
    let info = std::fs::read(path).unwrap();
    let bench = Bench::on(rank as i32);
    let mut comm = null_mut();
    assert_eq!(HcclCommInitRootInfo(2, info.as_ptr(), rank, &raw mut comm), 0);
    (bench, comm)
}

#[test]
fn two_processes_exchange() {
    let path = root_file("two");
    let mut other = again("the_other_process", &path, "60");
    let (bench, comm) = meet(&path, 0);
    all_collectives(0, comm, &bench);
    assert_eq!(HcclCommDestroy(comm), 0);
    assert!(other.wait().unwrap().success());
    std::fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "is run by two_processes_exchange"]
fn the_other_process() {
    let path = std::path::PathBuf::from(std::env::var_os("COLLECTIVES_ROOT").unwrap());
    let (bench, comm) = meet(&path, 1);
    all_collectives(1, comm, &bench);
    assert_eq!(HcclCommDestroy(comm), 0);
}

#[test]
fn a_lost_peer_ends_in_a_time_out() {
    let path = root_file("lost");
    // The waiting rank is the child, so that its patience does not touch the other tests of this process.
    let mut other = again("the_rank_that_waits", &path, "1");
    let (_bench, comm) = meet(&path, 0);
    assert!(other.wait().unwrap().success());
    assert_eq!(HcclCommDestroy(comm), 0);
    std::fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "is run by a_lost_peer_ends_in_a_time_out"]
fn the_rank_that_waits() {
    let path = std::path::PathBuf::from(std::env::var_os("COLLECTIVES_ROOT").unwrap());
    let (bench, comm) = meet(&path, 1);
    assert_eq!(HcclBarrier(comm, bench.stream), 0);
    assert_eq!(bench.synchronise(), 507_048);
    let mut failure = 0;
    assert_eq!(HcclGetCommAsyncError(comm, &raw mut failure), 0);
    assert_eq!(failure, 9);
}
