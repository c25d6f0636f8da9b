//! Chunks beside streams: as large as fits into the time, whatever a device costs.

use proptest::prelude::*;

use super::harness::{Harness, answer, config, new, output, rows};
use crate::scheduler::cost::{CostModel, Work};
use crate::scheduler::{LatencyBound, SchedulerConfig, TokenLatency};
use crate::step::{Phase, StepPlan};
use crate::units::{Blocks, Millis, Tokens};

/// A device that takes a fixed time for each part of a step.
#[derive(Clone, Copy, Debug)]
struct Device {
    step: f64,
    token: f64,
    position: f64,
}

impl Device {
    fn cost(self, work: Work) -> f64 {
        self.step + self.token * work.tokens as f64 + self.position * work.attention as f64
    }
}

fn device() -> impl Strategy<Value = Device> {
    (500.0..40_000.0, 5.0..2_000.0, 0.0..0.1).prop_map(|(step, token, position)| Device {
        step,
        token,
        position,
    })
}

fn at(millis: u64, least: u32) -> TokenLatency {
    TokenLatency { bound: LatencyBound::At(Millis(millis)), least: Tokens(least) }
}

fn streams(count: u32, context: u32) -> Work {
    (0..count).fold(Work::default(), |work, _| work.with(context, 1))
}

/// Steps with a prompt that has no end, and some without; every tenth takes far too long or
/// none of its time. `noise` is in thousandths. Gives the last budget and where the prompt stood.
fn read(device: Device, latency: TokenLatency, streams: Work, most: u32, noise: &[i32]) -> (u32, u32) {
    let (mut costs, mut context, mut last) = (CostModel::default(), 0, (0, 0));
    for (step, noise) in noise.iter().enumerate() {
        let time = |work| {
            let wrong = match step % 20 {
                7 => 20.0,
                17 => 0.05,
                _ => 1.0 + f64::from(*noise) / 1_000.0,
            };
            (device.cost(work) * wrong) as u64
        };
        if step % 3 == 0 {
            costs.observe(streams, 0, time(streams));
            continue;
        }
        let budget = latency.budget(&costs, streams, context, most);
        last = (budget, context);
        let work = streams.with(context, budget);
        costs.observe(work, budget, time(work));
        context += budget;
    }
    last
}

proptest! {
    #[test]
    fn a_budget_is_never_zero_and_never_above_what_there_is(
        steps in prop::collection::vec((0..10_000_u32, 0..600_u32, any::<u64>()), 0..80),
        bound in prop_oneof![Just(LatencyBound::Auto), (0..100_000_u64).prop_map(|time| LatencyBound::At(Millis(time)))],
        (count, context, least, most) in (0..300_u32, 0..1_000_000_u32, 0..64_u32, 1..10_000_u32),
    ) {
        let (mut costs, latency) = (CostModel::default(), TokenLatency { bound, least: Tokens(least) });
        for (start, count, micros) in steps {
            costs.observe(Work::default().with(start, count + 1), count, micros);
            let budget = latency.budget(&costs, streams(count, context), context, most);
            prop_assert!(budget >= least.max(1).min(most) && budget <= most, "{budget}");
        }
        if let Some(figures) = costs.figures() {
            let work = streams(count, context);
            prop_assert!(figures.cost(work.with(0, 1)) >= figures.cost(work), "more work costs less");
        }
    }

    #[test]
    fn budgets_converge_to_what_fits(
        device in device(),
        (bound, count, context) in (20..400_u64, 1..32_u32, 0..2_000_u32),
        noise in prop::collection::vec(-50..=50, 120),
    ) {
        let (latency, streams, most) = (at(bound, 16), streams(count, context), 2_048);
        let (budget, context) = read(device, latency, streams, most, &noise);
        let time = bound as f64 * 1e3;
        let cost = |tokens: u32| device.cost(streams.with(context, tokens));
        prop_assert!(budget == 16 || cost(budget) <= time * 1.15, "{budget} take {} of {time}", cost(budget));
        prop_assert!(budget == most || cost(budget + budget / 5 + 2) >= time, "only {budget}, {} of {time}", cost(budget));
    }
}

#[test]
fn by_itself_the_bound_is_four_steps_and_no_less_than_fifty_milliseconds() {
    let latency = TokenLatency { bound: LatencyBound::Auto, least: Tokens(16) };
    let noise = [0; 60];
    let streams = streams(1, 0);
    let fast = Device { step: 999.0, token: 1.0, position: 0.0 };
    assert_eq!(read(Device { token: 100.0, ..fast }, latency, streams, 4_096, &noise).0 / 10, 48, "of 50 ms");
    assert_eq!(read(fast, latency, streams, 4_096, &noise).0, 4_096);
    let slow = Device { step: 99_000.0, token: 1_000.0, position: 0.0 };
    let read = read(slow, latency, streams, 4_096, &noise).0;
    assert!((299..=301).contains(&read), "three of four parts are 300 tokens, not {read}");
}

#[test]
fn a_bound_holds_from_the_first_step_beside_a_stream_on() {
    let (mut costs, latency) = (CostModel::default(), at(100, 16));
    // A prompt that was read while nobody waited: five seconds for 500 tokens.
    costs.observe(Work::default().with(0, 500), 500, 5_000_000);
    assert_eq!(latency.budget(&costs, streams(1, 500), 0, 512), 64, "no cost is known yet");
}

/// One step of a device that takes 990 us and 100 us for each row.
fn step(harness: &mut Harness, plan: &StepPlan) {
    let mut result = answer(plan, |_| 9);
    let rows: u64 = plan.scheduled.iter().map(|row| u64::from(row.count.0)).sum();
    result.device_micros = 990 + 100 * rows;
    harness.scheduler.complete(&result, harness.now);
    harness.scheduler.audit().unwrap();
}

#[test]
fn a_prompt_beside_a_stream_is_read_in_chunks_that_fit() {
    let limits = SchedulerConfig {
        step_budget: Tokens(128),
        max_model_len: Tokens(2_000),
        steps_in_flight: 1,
        token_latency: Some(at(3, 2)),
        ..config(Blocks(800))
    };
    let mut harness = Harness::new(limits);
    let prompt: Vec<u32> = (10..1_010).collect();
    harness.admit(new(1, &prompt[..300], 200));
    // Alone it is read with all there is.
    let alone: Vec<_> =
        (0..3).map(|_| harness.plan().inspect(|plan| step(&mut harness, plan)).unwrap()).collect();
    assert_eq!(alone.iter().map(|plan| plan.scheduled[0].count.0).collect::<Vec<_>>(), [128, 128, 44]);
    harness.admit(new(2, &prompt[1..], 1));
    let mut chunks = Vec::new();
    loop {
        let plan = harness.plan().unwrap();
        assert_eq!(rows(&plan)[0].0, 1, "the stream goes first");
        step(&mut harness, &plan);
        let Some(row) = plan.scheduled.get(1) else { break };
        assert_eq!(row.phase, Phase::Prefill);
        chunks.push(row.count.0);
        assert_eq!(harness.scheduler.load().step_budget, Tokens(row.count.0.max(19) + 1));
    }
    // The step, one token and 19 of the prompt.
    assert_eq!(chunks[..52], [19; 52]);
    assert_eq!(chunks.iter().sum::<u32>(), 999);
    assert_eq!(harness.scheduler.load().step_budget, Tokens(128), "nothing is held back without a prompt");
}

#[test]
fn a_bound_that_cannot_be_kept_lets_prompts_get_on() {
    let limits = SchedulerConfig { token_latency: Some(at(0, 0)), ..config(Blocks(40)) };
    let mut harness = Harness::new(limits);
    harness.admit(new(1, &[5, 6, 7], 30));
    harness.admit(new(2, &(20..50).collect::<Vec<_>>(), 3));
    let mut events = Vec::new();
    while let Some(plan) = harness.plan() {
        assert!(plan.scheduled.iter().all(|row| row.count > Tokens::ZERO));
        let mut result = answer(&plan, |_| 9);
        result.device_micros = 5_000;
        events.extend(harness.scheduler.complete(&result, harness.now));
    }
    assert_eq!([1, 2].map(|sequence| output(&events, sequence).len()), [30, 3]);
}
