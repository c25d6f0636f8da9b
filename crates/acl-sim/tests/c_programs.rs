//! C programs against the shared library: compiled by the system's compiler with our header, linked, and run
//! each in a process of its own, because a device is the property of a process.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot prepare its program has failed")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The library as it was built beside this test.
fn library_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let deps = test.parent().expect("in a directory");
    let found =
        [Some(deps), deps.parent()].into_iter().flatten().find(|dir| dir.join("libacl_sim.so").exists());
    found.unwrap_or_else(|| panic!("libacl_sim.so is not beside {}", test.display())).to_path_buf()
}

/// Compiles a program; each test has its own copy, so that tests do not wait for each other.
fn compile(program: &str, copy: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{program}-{copy}"));
    let library = library_dir();
    let output = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-I"])
        .arg(root.join("include"))
        .arg(root.join("tests/c").join(format!("{program}.c")))
        .arg("-o")
        .arg(&out)
        .arg("-L")
        .arg(&library)
        .arg("-lacl_sim")
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .expect("a C compiler is needed: install cc");
    assert!(output.status.success(), "{program}.c: {}", String::from_utf8_lossy(&output.stderr));
    out
}

fn command(program: &str, copy: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(compile(program, copy));
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("ACL_SIM_") || name.starts_with("ASCEND_"))
    {
        command.env_remove(name);
    }
    // Cargo's own search path may lead to an older build.
    command.env("LD_LIBRARY_PATH", library_dir()).envs(settings.iter().copied());
    command
}

fn run(program: &str, copy: &str, settings: &[(&str, &str)], argument: Option<&str>) {
    let output = command(program, copy, settings).args(argument).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {argument:?}: {}\n{text}", output.status);
}

macro_rules! programs {
    ($($name:ident $settings:expr;)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), "plain", $settings, None);
        })*
    };
}

programs! {
    hello &[];
    error_handling &[];
    system_info &[("ACL_SIM_VERSION", "8.5.1")];
    compatibility &[];
    context_query &[];
    device_normal &[];
    device_threads &[("ACL_SIM_DEVICES", "3")];
    peer &[];
    event_status &[];
    event_time &[];
    copies &[];
    simple_stream &[];
    failure_mode &[("ACL_SIM_FAULTS", "operator=memset code=507015 nth=2 times=2")];
    multi_stream &[];
    stream_config &[];
    reduce &[];
    callbacks &[];
    simple_model &[];
    model_update &[];
    external_sync &[];
    allocator &[];
    overflow &[];
    capture_rules &[];
    budgets &[("ACL_SIM_STREAMS", "4"), ("ACL_SIM_EVENTS", "3"), ("ACL_SIM_MEMORY_BYTES", "4096")];
    virtual_memory &[];
}

macro_rules! faults {
    ($($name:ident $case:literal $script:literal;)*) => {
        $(#[test]
        fn $name() {
            run("faults", $case, &[("ACL_SIM_FAULTS", $script)], Some($case));
        })*
    };
}

faults! {
    fault_in_malloc "malloc" "operator=malloc nth=2 code=207001";
    fault_in_replay "replay" "operator=memset phase=replay nth=2 code=507035";
    fault_in_capture "capture" "operator=memset phase=capture nth=2 code=507000";
    fault_at_begin "begin" "operator=capture code=207008";
    fault_that_corrupts "corrupt" "operator=memset phase=eager nth=2 corrupt";
    fault_that_hangs "hang" "operator=memset nth=2 hang";
    fault_and_device_abort "abort" "operator=memset nth=2 hang";
    fault_in_memory "memory" "operator=memset nth=2 code=507053";
    fault_that_kills_the_device "dead" "operator=sync nth=2 dead=2 code=507010";
    fault_of_the_heartbeat "heartbeat" "operator=memset nth=2 code=507010";
    fault_of_another_device "other" "device=1 operator=any code=507015 always";
    fault_and_reset "reset" "operator=memset nth=2 hang";
    fault_in_the_script "script" "operator=any slow=1\noperator=any code=1";
}

#[test]
fn fault_that_ends_the_process() {
    let mut command = command("faults", "process", &[("ACL_SIM_FAULTS", "operator=memset nth=2 abort")]);
    let output = command.arg("other").output().expect("the program runs");
    assert!(output.status.code().is_none(), "{}", output.status);
}

#[test]
fn hidden_devices_are_refused() {
    let output =
        command("hello", "hidden", &[("ASCEND_RT_VISIBLE_DEVICES", "")]).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("107001"), "{text}");
}

#[test]
fn rules_arrive_at_run_time() {
    let socket = Path::new(env!("CARGO_TARGET_TMPDIR")).join("control.sock");
    let _ = std::fs::remove_file(&socket);
    let path = socket.to_str().expect("a readable path").to_owned();
    let mut command = command("faults", "control", &[("ACL_SIM_CONTROL", &path)]);
    let mut child = command.arg("control").stderr(Stdio::piped()).spawn().expect("the program runs");
    let stream = loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(child.try_wait().expect("the child is ours").is_none(), "the program ended without a socket");
    };
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut ask = |line: &str| {
        (&stream).write_all(format!("{line}\n").as_bytes()).expect("written");
        let mut answer = Vec::new();
        loop {
            let mut text = String::new();
            reader.read_line(&mut text).expect("read");
            let last = text.starts_with("ok") || text.starts_with("error") || text.is_empty();
            answer.push(text);
            if last {
                return answer.concat();
            }
        }
    };
    assert!(ask("operator=memset code=12").starts_with("error: line 1"));
    assert_eq!(ask("operator=nothing corrupt"), "ok\n");
    let stats = ask("stats");
    assert!(stats.contains("rule=0 seen=0 hits=0 operator=nothing corrupt"), "{stats}");
    assert!(stats.contains("device=0 memory=") && stats.ends_with("ok\n"), "{stats}");
    assert_eq!(ask("operator=memset code=507014"), "ok\n");
    let output = child.wait_with_output().expect("the program ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
