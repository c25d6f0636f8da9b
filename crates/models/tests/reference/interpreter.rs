//! A plain, slow runner of step programs in f32: one sequence, all positions at once, no cache blocks.
//!
//! It exists to prove that a family's program computes the model, apart from any device.

use updraft_core::program::{Activation, BufferId, Op, Program, RopePairing, RopeSpec, Rows, WeightId};
use updraft_kernels::tensor::TensorSource;

/// Runs the program on a whole sequence; gives the logits of every position, row by row.
pub(crate) fn run(program: &Program, source: &dyn TensorSource, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut runner = Runner {
        program,
        weights: program
            .weights
            .iter()
            .map(|weight| source.tensor(&weight.name).unwrap().to_f32().unwrap())
            .collect(),
        buffers: program
            .buffers
            .iter()
            .map(|buffer| vec![vec![0.0; buffer.width as usize]; tokens.len()])
            .collect(),
        cache: vec![(Vec::new(), Vec::new()); program.kv_layers.len()],
        tokens,
    };
    for op in &program.ops {
        runner.run(op);
    }
    let logits = program.logits.unwrap();
    assert_eq!(program.buffers[logits.0 as usize].rows, Rows::Logits);
    runner.buffers[logits.0 as usize].clone()
}

type Matrix = Vec<Vec<f32>>;

struct Runner<'a> {
    program: &'a Program,
    weights: Vec<Vec<f32>>,
    buffers: Vec<Matrix>,
    cache: Vec<(Matrix, Matrix)>,
    tokens: &'a [u32],
}

impl Runner<'_> {
    fn buffer(&self, id: BufferId) -> &Matrix {
        &self.buffers[id.0 as usize]
    }

    fn buffer_mut(&mut self, id: BufferId) -> &mut Matrix {
        &mut self.buffers[id.0 as usize]
    }

    fn weight(&self, id: WeightId) -> &[f32] {
        &self.weights[id.0 as usize]
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Embed { table, out, scale } => {
                let table = self.weight(table);
                let width = self.program.buffers[out.0 as usize].width as usize;
                let row = |&token: &u32| {
                    table[token as usize * width..][..width].iter().map(|value| value * scale).collect()
                };
                *self.buffer_mut(out) = self.tokens.iter().map(row).collect();
            }
            Op::RmsNorm { input, weight, offset, epsilon, out } => {
                assert_ne!(input, out);
                let weight = self.weight(weight);
                let norm = |row: &Vec<f32>| rms_norm(row, weight, offset, epsilon);
                *self.buffer_mut(out) = self.buffer(input).iter().map(norm).collect();
            }
            Op::HeadNorm { buffer, head_dim, weight, offset, epsilon } => {
                let weight = self.weight(weight).to_vec();
                for row in self.buffer_mut(buffer) {
                    for head in row.chunks_exact_mut(head_dim as usize) {
                        head.copy_from_slice(&rms_norm(head, &weight, offset, epsilon));
                    }
                }
            }
            Op::MatMul { input, weight, bias, out } => {
                assert_ne!(input, out);
                let weight = self.weight(weight);
                let bias = bias.map(|bias| self.weight(bias));
                let multiply = |row: &Vec<f32>| {
                    let product = |(at, row_of_weight): (usize, &[f32])| {
                        dot(row, row_of_weight) + bias.map_or(0.0, |bias| bias[at])
                    };
                    weight.chunks_exact(row.len()).enumerate().map(product).collect()
                };
                *self.buffer_mut(out) = self.buffer(input).iter().map(multiply).collect();
            }
            Op::Rope { buffer, head_dim, rope } => {
                let rope = &self.program.ropes[rope.0 as usize];
                for (position, row) in self.buffers[buffer.0 as usize].iter_mut().enumerate() {
                    row.chunks_exact_mut(head_dim as usize).for_each(|head| rotate(head, rope, position));
                }
            }
            Op::WriteKv { layer, key, value } => {
                self.cache[layer as usize] = (self.buffer(key).clone(), self.buffer(value).clone());
            }
            Op::Attention { layer, query, out, heads, scale, window } => {
                let geometry = self.program.kv_layers[layer as usize];
                let shape = Heads {
                    width: geometry.head_dim as usize,
                    sharing: (heads / geometry.kv_heads) as usize,
                    scale,
                    window: window.map_or(usize::MAX, |window| window as usize),
                };
                let cache = &self.cache[layer as usize];
                let attend = |(position, row): (usize, &Vec<f32>)| attention(row, position, cache, &shape);
                *self.buffer_mut(out) = self.buffer(query).iter().enumerate().map(attend).collect();
            }
            Op::Gate { gate, up, out, activation } => {
                let combine = |(gate, up): (&Vec<f32>, &Vec<f32>)| {
                    gate.iter().zip(up).map(|(&gate, up)| activate(gate, activation) * up).collect()
                };
                *self.buffer_mut(out) = self.buffer(gate).iter().zip(self.buffer(up)).map(combine).collect();
            }
            Op::Add { into, input } => {
                let input = self.buffer(input).clone();
                for (into, input) in self.buffer_mut(into).iter_mut().zip(&input) {
                    into.iter_mut().zip(input).for_each(|(into, input)| *into += input);
                }
            }
            // Here every position is a logit row.
            Op::TakeLogitRows { input, out } => *self.buffer_mut(out) = self.buffer(input).clone(),
            Op::AddRmsNorm { .. } | Op::RopeWriteKv { .. } => {
                op.sequence().iter().for_each(|part| self.run(part));
            }
        }
    }
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn rms_norm(row: &[f32], weight: &[f32], offset: f32, epsilon: f32) -> Vec<f32> {
    let scale = (dot(row, row) / row.len() as f32 + epsilon).sqrt().recip();
    row.iter().zip(weight).map(|(value, weight)| value * scale * (weight + offset)).collect()
}

fn rotate(head: &mut [f32], rope: &RopeSpec, position: usize) {
    let half = rope.inverse_frequencies.len();
    for (pair, frequency) in rope.inverse_frequencies.iter().enumerate() {
        let (first, second) = match rope.pairing {
            RopePairing::Halves => (pair, pair + half),
            RopePairing::Neighbours => (2 * pair, 2 * pair + 1),
        };
        let (sine, cosine) = (position as f32 * frequency).sin_cos();
        let (sine, cosine) = (sine * rope.factor, cosine * rope.factor);
        let (x, y) = (head[first], head[second]);
        head[first] = x * cosine - y * sine;
        head[second] = y * cosine + x * sine;
    }
}

struct Heads {
    width: usize,
    /// Query heads that share a key head.
    sharing: usize,
    scale: f32,
    window: usize,
}

fn attention(query: &[f32], position: usize, cache: &(Matrix, Matrix), heads: &Heads) -> Vec<f32> {
    let (keys, values) = cache;
    let first = (position + 1).saturating_sub(heads.window);
    let mut out = Vec::with_capacity(query.len());
    for (head, query) in query.chunks_exact(heads.width).enumerate() {
        let at = head / heads.sharing * heads.width;
        let scores: Vec<f32> = keys[first..=position]
            .iter()
            .map(|key| dot(query, &key[at..at + heads.width]) * heads.scale)
            .collect();
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - highest).exp()).collect();
        let total: f32 = weights.iter().sum();
        let mut sum = vec![0.0; heads.width];
        for (weight, value) in weights.iter().zip(&values[first..]) {
            sum.iter_mut().zip(&value[at..]).for_each(|(sum, value)| *sum += weight / total * value);
        }
        out.extend(sum);
    }
    out
}

fn activate(x: f32, activation: Activation) -> f32 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + (std::f32::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x * x * x)).tanh())
        }
    }
}
