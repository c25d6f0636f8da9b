//! The arithmetic of attention over one call.
//!
//! Always holds: one item of work is a query token and a key/value head; its scores are dot products in the
//! fixed order of [`super::super::numeric::dot`], its softmax and weighted sum run over visible keys in
//! rising order. A query that sees no key gives zeros.
//!
//! Refuses to know: argument lists.

use std::sync::atomic::{AtomicI32, Ordering};

use super::call::{Call, Sequence, mask_size};
use super::layout::{Heads, Pages};
use crate::executor::Views;
use crate::executor::status::AICORE_FAULT;
use crate::operators::numeric::dot::{Bf16, Half, Weight, block, is_fast};
use crate::operators::numeric::team;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{read, write};
use crate::tensor::view::View;

/// Places of a triangular mask that are looked at, to see that it is one.
const MASK_SAMPLES: usize = 16;

/// A call with the addresses of this launch.
struct Run<'a> {
    call: &'a Call,
    query: Heads,
    key: Vec<Heads>,
    value: Vec<Heads>,
    ropes: Option<(Heads, Heads)>,
    out: Heads,
    mask: Option<View>,
    pse: Option<View>,
    lse: Option<View>,
    pages: Vec<Pages>,
    fast: bool,
}

/// Runs a checked call.
pub(super) fn run(call: &Call, views: &Views) -> Result<(), i32> {
    let a = &call.arguments;
    let moved = |heads: &[Heads], slots: &crate::executor::plan::Slots| -> Vec<Heads> {
        heads.iter().zip(views.list(slots)).map(|(heads, view)| heads.moved(view)).collect()
    };
    let ropes =
        call.query_rope.zip(call.key_rope).zip(views.maybe(a.query_rope).zip(views.maybe(a.key_rope)));
    let mut pages = Vec::new();
    if let Some(table) = views.maybe(a.table) {
        for (row, sequence) in call.sequences.iter().enumerate() {
            pages.push(Pages::read(table, row, sequence.keys, a.block as usize, call.key[0].batches)?);
        }
    }
    let mask = views.maybe(a.mask).filter(|_| call.use_mask).copied();
    if let Some(mask) = mask.filter(|_| a.sparse >= 2) {
        triangular(&mask)?;
    }
    let run = Run {
        call,
        query: call.query.moved(&views[a.query]),
        key: moved(&call.key, &a.key),
        value: moved(&call.value, &a.value),
        ropes: ropes.map(|((q, k), (query, key))| (q.moved(query), k.moved(key))),
        out: call.out.moved(&views[a.out]),
        mask: mask.filter(|_| a.sparse < 2),
        pse: views.maybe(a.pse).copied(),
        lse: views.maybe(a.lse).copied(),
        pages,
        fast: is_fast(),
    };
    if views[a.query].dtype == DType::BF16 { run.all::<Bf16>() } else { run.all::<Half>() }
}

/// A compressed causal mask must be an upper triangle of ones; anything else is a fault of the caller that
/// the real kernel would turn into silently wrong numbers.
fn triangular(mask: &View) -> Result<(), i32> {
    let rank = mask.rank();
    let mut plane = *mask;
    for _ in 2..rank {
        plane = plane.select(0, 0);
    }
    let size = plane.dim(0);
    for sample in 0..MASK_SAMPLES {
        let row = sample * (size - 2) / (MASK_SAMPLES - 1);
        let at = plane.offset + row as i64 * plane.stride(0) + row as i64 * plane.stride(1);
        let mut pair = [0i64; 2];
        // SAFETY: row and row + 1 lie within the mask.
        unsafe { read(&plane, at, plane.stride(1), &mut pair) };
        if pair[0] != 0 || pair[1] == 0 {
            return Err(AICORE_FAULT);
        }
    }
    Ok(())
}

impl Run<'_> {
    fn all<W: Weight>(&self) -> Result<(), i32> {
        let kv_heads = self.call.arguments.kv_heads as usize;
        let heads = self.call.arguments.heads as usize;
        let mut tokens = Vec::new();
        let mut work = 0;
        for (batch, sequence) in self.call.sequences.iter().enumerate() {
            // Rows beyond a sequence's length are written as zeros, where the layout has such rows.
            let rows = if self.call.ragged { sequence.queries } else { self.query.tokens };
            tokens.extend((0..rows).map(|row| (batch, row)));
            work += sequence.queries * sequence.keys * heads * (self.query.size + self.out.size);
        }
        let failure = AtomicI32::new(0);
        team::split(tokens.len() * kv_heads, work, |items| {
            let mut space = Space::default();
            for item in items {
                let (batch, row) = tokens[item / kv_heads];
                if let Err(code) = self.item::<W>(batch, row, item % kv_heads, &mut space) {
                    failure.store(code, Ordering::Relaxed);
                }
            }
        });
        match failure.into_inner() {
            0 => Ok(()),
            code => Err(code),
        }
    }

    /// Data address and first element of a key or value head.
    #[inline(always)]
    fn row<W>(
        &self,
        side: &[Heads],
        batch: usize,
        sequence: &Sequence,
        token: usize,
        head: usize,
    ) -> *const W {
        let (heads, at) = if let Some(pages) = self.pages.get(batch) {
            let (block, place) = pages.find(token);
            (&side[0], side[0].at(block, place, head))
        } else if side.len() == 1 {
            (&side[0], side[0].at(batch, sequence.start_kv + token, head))
        } else {
            (&side[batch], side[batch].at(0, token, head))
        };
        (heads.view.data as *const W).wrapping_offset(at as isize)
    }

    fn item<W: Weight>(
        &self,
        batch: usize,
        row: usize,
        kv_head: usize,
        space: &mut Space,
    ) -> Result<(), i32> {
        let a = &self.call.arguments;
        let sequence = self.call.sequences.get(batch).ok_or(AICORE_FAULT)?;
        let group = (a.heads / a.kv_heads) as usize;
        let size = self.query.size;
        let token = sequence.start + row;
        let width = self.out.size;
        space.result.clear();
        space.result.resize(group * width, 0.0);
        space.lse.clear();
        space.lse.resize(group, f32::INFINITY);
        let visible = if row < sequence.queries {
            self.call.window.visible(row, sequence.queries, sequence.keys)
        } else {
            0..0
        };
        if !visible.is_empty() {
            space.query.resize(group * size, 0.0);
            for member in 0..group {
                let head = kv_head * group + member;
                let part = &mut space.query[member * size..][..size];
                // SAFETY: a head of the launch's query.
                unsafe {
                    let at = self.query.at(batch, token, head);
                    read(&self.query.view, at, self.query.element, part);
                }
            }
            let count = visible.len();
            space.scores.clear();
            space.scores.resize(group * count, 0.0);
            for (number, key) in visible.clone().enumerate() {
                let pointer = self.row::<W>(&self.key, batch, sequence, key, kv_head);
                // SAFETY: a head of the launch's keys, and `group` query rows.
                unsafe { scores(self.fast, &space.query, size, pointer, count, number, &mut space.scores) };
            }
            if let Some((query, key)) = self.ropes {
                self.add_rope::<W>(&query, &key, (batch, token, kv_head), sequence, &visible, space);
            }
            for member in 0..group {
                let head = kv_head * group + member;
                let line = &mut space.scores[member * count..][..count];
                for (score, key) in line.iter_mut().zip(visible.clone()) {
                    *score = *score * a.scale as f32 + self.bias(batch, head, row, key);
                    if self.is_masked(batch, row, key) {
                        *score = f32::NEG_INFINITY;
                    }
                }
                space.lse[member] = weights(line);
            }
            space.value.resize(width, 0.0);
            for (number, key) in visible.clone().enumerate() {
                let pointer = self.row::<W>(&self.value, batch, sequence, key, kv_head);
                for (at, slot) in space.value.iter_mut().enumerate() {
                    // SAFETY: a head of the launch's values.
                    *slot = unsafe { pointer.add(at).read() }.value();
                }
                for member in 0..group {
                    let weight = space.scores[member * count + number];
                    // Values of hidden keys are not touched: there may be anything there.
                    if weight > 0.0 {
                        let line = &mut space.result[member * width..][..width];
                        line.iter_mut().zip(&space.value).for_each(|(sum, value)| *sum += weight * value);
                    }
                }
            }
        }
        for member in 0..group {
            let head = kv_head * group + member;
            let line = &space.result[member * width..][..width];
            // SAFETY: a head of the launch's output; no other item writes it.
            unsafe { write(&self.out.view, self.out.at(batch, token, head), self.out.element, line) };
            if let Some(lse) = &self.lse {
                let at = if self.call.ragged {
                    token as i64 * lse.stride(0) + head as i64 * lse.stride(1)
                } else {
                    batch as i64 * lse.stride(0) + head as i64 * lse.stride(1) + row as i64 * lse.stride(2)
                };
                // SAFETY: as above.
                unsafe { write(lse, lse.offset + at, 1, &[space.lse[member]]) };
            }
        }
        Ok(())
    }

    fn add_rope<W: Weight>(
        &self,
        query: &Heads,
        key: &Heads,
        (batch, token, kv_head): (usize, usize, usize),
        sequence: &Sequence,
        visible: &std::ops::Range<usize>,
        space: &mut Space,
    ) {
        let (size, count) = (query.size, visible.len());
        let group = space.scores.len() / count;
        space.query.resize(group * size, 0.0);
        for member in 0..group {
            let at = query.at(batch, token, kv_head * group + member);
            // SAFETY: a head of the launch's rotated query.
            unsafe { read(&query.view, at, query.element, &mut space.query[member * size..][..size]) };
        }
        let mut extra = vec![0.0; space.scores.len()];
        for (number, position) in visible.clone().enumerate() {
            let pointer = self.row::<W>(std::slice::from_ref(key), batch, sequence, position, kv_head);
            // SAFETY: a head of the launch's rotated keys.
            unsafe {
                scores(self.fast, &space.query[..group * size], size, pointer, count, number, &mut extra);
            }
        }
        space.scores.iter_mut().zip(extra).for_each(|(score, extra)| *score += extra);
    }

    fn bias(&self, batch: usize, head: usize, row: usize, key: usize) -> f32 {
        let Some(pse) = &self.pse else { return 0.0 };
        let index = [batch, head, row, key];
        let rank = pse.rank();
        let mut at = pse.offset;
        for axis in 0..rank {
            let place = index[4 - rank.min(4) + axis.min(3)];
            if pse.dim(axis) > 1 {
                at += place as i64 * pse.stride(axis);
            }
        }
        let mut value = [0f32];
        // SAFETY: the mask was announced with this shape.
        unsafe { read(pse, at, 1, &mut value) };
        value[0]
    }

    fn is_masked(&self, batch: usize, row: usize, key: usize) -> bool {
        let Some(mask) = &self.mask else { return false };
        let (rows, _) = mask_size(mask, self.call.sequences.len());
        let rank = mask.rank();
        let mut at = mask.offset + key as i64 * mask.last_stride();
        if rows > 0 {
            at += row as i64 * mask.stride(rank - 2);
        }
        if rank > 2 && mask.dim(0) > 1 || rank == 2 && rows == 0 && mask.dim(0) > 1 {
            at += batch as i64 * mask.stride(0);
        }
        let mut value = [0i64];
        // SAFETY: the mask was checked to have this row and column.
        unsafe { read(mask, at, 1, &mut value) };
        value[0] != 0
    }
}

/// Buffers of one thread.
#[derive(Default)]
struct Space {
    query: Vec<f32>,
    scores: Vec<f32>,
    value: Vec<f32>,
    result: Vec<f32>,
    lse: Vec<f32>,
}

/// Scores of all queries of a group with one key: number `number` of each line of `count` scores.
///
/// # Safety
/// `key` must be readable for `size` elements; `query` holds whole rows of that size.
unsafe fn scores<W: Weight>(
    fast: bool,
    query: &[f32],
    size: usize,
    key: *const W,
    count: usize,
    number: usize,
    out: &mut [f32],
) {
    let row = |member: usize| query.as_ptr().wrapping_add(member * size);
    let group = out.len() / count;
    let mut member = 0;
    while member + 4 <= group {
        let rows = std::array::from_fn(|at| row(member + at));
        // SAFETY: passed on.
        let values = unsafe { block::<W, 4, 1>(fast, rows, [key], size) };
        values.iter().enumerate().for_each(|(at, value)| out[(member + at) * count + number] = value[0]);
        member += 4;
    }
    while member < group {
        // SAFETY: passed on.
        out[member * count + number] = unsafe { block::<W, 1, 1>(fast, [row(member)], [key], size) }[0][0];
        member += 1;
    }
}

/// Turns scores into weights that sum to one; returns the logarithm of the sum of their exponentials. A line
/// without a visible score becomes zeros.
fn weights(line: &mut [f32]) -> f32 {
    let highest = line.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if highest == f32::NEG_INFINITY {
        line.fill(0.0);
        return f32::INFINITY;
    }
    let mut sum = 0.0;
    for score in line.iter_mut() {
        *score = (*score - highest).exp();
        sum += *score;
    }
    for score in line.iter_mut() {
        *score /= sum;
    }
    highest + sum.ln()
}
