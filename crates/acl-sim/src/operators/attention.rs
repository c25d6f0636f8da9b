//! Attention: `FusedInferAttentionScore` in its versions, and the prefill and decode operators of smaller
//! chips.
//!
//! Always holds: a query row's scores, softmax and weighted sum run over its keys in rising order, in `f32`;
//! neither the batch, the paging, nor the number of threads changes a bit. 32-bit floats are refused, as by
//! the real kernels.
//!
//! Refuses to know: quantised caches, shared prefixes, and caches in the fractal layout.

mod call;
pub mod fused;
mod kernel;
mod layout;
pub mod legacy;
