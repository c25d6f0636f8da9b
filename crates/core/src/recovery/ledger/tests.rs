//! What is done about which fault, and that nothing goes on for ever.

use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

use Moment::{Capture, Decode, Open, Prefill, Replay};
use RecoveryClass as Class;

fn first(class: Class, moment: Moment) -> Action {
    Ledger::default().decide_class(Millis(0), class, moment)
}

/// What follows when the same fault comes again and again.
fn ladder(class: Class, moment: Moment, faults: usize) -> Vec<Action> {
    let mut ledger = Ledger::default();
    (0..faults as u64)
        .map(|at| {
            let action = ledger.decide_class(Millis(at * 10), class, moment);
            if !action.is_in_place() {
                ledger.began_life(Millis(at * 10 + 5));
            }
            action
        })
        .collect()
}

#[test]
fn each_class_begins_with_the_least_that_can_help() {
    for moment in [Prefill, Decode, Replay] {
        assert_eq!(first(Class::Retry, moment), Action::RetryInPlace);
        assert_eq!(first(Class::Memory, moment), Action::RetryInPlace);
        assert_eq!(first(Class::WaitMore, moment), Action::WaitMore);
        assert_eq!(first(Class::Call, moment), Action::RebuildGroup);
    }
    for class in [Class::Graph, Class::GraphDead, Class::Environment, Class::Unsupported] {
        assert_eq!(first(class, Capture), Action::DropGraph);
        assert_eq!(first(class, Replay), Action::DropGraph);
    }
    for class in [Class::Graph, Class::GraphDead] {
        assert_eq!(first(class, Decode), Action::RebuildStream);
    }
    for class in [Class::Environment, Class::Unsupported] {
        assert_eq!(first(class, Open), Action::RetireDevice);
        assert_eq!(first(class, Prefill), Action::RebuildGroup);
    }
    for moment in [Prefill, Decode, Capture, Replay] {
        assert_eq!(first(Class::Stream, moment), Action::RebuildStream);
    }
    for moment in Moment::ALL {
        for class in [Class::Device, Class::Remote, Class::DeviceMemory] {
            assert_eq!(first(class, moment), Action::RebuildGroup);
        }
        for class in [Class::Process, Class::Unclear] {
            assert_eq!(first(class, moment), Action::RestartProcess);
        }
    }
    for class in Class::ALL {
        assert!(!first(class, Open).is_in_place(), "{class:?} at opening: there is nothing in place yet");
    }
}

#[test]
fn what_does_not_help_is_followed_by_more() {
    use Action::{RebuildGroup, RebuildStream, RestartProcess, RetireDevice, RetryInPlace, WaitMore};
    let [retry, stream] = [RetryInPlace, RebuildStream];
    let expected = [
        retry,
        retry,
        retry,
        stream,
        stream,
        RebuildGroup,
        retry,
        retry,
        retry,
        stream,
        stream,
        RebuildGroup,
    ];
    assert_eq!(ladder(Class::Retry, Decode, 12), expected);
    assert_eq!(ladder(Class::Retry, Decode, 100).last(), Some(&RetireDevice));
    assert_eq!(ladder(Class::WaitMore, Decode, 4), [WaitMore, stream, stream, RebuildGroup]);
    let lives = [RebuildGroup, RebuildGroup, RebuildGroup, RestartProcess, RestartProcess, RetireDevice];
    assert_eq!(ladder(Class::Device, Decode, 6), lives);
    assert_eq!(ladder(Class::Process, Decode, 3), [RestartProcess, RestartProcess, RetireDevice]);
    let drops = ladder(Class::GraphDead, Replay, 4);
    assert_eq!(drops, [Action::DropGraph, Action::DropGraph, stream, stream]);
}

#[test]
fn a_mistake_of_ours_is_no_reason_to_give_a_device_up() {
    assert!(ladder(Class::Call, Decode, 100).iter().all(|action| *action < Action::RetireDevice));
}

#[test]
fn graphs_that_cannot_be_captured_harm_nobody() {
    assert!(ladder(Class::Graph, Capture, 1_000).iter().all(|action| *action == Action::DropGraph));
}

#[test]
fn a_step_that_succeeds_clears_what_was_done_in_place() {
    let mut ledger = Ledger::default();
    for at in 0..1_000 {
        let now = Millis(at);
        assert_eq!(ledger.decide_class(now, Class::Retry, Decode), Action::RetryInPlace);
        assert_eq!(ledger.decide_class(now, Class::Stream, Decode), Action::RebuildStream);
        // Nothing milder than that while nothing succeeds.
        assert_eq!(ledger.decide_class(now, Class::Retry, Decode), Action::RebuildStream);
        ledger.step_succeeded(now);
    }
}

#[test]
fn a_life_clears_the_others_only_when_it_lasts() {
    let faults_every = |interval: u64| {
        let mut ledger = Ledger::default();
        let mut actions = Vec::new();
        for at in 0..20 {
            let now = Millis(at * interval);
            actions.push(ledger.decide_class(now, Class::Device, Decode));
            ledger.began_life(now);
            (1..interval).step_by(500).for_each(|after| ledger.step_succeeded(now + Millis(after)));
        }
        actions
    };
    assert!(faults_every(30_000).iter().all(|action| *action == Action::RebuildGroup));
    assert_eq!(faults_every(5_000).last(), Some(&Action::RetireDevice));
}

#[test]
fn a_request_that_kills_every_life_does_not_cost_the_device() {
    let mut ledger = Ledger::default();
    for at in (0..5_000).step_by(100) {
        let now = Millis(at);
        ledger.step_succeeded(now);
        let actions: Vec<Action> = (0..3).map(|_| ledger.decide_class(now, Class::Stream, Prefill)).collect();
        assert_eq!(actions, [Action::RebuildStream, Action::RebuildStream, Action::RebuildGroup]);
        ledger.began_life(now);
    }
    // A life that computes nothing at all is another matter.
    assert_eq!(ladder(Class::Stream, Prefill, 18).last(), Some(&Action::RetireDevice));
}

#[test]
fn damaged_memory_is_remembered_over_good_times() {
    let mut ledger = Ledger::default();
    let hour = RecoveryPolicy::default().memory_window;
    assert_eq!(ledger.decide_class(Millis(0), Class::DeviceMemory, Decode), Action::RebuildGroup);
    ledger.step_succeeded(hour - Millis(1));
    assert_eq!(ledger.decide_class(hour, Class::DeviceMemory, Prefill), Action::RebuildGroup);
    ledger.step_succeeded(hour + Millis(100_000));
    let second = ledger.decide_class(hour + hour - Millis(1), Class::DeviceMemory, Decode);
    assert_eq!(second, Action::RetireDevice);
    assert!(ledger.is_retired());
    ledger.began_life(hour + hour);
    assert_eq!(ledger.decide_class(hour + hour, Class::Retry, Decode), Action::RetireDevice);
}

#[test]
fn pauses_double_up_to_a_bound() {
    let policy = RecoveryPolicy { retries: 20, ..RecoveryPolicy::default() };
    let mut ledger = Ledger::new(policy);
    let pauses: Vec<u64> = (0..10)
        .map(|at| {
            ledger.decide_class(Millis(at), Class::Retry, Decode);
            ledger.pause().0
        })
        .collect();
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 500, 500, 500]);
    ledger.step_succeeded(Millis(10));
    ledger.decide_class(Millis(11), Class::Memory, Decode);
    assert_eq!(ledger.pause(), Millis(5));
}

#[test]
fn a_ledger_is_passed_on_whole() {
    let mut ledger = Ledger::default();
    let fault = DeviceFault {
        device: "toy:0".to_owned(),
        code: 1,
        name: Cow::Borrowed("TOY"),
        meaning: Cow::Borrowed("toy"),
        class: Class::Device,
        operator: None,
        text: String::new(),
    };
    ledger.decide(Millis(1), &fault, Decode);
    let text = serde_json::to_string(&ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
    assert_ne!(ledger, Ledger::default());
}

fn any_fault() -> impl Strategy<Value = (Class, Moment)> {
    (proptest::sample::select(Class::ALL.to_vec()), proptest::sample::select(Moment::ALL.to_vec()))
}

/// A fault that counts: not a capture that failed without harm.
fn counts(class: Class, moment: Moment) -> bool {
    moment != Capture || first(class, moment) != Action::DropGraph
}

proptest! {
    #[test]
    fn while_nothing_succeeds_every_life_ends_and_the_last_one_too(
        faults in proptest::collection::vec(any_fault(), 200),
    ) {
        let mut ledger = Ledger::default();
        let policy = RecoveryPolicy::default();
        let most = policy.retries + policy.waits + policy.drops + policy.stream_rebuilds;
        let (mut in_place, mut endings) = (0, 0);
        let (mut last_here, mut last_end) = (Action::RetryInPlace, Action::RebuildGroup);
        let faults = faults.iter().filter(|(class, moment)| counts(*class, *moment));
        for (at, (class, moment)) in faults.enumerate() {
            let action = ledger.decide_class(Millis(at as u64), *class, *moment);
            if action.is_in_place() {
                in_place += 1;
                prop_assert!(in_place <= most, "{} actions in place and no end", in_place);
                // Only the mildest three may take turns.
                prop_assert!(action == Action::RebuildStream || last_here < Action::RebuildStream);
                last_here = action;
            } else {
                prop_assert!(action >= last_end, "{:?} after {:?}", action, last_end);
                endings += u32::from(*class != Class::Call);
                let retired = ledger.is_retired();
                prop_assert!(endings <= policy.group_rebuilds + policy.process_restarts + 1 || retired);
                (in_place, last_here, last_end) = (0, Action::RetryInPlace, action);
                ledger.began_life(Millis(at as u64));
            }
        }
    }

    #[test]
    fn time_without_faults_makes_a_ledger_as_good_as_new(
        faults in proptest::collection::vec(any_fault(), 0..20),
        (class, moment) in any_fault(),
    ) {
        let mut ledger = Ledger::default();
        for (at, (class, moment)) in faults.iter().enumerate() {
            ledger.decide_class(Millis(at as u64), *class, *moment);
        }
        prop_assume!(!ledger.is_retired() && class != Class::DeviceMemory);
        let policy = RecoveryPolicy::default();
        ledger.step_succeeded(Millis(20) + policy.calm);
        let now = Millis(21) + policy.calm;
        prop_assert_eq!(ledger.decide_class(now, class, moment), first(class, moment));
    }
}
