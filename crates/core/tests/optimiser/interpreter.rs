//! A plain runner of step programs in f32 whose results can be compared bit for bit.
//!
//! It runs several steps over one KV cache, as a device does; buffers are empty at the beginning of each.

use std::collections::BTreeMap;

use updraft_core::program::{Activation, BufferId, Op, Program, RopeId, Rows, WeightId};

/// Tokens of one step: `(token, slot)`; positions count on over the steps.
pub(crate) type Step = Vec<(u32, u32)>;

type Row = Vec<f32>;

/// What can be seen of a run: the logits of each step, and the cache after the last.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) logits: Vec<Vec<Vec<u32>>>,
    pub(crate) cache: BTreeMap<(u32, u32), (Vec<u32>, Vec<u32>)>,
}

struct Runner<'a> {
    program: &'a Program,
    buffers: Vec<Vec<Row>>,
    cache: BTreeMap<(u32, u32), (Row, Row)>,
    tokens: Vec<u32>,
    slots: Vec<u32>,
    first_position: usize,
    /// Every second row.
    logit_rows: Vec<usize>,
}

/// Runs the steps one after the other.
pub(crate) fn run(program: &Program, steps: &[Step]) -> Seen {
    let mut runner = Runner {
        program,
        buffers: Vec::new(),
        cache: BTreeMap::new(),
        tokens: Vec::new(),
        slots: Vec::new(),
        first_position: 0,
        logit_rows: Vec::new(),
    };
    let logits = steps.iter().map(|step| runner.step(step)).collect();
    let cache = runner.cache.into_iter().map(|(at, (key, value))| (at, (bits(&key), bits(&value))));
    Seen { logits, cache: cache.collect() }
}

fn bits(row: &Row) -> Vec<u32> {
    row.iter().map(|value| value.to_bits()).collect()
}

impl Runner<'_> {
    fn step(&mut self, step: &Step) -> Vec<Vec<u32>> {
        self.first_position += self.tokens.len();
        (self.tokens, self.slots) = step.iter().copied().unzip();
        self.logit_rows = (0..step.len()).step_by(2).collect();
        let rows = |kind| if kind == Rows::Tokens { step.len() } else { self.logit_rows.len() };
        let empty = |buffer: &updraft_core::program::BufferSpec| {
            vec![vec![0.0; buffer.width as usize]; rows(buffer.rows)]
        };
        self.buffers = self.program.buffers.iter().map(empty).collect();
        self.program.ops.iter().for_each(|op| self.op(op));
        self.get(self.program.logits.unwrap()).iter().map(bits).collect()
    }

    fn get(&self, id: BufferId) -> Vec<Row> {
        self.buffers[id.0 as usize].clone()
    }

    fn set(&mut self, id: BufferId, rows: Vec<Row>) {
        self.buffers[id.0 as usize] = rows;
    }

    /// Weights are made up from the weight's name and the place.
    fn weight(&self, id: WeightId, at: usize) -> f32 {
        let name = &self.program.weights[id.0 as usize].name;
        let hash = name.bytes().fold(17_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let mixed = (hash ^ (at as u32).wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B);
        (mixed >> 8) as f32 / (1 << 24) as f32 - 0.4
    }

    fn op(&mut self, op: &Op) {
        match *op {
            Op::Embed { table, out, scale } => {
                let width = self.program.buffers[out.0 as usize].width as usize;
                let row = |token: &u32| {
                    (0..width).map(|at| self.weight(table, *token as usize * width + at) * scale).collect()
                };
                let rows = self.tokens.iter().map(row).collect();
                self.set(out, rows);
            }
            Op::RmsNorm { input, weight, offset, epsilon, out } => {
                let rows =
                    self.get(input).iter().map(|row| self.norm(row, weight, offset, epsilon)).collect();
                self.set(out, rows);
            }
            Op::HeadNorm { buffer, head_dim, weight, offset, epsilon } => {
                let heads = |row: &Row| -> Row {
                    row.chunks(head_dim as usize)
                        .flat_map(|head| self.norm(&head.to_vec(), weight, offset, epsilon))
                        .collect()
                };
                let rows = self.get(buffer).iter().map(heads).collect();
                self.set(buffer, rows);
            }
            Op::MatMul { input, weight, bias, out } => {
                let width = self.program.buffers[out.0 as usize].width as usize;
                let cell = |row: &Row, column: usize| {
                    let weights = (0..row.len()).map(|at| self.weight(weight, column * row.len() + at));
                    let sum: f32 = row.iter().zip(weights).map(|(x, w)| x * w).sum();
                    sum + bias.map_or(0.0, |bias| self.weight(bias, column))
                };
                let product = |row: &Row| (0..width).map(|column| cell(row, column)).collect();
                let rows = self.get(input).iter().map(product).collect();
                self.set(out, rows);
            }
            Op::Rope { buffer, head_dim, rope } => {
                let mut rows = self.get(buffer);
                for (place, row) in rows.iter_mut().enumerate() {
                    let position = (self.first_position + place) as f32;
                    row.chunks_mut(head_dim as usize).for_each(|head| self.turn(head, rope, position));
                }
                self.set(buffer, rows);
            }
            Op::WriteKv { layer, key, value } => {
                let rows = self.get(key).into_iter().zip(self.get(value));
                for (slot, pair) in self.slots.clone().into_iter().zip(rows) {
                    self.cache.insert((layer, slot), pair);
                }
            }
            Op::Attention { layer, query, out, scale, .. } => {
                let attend = |row: &Row| self.attend(layer, row, scale);
                let rows = self.get(query).iter().map(attend).collect();
                self.set(out, rows);
            }
            Op::Gate { gate, up, out, activation } => {
                let act = |x: f32| match activation {
                    Activation::Silu => x / (1.0 + (-x).exp()),
                    Activation::GeluTanh => 0.5 * x * (1.0 + (0.8 * x).tanh()),
                };
                let rows = self.get(gate).into_iter().zip(self.get(up));
                let rows =
                    rows.map(|(gate, up)| gate.iter().zip(up).map(|(gate, up)| act(*gate) * up).collect());
                let rows = rows.collect();
                self.set(out, rows);
            }
            Op::Add { into, input } => {
                let rows = self.get(into).into_iter().zip(self.get(input));
                let rows = rows.map(|(into, input)| into.iter().zip(input).map(|(a, b)| a + b).collect());
                let rows = rows.collect();
                self.set(into, rows);
            }
            Op::TakeLogitRows { input, out } => {
                let input = self.get(input);
                let rows = self.logit_rows.iter().map(|row| input[*row].clone()).collect();
                self.set(out, rows);
            }
            Op::AddRmsNorm { into, input, weight, offset, epsilon, out } => {
                self.op(&Op::Add { into, input });
                self.op(&Op::RmsNorm { input: into, weight, offset, epsilon, out });
            }
            Op::RopeWriteKv { query, key, value, head_dim, rope, layer } => {
                self.op(&Op::Rope { buffer: query, head_dim, rope });
                self.op(&Op::Rope { buffer: key, head_dim, rope });
                self.op(&Op::WriteKv { layer, key, value });
            }
        }
    }

    fn norm(&self, row: &Row, weight: WeightId, offset: f32, epsilon: f32) -> Row {
        let square: f32 = row.iter().map(|x| x * x).sum();
        let scale = (square / row.len() as f32 + epsilon).sqrt().recip();
        row.iter().enumerate().map(|(at, x)| x * scale * (self.weight(weight, at) + offset)).collect()
    }

    fn turn(&self, head: &mut [f32], rope: RopeId, position: f32) {
        let spec = &self.program.ropes[rope.0 as usize];
        let half = spec.inverse_frequencies.len();
        for (pair, frequency) in spec.inverse_frequencies.iter().enumerate() {
            let (sine, cosine) = (position * frequency).sin_cos();
            let (x, y) = (head[pair], head[pair + half]);
            head[pair] = x * cosine - y * sine;
            head[pair + half] = y * cosine + x * sine;
        }
    }

    /// Over everything in the cache of the layer, slot by slot. That this is no causal attention is of no
    /// matter here: it depends on every key and value.
    fn attend(&self, layer: u32, query: &Row, scale: f32) -> Row {
        let mut out = vec![0.0; query.len()];
        for (key, value) in self.cache.range((layer, 0)..(layer + 1, 0)).map(|(_, pair)| pair) {
            let score: f32 = query.iter().zip(key).map(|(q, k)| q * k).sum();
            let weight = (score * scale).tanh();
            out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
        }
        out
    }
}
