//! A program run operation by operation in double precision, on one whole sequence, without a cache.

use updraft_core::program::{Activation, BufferId, Op, Program, RopePairing, RopeSpec, WeightId};
use updraft_kernels::tensor::TensorSource;

use super::small_model::Tensors;

type Matrix = Vec<Vec<f64>>;

struct Reference<'a> {
    program: &'a Program,
    tensors: &'a Tensors,
    tokens: &'a [u32],
    buffers: Vec<Matrix>,
    /// Keys and values of each layer.
    cache: Vec<(Matrix, Matrix)>,
}

/// Logits of every position.
pub(super) fn logits(program: &Program, tensors: &Tensors, tokens: &[u32]) -> Matrix {
    let mut run = Reference {
        program,
        tensors,
        tokens,
        buffers: program.buffers.iter().map(|b| vec![vec![0.0; b.width as usize]; tokens.len()]).collect(),
        cache: vec![(Vec::new(), Vec::new()); program.kv_layers.len()],
    };
    for op in &program.ops {
        run.op(op);
    }
    run.buffers.swap_remove(program.logits.unwrap().0 as usize)
}

impl Reference<'_> {
    fn op(&mut self, op: &Op) {
        match *op {
            Op::Embed { table, out, scale } => {
                let table = self.weight(table);
                let width = self.program.buffers[out.0 as usize].width as usize;
                let row = |token: &u32| table[*token as usize * width..][..width].iter();
                self.set(
                    out,
                    self.tokens.iter().map(|t| row(t).map(|x| x * f64::from(scale)).collect()).collect(),
                );
            }
            Op::RmsNorm { input, weight, offset, epsilon, out } => {
                let weight = self.weight(weight);
                let rows = self.get(input).iter().map(|row| norm(row, &weight, offset, epsilon)).collect();
                self.set(out, rows);
            }
            Op::HeadNorm { buffer, head_dim, weight, offset, epsilon } => {
                let weight = self.weight(weight);
                let heads = |row: &Vec<f64>| {
                    row.chunks(head_dim as usize)
                        .flat_map(|head| norm(head, &weight, offset, epsilon))
                        .collect()
                };
                self.set(buffer, self.get(buffer).iter().map(heads).collect());
            }
            Op::MatMul { input, weight, bias, out } => {
                let width = self.program.buffers[out.0 as usize].width as usize;
                let weight = self.weight(weight);
                let bias = bias.map_or(vec![0.0; width], |bias| self.weight(bias));
                let product = |row: &Vec<f64>| {
                    let dot = |w: &[f64]| row.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
                    weight.chunks(row.len()).zip(&bias).map(|(w, bias)| dot(w) + bias).collect()
                };
                self.set(out, self.get(input).iter().map(product).collect());
            }
            Op::Rope { buffer, head_dim, rope } => {
                let spec = &self.program.ropes[rope.0 as usize];
                let mut rows = self.get(buffer).clone();
                for (position, row) in rows.iter_mut().enumerate() {
                    for head in row.chunks_mut(head_dim as usize) {
                        turn(head, position, spec);
                    }
                }
                self.set(buffer, rows);
            }
            Op::WriteKv { layer, key, value } => {
                self.cache[layer as usize] = (self.get(key).clone(), self.get(value).clone());
            }
            Op::Attention { layer, query, out, heads, scale, window } => {
                let rows = self.attention(layer as usize, query, heads as usize, f64::from(scale), window);
                self.set(out, rows);
            }
            Op::Gate { gate, up, out, activation } => {
                let gated = |(gate, up): (&Vec<f64>, &Vec<f64>)| {
                    gate.iter().zip(up).map(|(gate, up)| activated(*gate, activation) * up).collect()
                };
                self.set(out, self.get(gate).iter().zip(self.get(up)).map(gated).collect());
            }
            Op::Add { into, input } => {
                let sum = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
                self.set(into, self.get(into).iter().zip(self.get(input)).map(sum).collect());
            }
            Op::TakeLogitRows { input, out } => self.set(out, self.get(input).clone()),
            Op::AddRmsNorm { .. } | Op::RopeWriteKv { .. } => {
                op.sequence().iter().for_each(|part| self.op(part));
            }
        }
    }

    fn attention(
        &self,
        layer: usize,
        query: BufferId,
        heads: usize,
        scale: f64,
        window: Option<u32>,
    ) -> Matrix {
        let (keys, values) = &self.cache[layer];
        let spec = self.program.kv_layers[layer];
        let dim = spec.head_dim as usize;
        let row = |(position, row): (usize, &Vec<f64>)| {
            let first = window.map_or(0, |window| (position + 1).saturating_sub(window as usize));
            let head = |(head, query): (usize, &[f64])| {
                let kv = head * spec.kv_heads as usize / heads * dim;
                let dot = |key: &Vec<f64>| query.iter().zip(&key[kv..]).map(|(q, k)| q * k).sum::<f64>();
                let weights: Vec<f64> =
                    keys[first..=position].iter().map(|key| (dot(key) * scale).exp()).collect();
                let total: f64 = weights.iter().sum();
                let value = move |d: usize| {
                    let weighted = weights.iter().zip(&values[first..]).map(|(w, value)| w * value[kv + d]);
                    weighted.sum::<f64>() / total
                };
                (0..dim).map(value).collect::<Vec<_>>()
            };
            row.chunks(dim).enumerate().flat_map(head).collect()
        };
        self.get(query).iter().enumerate().map(row).collect()
    }

    fn weight(&self, id: WeightId) -> Vec<f64> {
        let view = self.tensors.tensor(&self.program.weights[id.0 as usize].name).unwrap();
        view.to_f32().unwrap().into_iter().map(f64::from).collect()
    }

    fn get(&self, id: BufferId) -> &Matrix {
        &self.buffers[id.0 as usize]
    }

    fn set(&mut self, id: BufferId, rows: Matrix) {
        self.buffers[id.0 as usize] = rows;
    }
}

fn norm(row: &[f64], weight: &[f64], offset: f32, epsilon: f32) -> Vec<f64> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    let factor = 1.0 / (mean + f64::from(epsilon)).sqrt();
    row.iter().zip(weight).map(|(x, w)| x * factor * (w + f64::from(offset))).collect()
}

fn turn(head: &mut [f64], position: usize, spec: &RopeSpec) {
    let pairs = spec.inverse_frequencies.len();
    for (i, frequency) in spec.inverse_frequencies.iter().enumerate() {
        let (a, b) = match spec.pairing {
            RopePairing::Halves => (i, i + pairs),
            RopePairing::Neighbours => (2 * i, 2 * i + 1),
        };
        let (sin, cos) = (position as f64 * f64::from(*frequency)).sin_cos();
        let factor = f64::from(spec.factor);
        (head[a], head[b]) =
            (factor * (head[a] * cos - head[b] * sin), factor * (head[b] * cos + head[a] * sin));
    }
}

fn activated(x: f64, activation: Activation) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}
