//! The bound on the time between two tokens, and where compute threads run.

use updraft_core::Millis;
use updraft_core::scheduler::LatencyBound;

use super::super::device::ThreadBinding;
use super::{File, problem, read};

fn bound(line: &str) -> Option<LatencyBound> {
    read(line).unwrap().config.scheduling.token_latency().map(|latency| latency.bound)
}

#[test]
fn the_bound_is_a_time_or_a_word() {
    assert_eq!(bound("m"), Some(LatencyBound::Auto));
    assert_eq!(bound("m --max-inter-token-latency 80"), Some(LatencyBound::At(Millis(80))));
    assert_eq!(bound("m --max-inter-token-latency AUTO"), Some(LatencyBound::Auto));
    assert_eq!(bound("m --max-inter-token-latency none"), None);
    let file = File::new("latency.toml", "max_inter_token_latency = 120\n");
    assert_eq!(bound(&format!("m --config {}", file.path())), Some(LatencyBound::At(Millis(120))));
    for wrong in ["0", "-3", "soon", "80ms"] {
        let message = problem(&format!("m --max-inter-token-latency={wrong}"));
        assert!(message.contains("expected milliseconds such as 80, or auto, or none"), "{message}");
    }
}

#[test]
fn prompts_in_one_piece_stay_in_one_piece() {
    assert_eq!(bound("m --no-enable-chunked-prefill --max-inter-token-latency 80"), None);
}

#[test]
fn threads_are_bound_as_asked() {
    let binding = |line: &str| read(line).unwrap().config.device.thread_binding;
    assert_eq!(binding("m"), ThreadBinding::Auto);
    assert_eq!(binding("m --thread-binding cores"), ThreadBinding::Cores);
    assert_eq!(binding("m --thread-binding none"), ThreadBinding::None);
    let message = problem("m --thread-binding 0-3");
    assert!(message.contains("--thread-binding") && message.contains("auto, none, cores"), "{message}");
}
