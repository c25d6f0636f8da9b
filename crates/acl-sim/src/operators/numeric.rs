//! What the families share: dot products, the split over threads, maps over elements.
//!
//! Always holds: nothing here looks at how many rows, blocks or threads there are when it decides in which
//! order numbers are added.
//!
//! Refuses to know: argument lists.

pub mod dot;
pub mod integer;
pub mod map;
pub mod team;
