//! The supervision tree: who restarts whom, after how long, and what the others are told.
//!
//! ```text
//! root            one for one; out of budget, the process ends with exit code 70
//! ├─ metrics
//! └─ engine       owns the epoch; a loss begins a new one
//!    ├─ executor   may have a child process
//!    ├─ kv_blocks
//!    ├─ scheduler
//!    ├─ intake
//!    └─ graphs     only proposes: its loss changes nothing for anybody
//! ```
//!
//! What is lost is void in the new epoch, and every message of the step loop carries its epoch; so a restart
//! needs no hand-shake: whoever sees a newer epoch forgets what it knew. When to restart is decided by
//! [`updraft_core::restart::RestartPolicy`], never here.

mod board;
mod devices;
mod engine;
mod life;
mod mailboxes;
mod root;

pub use board::{EnginePhase, EngineStatus, StatusBoard};
pub(crate) use devices::Devices;
pub(crate) use engine::{EngineActor, EngineArgs, EngineMsg};
pub(crate) use life::{Doing, Life};
pub use mailboxes::Mailbox;
pub(crate) use root::{RootActor, RootArgs, RootMsg};

/// Exit code of a process whose restart budget is used up (`EX_SOFTWARE`).
pub const EXIT_RESTARTS_EXHAUSTED: i32 = 70;
