//! Mixtures of experts: gates, the sorting of tokens by expert and back, products by group.
//!
//! Always holds: sorting by expert is stable; a token's experts are summed in the order of its choices, so
//! its result does not depend on the other tokens.
//!
//! Refuses to know: exchange between cards.

pub mod gates;
pub mod grouped;
pub mod routing;
