//! Who makes the tokens: the engine, or in tests of this module a script.

use updraft_actors::engine::Engine;
use updraft_actors::front::FrontPool;
use updraft_actors::generation::{Generation, GenerationEvent, Submission, SubmitError};
use updraft_actors::supervisor::EngineStatus;

#[cfg(test)]
use super::fake::{FakeEngine, FakeStream};

/// Where sequences are computed. Clones share it.
#[derive(Clone)]
pub enum Backend {
    /// The real one.
    Engine(Engine),
    /// A script.
    #[cfg(test)]
    Fake(FakeEngine),
}

/// A sequence's events. Dropping it cancels the sequence.
pub(super) enum TokenStream {
    Engine(Generation),
    #[cfg(test)]
    Fake(FakeStream),
}

impl Backend {
    pub(super) async fn submit(&self, submission: Submission) -> Result<TokenStream, SubmitError> {
        match self {
            Self::Engine(engine) => engine.submit(submission).await.map(TokenStream::Engine),
            #[cfg(test)]
            Self::Fake(engine) => engine.submit(&submission).map(TokenStream::Fake),
        }
    }

    pub(super) fn status(&self) -> EngineStatus {
        match self {
            Self::Engine(engine) => engine.status(),
            #[cfg(test)]
            Self::Fake(engine) => engine.status(),
        }
    }

    /// Sequences inside, running or waiting.
    pub(super) fn sequences(&self) -> u32 {
        match self {
            Self::Engine(engine) => engine.load().sequences,
            #[cfg(test)]
            Self::Fake(engine) => engine.open(),
        }
    }

    /// Threads for work that computes.
    pub(super) fn front(&self) -> &FrontPool {
        match self {
            Self::Engine(engine) => engine.front(),
            #[cfg(test)]
            Self::Fake(engine) => engine.front(),
        }
    }

    pub(super) async fn metrics(&self) -> String {
        match self {
            Self::Engine(engine) => engine.render_metrics().await,
            #[cfg(test)]
            Self::Fake(_) => "# TYPE fake gauge\nfake 1\n".to_owned(),
        }
    }
}

impl TokenStream {
    /// The next event; none after the last.
    pub(super) async fn next(&mut self) -> Option<GenerationEvent> {
        match self {
            Self::Engine(generation) => generation.next().await,
            #[cfg(test)]
            Self::Fake(stream) => stream.next().await,
        }
    }

    /// Ends the sequence: its answer is complete although the engine would go on.
    pub(super) fn finish_here(self) {
        match self {
            Self::Engine(generation) => generation.finish_here(),
            #[cfg(test)]
            Self::Fake(stream) => drop(stream),
        }
    }

    /// Prompt tokens that came out of the prefix cache; known from the first event on.
    pub(super) fn cached_tokens(&self) -> u32 {
        match self {
            Self::Engine(generation) => generation.cached_tokens().0,
            #[cfg(test)]
            Self::Fake(stream) => stream.cached_tokens(),
        }
    }
}
