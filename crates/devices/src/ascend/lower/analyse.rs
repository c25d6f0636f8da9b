//! What has to be known of a program before its operations are translated one by one: who writes and reads a buffer, in
//! which order the values of heads should lie, which products can be one.

use std::rc::Rc;

use updraft_core::program::{Activation, BufferId, Op, Program, RopePairing, RopeSpec};

use super::plan::HeadOrder;

/// How an operation touches a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Reads,
    /// Overwrites it without reading.
    Writes,
    /// Changes it in place.
    Changes,
}

/// Every buffer that an operation touches.
pub(super) fn touches(op: &Op) -> Vec<(BufferId, Touch)> {
    use Touch::{Changes, Reads, Writes};
    match *op {
        Op::Embed { out, .. } => vec![(out, Writes)],
        Op::RmsNorm { input, out, .. } | Op::MatMul { input, out, .. } | Op::TakeLogitRows { input, out } => {
            vec![(input, Reads), (out, Writes)]
        }
        Op::HeadNorm { buffer, .. } | Op::Rope { buffer, .. } => vec![(buffer, Changes)],
        Op::WriteKv { key, value, .. } => vec![(key, Reads), (value, Reads)],
        Op::Attention { query, out, .. } => vec![(query, Reads), (out, Writes)],
        Op::Gate { gate, up, out, .. } => vec![(gate, Reads), (up, Reads), (out, Writes)],
        Op::Add { into, input } => vec![(input, Reads), (into, Changes)],
        Op::AddRmsNorm { into, input, out, .. } => vec![(input, Reads), (into, Changes), (out, Writes)],
        Op::RopeWriteKv { query, key, value, .. } => vec![(query, Changes), (key, Changes), (value, Reads)],
    }
}

/// How an operation touches one buffer.
pub(super) fn touch(op: &Op, buffer: BufferId) -> Option<Touch> {
    touches(op).into_iter().find(|(touched, _)| *touched == buffer).map(|(_, touch)| touch)
}

/// Two products that become one, with the gate behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Join {
    /// The earlier of the two products; it is left out.
    pub(super) first: usize,
    /// The later one; it computes both.
    pub(super) second: usize,
    /// The product of the gate side.
    pub(super) gate: usize,
    /// The product of the other side.
    pub(super) up: usize,
    /// The gate.
    pub(super) at: usize,
}

/// What the translation goes by.
#[derive(Debug)]
pub(super) struct Analysis {
    /// For each operation, the order in which the heads that it writes should lie.
    pub(super) orders: Vec<Option<HeadOrder>>,
    pub(super) joins: Vec<Join>,
    /// Pairs of rotations that become one: the first is left out.
    pub(super) pairs: Vec<(usize, usize)>,
}

impl Analysis {
    /// Says what cannot be translated.
    pub(super) fn of(program: &Program) -> Result<Self, String> {
        let orders = orders(program)?;
        let mut joins: Vec<Join> = Vec::new();
        for join in (0..program.ops.len()).filter_map(|at| join(program, at)) {
            // What one join computes is used up before the next one computes: they share a place.
            if joins.last().is_none_or(|last| last.at < join.second) {
                joins.push(join);
            }
        }
        Ok(Self { orders, joins, pairs: pairs(program) })
    }
}

/// The program with operations taken apart that are translated in parts.
pub(super) fn expanded(program: &Program) -> Program {
    let mut expanded = program.clone();
    expanded.ops.clear();
    for op in &program.ops {
        if let Op::RopeWriteKv { query, key, value, head_dim, rope, layer } = *op {
            let rotations = [query, key].map(|buffer| Op::Rope { buffer, head_dim, rope });
            expanded.ops.extend(rotations);
            expanded.ops.push(Op::WriteKv { layer, key, value });
        } else {
            expanded.ops.push(op.clone());
        }
    }
    expanded
}

/// The order that makes every rotation one of the first half of a head against the second, with the pairs that are not
/// rotated at the end of both. None if heads lie so already.
fn head_order(spec: &RopeSpec, head_dim: u32) -> Result<Option<HeadOrder>, String> {
    let pairs = spec.inverse_frequencies.len() as u32;
    if !head_dim.is_multiple_of(2) {
        return Err(format!("heads of {head_dim} values cannot be halved"));
    }
    let pair = |i: u32| match spec.pairing {
        RopePairing::Halves => (i, i + pairs),
        RopePairing::Neighbours => (2 * i, 2 * i + 1),
    };
    let passed = (2 * pairs..head_dim).step_by(2).map(|i| (i, i + 1));
    let (first, second): (Vec<u32>, Vec<u32>) = (0..pairs).map(pair).chain(passed).unzip();
    let order: Vec<u32> = first.into_iter().chain(second).collect();
    let is_identity = order.iter().zip(0..).all(|(from, to)| *from == to);
    Ok((!is_identity).then(|| Rc::from(order)))
}

/// Scores do not change when the values of queries and keys are reordered alike, so it is done to the weights once
/// instead of to activations every step.
fn orders(program: &Program) -> Result<Vec<Option<HeadOrder>>, String> {
    let mut orders: Vec<Option<HeadOrder>> = vec![None; program.ops.len()];
    let mut keys: Vec<Option<HeadOrder>> = vec![None; program.kv_layers.len()];
    let mut queries: Vec<(u32, Option<HeadOrder>)> = Vec::new();
    for (at, op) in program.ops.iter().enumerate() {
        match *op {
            Op::Rope { buffer, head_dim, rope } => {
                if let Some(order) = head_order(&program.ropes[rope.0 as usize], head_dim)? {
                    for written in chain_before(program, at, buffer)? {
                        orders[written] = Some(Rc::clone(&order));
                    }
                    check_readers(program, at, buffer)?;
                    orders[at] = Some(order);
                }
            }
            Op::WriteKv { layer, key, .. } => keys[layer as usize] = last_order(program, &orders, at, key),
            Op::Attention { layer, query, .. } => {
                queries.push((layer, last_order(program, &orders, at, query)));
            }
            _ => {}
        }
    }
    for (layer, query) in queries {
        if keys[layer as usize] != query {
            return Err(format!("queries and keys of KV layer {layer} are rotated differently"));
        }
    }
    Ok(orders)
}

/// The operations that make up what a rotation finds: a product and norms.
fn chain_before(program: &Program, at: usize, buffer: BufferId) -> Result<Vec<usize>, String> {
    let mut chain = Vec::new();
    for before in (0..at).rev() {
        let op = &program.ops[before];
        match (op, touch(op, buffer)) {
            (_, None) => {}
            (Op::MatMul { .. }, Some(Touch::Writes)) => {
                chain.push(before);
                return Ok(chain);
            }
            (Op::HeadNorm { .. }, Some(Touch::Changes)) => chain.push(before),
            _ => break,
        }
    }
    Err(format!("the rotation at operation {at} is not behind a product; its pairs cannot be reordered"))
}

/// Only attention may see reordered heads.
fn check_readers(program: &Program, at: usize, buffer: BufferId) -> Result<(), String> {
    for (after, op) in program.ops.iter().enumerate().skip(at + 1) {
        match (op, touch(op, buffer)) {
            (_, None) | (Op::Attention { .. }, Some(Touch::Reads)) => {}
            (Op::WriteKv { value, .. }, Some(Touch::Reads)) if *value != buffer => {}
            (_, Some(Touch::Writes)) => break,
            _ => return Err(format!("operation {after} reads heads that had to be reordered")),
        }
    }
    Ok(())
}

/// The order in which a buffer's heads lie before an operation.
fn last_order(
    program: &Program,
    orders: &[Option<HeadOrder>],
    at: usize,
    buffer: BufferId,
) -> Option<HeadOrder> {
    let changes =
        |before: &usize| touch(&program.ops[*before], buffer).is_some_and(|touch| touch != Touch::Reads);
    (0..at).rev().find(changes).and_then(|before| orders[before].clone())
}

/// Whether a gate's two products can be one product of joined matrices.
fn join(program: &Program, at: usize) -> Option<Join> {
    let Op::Gate { gate, up, activation: Activation::Silu, .. } = program.ops.get(at)? else { return None };
    let gate_at = sole_writer(program, at, *gate)?;
    let up_at = sole_writer(program, at, *up)?;
    let (Op::MatMul { input, bias, .. }, Op::MatMul { input: other, bias: other_bias, .. }) =
        (&program.ops[gate_at], &program.ops[up_at])
    else {
        return None;
    };
    let (first, second) = (gate_at.min(up_at), gate_at.max(up_at));
    let rewritten = program.ops[first..second]
        .iter()
        .any(|op| touch(op, *input).is_some_and(|touch| touch != Touch::Reads));
    let fits = input == other && bias.is_some() == other_bias.is_some() && !rewritten;
    fits.then_some(Join { first, second, gate: gate_at, up: up_at, at })
}

/// The product that wrote a buffer, if nothing but the operation at `at` ever reads what it wrote.
fn sole_writer(program: &Program, at: usize, buffer: BufferId) -> Option<usize> {
    let before = (0..at).rev().find(|before| touch(&program.ops[*before], buffer).is_some())?;
    let mut later = program.ops[at + 1..].iter().filter_map(|op| touch(op, buffer));
    let is_product = matches!(program.ops[before], Op::MatMul { .. });
    let dies = later.next().is_none_or(|touch| touch == Touch::Writes);
    (is_product && dies && touch(&program.ops[before], buffer) == Some(Touch::Writes)).then_some(before)
}

/// Rotations by the same table that can be done at the place of the second.
fn pairs(program: &Program) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (first, op) in program.ops.iter().enumerate() {
        let Op::Rope { buffer, head_dim, rope } = *op else { continue };
        if pairs.iter().any(|(_, second)| *second == first) {
            continue;
        }
        let mut between = program.ops.iter().enumerate().skip(first + 1);
        let next = between.find(|(_, op)| matches!(op, Op::Rope { .. }) || touch(op, buffer).is_some());
        if let Some((second, Op::Rope { buffer: other, head_dim: other_dim, rope: other_rope })) = next
            && *other != buffer
            && (*other_dim, *other_rope) == (head_dim, rope)
        {
            pairs.push((first, second));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test is what it is for")]

    use super::*;

    fn spec(pairs: usize, pairing: RopePairing) -> RopeSpec {
        RopeSpec { inverse_frequencies: vec![1.0; pairs], factor: 1.0, pairing, max_positions: 1 }
    }

    #[test]
    fn halves_stay_and_neighbours_are_drawn_apart() {
        assert_eq!(head_order(&spec(4, RopePairing::Halves), 8).unwrap(), None);
        let order = head_order(&spec(3, RopePairing::Neighbours), 6).unwrap().unwrap();
        assert_eq!(*order, [0, 2, 4, 1, 3, 5]);
    }

    #[test]
    fn values_that_are_not_rotated_end_both_halves() {
        let order = head_order(&spec(2, RopePairing::Halves), 8).unwrap().unwrap();
        assert_eq!(*order, [0, 1, 4, 6, 2, 3, 5, 7]);
    }
}
