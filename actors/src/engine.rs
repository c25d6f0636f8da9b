//! The engine: starts the actors, and is the handle everybody else holds.
//!
//! A handle is cheap to clone and never shows an actor: it survives their restarts. Work enters through
//! [`Engine::submit`] with a permit of the gate and comes back as a [`Generation`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ractor::{Actor, ActorRef};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use updraft_core::admission::{Limits, Refusal};
use updraft_core::fault::FaultClass;
use updraft_core::graphs::{GraphOptions, LifecyclePolicy, StepLimits};
use updraft_core::kv::KvConfig;
use updraft_core::recovery::RecoveryPolicy;
use updraft_core::restart::RestartPolicy;
use updraft_core::scheduler::SchedulerConfig;
use updraft_core::{Epoch, SequenceId, Tokens};

use crate::bus::{Bus, RequestRecord};
use crate::executor::{DrillSwitch, ExecutorParts, GraphSetup, Placement, Seats};
use crate::front::FrontPool;
use crate::gate::{Gate, Load};
use crate::generation::{
    Generation, OUT_OF_SERVICE_RETRY_AFTER_SECS, Opened, Passage, Submission, SubmitError,
};
use crate::graphs::GraphsArgs;
use crate::intake::{Admission, IntakeMsg};
use crate::kv_blocks::KvBlocksArgs;
use crate::metrics::{MetricsArgs, MetricsMsg, Recorder};
use crate::scheduler::SchedulerArgs;
use crate::supervisor::{
    Devices, EngineArgs, EngineStatus, Mailbox, RootActor, RootArgs, RootMsg, StatusBoard,
};

/// How long a new request waits for an engine that restarts before it is refused.
const SUBMIT_WAIT_MAX: Duration = Duration::from_secs(5);
/// What a client is told to wait when the engine is restarting.
const RETRY_AFTER_SECS: u64 = 5;
/// How long a scrape waits for the metrics actor.
const RENDER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Events of a sequence besides its tokens and the parts of its prompt's log-probabilities: its end, its
/// strikes.
const EVENTS_BESIDE_TOKENS: usize = 64;

/// How long a device may take to be opened when there is no reason for another time. Weights are loaded
/// meanwhile, which takes minutes from a slow disk and shows no progress.
pub const OPEN_DEADLINE_DEFAULT: Duration = Duration::from_secs(300);

/// What an engine is made of.
pub struct EngineOptions {
    /// Where the device is driven, and how it is made: at the start and after every loss of it.
    pub placement: Placement,
    /// Numbers of the devices: the first is used, the others are spares.
    pub ordinals: Vec<u32>,
    /// Which graphs are captured.
    pub graphs: GraphOptions,
    /// Every so many replayed steps one is checked against the same step run eagerly; 0 for none.
    pub verify_replay: u32,
    /// How long a step may take before the device is asked whether it is still at it.
    pub step_deadline: Duration,
    /// A device that is not open after this long counts as hung; [`OPEN_DEADLINE_DEFAULT`] unless there is a
    /// reason.
    pub open_deadline: Duration,
    /// How often which remedy is tried on a faulty device.
    pub recovery: RecoveryPolicy,
    /// Name in the `model_name` label.
    pub model_name: String,
    /// Scheduling rules.
    pub scheduler: SchedulerConfig,
    /// Block pool.
    pub kv: KvConfig,
    /// What is let in.
    pub limits: Limits,
    /// When and how often parts of the engine are restarted.
    pub restarts: RestartPolicy,
    /// The same for the engine supervisor and the metrics.
    pub root_restarts: RestartPolicy,
    /// A device that makes no progress for this long, while it has something to do, counts as hung.
    pub stall_after: Duration,
    /// Threads for templates and tokenising.
    pub front_threads: usize,
    /// Labels of the metric that describes the cache.
    pub cache_config: Vec<(&'static str, String)>,
    /// Whether the ten-second line is printed.
    pub log_summary: bool,
}

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Threads or recorder.
    #[error("starting the engine failed: {0}")]
    Setup(String),
    /// An actor refused to start.
    #[error("an actor could not be started: {0}")]
    Spawn(#[from] ractor::SpawnErr),
}

/// Handle of a running engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    gate: Gate,
    board: Arc<StatusBoard>,
    bus: Arc<Bus>,
    front: FrontPool,
    drills: DrillSwitch,
    door: watch::Receiver<Option<ActorRef<IntakeMsg>>>,
    desk: watch::Receiver<Option<ActorRef<MetricsMsg>>>,
    root: ActorRef<RootMsg>,
    root_task: std::sync::Mutex<Option<JoinHandle<()>>>,
    exhausted: Arc<Notify>,
    next_sequence: AtomicU64,
}

/// The recorder, with all that is to be on the page from the first scrape on.
fn recorder(options: &EngineOptions) -> Result<Recorder, StartError> {
    let max_model_len = options.limits.max_model_len.0;
    let recorder = Recorder::new(&options.model_name, max_model_len, &options.cache_config)
        .map_err(|error| StartError::Setup(error.to_string()))?;
    if let Some(speculation) = &options.scheduler.speculation {
        recorder.show_drafts(speculation.drafts.0);
    }
    Ok(recorder)
}

impl Engine {
    /// Starts all actors. Returns when they are there; the device may still be opening on its own thread.
    pub async fn start(options: EngineOptions) -> Result<Self, StartError> {
        if options.ordinals.is_empty() {
            return Err(StartError::Setup("no device is named: give the number of at least one".to_owned()));
        }
        let max_running = options.scheduler.max_sequences;
        let setup = |error: &dyn std::fmt::Display| StartError::Setup(error.to_string());
        let board = Arc::new(StatusBoard::new(options.stall_after, options.open_deadline));
        let bus = Arc::new(Bus::default());
        let drills = DrillSwitch::default();
        let recorder = recorder(&options)?;
        let (door, door_seen) = watch::channel(None);
        let (desk, desk_seen) = watch::channel(None);
        let (graphs_desk, graphs_seen) = watch::channel(None);
        let exhausted = Arc::new(Notify::new());
        let metrics = MetricsArgs {
            recorder: Arc::new(recorder),
            bus: Arc::clone(&bus),
            steps: bus.steps.subscribe(),
            requests: bus.requests.subscribe(),
            faults: bus.faults.subscribe(),
            graphs: bus.graphs.subscribe(),
            board: Arc::clone(&board),
            log_summary: options.log_summary,
        };
        let graphs = GraphSetup {
            options: options.graphs,
            limits: StepLimits {
                max_sequences: options.scheduler.max_sequences,
                step_budget: options.scheduler.step_budget,
            },
            given_up: false,
            deadly: Vec::new(),
        };
        let engine = EngineArgs {
            executor: ExecutorParts {
                placement: options.placement,
                block_size: options.kv.block_size,
                graphs: graphs.clone(),
                verify_replay: options.verify_replay,
                step_deadline: options.step_deadline,
                drills: drills.clone(),
                board: Arc::clone(&board),
                bus: Arc::clone(&bus),
                desk: graphs_seen,
                seats: Seats::default(),
            },
            graphs: GraphsArgs {
                setup: graphs,
                policy: LifecyclePolicy::default(),
                steps: bus.steps.subscribe(),
                board: Arc::clone(&board),
            },
            kv_blocks: KvBlocksArgs {
                totals: Arc::default(),
                config: options.kv,
                bus: Arc::clone(&bus),
                board: Arc::clone(&board),
            },
            scheduler: SchedulerArgs {
                config: options.scheduler,
                epoch: Epoch::default(),
                bus: Arc::clone(&bus),
                board: Arc::clone(&board),
            },
            policy: options.restarts,
            board: Arc::clone(&board),
            bus: Arc::clone(&bus),
            door,
            desk: graphs_desk,
            devices: Arc::new(Devices::new(&options.ordinals, options.recovery)),
            epoch: Arc::new(AtomicU64::new(0)),
        };
        let front = FrontPool::start(options.front_threads).map_err(|error| setup(&error))?;
        let root = RootArgs {
            engine,
            metrics,
            policy: options.root_restarts,
            desk,
            exhausted: Arc::clone(&exhausted),
        };
        let (root, root_task) = Actor::spawn(None, RootActor, root).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                gate: Gate::new(options.limits, max_running),
                board,
                bus,
                front,
                drills,
                door: door_seen,
                desk: desk_seen,
                root,
                root_task: std::sync::Mutex::new(Some(root_task)),
                exhausted,
                next_sequence: AtomicU64::new(1),
            }),
        })
    }

    /// Lets a sequence in, or says why not.
    pub async fn submit(&self, submission: Submission) -> Result<Generation, SubmitError> {
        let inner = &self.inner;
        if inner.board.is_draining() {
            return Err(SubmitError::ShuttingDown);
        }
        if let Some(reason) = inner.board.why_out_of_service() {
            return Err(SubmitError::OutOfService {
                reason,
                retry_after_secs: OUT_OF_SERVICE_RETRY_AFTER_SECS,
            });
        }
        let prompt = Tokens(submission.prompt.len() as u32);
        let permit = inner.gate.enter(prompt).inspect_err(|refusal| {
            if let Some(reason) = queue_limit(refusal) {
                inner.bus.requests.publish(&RequestRecord::Refused { reason });
            }
        })?;
        let (arrived, permit) = (Instant::now(), Arc::new(permit));
        let passage = Passage { output: Vec::new(), strikes: 0, arrived, permit: Arc::clone(&permit) };
        let opened = self
            .pass_in(&submission, passage, SUBMIT_WAIT_MAX)
            .await
            .ok_or(SubmitError::Unavailable { retry_after_secs: RETRY_AFTER_SECS })?;
        Ok(Generation::new(self.clone(), submission, opened, arrived, permit))
    }

    /// Sends a sequence (with what it produced before) to the intake, waiting for one if need be.
    pub(crate) async fn pass_in(
        &self,
        submission: &Submission,
        passage: Passage,
        wait_max: Duration,
    ) -> Option<Opened> {
        let deadline = Instant::now() + wait_max;
        let sequence = SequenceId(self.inner.next_sequence.fetch_add(1, Ordering::Relaxed));
        let prompt_parts = submission.sampling.prompt_logprobs.map_or(0, |_| submission.prompt.len());
        let room = submission.sampling.max_tokens as usize + prompt_parts + EVENTS_BESIDE_TOKENS;
        let (sender, deliveries) = flume::bounded(room);
        let complete = Arc::new(AtomicBool::new(false));
        let mut admission = Box::new(Admission {
            sequence,
            prompt: Arc::clone(&submission.prompt),
            output: passage.output,
            sampling: Arc::clone(&submission.sampling),
            priority: submission.priority,
            salt: submission.salt.clone(),
            strikes: passage.strikes,
            arrived: passage.arrived,
            permit: passage.permit,
            deliveries: sender,
            complete: Arc::clone(&complete),
        });
        let mut door = self.inner.door.clone();
        loop {
            let intake = tokio::time::timeout_at(deadline.into(), door.wait_for(Option::is_some));
            let intake = intake.await.ok()?.ok()?.clone()?;
            match intake.cast(IntakeMsg::Submit(admission)) {
                Ok(()) => {
                    self.inner.board.mailboxes().sent(Mailbox::Intake);
                    return Some(Opened { sequence, deliveries, complete });
                }
                Err(ractor::MessagingErr::SendErr(IntakeMsg::Submit(back))) => admission = back,
                Err(_) => return None,
            }
            // This intake has just ended; its supervisor is about to say so.
            tokio::time::timeout_at(deadline.into(), door.changed()).await.ok()?.ok()?;
        }
    }

    /// Tells the scheduler that nobody wants this sequence any more.
    pub(crate) fn cancel(&self, sequence: SequenceId) {
        if let Some(intake) = self.inner.door.borrow().as_ref() {
            // Without an intake the scheduler notices at the sequence's next token.
            if intake.cast(IntakeMsg::Cancel(sequence)).is_ok() {
                self.inner.board.mailboxes().sent(Mailbox::Intake);
            }
        }
    }

    /// Where the engine is and whether it would serve a request now.
    #[must_use]
    pub fn status(&self) -> EngineStatus {
        self.inner.board.read()
    }

    /// What is in the house.
    #[must_use]
    pub fn load(&self) -> Load {
        self.inner.gate.load()
    }

    /// Threads for templates and tokenising.
    #[must_use]
    pub fn front(&self) -> &FrontPool {
        &self.inner.front
    }

    /// The bus, to subscribe to.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.inner.bus
    }

    /// The page for a scrape; empty when the metrics actor does not answer.
    pub async fn render_metrics(&self) -> String {
        let mut desk = self.inner.desk.clone();
        let asked = async {
            let metrics = desk.wait_for(Option::is_some).await.ok()?.clone()?;
            let page = metrics.call(MetricsMsg::Render, Some(RENDER_WAIT_MAX)).await.ok()?;
            page.success_or(()).ok()
        };
        tokio::time::timeout(RENDER_WAIT_MAX, asked).await.ok().flatten().unwrap_or_default()
    }

    /// Refuses new requests from now on; those inside go on.
    pub fn begin_drain(&self) {
        self.inner.board.begin_drain();
    }

    /// Waits until every actor has ended because the restart budget is used up, or because no device could be
    /// opened in the first place ([`Engine::failed_to_open`] says which).
    pub async fn exhausted(&self) {
        self.inner.exhausted.notified().await;
    }

    /// Why no device could ever be opened, in a sentence, if that is what ended the engine: its configuration
    /// or the installation is at fault.
    #[must_use]
    pub fn failed_to_open(&self) -> Option<Arc<str>> {
        self.inner.board.why_failed_to_open()
    }

    /// Stops all actors in order and waits for them.
    pub async fn stop(&self) {
        self.begin_drain();
        let stopped = self.inner.root.call(RootMsg::Stop, None).await;
        let task = self.inner.root_task.lock().ok().and_then(|mut task| task.take());
        if let (Ok(_), Some(task)) = (stopped, task) {
            // The root never panics on its way out; if it did, all of it is gone as well.
            let _ = task.await;
        }
    }

    /// Ends one actor as a fault would. For drills.
    pub fn kill(&self, class: FaultClass) {
        // A root that is gone has nothing left to end.
        let _ = self.inner.root.cast(RootMsg::Kill(class));
    }

    /// Faults on the device thread, when it is one of this process. For drills.
    #[must_use]
    pub fn drills(&self) -> &DrillSwitch {
        &self.inner.drills
    }
}

/// Label of the limit a refusal ran into, when it was one of the queue's.
fn queue_limit(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::QueueFull { .. } => Some("max_num_queued_reqs"),
        Refusal::QueuedTokensFull { .. } => Some("max_num_queued_tokens"),
        _ => None,
    }
}
