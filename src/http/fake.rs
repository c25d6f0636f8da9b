//! An engine for tests of the HTTP side: says what a script says, and counts who is still listening.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use updraft_actors::front::FrontPool;
use updraft_actors::generation::{GenerationEvent, Submission, SubmitError};
use updraft_actors::supervisor::{EnginePhase, EngineStatus};

/// What a sequence does next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// This happens.
    Event(GenerationEvent),
    /// Nothing happens for a while.
    Wait(Duration),
    /// Nothing happens any more.
    Hang,
}

type Script = dyn Fn(&Submission) -> Result<Vec<Step>, SubmitError> + Send + Sync;

/// See the module page.
#[derive(Clone)]
pub struct FakeEngine {
    script: Arc<Script>,
    open: Arc<AtomicU32>,
    front: FrontPool,
    phase: EnginePhase,
}

/// One scripted sequence.
pub(crate) struct FakeStream {
    steps: VecDeque<Step>,
    open: Arc<AtomicU32>,
}

impl FakeEngine {
    pub(crate) fn new(
        script: impl Fn(&Submission) -> Result<Vec<Step>, SubmitError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            script: Arc::new(script),
            open: Arc::default(),
            front: FrontPool::start(1).unwrap(),
            phase: EnginePhase::Serving,
        }
    }

    pub(crate) fn in_phase(mut self, phase: EnginePhase) -> Self {
        self.phase = phase;
        self
    }

    pub(crate) fn submit(&self, submission: &Submission) -> Result<FakeStream, SubmitError> {
        let steps = (self.script)(submission)?.into();
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(FakeStream { steps, open: Arc::clone(&self.open) })
    }

    pub(crate) fn status(&self) -> EngineStatus {
        let ready = self.phase == EnginePhase::Serving;
        EngineStatus {
            phase: self.phase,
            ready,
            reason: if ready { "ok".to_owned() } else { format!("the engine is {}", self.phase.as_str()) },
            epoch: 0,
            steps: 0,
        }
    }

    /// Sequences somebody still listens to.
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn front(&self) -> &FrontPool {
        &self.front
    }
}

impl FakeStream {
    pub(crate) async fn next(&mut self) -> Option<GenerationEvent> {
        loop {
            // A real channel also lets other tasks run between two events.
            tokio::task::yield_now().await;
            match self.steps.front()? {
                Step::Event(_) => match self.steps.pop_front() {
                    Some(Step::Event(event)) => return Some(event),
                    _ => return None,
                },
                Step::Wait(time) => {
                    tokio::time::sleep(*time).await;
                    self.steps.pop_front();
                }
                Step::Hang => std::future::pending().await,
            }
        }
    }

    #[expect(clippy::unused_self, reason = "the real one knows by sequence")]
    pub(crate) fn cached_tokens(&self) -> u32 {
        1
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}
