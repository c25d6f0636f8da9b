//! Sorting a program into stages by what operations read and write.

use std::collections::BTreeMap;

use updraft_core::program::{BufferId, Op, Program, RopeId, Rows, WeightId};
use updraft_kernels::activations::InputForm;

use super::{AttentionOp, AttentionShape, Product, RowOp, Stage, Stages};

/// The stages of a program; notes vectors, shapes and input forms in `stages`.
pub(super) fn sorted(
    program: &Program,
    stages: &mut Stages,
    form: &dyn Fn(WeightId) -> InputForm,
) -> Vec<Stage> {
    let mut nodes = Nodes::default();
    for rope in 0..program.ropes.len() as u32 {
        nodes.push_row(Rows::Tokens, RowOp::RopeAngles { rope: RopeId(rope) }, &[], Resource::Angles(rope));
    }
    for op in &program.ops {
        nodes.add(program, stages, form, op);
    }
    nodes.sorted()
}

/// Something that is written and read; what orders operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    Buffer(u32),
    Prepared(u32),
    Cache(u32),
    Angles(u32),
}

#[derive(Clone, Copy)]
enum Work {
    Row(Rows, RowOp),
    Product(Product),
    Attention(AttentionOp),
}

struct Node {
    work: Work,
    /// Earlier nodes that must have run before.
    after: Vec<usize>,
}

/// A program's operations with what each waits for.
#[derive(Default)]
struct Nodes {
    nodes: Vec<Node>,
    /// Who last wrote a resource, and who has read it since.
    users: BTreeMap<Resource, (Option<usize>, Vec<usize>)>,
}

impl Nodes {
    /// Notes an operation of the program, in program order.
    fn add(&mut self, program: &Program, stages: &mut Stages, form: &dyn Fn(WeightId) -> InputForm, op: &Op) {
        use Resource::{Angles, Buffer, Cache};
        let kind = |buffer: BufferId| program.buffers[buffer.0 as usize].rows;
        match *op {
            Op::Embed { table, out, scale } => {
                self.push_row(kind(out), RowOp::Embed { table, out, scale }, &[], Buffer(out.0));
            }
            Op::RmsNorm { input, weight, offset, epsilon, out } => {
                let op = RowOp::RmsNorm { input, vector: stages.vector(weight, offset), epsilon, out };
                self.push_row(kind(out), op, &[Buffer(input.0)], Buffer(out.0));
            }
            Op::HeadNorm { buffer, weight, offset, epsilon, .. } => {
                let op = RowOp::HeadNorm { buffer, vector: stages.vector(weight, offset), epsilon };
                self.push_row(kind(buffer), op, &[], Buffer(buffer.0));
            }
            Op::MatMul { input, weight, bias, out } => {
                let wanted = &mut stages.forms[input.0 as usize];
                *wanted = Some(wanted.unwrap_or_default().and(form(weight)));
                let bias = bias.map(|bias| stages.vector(bias, 0.0));
                self.prepare(input, kind(input));
                let product = Work::Product(Product { input, weight, bias, out });
                self.push(product, &[Resource::Prepared(input.0)], Buffer(out.0));
            }
            Op::Rope { buffer, head_dim, rope } => {
                let op = RowOp::Rope { buffer, head_dim: head_dim as usize, rope };
                self.push_row(Rows::Tokens, op, &[Angles(rope.0)], Buffer(buffer.0));
            }
            Op::WriteKv { layer, key, value } => {
                let op = RowOp::WriteKv { layer: layer as usize, key, value };
                self.push_row(Rows::Tokens, op, &[Buffer(key.0), Buffer(value.0)], Cache(layer));
            }
            Op::Attention { layer, query, out, .. } => {
                let shape = stages.shape(attention_shape(program, op));
                let work = Work::Attention(AttentionOp { layer: layer as usize, query, out, shape });
                self.push(work, &[Buffer(query.0), Cache(layer)], Buffer(out.0));
            }
            Op::Gate { gate, up, out, activation } => {
                let op = RowOp::Gate { gate, up, out, activation };
                self.push_row(kind(out), op, &[Buffer(gate.0), Buffer(up.0)], Buffer(out.0));
            }
            Op::Add { into, input } => {
                self.push_row(kind(into), RowOp::Add { into, input }, &[Buffer(input.0)], Buffer(into.0));
            }
            Op::TakeLogitRows { input, out } => {
                let op = RowOp::TakeLogitRows { input, out };
                self.push_row(Rows::Logits, op, &[Buffer(input.0)], Buffer(out.0));
            }
            // A chain of rows has no use for fused operations: its rows stay in the cache anyway.
            Op::AddRmsNorm { .. } | Op::RopeWriteKv { .. } => {
                for part in op.sequence() {
                    self.add(program, stages, form, &part);
                }
            }
        }
    }

    /// Sees to it that products can read the buffer, unless nothing wrote to it since the last time.
    fn prepare(&mut self, buffer: BufferId, kind: Rows) {
        let writer = |resource| self.users.get(&resource).and_then(|(writer, _)| *writer);
        let prepared = writer(Resource::Prepared(buffer.0));
        if prepared.is_some() && prepared > writer(Resource::Buffer(buffer.0)) {
            return;
        }
        let reads = [Resource::Buffer(buffer.0)];
        self.push_row(kind, RowOp::Prepare { buffer }, &reads, Resource::Prepared(buffer.0));
    }

    fn push_row(&mut self, kind: Rows, op: RowOp, reads: &[Resource], writes: Resource) {
        self.push(Work::Row(kind, op), reads, writes);
    }

    /// Adds an operation. One that changes something in place counts as its writer.
    fn push(&mut self, work: Work, reads: &[Resource], writes: Resource) {
        let index = self.nodes.len();
        let mut after = Vec::new();
        for resource in reads {
            let (writer, readers) = self.users.entry(*resource).or_default();
            after.extend(*writer);
            readers.push(index);
        }
        let (writer, readers) = self.users.entry(writes).or_default();
        after.extend(*writer);
        after.append(readers);
        *writer = Some(index);
        self.nodes.push(Node { work, after });
    }

    /// Stages: each begins with the first operation that is left and takes in all that can run beside it.
    fn sorted(self) -> Vec<Stage> {
        let mut stage_of: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut left: Vec<usize> = (0..self.nodes.len()).collect();
        let mut stages = Vec::new();
        while let Some(first) = left.first() {
            let number = stages.len();
            let mut stage = empty_like(self.nodes[*first].work);
            left.retain(|&index| {
                let node = &self.nodes[index];
                let in_row_order = matches!(node.work, Work::Row(..));
                let ready = node.after.iter().all(|earlier| match stage_of[*earlier] {
                    Some(stage) => stage < number || in_row_order,
                    None => false,
                });
                let taken = ready && take(&mut stage, node.work);
                if taken {
                    stage_of[index] = Some(number);
                }
                !taken
            });
            stages.push(stage);
        }
        stages
    }
}

fn attention_shape(program: &Program, op: &Op) -> AttentionShape {
    let mut shape = AttentionShape { heads: 0, kv_heads: 1, head_dim: 1, scale: 1.0, window: None };
    if let Op::Attention { layer, heads, scale, window, .. } = *op {
        let spec = program.kv_layers[layer as usize];
        shape = AttentionShape {
            heads: heads as usize,
            kv_heads: spec.kv_heads as usize,
            head_dim: spec.head_dim as usize,
            scale,
            window: window.map(|window| window as usize),
        };
    }
    shape
}

fn empty_like(work: Work) -> Stage {
    match work {
        Work::Row(kind, _) => Stage::Rows { kind, ops: Vec::new() },
        Work::Product(_) => Stage::Products(Vec::new()),
        Work::Attention(op) => Stage::Attention(op),
    }
}

/// Adds work to a stage of its kind. An attention stage holds the one that began it.
fn take(stage: &mut Stage, work: Work) -> bool {
    match (stage, work) {
        (Stage::Rows { kind, ops }, Work::Row(rows, op)) if *kind == rows => {
            ops.push(op);
            true
        }
        (Stage::Products(products), Work::Product(product)) => {
            products.push(product);
            true
        }
        (Stage::Attention(begun), Work::Attention(op)) => *begun == op,
        _ => false,
    }
}
