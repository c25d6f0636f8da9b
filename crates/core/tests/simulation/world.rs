//! Everything around the machines: clients, messages under way, accidents.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use updraft_core::invariants::{StepOrder, StreamLedger, plan_is_sound, starts_in_order, victims_in_order};
use updraft_core::kv::{Grants, KvConfig, KvManager, Reservation};
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::{
    Blame, FailureCause, FinishReason, NewSequence, Policy, Scheduler, SchedulerConfig, SchedulerEvent,
};
use updraft_core::step::{StepPlan, StepResult};
use updraft_core::{Blocks, Epoch, Millis, SequenceId, TokenId, Tokens};

use crate::toy::{EOS, Fault, STOP, Toy, mix, undisturbed};

/// Actions after the last arrival within which everything must have ended. No run of these sizes comes near.
const PATIENCE: u32 = 40_000;

/// What happened in one run or in several.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) finished: u64,
    pub(crate) cancelled: u64,
    pub(crate) poisoned: u64,
    pub(crate) preemptions: u64,
    pub(crate) losses: u64,
    pub(crate) scheduler_losses: u64,
    pub(crate) late_rows: u64,
    pub(crate) prefix_hits: u64,
    pub(crate) steps: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.finished += other.finished;
        self.cancelled += other.cancelled;
        self.poisoned += other.poisoned;
        self.preemptions += other.preemptions;
        self.losses += other.losses;
        self.scheduler_losses += other.scheduler_losses;
        self.late_rows += other.late_rows;
        self.prefix_hits += other.prefix_hits;
        self.steps += other.steps;
    }
}

/// A stream of random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0, 0xD1CE) % limit
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// One client and what it has got.
struct Client {
    request: NewSequence,
    expected: Vec<TokenId>,
    reason: FinishReason,
    /// Position at which its sequence kills the executor.
    poison: Option<u32>,
    output: Vec<TokenId>,
    prompt_logprobs: Vec<u32>,
    strikes: u8,
    open: bool,
}

/// What comes back from the executor.
enum Outcome {
    Done(StepResult),
    Fault,
}

pub(crate) struct World {
    dice: Dice,
    config: SchedulerConfig,
    scheduler: Scheduler,
    kv: KvManager,
    toy: Toy,
    now: Millis,
    arrivals: u32,
    accidents: u32,
    clients: BTreeMap<SequenceId, Client>,
    reservation: Option<Reservation>,
    grants: Option<Grants>,
    /// Who waited when the reservation was made, in order; none while suspects were given precedence.
    queue: Option<Vec<SequenceId>>,
    /// Who ran then, in order.
    running: Vec<SequenceId>,
    plans: VecDeque<StepPlan>,
    outcomes: VecDeque<Outcome>,
    /// Messages that were delivered or became void; they may come (again) at any time.
    stale_results: Vec<StepResult>,
    stale_grants: Vec<Grants>,
    ledger: StreamLedger,
    order: StepOrder,
    totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice(mix(seed, 1));
        let block_size = Tokens([1, 2, 4, 4, 8][dice.below(5) as usize]);
        let pool = Blocks((dice.between(12, 90) as u32).div_ceil(block_size.0));
        let config = SchedulerConfig {
            max_sequences: dice.between(1, 12) as u32,
            max_waiting: dice.between(2, 40) as u32,
            step_budget: Tokens(dice.between(1, 40) as u32),
            chunk_limit: Tokens(dice.below(3) as u32 * 4),
            max_model_len: Tokens(dice.between(20, 70) as u32),
            policy: if dice.percent(50) { Policy::Fcfs } else { Policy::Priority },
            ageing: Millis(dice.below(3) * 50),
            block_size,
            pool,
            prompt_logit_rows: Tokens(dice.between(1, 12) as u32),
            steps_in_flight: [1, 2, 2, 3][dice.below(4) as usize],
        };
        let kv = KvConfig { block_size, blocks: pool, prefix_caching: dice.percent(85), events: false };
        let epoch = Epoch(1);
        Self {
            toy: Toy::new(epoch, block_size, pool.0),
            kv: KvManager::new(kv, epoch),
            scheduler: Scheduler::new(config.clone(), epoch),
            now: Millis(0),
            arrivals: dice.between(5, 60) as u32,
            accidents: dice.below(8) as u32,
            clients: BTreeMap::new(),
            reservation: None,
            grants: None,
            queue: None,
            running: Vec::new(),
            plans: VecDeque::new(),
            outcomes: VecDeque::new(),
            stale_results: Vec::new(),
            stale_grants: Vec::new(),
            ledger: StreamLedger::default(),
            order: StepOrder::default(),
            totals: Totals::default(),
            dice,
            config,
        }
    }

    pub(crate) fn run(mut self) -> Totals {
        let mut patience = PATIENCE;
        loop {
            self.now.0 += self.dice.below(4);
            self.act();
            self.scheduler.audit().unwrap();
            self.kv.audit().unwrap();
            if self.arrivals == 0 {
                patience -= 1;
                assert!(patience > 0, "not done in time: {:?}", self.scheduler);
                if self.scheduler.is_idle() && self.clients.values().all(|client| !client.open) {
                    break;
                }
            }
        }
        self.check_the_end();
        self.totals
    }

    /// One random thing happens.
    fn act(&mut self) {
        match self.dice.below(100) {
            0..5 if self.arrivals > 0 => self.arrive(),
            5..7 => self.cancel_someone(),
            7 if self.accidents > 0 => self.have_an_accident(),
            8..11 => self.deliver_something_stale(),
            11..35 => self.propose(),
            35..55 => self.serve(),
            55..75 => self.commit(),
            75..88 => self.execute(),
            88..100 => self.deliver(),
            _ => self.check_for_standstill(),
        }
    }

    fn arrive(&mut self) {
        self.arrivals -= 1;
        let sequence = SequenceId(1_000 - u64::from(self.arrivals));
        let longest = self.config.max_model_len.0.min(self.config.pool.0 * self.config.block_size.0 + 1);
        let poisonous = self.dice.percent(6);
        let family = if poisonous { 1_000 + sequence.0 as u32 } else { self.dice.below(3) as u32 };
        // Prompts of one family begin alike; those of poison sequences are like no other, so that nobody else
        // computes the poisonous position for them.
        let top = if self.dice.percent(75) { longest / 3 } else { longest };
        let len = self.dice.between(1, u64::from(top)) as u32;
        let prompt: Arc<[TokenId]> = (0..len).map(|at| family * 7 + at / 3).collect();
        let sampling = SamplingParams {
            max_tokens: self.dice.between(1, 50) as u32,
            min_tokens: self.dice.below(2) as u32 * self.dice.below(5) as u32,
            eos_token_ids: vec![EOS],
            stop_token_ids: vec![STOP],
            ignore_eos: self.dice.percent(20),
            seed: self.dice.below(3),
            prompt_logprobs: self.dice.percent(10).then_some(1),
            ..SamplingParams::default()
        };
        let request = NewSequence {
            sequence,
            prompt,
            output: Vec::new(),
            priority: self.dice.below(4) as i32,
            salt: self.dice.percent(10).then(|| "tenant".into()),
            arrival: self.now,
            strikes: 0,
            sampling: Arc::new(sampling),
        };
        let fits = len < longest;
        if let Err(refusal) = self.scheduler.admit(request.clone()) {
            assert!(!fits || refusal.retry_after().is_some(), "{refusal}");
            return;
        }
        assert!(fits);
        self.ledger.accept(sequence).unwrap();
        let (expected, reason) = undisturbed(&request.prompt, &request.sampling, longest as usize);
        // The last token is never computed, so poison there does not work.
        let reach = u64::from(len) + expected.len() as u64 - 1;
        let poison = poisonous.then(|| self.dice.below(reach) as u32);
        let client = Client {
            request,
            expected,
            reason,
            poison,
            output: Vec::new(),
            prompt_logprobs: Vec::new(),
            strikes: 0,
            open: true,
        };
        self.clients.insert(sequence, client);
    }

    fn cancel_someone(&mut self) {
        let open: Vec<SequenceId> = self.open().collect();
        if open.is_empty() || !self.dice.percent(8) {
            return;
        }
        let sequence = open[self.dice.below(open.len() as u64) as usize];
        assert!(self.scheduler.cancel(sequence));
        assert!(!self.scheduler.cancel(sequence));
        self.ledger.cancel(sequence).unwrap();
        self.clients.get_mut(&sequence).unwrap().open = false;
        self.totals.cancelled += 1;
    }

    fn propose(&mut self) {
        let queue = (self.scheduler.load().suspects == 0).then(|| self.scheduler.waiting().collect());
        let running = self.scheduler.running().collect();
        let Some(reservation) = self.scheduler.propose() else {
            return;
        };
        assert!(self.reservation.is_none() && self.grants.is_none(), "two reservations are out");
        self.queue = queue;
        self.running = running;
        self.reservation = Some(reservation);
    }

    fn serve(&mut self) {
        let Some(reservation) = self.reservation.take() else {
            return;
        };
        let grants = self.kv.reserve(&reservation);
        assert!(grants.granted.iter().map(|grant| grant.count).sum::<Tokens>() <= self.config.step_budget);
        victims_in_order(&self.running, &grants.preempted).unwrap();
        self.grants = Some(grants);
    }

    fn commit(&mut self) {
        let Some(grants) = self.grants.take() else { return };
        self.stale_grants.push(grants.clone());
        let Some(plan) = self.scheduler.commit(grants, self.now) else {
            return;
        };
        self.order.observe(plan.epoch, plan.step).unwrap();
        plan_is_sound(&plan, self.config.step_budget, self.config.max_sequences).unwrap();
        if let Some(queue) = &self.queue {
            let started: Vec<SequenceId> = plan.admitted.iter().map(|init| init.sequence).collect();
            starts_in_order(queue, &started).unwrap();
        }
        self.plans.push_back(plan);
    }

    fn execute(&mut self) {
        let ill = matches!(self.outcomes.back(), Some(Outcome::Fault));
        let Some(plan) = (if ill { None } else { self.plans.pop_front() }) else {
            return;
        };
        let clients = &self.clients;
        let poison = |sequence| clients.get(&sequence).and_then(|client: &Client| client.poison);
        self.totals.steps += 1;
        let outcome = self.toy.run(&plan, poison);
        self.outcomes.push_back(match outcome {
            Ok(result) => {
                let rows = result.outputs.iter().map(|output| output.prompt_logprobs.len()).sum::<usize>();
                assert!(rows <= self.config.prompt_logit_rows.0 as usize, "too many logits");
                Outcome::Done(result)
            }
            Err(Fault) => Outcome::Fault,
        });
    }

    fn deliver(&mut self) {
        match self.outcomes.pop_front() {
            Some(Outcome::Done(result)) => {
                let late = |output: &updraft_core::step::SequenceOutput| !self.clients[&output.sequence].open;
                self.totals.late_rows += result.outputs.iter().filter(|output| late(output)).count() as u64;
                let events = self.scheduler.complete(&result, self.now);
                self.stale_results.push(result);
                self.observe(events);
            }
            Some(Outcome::Fault) => self.lose_the_epoch(Blame::OldestStep),
            None => {}
        }
    }

    /// Everything of the old epoch that is still under way may yet arrive.
    fn lose_the_epoch(&mut self, blame: Blame) {
        self.totals.losses += 1;
        let epoch = self.scheduler.epoch().next();
        self.toy = Toy::new(epoch, self.config.block_size, self.config.pool.0);
        self.plans.clear();
        let undelivered = self.outcomes.drain(..).filter_map(|outcome| match outcome {
            Outcome::Done(result) => Some(result),
            Outcome::Fault => None,
        });
        self.stale_results.extend(undelivered);
        // The manager hears of it now, or by the first reservation of the new epoch.
        if self.dice.percent(50) {
            self.kv.reset(epoch);
        }
        if let Some(reservation) = self.reservation.take() {
            self.stale_grants.push(self.kv.reserve(&reservation));
        }
        self.stale_grants.extend(self.grants.take());
        let events = self.scheduler.lose(epoch, blame);
        self.observe(events);
    }

    fn have_an_accident(&mut self) {
        self.accidents -= 1;
        if self.dice.percent(70) {
            self.lose_the_epoch(Blame::Nobody);
            return;
        }
        self.totals.scheduler_losses += 1;
        let (old, epoch) = (self.scheduler.epoch(), self.scheduler.epoch().next());
        self.totals.preemptions += self.scheduler.load().preemptions;
        // The new scheduler takes over in the old epoch's place, then all else follows as after any loss.
        self.scheduler = Scheduler::new(self.config.clone(), old);
        for sequence in self.open().collect::<Vec<_>>() {
            let client = self.clients.get_mut(&sequence).unwrap();
            client.prompt_logprobs.retain(|_| !client.output.is_empty());
            let restored = NewSequence {
                output: client.output.clone(),
                strikes: client.strikes,
                ..client.request.clone()
            };
            self.scheduler.restore(restored).unwrap();
        }
        self.lose_the_epoch(Blame::Nobody);
        assert_eq!(self.scheduler.epoch(), epoch);
    }

    fn deliver_something_stale(&mut self) {
        if !self.stale_results.is_empty() {
            let at = self.dice.below(self.stale_results.len() as u64) as usize;
            let result = self.stale_results.swap_remove(at);
            let events = self.scheduler.drain_events();
            self.observe(events);
            assert_eq!(self.scheduler.complete(&result, self.now), []);
        }
        // A grant is delivered once, so only those of an older epoch can be stale.
        let epoch = self.scheduler.epoch();
        self.stale_grants.retain(|grants| grants.epoch < epoch);
        if let Some(grants) = self.stale_grants.pop() {
            assert_eq!(self.scheduler.commit(grants, self.now), None);
        }
    }

    /// Whenever no message is under way, there is something to propose or nothing to do.
    fn check_for_standstill(&mut self) {
        let quiet = self.reservation.is_none()
            && self.grants.is_none()
            && self.plans.is_empty()
            && self.outcomes.is_empty();
        if quiet && !self.scheduler.is_idle() {
            self.propose();
            assert!(self.reservation.is_some(), "at a standstill: {:?}", self.scheduler);
        }
    }

    fn observe(&mut self, events: Vec<SchedulerEvent>) {
        for event in events {
            self.ledger.observe(&event).unwrap();
            match event {
                SchedulerEvent::Token { sequence, token, index, .. } => {
                    let client = self.clients.get_mut(&sequence).unwrap();
                    assert_eq!(client.expected[index as usize], token, "sequence {sequence} went astray");
                    client.output.push(token);
                    client.strikes = 0;
                }
                SchedulerEvent::PromptLogprobs { sequence, entries } => {
                    let client = self.clients.get_mut(&sequence).unwrap();
                    client.prompt_logprobs.extend(entries.iter().map(|(position, _)| position.0));
                }
                SchedulerEvent::Finished { sequence, reason, stats } => {
                    let client = self.clients.get_mut(&sequence).unwrap();
                    client.open = false;
                    assert_eq!((&client.output, reason), (&client.expected, client.reason));
                    assert_eq!(client.poison, None, "sequence {sequence} survived its poison");
                    assert_eq!(stats.output_tokens.0 as usize, client.output.len());
                    if client.request.sampling.prompt_logprobs.is_some() {
                        let all: Vec<u32> = (1..client.request.prompt.len() as u32).collect();
                        assert_eq!(client.prompt_logprobs, all);
                    }
                    self.totals.finished += 1;
                }
                SchedulerEvent::Failed { sequence, cause, .. } => {
                    let client = self.clients.get_mut(&sequence).unwrap();
                    client.open = false;
                    assert_eq!(cause, FailureCause::Faults);
                    let poison = client.poison.expect("an innocent sequence was given up");
                    let before = poison.saturating_sub(client.request.prompt.len() as u32 - 1);
                    assert_eq!(client.output.len() as u32, before, "given up before or after its poison");
                    self.totals.poisoned += 1;
                }
                SchedulerEvent::Struck { sequence, strikes } => {
                    self.clients.get_mut(&sequence).unwrap().strikes = strikes;
                }
                SchedulerEvent::Preempted { .. } => {}
            }
        }
    }

    fn check_the_end(&mut self) {
        self.ledger.all_ended().unwrap();
        // After a loss with nothing left to run, no reservation has told the manager yet.
        self.kv.reset(self.scheduler.epoch());
        assert_eq!(self.kv.usage().used, 0, "blocks are lost");
        self.totals.preemptions += self.scheduler.load().preemptions;
        self.totals.prefix_hits += self.kv.usage().prefix_hits;
    }

    fn open(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.clients.iter().filter(|(_, client)| client.open).map(|(sequence, _)| *sequence)
    }
}
