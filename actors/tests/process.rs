//! An executor in a child process: whatever happens to the child, every stream gets the tokens of an
//! undisturbed run.
//!
//! The child is this very program: it runs the ignored test `child`, which is a child when it is told so.
#![allow(clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test that cannot go on ends")]

mod common;

use std::ops::Not as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    Setup, collect, expected, metric, repetitive, speculation, start, submission, twins, wait_until,
    wait_until_exhausted,
};
use updraft_actors::bus::FaultRecord;
use updraft_actors::{
    ChildSpec, Engine, EnginePhase, GenerationEvent, Placement, SILENT_AFTER, executor_child,
};
use updraft_core::graphs::GraphMode;
use updraft_core::recovery::{Moment, RecoveryClass};
use updraft_core::scheduler::FinishReason;
use updraft_devices::twin::{TwinFault, TwinFaults, TwinTrouble};

const STREAMS: u32 = 32;
const TOKENS: u32 = 60;
/// Says that this process is a child, and what goes wrong in it.
const IS_CHILD: &str = "UPDRAFT_TEST_CHILD";
/// Names a file: what goes wrong does so only in the first child, which makes it.
const ONCE: &str = "UPDRAFT_TEST_ONCE";
const BLOCKS: u32 = 400;
const STEP_TIME: Duration = Duration::from_millis(2);

#[test]
#[ignore = "the other tests start it"]
fn child() {
    let Ok(trouble) = std::env::var(IS_CHILD) else { return };
    let faults = TwinFaults::default();
    let is_first = || std::env::var(ONCE).is_ok_and(|file| std::fs::File::create_new(file).is_ok());
    match trouble.as_str() {
        "hang" if is_first() => {
            faults.arm(Moment::Replay, 20, 1, TwinTrouble::Hang(Duration::from_secs(600)));
        }
        "open" if is_first() => {
            faults.arm(Moment::Open, 0, 1, TwinTrouble::Hang(Duration::from_secs(600)));
        }
        "crash" if is_first() => {
            let fault = TwinFault { code: 7, class: RecoveryClass::Process };
            faults.arm(Moment::Replay, 20, 1, TwinTrouble::Fault(fault));
        }
        _ => {}
    }
    let socket = executor_child::socket().expect("standard input is a socket");
    let ended = executor_child::serve(socket, twins(BLOCKS, STEP_TIME, &faults));
    std::process::exit(i32::from(ended.is_err()));
}

/// Says that this process is a server with a child of this name.
const IS_PARENT: &str = "UPDRAFT_TEST_PARENT";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "another test starts it"]
async fn parent() {
    let Ok(name) = std::env::var(IS_PARENT) else { return };
    let _engine = start(&setup(children(&name, "none", None))).await;
    std::future::pending::<()>().await;
}

#[test]
fn a_child_ends_when_its_server_is_killed() {
    let mut server = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--ignored", "--exact", "parent"])
        .env(IS_PARENT, "orphaned")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("a server can be started");
    let soon = |what: &str, holds: &dyn Fn() -> bool| {
        assert!(
            (0..3_000).any(|_| holds() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }),
            "waited in vain: {what}"
        );
    };
    soon("the server has a child", &|| find_of("orphaned", server.id()).len() == 1);
    let child = find_of("orphaned", server.id())[0];
    server.kill().expect("it can be killed");
    server.wait().expect("it ends");
    soon("the child is gone", &|| {
        std::fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| !line.is_empty()).not()
    });
}

/// A child with a name by which it is found.
fn children(name: &str, trouble: &str, once: Option<&Path>) -> Placement {
    let arguments = ["--ignored", "--exact", "child", name, "--test-threads=1"];
    let mut environment = vec![(IS_CHILD.to_owned(), trouble.to_owned())];
    environment.extend(once.map(|file| (ONCE.to_owned(), file.display().to_string())));
    Placement::Process(ChildSpec {
        program: std::env::current_exe().expect("this program has a path"),
        arguments: arguments.map(str::to_owned).to_vec(),
        environment,
        silent_after: SILENT_AFTER,
    })
}

/// The living children with this name.
fn find(name: &str) -> Vec<u32> {
    find_of(name, std::process::id())
}

fn find_of(name: &str, parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("there is /proc");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mine = format!("PPid:\t{parent}");
    pids.filter(|pid: &u32| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("cmdline").split('\0').any(|argument| argument == name)
            && read("status").lines().any(|line| line == mine)
    })
    .collect()
}

fn signal(pid: u32, which: &str) {
    let sent = Command::new("kill").args([which, &pid.to_string()]).status().expect("there is kill");
    assert!(sent.success());
}

fn setup(placement: Placement) -> Setup {
    Setup { placement: Some(placement), mode: GraphMode::FullDecodeOnly, ..Setup::default() }
}

/// Runs 32 streams, does something to them when one has some tokens, and compares every token.
async fn drill(engine: &Engine, disturb: impl AsyncFnOnce()) {
    let mut streams = Vec::new();
    for index in 0..STREAMS {
        streams.push(engine.submit(submission(index, TOKENS)).await.expect("there is room"));
    }
    let mut last = streams.pop().expect("there are streams");
    let mut head = Vec::new();
    while head.len() < 5 {
        match last.next().await.expect("the stream goes on") {
            GenerationEvent::Token { token, .. } => head.push(token),
            other => panic!("{other:?} before the fault"),
        }
    }
    disturb().await;
    for (index, (tokens, end)) in
        futures::future::join_all(streams.into_iter().map(collect)).await.into_iter().enumerate()
    {
        assert_eq!(end, GenerationEvent::Finished(FinishReason::Length), "stream {index}");
        assert_eq!(tokens, expected(&submission(index as u32, TOKENS)), "stream {index}");
    }
    head.extend(collect(last).await.0);
    assert_eq!(head, expected(&submission(STREAMS - 1, TOKENS)), "the last stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_computes_what_a_thread_does_and_ends_with_the_engine() {
    let engine = start(&setup(children("plain", "none", None))).await;
    drill(&engine, async || {}).await;
    assert!(metric(&engine, "updraft_graph_hits_total").await > 0.0, "decode steps are replayed");
    assert_eq!(find("plain").len(), 1);
    engine.stop().await;
    wait_until("the child is gone", async || find("plain").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drafts_reach_a_child_and_come_back_checked() {
    let setup = setup(children("drafts", "none", None));
    let engine = start(&Setup { speculation: Some(speculation()), ..setup }).await;
    let requests = [0, 1, 2, 3].map(|index| repetitive(index, TOKENS));
    for request in &requests {
        let stream = engine.submit(request.clone()).await.expect("there is room");
        assert_eq!(collect(stream).await.0, expected(request));
    }
    let accepted = "vllm:spec_decode_num_accepted_tokens_total{model_name=\"twin\",engine=\"0\"}";
    assert!(metric(&engine, accepted).await > 0.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_child_is_replaced() {
    let engine = start(&setup(children("killed", "none", None))).await;
    drill(&engine, async || {
        let before = find("killed");
        assert_eq!(before.len(), 1, "one child at a time");
        signal(before[0], "-KILL");
    })
    .await;
    assert_eq!(find("killed").len(), 1);
    assert_eq!(metric(&engine, "updraft_faults_total{class=\"executor\"}").await, 1.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_child_is_noticed_and_replaced() {
    let engine = start(&setup(children("stopped", "none", None))).await;
    let mut noticed = None;
    drill(&engine, async || {
        let stopped = find("stopped");
        signal(stopped[0], "-STOP");
        let since = Instant::now();
        wait_until("the stopped child is gone", async || !find("stopped").contains(&stopped[0])).await;
        noticed = Some(since.elapsed());
    })
    .await;
    assert_eq!(metric(&engine, "updraft_faults_total{class=\"hang\"}").await, 1.0);
    println!("noticed and reaped after {noticed:?}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_whose_device_hangs_is_replaced_although_it_still_beats() {
    let folder = Folder::new("hang");
    let placement = children("hanging", "hang", Some(&folder.0.join("once")));
    let engine = start(&Setup { stall_after: Duration::from_millis(500), ..setup(placement) }).await;
    drill(&engine, async || {}).await;
    assert_eq!(metric(&engine, "updraft_faults_total{class=\"hang\"}").await, 1.0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_that_takes_a_new_process_gets_one_and_is_on_record() {
    let folder = Folder::new("crash");
    let placement = children("faulty", "crash", Some(&folder.0.join("once")));
    let engine = start(&setup(placement)).await;
    let mut first = Vec::new();
    let faults = engine.bus().faults.subscribe();
    drill(&engine, async || first = find("faulty")).await;
    assert!(!find("faulty").iter().any(|pid| first.contains(pid)), "it is another process");
    assert_eq!(metric(&engine, "updraft_device_faults_total{class=\"process\"}").await, 1.0);
    assert_eq!(metric(&engine, "updraft_device_recoveries_total{action=\"restart_process\"}").await, 1.0);
    assert!(faults.drain().count() >= 2, "a loss and a fault");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_no_executor_ends_the_engine_and_says_why() {
    let spec = ChildSpec {
        program: "/bin/false".into(),
        arguments: Vec::new(),
        environment: Vec::new(),
        silent_after: SILENT_AFTER,
    };
    let placement = Placement::Process(spec);
    let engine = start(&Setup { placement: Some(placement), ..Setup::default() }).await;
    wait_until_exhausted(&engine).await;
    let reason = engine.failed_to_open().expect("it says why");
    assert!(reason.contains("ended with code 1"), "{reason}");
    assert_eq!(engine.status().phase, EnginePhase::Failed);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_hangs_while_it_opens_its_device_is_replaced() {
    let folder = Folder::new("open");
    let placement = children("opening", "open", Some(&folder.0.join("once")));
    let engine = start(&Setup { open_deadline: Duration::from_secs(1), ..setup(placement) }).await;
    drill(&engine, async || {}).await;
    assert_eq!(metric(&engine, "updraft_faults_total{class=\"hang\"}").await, 1.0);
    engine.stop().await;
}

/// Ends the idle child several times in a row, and says what the engine was told of it last.
async fn lose_children(name: &str, which: &str) -> (Engine, String) {
    let Placement::Process(spec) = children(name, "none", None) else { panic!("it is a process") };
    let placement = Placement::Process(ChildSpec { silent_after: Duration::from_millis(600), ..spec });
    let engine = start(&setup(placement)).await;
    let records = engine.bus().faults.subscribe();
    let mut before = 0;
    for _ in 0..4 {
        let mut child = 0;
        wait_until("there is another child, and it is open", async || {
            child = find(name).first().copied().unwrap_or(before);
            child != before && engine.status().ready
        })
        .await;
        before = child;
        signal(child, which);
        wait_until("it is gone", async || !find(name).contains(&child)).await;
    }
    wait_until("the next one is open", async || {
        engine.status().ready && find(name).iter().any(|child| *child != before)
    })
    .await;
    let told = records.drain().filter_map(|record| match record {
        FaultRecord::Lost(lost) => Some(lost.detail),
        _ => None,
    });
    let last = told.last().expect("losses are on record");
    (engine, last)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_that_are_ended_again_and_again_cost_the_only_device_nothing() {
    for (name, which, why) in [
        ("stops", "-STOP", "said nothing for"),
        ("kills", "-KILL", "signal 9"),
        ("aborts", "-ABRT", "signal 6"),
    ] {
        let (engine, told) = lose_children(name, which).await;
        assert!(told.contains(why), "{told}");
        drill(&engine, async || {}).await;
        assert_eq!(metric(&engine, "updraft_devices_retired_total").await, 0.0, "{name}");
        engine.stop().await;
    }
}

/// A folder of this test alone, gone when the test is.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("updraft-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It lies among temporary files; one that stays harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
