//! An executor in a child process, where a driver may hang or crash without taking the server with it.
//!
//! The child is the same program. It runs the same device thread as an executor in this process does; only
//! the orders come out of a socket, and the events go into it. The socket is the child's standard input, so
//! it needs no name in the file system, and a parent that dies closes it.

pub mod child;
mod codec;
mod frame;
mod parent;

pub use codec::CodecError;
pub(super) use parent::ChildProcess;
pub use parent::{ChildSpec, SILENT_AFTER};
