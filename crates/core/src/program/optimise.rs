//! Rewrites a program so that a device has less to do: fewer operations, fewer buffers.
//!
//! Always: the result computes the same logits and writes the same keys and values, bit for bit. A fused
//! operation is defined as the sequence it replaces ([`Op::sequence`]), an operation is moved only past
//! others that do not touch what it changes nor change what it reads, and it is dropped only when nobody
//! reads what it writes.
//!
//! Refuses to know: devices. Which level suits a device is its own affair.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BufferId, Op, Program, WeightId};

/// How much is rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Nothing.
    #[default]
    Off,
    /// What nobody reads is dropped; residual sums are fused with the norms behind them.
    Norms,
    /// Also rotary embedding with the write to the cache.
    Full,
}

/// A kind of rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fusion {
    /// A sum with the norm behind it.
    AddRmsNorm,
    /// Rotary embedding of queries and keys with the write to the cache.
    RopeWriteKv,
    /// A norm with the quantisation of its result.
    NormQuantise,
    /// An activation with the quantisation of its result.
    ActivationQuantise,
}

/// What became of a kind of rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The level does not ask for it.
    NotAsked,
    /// Programs have no operation that it could act on.
    NoSuchOperation,
    /// So many were fused; so many candidates had to stay as they were, because something between them uses
    /// the same buffers.
    Done {
        /// Fused.
        fused: u32,
        /// Left alone.
        left: u32,
    },
}

/// What an optimiser did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How much it was to do.
    pub level: Level,
    /// Operations before and after.
    pub ops: (usize, usize),
    /// Buffers before and after.
    pub buffers: (usize, usize),
    /// Weights before and after.
    pub weights: (usize, usize),
    /// Operations that were dropped because nobody read what they wrote.
    pub dead: u32,
    /// Every kind of rewriting.
    pub fusions: [(Fusion, Outcome); 4],
}

/// Rewrites a program; says what was done.
#[must_use]
pub fn optimise(program: &Program, level: Level) -> (Program, Report) {
    let mut better = program.clone();
    let mut dead = 0;
    let (mut norms, mut ropes) = (Outcome::NotAsked, Outcome::NotAsked);
    let mut quantise = Outcome::NotAsked;
    if level >= Level::Norms {
        dead = drop_dead(&mut better);
        norms = fuse(&mut better.ops, add_before_norm);
    }
    if level >= Level::Full {
        ropes = fuse(&mut better.ops, ropes_before_write);
        quantise = Outcome::NoSuchOperation;
    }
    if level >= Level::Norms {
        drop_unused(&mut better);
    }
    let report = Report {
        level,
        ops: (program.ops.len(), better.ops.len()),
        buffers: (program.buffers.len(), better.buffers.len()),
        weights: (program.weights.len(), better.weights.len()),
        dead,
        fusions: [
            (Fusion::AddRmsNorm, norms),
            (Fusion::RopeWriteKv, ropes),
            (Fusion::NormQuantise, quantise),
            (Fusion::ActivationQuantise, quantise),
        ],
    };
    (better, report)
}

/// What one operation may become together with earlier ones.
enum Found {
    /// It is no such operation.
    Nothing,
    /// It is, but the others cannot be moved to it.
    Blocked,
    /// It becomes `op`; the operations at these places go.
    Fused { op: Op, gone: Vec<usize> },
}

/// Tries every operation, in order.
fn fuse(ops: &mut Vec<Op>, find: fn(&[Op], usize) -> Found) -> Outcome {
    let (mut fused, mut left) = (0, 0);
    let mut at = 0;
    while at < ops.len() {
        match find(ops, at) {
            Found::Nothing => {}
            Found::Blocked => left += 1,
            Found::Fused { op, mut gone } => {
                fused += 1;
                if let Some(place) = ops.get_mut(at) {
                    *place = op;
                }
                gone.sort_unstable();
                for place in gone.into_iter().rev() {
                    ops.remove(place);
                    at -= 1;
                }
            }
        }
        at += 1;
    }
    Outcome::Done { fused, left }
}

/// A norm at `at` with the sum that last changed its input. The sum is moved to the norm, so nothing between
/// them may touch what the sum changes, nor change what it reads.
fn add_before_norm(ops: &[Op], at: usize) -> Found {
    let Some(&Op::RmsNorm { input: normed, weight, offset, epsilon, out }) = ops.get(at) else {
        return Found::Nothing;
    };
    let before = ops.get(..at).unwrap_or_default();
    let Some(place) = before.iter().rposition(|op| op.writes().contains(&normed)) else {
        return Found::Nothing;
    };
    let Some(&Op::Add { into, input }) = before.get(place) else { return Found::Nothing };
    let between = before.get(place + 1..).unwrap_or_default();
    let free = between.iter().all(|op| !op.touches(into) && !op.writes().contains(&input));
    if !free || input == out || into == out {
        return Found::Blocked;
    }
    let op = Op::AddRmsNorm { into, input, weight, offset, epsilon, out };
    Found::Fused { op, gone: vec![place] }
}

/// A write to the cache at `at` with the rotations of its key and of a query. Rotations are moved to the
/// write, so nothing between them may touch what they change.
fn ropes_before_write(ops: &[Op], at: usize) -> Found {
    let Some(&Op::WriteKv { layer, key, value }) = ops.get(at) else { return Found::Nothing };
    let before = ops.get(..at).unwrap_or_default();
    let Some(place) = before.iter().rposition(|op| op.writes().contains(&key)) else { return Found::Nothing };
    let Some(&Op::Rope { head_dim, rope, .. }) = before.get(place) else { return Found::Nothing };
    let between = |place: usize| before.get(place + 1..).unwrap_or_default();
    if between(place).iter().any(|op| op.touches(key)) {
        return Found::Blocked;
    }
    let of_query = |(place, op): (usize, &Op)| match *op {
        Op::Rope { buffer: query, head_dim: width, rope: table }
            if query != key
                && query != value
                && (width, table) == (head_dim, rope)
                && !between(place).iter().any(|op| op.touches(query)) =>
        {
            Some((place, query))
        }
        _ => None,
    };
    match before.iter().enumerate().rev().find_map(of_query) {
        Some((other, query)) if key != value => {
            let op = Op::RopeWriteKv { query, key, value, head_dim, rope, layer };
            Found::Fused { op, gone: vec![place, other] }
        }
        _ => Found::Blocked,
    }
}

/// Drops operations whose results nobody reads: neither a later operation nor who wants the logits, and that
/// leave nothing in the cache.
fn drop_dead(program: &mut Program) -> u32 {
    let mut wanted = vec![false; program.buffers.len()];
    let mark = |wanted: &mut Vec<bool>, buffer: BufferId, value: bool| {
        if let Some(place) = wanted.get_mut(buffer.0 as usize) {
            *place = value;
        }
    };
    if let Some(logits) = program.logits {
        mark(&mut wanted, logits, true);
    }
    let mut kept = Vec::with_capacity(program.ops.len());
    let mut dead = 0;
    for op in program.ops.drain(..).rev() {
        let (reads, writes) = (op.reads(), op.writes());
        // A buffer that is not listed is a mistake for somebody else to find.
        let is_wanted = |buffer: &BufferId| wanted.get(buffer.0 as usize).copied().unwrap_or(true);
        if !op.writes_cache() && !writes.iter().any(is_wanted) {
            dead += 1;
            continue;
        }
        for buffer in writes {
            mark(&mut wanted, buffer, false);
        }
        for buffer in reads {
            mark(&mut wanted, buffer, true);
        }
        kept.push(op);
    }
    kept.reverse();
    program.ops = kept;
    dead
}

/// Drops buffers and weights that no operation names.
fn drop_unused(program: &mut Program) {
    let mut buffers = vec![false; program.buffers.len()];
    let mut weights = vec![false; program.weights.len()];
    let note = |used: &mut Vec<bool>, index: u32| {
        if let Some(place) = used.get_mut(index as usize) {
            *place = true;
        }
    };
    program.logits.iter().for_each(|logits| note(&mut buffers, logits.0));
    for op in &mut program.ops {
        op.for_buffers(|buffer| note(&mut buffers, buffer.0));
        op.for_weights(|weight| note(&mut weights, weight.0));
    }
    let new_buffers = keep(&mut program.buffers, &buffers);
    let new_weights = keep(&mut program.weights, &weights);
    // What does not exist keeps its number and still does not exist, as numbers only become smaller.
    let renamed = |names: &[u32], old: u32| names.get(old as usize).copied().unwrap_or(old);
    for op in &mut program.ops {
        op.for_buffers(|buffer| *buffer = BufferId(renamed(&new_buffers, buffer.0)));
        op.for_weights(|weight| *weight = WeightId(renamed(&new_weights, weight.0)));
    }
    program.logits = program.logits.map(|logits| BufferId(renamed(&new_buffers, logits.0)));
}

/// Keeps what is used; gives the new number of each.
fn keep<T>(items: &mut Vec<T>, used: &[bool]) -> Vec<u32> {
    let mut next = 0;
    let numbers = used
        .iter()
        .map(|used| {
            let number = next;
            next += u32::from(*used);
            number
        })
        .collect();
    let mut used = used.iter();
    items.retain(|_| used.next().copied().unwrap_or(true));
    numbers
}

impl Fusion {
    /// Name for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddRmsNorm => "add+norm",
            Self::RopeWriteKv => "rope+cache write",
            Self::NormQuantise => "norm+quantise",
            Self::ActivationQuantise => "activation+quantise",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked for"),
            Self::NoSuchOperation => f.write_str("nothing to act on: programs have no quantise operation"),
            Self::Done { fused, left: 0 } => write!(f, "{fused} fused"),
            Self::Done { fused, left } => write!(f, "{fused} fused, {left} left alone"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ops, buffers) = (self.ops, self.buffers);
        write!(f, "{} -> {} operations, {} -> {} buffers", ops.0, ops.1, buffers.0, buffers.1)?;
        write!(f, ", {} dead operations dropped", self.dead)?;
        for (fusion, outcome) in &self.fusions {
            write!(f, "; {}: {outcome}", fusion.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
