//! The KV block manager: which blocks hold which tokens, who shares them, which go first.
//!
//! One batched [`Reservation`] and one [`Grants`] a step. The manager decides what fits, finds prefix hits
//! and takes blocks from the victims the scheduler named, in that order; it never decides who runs.
//!
//! Full blocks are shared by their content; the last block of a sequence that is gone is handed on as an end.
//!
//! What always holds: a block is free, or held by as many tables as its count says; a block that can be found
//! holds exactly the tokens by which it is found, or is written by a step that runs before any that reads
//! it. The second half rests on a promise of the scheduler: whatever is granted is run.

mod ends;
mod events;
mod free_list;
mod hash;
mod manager;
mod messages;
mod pool;
mod table;

pub use events::KvEvent;
pub use hash::{BlockContent, BlockHash, ImageInBlock};
pub use manager::{KvConfig, KvManager};
pub use messages::{Demand, DemandKind, Grant, Grants, KvUsage, Reservation};

#[cfg(test)]
mod tests;
