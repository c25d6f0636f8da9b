//! The CPU as a device.
//!
//! [`CpuModel`] is what is made once from a checkpoint and shared: packed weights and the program as stages.
//! [`CpuDevice`] is one life of an executor: threads, KV cache, activation buffers. Both are sized when they are made; a
//! step allocates nothing.
//!
//! A graph on the CPU is what is resolved once for all steps of up to so many rows: the division of attention into items
//! of work, and inputs of products readied for their rows. A replay keeps both as long as the step's outline stays the
//! same; an eager step makes them anew.
//!
//! A step runs inside one fork and join of a thread team. The program has been sorted into stages
//! ([`stages`]): operations that need nothing from each other share a stage, and workers meet only between stages.

mod device;
mod division;
mod load;
mod memory;
mod run;
mod stages;
#[cfg(test)]
mod tests;

pub use device::{CpuDevice, CpuOptions};
pub(crate) use load::find;
pub use load::{CpuModel, LoadError, LoadOptions, Loaded};
pub use memory::kv_bytes_per_token;
