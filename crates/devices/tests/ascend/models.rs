//! Small programs with random weights, written as model families write theirs.

use std::collections::BTreeMap;

use updraft_core::program::{
    Activation, BufferId, KvLayerSpec, Op, Program, RopeId, RopePairing, RopeSpec, Rows, WeightId, WeightRole,
};
use updraft_kernels::tensor::{ElementType, TensorSource, TensorView};

pub(crate) const VOCAB: u32 = 160;
const HIDDEN: u32 = 64;
const INNER: u32 = 96;

/// What programs differ in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) layers: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    /// Rotated pairs of a head.
    pairs: u32,
    pairing: RopePairing,
    window: Option<u32>,
    head_norms: bool,
    biases: bool,
    /// Norms behind each part, weights centred on zero, scaled embedding, GELU, a tied table.
    gemma: bool,
}

const LLAMA: Kind = Kind {
    name: "llama",
    layers: 2,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    pairs: 32,
    pairing: RopePairing::Halves,
    window: None,
    head_norms: false,
    biases: false,
    gemma: false,
};

impl Kind {
    pub(crate) const LLAMA: Self = LLAMA;
    pub(crate) const QWEN3: Self = Self { name: "qwen3", head_norms: true, ..LLAMA };

    pub(crate) const ODD_HEADS: Self = Self { name: "odd heads", head_dim: 96, pairs: 48, ..LLAMA };
    pub(crate) const DEEP: Self = Self { name: "deep", layers: 24, ..LLAMA };
    pub(crate) const ALL: [Self; 7] = [
        LLAMA,
        Self { name: "mistral", window: Some(20), ..LLAMA },
        Self { name: "qwen2", biases: true, kv_heads: 1, ..LLAMA },
        Self::QWEN3,
        Self {
            name: "neighbours",
            pairing: RopePairing::Neighbours,
            biases: true,
            head_norms: true,
            ..LLAMA
        },
        Self { name: "partial", pairs: 20, ..LLAMA },
        Self { name: "gemma", gemma: true, head_norms: true, window: Some(7), ..LLAMA },
    ];
}

/// The program of a kind.
pub(crate) fn program(kind: Kind) -> Program {
    let mut p = Program { vocab: VOCAB, ..Program::default() };
    for base in [10_000.0_f32, 100.0] {
        p.ropes.push(RopeSpec {
            inverse_frequencies: (0..kind.pairs)
                .map(|i| base.powf(-2.0 * i as f32 / kind.head_dim as f32))
                .collect(),
            factor: 1.0,
            pairing: kind.pairing,
            max_positions: 1000,
        });
    }
    let [hidden, normed, branch] = ["hidden", "normed", "branch"].map(|n| p.buffer(n, HIDDEN, Rows::Tokens));
    let [query, attended] =
        ["query", "attended"].map(|n| p.buffer(n, kind.heads * kind.head_dim, Rows::Tokens));
    let [key, value] = ["key", "value"].map(|n| p.buffer(n, kind.kv_heads * kind.head_dim, Rows::Tokens));
    let [gate, up, gated] = ["gate", "up", "gated"].map(|n| p.buffer(n, INNER, Rows::Tokens));
    let [last, last_normed] = ["last", "last normed"].map(|n| p.buffer(n, HIDDEN, Rows::Logits));
    let logits = p.buffer("logits", VOCAB, Rows::Logits);
    let mut w = Writer { p, kind };
    let table = w.p.weight("embedding", &[VOCAB, HIDDEN], WeightRole::Embedding);
    w.p.ops.push(Op::Embed { table, out: hidden, scale: if kind.gemma { 8.0 } else { 1.0 } });
    for layer in 0..kind.layers {
        w.norm(&format!("{layer}.norm"), hidden, normed);
        w.product(&format!("{layer}.query"), normed, query, kind.biases);
        w.product(&format!("{layer}.key"), normed, key, kind.biases);
        w.product(&format!("{layer}.value"), normed, value, kind.biases);
        let rope = RopeId(u32::from(kind.gemma && layer == 1));
        for (name, buffer) in [("query", query), ("key", key)] {
            if kind.head_norms {
                w.head_norm(&format!("{layer}.{name} norm"), buffer);
            }
            w.p.ops.push(Op::Rope { buffer, head_dim: kind.head_dim, rope });
        }
        w.p.kv_layers.push(KvLayerSpec { kv_heads: kind.kv_heads, head_dim: kind.head_dim });
        w.p.ops.push(Op::WriteKv { layer, key, value });
        // The first layer sees everything, the second its window.
        let window = kind.window.filter(|_| layer == 1);
        let scale = 0.1;
        w.p.ops.push(Op::Attention { layer, query, out: attended, heads: kind.heads, scale, window });
        w.product(&format!("{layer}.out"), attended, branch, false);
        w.residual(&format!("{layer}.behind attention"), hidden, branch, normed);
        w.norm(&format!("{layer}.norm 2"), hidden, normed);
        w.product(&format!("{layer}.gate"), normed, gate, false);
        w.product(&format!("{layer}.up"), normed, up, false);
        let activation = if kind.gemma { Activation::GeluTanh } else { Activation::Silu };
        w.p.ops.push(Op::Gate { gate, up, out: gated, activation });
        w.product(&format!("{layer}.down"), gated, branch, kind.biases);
        w.residual(&format!("{layer}.behind feed-forward"), hidden, branch, normed);
    }
    w.p.ops.push(Op::TakeLogitRows { input: hidden, out: last });
    w.norm("last norm", last, last_normed);
    w.product(if kind.gemma { "embedding" } else { "head" }, last_normed, logits, false);
    w.p.logits = Some(logits);
    w.p
}

struct Writer {
    p: Program,
    kind: Kind,
}

impl Writer {
    fn vector(&mut self, name: &str, width: u32) -> WeightId {
        self.p.weight(name, &[width], WeightRole::Vector)
    }

    fn offset(&self) -> f32 {
        if self.kind.gemma { 1.0 } else { 0.0 }
    }

    fn norm(&mut self, name: &str, input: BufferId, out: BufferId) {
        let weight = self.vector(name, HIDDEN);
        self.p.ops.push(Op::RmsNorm { input, weight, offset: self.offset(), epsilon: 1e-5, out });
    }

    fn head_norm(&mut self, name: &str, buffer: BufferId) {
        let head_dim = self.kind.head_dim;
        let weight = self.vector(name, head_dim);
        self.p.ops.push(Op::HeadNorm { buffer, head_dim, weight, offset: self.offset(), epsilon: 1e-6 });
    }

    fn product(&mut self, name: &str, input: BufferId, out: BufferId, bias: bool) {
        let width = |buffer: BufferId| self.p.buffers[buffer.0 as usize].width;
        let shape = [width(out), width(input)];
        let weight = self.p.weight(name, &shape, WeightRole::Matrix);
        let bias = bias.then(|| self.vector(&format!("{name} bias"), shape[0]));
        self.p.ops.push(Op::MatMul { input, weight, bias, out });
    }

    fn residual(&mut self, name: &str, into: BufferId, branch: BufferId, normed: BufferId) {
        if self.kind.gemma {
            self.norm(name, branch, normed);
            self.p.ops.push(Op::Add { into, input: normed });
        } else {
            self.p.ops.push(Op::Add { into, input: branch });
        }
    }
}

/// A checkpoint in memory.
#[derive(Default)]
pub(crate) struct Tensors {
    pub(crate) tensors: BTreeMap<String, (ElementType, Vec<usize>, Vec<u8>)>,
}

impl TensorSource for Tensors {
    fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let (element, shape, bytes) = self.tensors.get(name)?;
        Some(TensorView { element: *element, shape, bytes })
    }

    fn release(&self, _: &str) {}

    fn file_of(&self, _: &str) -> String {
        "small.safetensors".to_owned()
    }
}

/// Random tensors for a kind's program, with values that bfloat16 holds exactly.
pub(crate) fn tensors(kind: Kind) -> Tensors {
    let mut random = Random(99);
    let mut tensors = Tensors::default();
    for (index, spec) in program(kind).weights.into_iter().enumerate() {
        let shape: Vec<usize> = spec.shape.iter().map(|n| *n as usize).collect();
        let cols = shape[shape.len() - 1];
        let (centre, spread) = match spec.role {
            WeightRole::Vector if kind.gemma || spec.name.ends_with("bias") => (0.0, 0.3),
            WeightRole::Vector => (1.0, 0.3),
            _ => (0.0, 2.0 / (cols as f32).sqrt()),
        };
        let values: Vec<_> = (0..shape.iter().product())
            .map(|_| half::bf16::from_f32(centre + spread * random.next()))
            .collect();
        // Both ways of loading: the type itself, and one to convert from.
        let (element, bytes) = if index % 2 == 0 {
            (ElementType::BF16, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        } else {
            (ElementType::F32, values.iter().flat_map(|value| value.to_f32().to_le_bytes()).collect())
        };
        tensors.tensors.insert(spec.name, (element, shape, bytes));
    }
    tensors
}

/// Numbers between -1 and 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
