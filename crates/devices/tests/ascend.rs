//! The Ascend backend over a CANN library: a real one if `ASCEND_HOME_PATH` names it, else the simulated one that is built
//! beside the tests.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test is what they are for"
)]

#[path = "ascend/children.rs"]
mod children;
#[path = "ascend/eager.rs"]
mod eager;
#[path = "ascend/faults.rs"]
mod faults;
#[path = "ascend/graphs.rs"]
mod graphs;
#[path = "ascend/groups.rs"]
mod groups;
#[path = "ascend/installation.rs"]
mod installation;
#[path = "ascend/models.rs"]
mod models;
#[path = "ascend/support.rs"]
mod support;
