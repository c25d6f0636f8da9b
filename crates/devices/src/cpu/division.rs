//! How the attention of a step is divided among the workers, and whether that still fits the next step.
//!
//! A division follows from the outline of a step alone: for each sequence its number of rows, and how many segments of
//! its context there are. While sequences decode, the outline changes once in a segment, so a replay seldom plans.

use updraft_core::Bytes;
use updraft_kernels::attention::{Plan, SEGMENT, Shape, Span};

use super::memory::Memory;

/// The division, for each attention shape of the program.
#[derive(Debug)]
pub(super) struct Division {
    plans: Vec<Plan>,
    /// Outline of the step that was planned last: see [`outline`].
    outline: Vec<(u32, u32, u32)>,
    threads: usize,
    bytes: Bytes,
}

impl Division {
    /// Room for steps of up to `rows` rows.
    pub(super) fn new(shapes: &[Shape], threads: usize, rows: usize) -> Self {
        Self {
            plans: shapes.iter().map(|shape| Plan::new(shape, threads, rows)).collect(),
            outline: Vec::with_capacity(rows),
            threads,
            bytes: Self::bytes_of(shapes, threads, rows),
        }
    }

    /// Memory of a division, if all of it is used.
    pub(super) fn bytes_of(shapes: &[Shape], threads: usize, rows: usize) -> Bytes {
        let plans: usize = shapes.iter().map(|shape| Plan::bytes_of(shape, threads, rows)).sum();
        Bytes((plans + rows * size_of::<(u32, u32, u32)>()) as u64)
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }

    pub(super) fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Divides the step whose inputs `memory` has taken over.
    pub(super) fn plan(&mut self, memory: &Memory) {
        for (plan, shape) in self.plans.iter_mut().zip(&memory.shapes) {
            plan.rebuild(shape, self.threads, &memory.spans);
        }
    }

    /// The same, unless the last division fits.
    pub(super) fn replan(&mut self, memory: &Memory) {
        let outline = || memory.spans.iter().map(|span| outline(&memory.shapes, span));
        if self.outline.len() == memory.spans.len() && self.outline.iter().copied().eq(outline()) {
            return;
        }
        self.outline.clear();
        self.outline.extend(outline());
        self.plan(memory);
    }
}

/// What a plan depends on. For a single row: the segment that the context ends in, and the first one that windows leave.
/// Several rows end in different places, so there it is the context itself.
fn outline(shapes: &[Shape], span: &Span) -> (u32, u32, u32) {
    if span.row_count > 1 {
        return (span.row_count, span.context, 0);
    }
    let last = span.context.div_ceil(SEGMENT as u32);
    let first = (span.context - span.row_count) as usize;
    // Segments that windows have left behind, added up over shapes: none of them ever shrinks while a context grows, so
    // that for contexts that end in the same segment an equal sum means equal parts.
    let left: usize = shapes.iter().map(|shape| shape.visible(first).start / SEGMENT).sum();
    (span.row_count, last, left as u32)
}
