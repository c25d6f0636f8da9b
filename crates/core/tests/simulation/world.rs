//! Everything around the machines: clients, and messages under way.

use std::collections::{BTreeMap, VecDeque};

use updraft_core::graphs::{Dispatcher, GraphBudget, GraphMode, GraphOptions, LifecyclePolicy, Lifecycles};
use updraft_core::invariants::{
    StepOrder, StreamLedger, Waiting, plan_is_sound, starts_in_order, victims_in_order,
};
use updraft_core::kv::{Grants, KvConfig, KvManager, Reservation};
use updraft_core::recovery::{Ledger, RecoveryPolicy, Spares};
use updraft_core::scheduler::{
    FailureCause, LatencyBound, Policy, Scheduler, SchedulerConfig, SchedulerEvent, TokenLatency,
};
use updraft_core::speculation::{Method, NgramLengths, SpeculationConfig};
use updraft_core::step::{StepPlan, StepResult};
use updraft_core::{Blocks, Bytes, Epoch, Millis, SequenceId, Tokens};

use crate::client::Client;
use crate::dice::Dice;
use crate::station::{Answer, End, Ran, Station};
use crate::totals::Totals;
use crate::toy::Toy;

/// Actions after the last arrival within which everything must have ended. No run of these sizes comes near.
const PATIENCE: u32 = 40_000;

/// Steps within which every open sequence gets something. The longest wait of five thousand runs is a quarter
/// of it.
const STARVATION_STEPS: u64 = 3_000;

/// What comes back from the executor.
pub(crate) enum Outcome {
    Done { result: StepResult, rows: u32, decode_only: bool },
    Ended(End),
}

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) config: SchedulerConfig,
    pub(crate) scheduler: Scheduler,
    pub(crate) kv: KvManager,
    pub(crate) station: Station,
    pub(crate) graphs: Lifecycles,
    pub(crate) options: GraphOptions,
    pub(crate) budget: GraphBudget,
    pub(crate) spares: Spares,
    pub(crate) now: Millis,
    pub(crate) arrivals: u32,
    pub(crate) accidents: u32,
    /// Steps in a hundred at which the device has a trouble.
    pub(crate) fault_rate: u64,
    /// Since when the device thread hangs, and in which plan.
    pub(crate) hung: Option<(Millis, StepPlan)>,
    pub(crate) clients: BTreeMap<SequenceId, Client>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) grants: Option<Grants>,
    /// Who waited when the reservation was made, in order; none while suspects were given precedence.
    queue: Option<Vec<SequenceId>>,
    /// Who ran then, in order.
    running: Vec<SequenceId>,
    pub(crate) plans: VecDeque<StepPlan>,
    pub(crate) outcomes: VecDeque<Outcome>,
    /// Sequences of the step that is the oldest without an outcome delivered.
    pub(crate) in_flight: VecDeque<Vec<SequenceId>>,
    /// Messages that were delivered or became void; they may come (again) at any time.
    pub(crate) stale_results: Vec<StepResult>,
    pub(crate) stale_grants: Vec<Grants>,
    pub(crate) stale_answers: Vec<Answer>,
    pub(crate) ledger: StreamLedger,
    pub(crate) waiting: Waiting,
    order: StepOrder,
    pub(crate) totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let block_size = Tokens(dice.pick(&[1, 2, 4, 4, 8]));
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
            token_latency: dice.percent(50).then(|| TokenLatency {
                bound: LatencyBound::At(Millis(dice.between(1, 3))),
                least: Tokens(dice.between(0, 4) as u32),
            }),
            steps_in_flight: dice.pick(&[1, 2, 2, 3]),
            speculation: dice.percent(35).then(|| speculation(&mut dice)),
        };
        let kv = KvConfig { block_size, blocks: pool, prefix_caching: dice.percent(85), events: false };
        let epoch = Epoch(1);
        let toy = Toy::new(epoch, block_size, pool.0);
        let ordinals: Vec<u32> = (0..dice.between(1, 4) as u32).collect();
        let mut world = Self {
            station: Station::new(toy, ledger(), Dispatcher::default()),
            kv: KvManager::new(kv, epoch),
            scheduler: Scheduler::new(config.clone(), epoch),
            graphs: Lifecycles::new(lifecycles()),
            options: GraphOptions { mode: dice.pick(&MODES), ..GraphOptions::default() },
            budget: GraphBudget {
                bytes: Bytes(dice.between(20, 300)),
                streams: dice.between(1, 20) as u32,
                captures: dice.between(1, 20) as u32,
            },
            spares: Spares::new(&ordinals),
            now: Millis(0),
            arrivals: dice.between(5, 60) as u32,
            accidents: dice.below(8) as u32,
            fault_rate: dice.pick(&[0, 0, 1, 3, 8]),
            hung: None,
            clients: BTreeMap::new(),
            reservation: None,
            grants: None,
            queue: None,
            running: Vec::new(),
            plans: VecDeque::new(),
            outcomes: VecDeque::new(),
            in_flight: VecDeque::new(),
            stale_results: Vec::new(),
            stale_grants: Vec::new(),
            stale_answers: Vec::new(),
            ledger: StreamLedger::default(),
            waiting: Waiting::new(STARVATION_STEPS),
            order: StepOrder::default(),
            totals: Totals::default(),
            dice,
            config,
        };
        world.device_is_up(epoch);
        world
    }

    pub(crate) fn run(mut self) -> Totals {
        let mut patience = PATIENCE;
        loop {
            self.now.0 += self.dice.below(4);
            self.act();
            self.scheduler.audit().unwrap();
            self.kv.audit().unwrap();
            self.graphs.audit().unwrap();
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
        let what = self.dice.below(120);
        self.totals.note(what);
        match what {
            0..5 if self.arrivals > 0 => self.arrive(),
            5..7 => self.cancel_someone(),
            7 if self.accidents > 0 => self.have_an_accident(),
            8..11 => self.deliver_something_stale(),
            11..35 => self.propose(),
            35..55 => self.serve(),
            55..75 => self.commit(),
            75..88 => self.execute(),
            88..100 => self.deliver(),
            100..104 => self.ask_the_keeper(),
            104..109 => self.obey(),
            109..113 => self.answer_the_keeper(),
            113..116 => self.read(),
            _ => self.check_for_standstill(),
        }
    }

    fn arrive(&mut self) {
        self.arrivals -= 1;
        let sequence = SequenceId(1_000 - u64::from(self.arrivals));
        let longest = self.config.max_model_len.0.min(self.config.pool.0 * self.config.block_size.0 + 1);
        let drafted = self.config.speculation.is_some();
        let client = Client::new(sequence, longest, drafted, self.now, &mut self.dice);
        let fits = (client.request.prompt.len() as u32) < longest;
        if let Err(refusal) = self.scheduler.admit(client.request.clone()) {
            assert!(!fits || refusal.retry_after().is_some(), "{refusal}");
            return;
        }
        assert!(fits);
        self.ledger.accept_expecting(sequence, client.expected.clone()).unwrap();
        self.waiting.accept(sequence);
        self.clients.insert(sequence, client);
    }

    fn cancel_someone(&mut self) {
        let open: Vec<SequenceId> = self.open().collect();
        if open.is_empty() || !self.dice.percent(8) {
            return;
        }
        let sequence = self.dice.pick(&open);
        self.cancel(sequence);
        self.totals.cancelled += 1;
    }

    /// The client hangs up.
    pub(crate) fn cancel(&mut self, sequence: SequenceId) {
        assert!(self.scheduler.cancel(sequence));
        assert!(!self.scheduler.cancel(sequence));
        self.ledger.cancel(sequence).unwrap();
        self.waiting.end(sequence);
        self.clients.get_mut(&sequence).unwrap().open = false;
    }

    fn propose(&mut self) {
        let queue = (self.scheduler.load().suspects == 0).then(|| self.scheduler.waiting().collect());
        let running = self.scheduler.running().collect();
        let Some(reservation) = self.scheduler.propose() else {
            return;
        };
        assert!(self.reservation.is_none() && self.grants.is_none(), "two reservations are out");
        self.totals.held_back += u64::from(reservation.budget < self.config.step_budget);
        self.totals.note(u64::from(reservation.budget.0));
        self.queue = queue;
        self.running = running;
        self.reservation = Some(reservation);
    }

    fn serve(&mut self) {
        let Some(reservation) = self.reservation.take() else {
            return;
        };
        let grants = self.kv.reserve(&reservation);
        assert!(grants.granted.iter().map(|grant| grant.count).sum::<Tokens>() <= reservation.budget);
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
        self.totals.drafted += plan.scheduled.iter().map(|row| row.drafts.len() as u64).sum::<u64>();
        self.in_flight.push_back(plan.scheduled.iter().map(|row| row.sequence).collect());
        self.plans.push_back(plan);
    }

    fn execute(&mut self) {
        let ill = self.hung.is_some() || matches!(self.outcomes.back(), Some(Outcome::Ended(_)));
        let Some(plan) = (if ill { None } else { self.plans.pop_front() }) else {
            return;
        };
        self.totals.steps += 1;
        if self.have_trouble() {
            self.hung = Some((self.now, plan));
            return;
        }
        let outcome = self.compute(&plan);
        self.outcomes.push_back(outcome);
    }

    pub(crate) fn compute(&mut self, plan: &StepPlan) -> Outcome {
        let clients = &self.clients;
        let poison = |sequence| clients.get(&sequence).and_then(|client: &Client| client.poison);
        match self.station.run(plan, self.now, &mut self.dice, &mut self.totals, poison) {
            Ran::Done { result, rows, decode_only } => {
                let wanted = result.outputs.iter().map(|output| output.prompt_logprobs.len()).sum::<usize>();
                assert!(wanted <= self.config.prompt_logit_rows.0 as usize, "too many logits");
                Outcome::Done { result, rows, decode_only }
            }
            Ran::Ended(end) => Outcome::Ended(end),
        }
    }

    fn deliver(&mut self) {
        match self.outcomes.pop_front() {
            Some(Outcome::Done { result, rows, decode_only }) => {
                let late = |output: &updraft_core::step::SequenceOutput| !self.clients[&output.sequence].open;
                self.totals.late_rows += result.outputs.iter().filter(|output| late(output)).count() as u64;
                self.totals.accepted +=
                    result.outputs.iter().map(|output| output.further.len() as u64).sum::<u64>();
                self.in_flight.pop_front();
                self.graphs.observe(rows, decode_only);
                let events = self.scheduler.complete(&result, self.now);
                self.stale_results.push(result);
                self.observe(events);
                self.waiting.step().unwrap();
            }
            Some(Outcome::Ended(end)) => self.end_a_life(end),
            None => self.watch_the_clock(),
        }
    }

    /// Whenever no message is under way, there is something to propose or nothing to do.
    fn check_for_standstill(&mut self) {
        let quiet = self.reservation.is_none()
            && self.grants.is_none()
            && self.plans.is_empty()
            && self.outcomes.is_empty()
            && self.hung.is_none();
        if quiet && !self.scheduler.is_idle() {
            self.propose();
            assert!(self.reservation.is_some(), "at a standstill: {:?}", self.scheduler);
        }
    }

    fn read(&mut self) {
        for client in self.clients.values_mut().filter(|client| client.unread > 0) {
            client.read(&mut self.dice);
        }
    }

    pub(crate) fn observe(&mut self, events: Vec<SchedulerEvent>) {
        for event in events {
            self.ledger.observe(&event).unwrap();
            self.waiting.observe(&event);
            let client = self.clients.get_mut(&event.sequence()).unwrap();
            self.totals.note(event.sequence().0);
            match event {
                SchedulerEvent::Token { token, .. } => {
                    client.receive(token);
                    self.totals.note(token.into());
                }
                SchedulerEvent::PromptLogprobs { entries, .. } => {
                    client.prompt_logprobs.extend(entries.iter().map(|(position, _)| position.0));
                }
                SchedulerEvent::Finished { reason, stats, .. } => {
                    client.open = false;
                    client.check_finished(reason, stats.output_tokens.0);
                    // Nobody has read a word, and that held nobody up.
                    let full = client.unread as usize == client.output.len() && client.unread > 1;
                    self.totals.full_channels += u64::from(full);
                    self.totals.finished += 1;
                }
                SchedulerEvent::Failed { cause, .. } => {
                    client.open = false;
                    assert_eq!(cause, FailureCause::Faults);
                    let deserved = client.check_failed();
                    self.totals.poisoned += u64::from(deserved);
                    self.totals.unlucky += u64::from(!deserved);
                }
                SchedulerEvent::Struck { strikes, .. } => client.strikes = strikes,
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
        self.totals.stale_answers += self.graphs.stale();
        self.totals.longest_wait = self.waiting.longest();
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.clients.iter().filter(|(_, client)| client.open).map(|(sequence, _)| *sequence)
    }
}

const MODES: [GraphMode; 5] = [
    GraphMode::None,
    GraphMode::Piecewise,
    GraphMode::Full,
    GraphMode::FullDecodeOnly,
    GraphMode::FullAndPiecewise,
];

/// Drafts of one token's context on: the toy's outputs are short.
fn speculation(dice: &mut Dice) -> SpeculationConfig {
    let min = dice.between(1, 3) as u32;
    SpeculationConfig {
        method: Method::Ngram(NgramLengths { min, max: min + dice.below(3) as u32 }),
        drafts: Tokens(dice.between(1, 6) as u32),
        rows: Tokens(dice.between(1, 20) as u32),
    }
}

/// The ledger of a device that nothing has happened to. A run lasts some seconds, so calm comes soon.
pub(crate) fn ledger() -> Ledger {
    Ledger::new(RecoveryPolicy {
        calm: Millis(100),
        memory_window: Millis(3_000),
        ..RecoveryPolicy::default()
    })
}

fn lifecycles() -> LifecyclePolicy {
    LifecyclePolicy {
        idle_settle: Millis(3),
        busy_interval: Millis(60),
        first_backoff: Millis(20),
        longest_backoff: Millis(300),
        calm: Millis(500),
        unused_after: 60,
        propose_every: 20,
        ..LifecyclePolicy::default()
    }
}
