//! The parts that dense decoders share, as operations of a step program.
//!
//! A family calls these in the order in which data flows. Three buffers carry it: `hidden` is the residual stream,
//! `normed` the input of the next part, `branch` that part's result, which is then added to `hidden`. All layers
//! use the same buffers. From the last layer's attention on, only rows whose logits are wanted are computed.

use updraft_core::program::{BufferId, KvLayerSpec, Op, Program, RopeId, Rows, WeightId, WeightRole};

use super::naming::{Kind, Naming, Part};
use crate::config::ModelConfig;

/// A program being written.
pub(super) struct Decoder<'a> {
    config: &'a ModelConfig,
    naming: &'a Naming,
    program: Program,
    rope: RopeId,
    local_rope: Option<RopeId>,
    query: BufferId,
    key: BufferId,
    value: BufferId,
    /// Buffers of the rows being computed: first all tokens, at the end only those with logits.
    rows: RowBuffers,
    /// 1 for zero-centred norm weights.
    norm_offset: f32,
}

/// The buffers that exist for both kinds of rows.
#[derive(Clone, Copy)]
struct RowBuffers {
    kind: Rows,
    hidden: BufferId,
    normed: BufferId,
    branch: BufferId,
    attended: BufferId,
    gate: BufferId,
    up: BufferId,
    gated: BufferId,
}

impl RowBuffers {
    fn new(program: &mut Program, config: &ModelConfig, kind: Rows) -> Self {
        let suffix = match kind {
            Rows::Tokens => "",
            Rows::Logits => " of logit rows",
        };
        let mut buffer = |name: &str, width: u32| program.buffer(&format!("{name}{suffix}"), width, kind);
        Self {
            kind,
            hidden: buffer("hidden", config.hidden),
            normed: buffer("normed", config.hidden),
            branch: buffer("branch", config.hidden),
            attended: buffer("attended", config.query_width()),
            gate: buffer("gate", config.intermediate),
            up: buffer("up", config.intermediate),
            gated: buffer("gated", config.intermediate),
        }
    }
}

impl<'a> Decoder<'a> {
    /// An empty program for the model, with rotary tables for `positions` tokens.
    pub(super) fn new(config: &'a ModelConfig, naming: &'a Naming, positions: u32) -> Self {
        let mut program = Program { vocab: config.vocab, ..Program::default() };
        let mut add_rope = |rope: &crate::rope::RopeConfig| {
            program.ropes.push(rope.table(positions, config.pairing));
            RopeId(program.ropes.len() as u32 - 1)
        };
        let rope = add_rope(&config.rope);
        let local_rope = config.local_rope.as_ref().map(add_rope);
        let rows = RowBuffers::new(&mut program, config, Rows::Tokens);
        Self {
            rope,
            local_rope,
            query: program.buffer("query", config.query_width(), Rows::Tokens),
            key: program.buffer("key", config.kv_width(), Rows::Tokens),
            value: program.buffer("value", config.kv_width(), Rows::Tokens),
            rows,
            norm_offset: if config.zero_centred_norms { 1.0 } else { 0.0 },
            program,
            config,
            naming,
        }
    }

    /// `hidden` = the embedding of every token, times `scale`.
    pub(super) fn embed(&mut self, scale: f32) {
        let shape = [self.config.vocab, self.config.hidden];
        let table = self.program.weight(&self.naming.embedding(), &shape, WeightRole::Embedding);
        self.program.ops.push(Op::Embed { table, out: self.rows.hidden, scale });
    }

    /// `normed` = norm of `hidden`.
    pub(super) fn norm(&mut self, layer: u32, part: Part) {
        let weight = self.vector(layer, part, Kind::Weight, self.config.hidden);
        self.rms_norm(self.rows.hidden, weight, self.rows.normed);
    }

    /// `query`, `key` and `value` = projections of `normed`.
    pub(super) fn project_qkv(&mut self, layer: u32) {
        let (hidden, normed, bias) = (self.config.hidden, self.rows.normed, self.config.biases.qkv);
        self.project(layer, Part::Query, normed, hidden, self.query, self.config.query_width(), bias);
        self.project(layer, Part::Key, normed, hidden, self.key, self.config.kv_width(), bias);
        self.project(layer, Part::Value, normed, hidden, self.value, self.config.kv_width(), bias);
    }

    /// Norms of each head of `query` and `key`.
    pub(super) fn norm_heads(&mut self, layer: u32) {
        let head_dim = self.config.head_dim;
        for (part, buffer) in [(Part::QueryNorm, self.query), (Part::KeyNorm, self.key)] {
            let weight = self.vector(layer, part, Kind::Weight, head_dim);
            let (offset, epsilon) = (self.norm_offset, self.config.rms_epsilon);
            self.program.ops.push(Op::HeadNorm { buffer, head_dim, weight, offset, epsilon });
        }
    }

    /// `branch` = attention of `query` over the cache, which takes in `key` and `value`, projected back.
    pub(super) fn attend(&mut self, layer: u32) {
        let config = self.config;
        let window = config.windows.get(layer as usize).copied().flatten();
        let rope = self.local_rope.filter(|_| window.is_some()).unwrap_or(self.rope);
        let head_dim = config.head_dim;
        for buffer in [self.query, self.key] {
            self.program.ops.push(Op::Rope { buffer, head_dim, rope });
        }
        self.program.kv_layers.push(KvLayerSpec { kv_heads: config.kv_heads, head_dim });
        self.program.ops.push(Op::WriteKv { layer, key: self.key, value: self.value });
        self.program.ops.push(Op::Attention {
            layer,
            query: self.query,
            out: self.rows.attended,
            heads: config.heads,
            scale: config.attention_scale,
            window,
        });
        if layer + 1 == config.layers {
            self.keep_logit_rows();
        }
        let (attended, branch) = (self.rows.attended, self.rows.branch);
        let bias = config.biases.attention_output;
        self.project(
            layer,
            Part::AttentionOutput,
            attended,
            config.query_width(),
            branch,
            config.hidden,
            bias,
        );
    }

    /// `branch` = gated feed-forward of `normed`.
    pub(super) fn feed_forward(&mut self, layer: u32) {
        let (hidden, inner, bias) =
            (self.config.hidden, self.config.intermediate, self.config.biases.feed_forward);
        let RowBuffers { normed, branch, gate, up, gated, .. } = self.rows;
        self.project(layer, Part::Gate, normed, hidden, gate, inner, bias);
        self.project(layer, Part::Up, normed, hidden, up, inner, bias);
        self.program.ops.push(Op::Gate { gate, up, out: gated, activation: self.config.activation });
        self.project(layer, Part::Down, gated, inner, branch, hidden, bias);
    }

    /// `hidden` += `branch`.
    pub(super) fn add_branch(&mut self) {
        self.program.ops.push(Op::Add { into: self.rows.hidden, input: self.rows.branch });
    }

    /// `hidden` += norm of `branch`.
    pub(super) fn add_normed_branch(&mut self, layer: u32, part: Part) {
        let weight = self.vector(layer, part, Kind::Weight, self.config.hidden);
        self.rms_norm(self.rows.branch, weight, self.rows.normed);
        self.program.ops.push(Op::Add { into: self.rows.hidden, input: self.rows.normed });
    }

    /// Final norm and output matrix.
    pub(super) fn finish(mut self) -> Program {
        debug_assert_eq!(self.rows.kind, Rows::Logits, "the last layer leaves only logit rows");
        let (vocab, hidden) = (self.config.vocab, self.config.hidden);
        let norm = self.program.weight(&self.naming.final_norm(), &[hidden], WeightRole::Vector);
        self.rms_norm(self.rows.hidden, norm, self.rows.normed);
        let output = if self.config.tied_output { self.naming.embedding() } else { self.naming.output() };
        let weight = self.program.weight(&output, &[vocab, hidden], WeightRole::Matrix);
        let logits = self.program.buffer("logits", vocab, Rows::Logits);
        self.program.ops.push(Op::MatMul { input: self.rows.normed, weight, bias: None, out: logits });
        self.program.logits = Some(logits);
        self.program
    }

    /// Leaves all rows behind whose logits nobody wants: their keys and values are in the cache, which is all that
    /// later tokens see of them.
    fn keep_logit_rows(&mut self) {
        let kept = RowBuffers::new(&mut self.program, self.config, Rows::Logits);
        for (input, out) in [(self.rows.attended, kept.attended), (self.rows.hidden, kept.hidden)] {
            self.program.ops.push(Op::TakeLogitRows { input, out });
        }
        self.rows = kept;
    }

    #[allow(clippy::too_many_arguments, reason = "one product: where from, by what, where to")]
    fn project(
        &mut self,
        layer: u32,
        part: Part,
        input: BufferId,
        width_in: u32,
        out: BufferId,
        width_out: u32,
        biased: bool,
    ) {
        let name = self.naming.layer(layer, part, Kind::Weight);
        let weight = self.program.weight(&name, &[width_out, width_in], WeightRole::Matrix);
        let bias = biased.then(|| self.vector(layer, part, Kind::Bias, width_out));
        self.program.ops.push(Op::MatMul { input, weight, bias, out });
    }

    fn rms_norm(&mut self, input: BufferId, weight: WeightId, out: BufferId) {
        let (offset, epsilon) = (self.norm_offset, self.config.rms_epsilon);
        self.program.ops.push(Op::RmsNorm { input, weight, offset, epsilon, out });
    }

    fn vector(&mut self, layer: u32, part: Part, kind: Kind, width: u32) -> WeightId {
        self.program.weight(&self.naming.layer(layer, part, kind), &[width], WeightRole::Vector)
    }
}
