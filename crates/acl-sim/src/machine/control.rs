//! The control socket: lines of the fault script while the program runs, and a look at the counters.
//!
//! Always holds: each line is answered by lines that end with `ok` or `error: …`; at most a few connections
//! at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::worker::COUNTERS;
use super::{codes, faults, machine, refusal};

/// Connections that are served at once; more are closed.
const CONNECTIONS_MAX: usize = 8;
/// Bytes of a line; longer ones end the connection.
const LINE_MAX: u64 = 64 << 10;

/// Listens at `path`. What goes wrong is told to the calling thread's recent text.
pub fn start(path: &str) {
    let _ = std::fs::remove_file(path);
    let listener = match UnixListener::bind(path) {
        Ok(listener) => listener,
        Err(error) => {
            refusal::report(
                codes::INVALID_FILE,
                &format!("the control socket {path} cannot be opened: {error}"),
            );
            return;
        }
    };
    let listen = move || {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming().map_while(Result::ok) {
            if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let open = Arc::clone(&open);
            let serve = move || {
                let _ = serve(&stream);
                open.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("acl-control".into()).spawn(serve).is_err() {
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("acl-control".into()).spawn(listen) {
        refusal::report(codes::BAD_ALLOC, &format!("the control socket has no thread: {error}"));
    }
}

fn serve(stream: &UnixStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if (&mut reader).take(LINE_MAX).read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(());
        }
        writer.write_all(answer(line.trim()).as_bytes())?;
    }
}

fn answer(line: &str) -> String {
    match line {
        "stats" => stats() + "ok\n",
        line => match faults::load(machine(), line) {
            Ok(_) => "ok\n".into(),
            Err(error) => format!("error: {error}\n"),
        },
    }
}

/// The counters as lines.
pub fn stats() -> String {
    use std::fmt::Write;

    let mut text = String::new();
    for device in machine().devices() {
        let _ = writeln!(
            text,
            "device={} memory={}/{} streams={}/{} events={}/{} pending={} lost={} aborted={}",
            device.id,
            device.memory.used(),
            device.memory.limit(),
            device.streams.used(),
            device.streams.limit(),
            device.events.used(),
            device.events.limit(),
            device.pending.load(Ordering::Relaxed),
            device.lost_code(),
            u8::from(device.aborted.load(Ordering::Relaxed)),
        );
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let _ = writeln!(
        text,
        "kernels={} copies={} replays={} failures={} graphs={}",
        count(&COUNTERS.kernels),
        count(&COUNTERS.copies),
        count(&COUNTERS.replays),
        count(&COUNTERS.failures),
        machine().graphs.all(|_| true).len(),
    );
    for rule in faults::describe() {
        text.push_str(&rule);
        text.push('\n');
    }
    text
}
