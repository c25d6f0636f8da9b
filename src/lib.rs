//! The `updraft` program: composition of the crates, the command line, the configuration and the HTTP side.

pub mod commands;
pub mod config;
pub mod http;
