//! What goes wrong in a world, and the keeper of its graphs: losses, hangs, spares, and messages that come
//! late.

use updraft_core::graphs::{Dispatcher, GraphEvent, GraphKey, GraphKind, GraphPlan, GraphUse, StepLimits};
use updraft_core::recovery::{Action, Moment, RecoveryClass};
use updraft_core::scheduler::{Blame, Scheduler};
use updraft_core::{Bytes, Epoch, Millis};

use crate::station::{Answer, End, Station, Trouble};
use crate::toy::Toy;
use crate::world::{Outcome, World, ledger};

/// After so long without progress, a step that runs is given up.
const STALL: Millis = Millis(40);

impl World {
    /// Something is wrong with the device from now on; whether it hangs.
    pub(crate) fn have_trouble(&mut self) -> bool {
        if !self.dice.percent(self.fault_rate) {
            return false;
        }
        if self.dice.percent(10) {
            self.totals.hangs += 1;
            return true;
        }
        self.arm();
        false
    }

    fn arm(&mut self) {
        let class = self.dice.pick(&RecoveryClass::ALL);
        let times = self.dice.pick(&[1, 1, 1, 2, 4, 7]);
        self.station.arm(Trouble { class, times });
    }

    /// A device thread that hangs is noticed after a while. It ends its step some time later all the same.
    pub(crate) fn watch_the_clock(&mut self) {
        let Some((since, _)) = &self.hung else { return };
        if self.now - *since < STALL {
            return;
        }
        let Some((_, plan)) = self.hung.take() else { return };
        if let Outcome::Done { result, .. } = self.compute(&plan) {
            self.stale_results.push(result);
        }
        // The ledger does not hear of it: the supervisor saw it, not the device thread.
        self.end_a_life(End { action: Action::RebuildGroup, blames: true, deserved: false });
    }

    /// The device thread has ended its life, for a reason.
    pub(crate) fn end_a_life(&mut self, end: End) {
        if end.blames && !end.deserved {
            for sequence in self.in_flight.front().into_iter().flatten() {
                self.clients.get_mut(sequence).unwrap().unlucky = true;
            }
        }
        if end.action == Action::RetireDevice && !self.use_a_spare() {
            return;
        }
        self.lose_the_epoch(if end.blames { Blame::OldestStep } else { Blame::Nobody });
    }

    /// False when there is none: everybody is told so, and nobody comes in any more.
    fn use_a_spare(&mut self) -> bool {
        if self.spares.retire().is_some() {
            self.totals.spares_used += 1;
            self.station.ledger = ledger();
            return true;
        }
        for sequence in self.open().collect::<Vec<_>>() {
            self.cancel(sequence);
            self.totals.stranded += 1;
        }
        self.arrivals = 0;
        // What was under way comes to nothing, and the scheduler hears that as well.
        self.lose_the_epoch(Blame::Nobody);
        false
    }

    /// Everything of the old epoch that is still under way may yet arrive, or never does.
    fn lose_the_epoch(&mut self, blame: Blame) {
        self.totals.losses += 1;
        let epoch = self.scheduler.epoch().next();
        self.totals.note(epoch.0);
        self.plans.clear();
        self.in_flight.clear();
        self.hung = None;
        let lost = self.dice.percent(30);
        let undelivered = self.outcomes.drain(..).filter_map(|outcome| match outcome {
            Outcome::Done { result, .. } if !lost => Some(result),
            _ => None,
        });
        self.stale_results.extend(undelivered);
        self.stale_answers.extend(self.station.answers.drain(..));
        self.new_life(epoch);
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

    /// The device is opened again, which may fail as well.
    fn new_life(&mut self, epoch: Epoch) {
        if self.dice.percent(50) {
            self.graphs.device_lost(self.now);
        }
        while self.dice.percent(self.fault_rate) {
            let class = self.dice.pick(&RecoveryClass::ALL);
            let action = self.station.ledger.decide_class(self.now, class, Moment::Open);
            self.totals.fault(class, Moment::Open, action);
            if action == Action::RetireDevice {
                // The last one is always good: what happens without any is another test's affair.
                if self.spares.left() > 0 {
                    self.spares.retire();
                    self.totals.spares_used += 1;
                }
                self.station.ledger = ledger();
            }
        }
        self.station.ledger.began_life(self.now);
        self.device_is_up(epoch);
    }

    /// The keeper of the graphs hears of a new life and makes a plan for it.
    pub(crate) fn device_is_up(&mut self, epoch: Epoch) {
        let kinds = [GraphKind::Decode, GraphKind::Mixed, GraphKind::Piecewise];
        let limits =
            StepLimits { max_sequences: self.config.max_sequences, step_budget: self.config.step_budget };
        let cost = |key: GraphKey| GraphUse { bytes: Bytes(key.rows.into()), streams: 1 };
        let plan = GraphPlan::new(&self.options, limits, &kinds, self.budget, &cost, self.graphs.traffic());
        let mut dispatcher = Dispatcher::new(plan.mode());
        plan.wanted().iter().for_each(|key| dispatcher.want(*key));
        let toy = Toy::new(epoch, self.config.block_size, self.config.pool.0);
        self.station = Station::new(toy, self.station.ledger.clone(), dispatcher);
        self.graphs.device_up(epoch, plan, self.now);
        assert_eq!(self.graphs.epoch(), Some(epoch));
    }

    pub(crate) fn have_an_accident(&mut self) {
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
            let restored = self.clients.get_mut(&sequence).unwrap().restored();
            self.scheduler.restore(restored).unwrap();
        }
        self.lose_the_epoch(Blame::Nobody);
        assert_eq!(self.scheduler.epoch(), epoch);
    }

    pub(crate) fn deliver_something_stale(&mut self) {
        if !self.stale_results.is_empty() {
            let at = self.dice.below(self.stale_results.len() as u64) as usize;
            let result = self.stale_results.swap_remove(at);
            let events = self.scheduler.drain_events();
            self.observe(events);
            assert_eq!(self.scheduler.complete(&result, self.now), []);
            self.totals.stale_results += 1;
        }
        if let Some(answer) = self.stale_answers.pop() {
            let before: Vec<_> = self.graphs.buckets().collect();
            self.take_in(answer);
            assert_eq!(self.graphs.buckets().collect::<Vec<_>>(), before, "a late answer changed something");
        }
        // A grant is delivered once, so only those of an older epoch can be stale.
        let epoch = self.scheduler.epoch();
        self.stale_grants.retain(|grants| grants.epoch < epoch);
        if let Some(grants) = self.stale_grants.pop() {
            assert_eq!(self.scheduler.commit(grants, self.now), None);
        }
    }

    /// The keeper of the graphs looks at its clock.
    pub(crate) fn ask_the_keeper(&mut self) {
        let idle = self.plans.is_empty() && self.scheduler.load().running == 0;
        if let Some(command) = self.graphs.next(self.now, idle) {
            self.station.commands.push_back(command);
        }
        for event in self.graphs.drain_events() {
            self.totals.proposed += u64::from(matches!(event, GraphEvent::Proposed(_)));
        }
    }

    /// The device thread looks at its commands, between two steps.
    pub(crate) fn obey(&mut self) {
        if self.hung.is_some() || matches!(self.outcomes.back(), Some(Outcome::Ended(_))) {
            return;
        }
        if !self.station.commands.is_empty() && self.dice.percent(4 * self.fault_rate) {
            self.arm();
        }
        if let Some(end) = self.station.obey(self.now, &mut self.dice, &mut self.totals) {
            self.outcomes.push_back(Outcome::Ended(end));
        }
    }

    /// The oldest answer reaches the keeper of the graphs.
    pub(crate) fn answer_the_keeper(&mut self) {
        if let Some(answer) = self.station.answers.pop_front() {
            self.take_in(answer);
        }
    }

    fn take_in(&mut self, answer: Answer) {
        let now = self.now;
        match answer {
            Answer::Captured { epoch, key, cost } => self.graphs.captured(epoch, key, cost, 1, now),
            Answer::Failed { epoch, key, class } => self.graphs.capture_failed(epoch, key, class, now),
            Answer::Retired { epoch, key, why } => self.graphs.retired(epoch, key, why, now),
            Answer::Voided { epoch } => self.graphs.voided(epoch),
        }
    }
}
