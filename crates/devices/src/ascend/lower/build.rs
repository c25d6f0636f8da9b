//! Translating a program into a plan.

use std::collections::BTreeMap;

use updraft_core::program::{Activation, BufferId, Op, Program, RopeId, Rows, WeightId};

use super::analyse::{self, Analysis};
use super::plan::{
    AddRmsNorm, Attention, AttentionForm, Constant, ConstantId, HeadOrder, Kernel, Part, Plan, RopeForm,
    StorageId, StorageSpec, TakeForm,
};
use crate::ascend::error::OpenError;
use crate::ascend::operators::{Installed, Need};
use crate::check;
use crate::cpu::LoadError;

impl Plan {
    /// Translates a program for what is installed.
    pub(in crate::ascend) fn of(program: &Program, installed: &Installed<'_>) -> Result<Self, OpenError> {
        check::program(program).map_err(|(op, problem)| LoadError::Program { op, problem })?;
        let program = &analyse::expanded(program);
        let analysis = Analysis::of(program).map_err(OpenError::Unsupported)?;
        let mut plan = Plan::default();
        for buffer in &program.buffers {
            plan.storages.push(StorageSpec { width: buffer.width, rows: buffer.rows, single: false });
        }
        plan.places = (0..program.buffers.len()).map(StorageId).collect();
        let mut builder = Builder {
            program,
            installed,
            analysis,
            plan,
            alternates: BTreeMap::new(),
            chosen: BTreeMap::new(),
            tables: BTreeMap::new(),
            scratch: BTreeMap::new(),
        };
        builder.angles()?;
        for (at, op) in program.ops.iter().enumerate() {
            if matches!(op, Op::TakeLogitRows { .. }) && builder.plan.tail == 0 {
                builder.plan.tail = builder.plan.kernels.len();
            }
            builder.op(at, op)?;
        }
        builder.logits()?;
        Ok(builder.plan)
    }
}

struct Builder<'a> {
    program: &'a Program,
    installed: &'a Installed<'a>,
    analysis: Analysis,
    plan: Plan,
    /// The second storage of buffers that operators cannot change in place.
    alternates: BTreeMap<u32, StorageId>,
    chosen: BTreeMap<Need, &'static str>,
    /// Cosines and sines of the step's rows, for each rotary table and size of heads.
    tables: BTreeMap<(u32, u32), (StorageId, StorageId)>,
    scratch: BTreeMap<(Scratch, u32, bool), StorageId>,
}

/// What a storage is for that no buffer of the program stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scratch {
    /// Reciprocals of norms, which nobody reads.
    Reciprocals,
    /// Both sides of a gate.
    Joined,
    /// An activated gate, an embedding without its factor.
    Between,
}

impl Builder<'_> {
    fn choose(&mut self, need: Need) -> Result<&'static str, OpenError> {
        if let Some(name) = self.chosen.get(&need) {
            return Ok(name);
        }
        let name = self.installed.choose(need)?;
        self.chosen.insert(need, name);
        Ok(name)
    }

    fn push(&mut self, kernel: Kernel) {
        self.plan.kernels.push(kernel);
    }

    /// Where a buffer is at the moment.
    fn at(&self, buffer: BufferId) -> StorageId {
        self.plan.places[buffer.0 as usize]
    }

    /// Moves a buffer to its other storage, for an operator that does not work in place.
    fn move_on(&mut self, buffer: BufferId) -> StorageId {
        let now = self.at(buffer);
        let spec = self.plan.spec(now).clone();
        let first = StorageId(buffer.0 as usize);
        let other = match self.alternates.get(&buffer.0) {
            Some(alternate) => *alternate,
            None => self.storage(spec),
        };
        self.alternates.insert(buffer.0, other);
        let next = if now == first { other } else { first };
        self.plan.places[buffer.0 as usize] = next;
        next
    }

    fn storage(&mut self, spec: StorageSpec) -> StorageId {
        self.plan.storages.push(spec);
        StorageId(self.plan.storages.len() - 1)
    }

    /// A storage for results that a kernel soon behind uses up; those of one purpose and shape share it.
    fn scratch(&mut self, purpose: Scratch, width: u32, rows: Rows) -> StorageId {
        let key = (purpose, width, rows == Rows::Logits);
        if let Some(known) = self.scratch.get(&key) {
            return *known;
        }
        let single = purpose == Scratch::Reciprocals;
        let storage = self.storage(StorageSpec { width, rows, single });
        self.scratch.insert(key, storage);
        storage
    }

    fn constant(&mut self, constant: Constant) -> ConstantId {
        let known = self.plan.constants.iter().position(|other| *other == constant);
        ConstantId(known.unwrap_or_else(|| {
            self.plan.constants.push(constant);
            self.plan.constants.len() - 1
        }))
    }

    fn weights(&mut self, weights: &[WeightId], order: Option<&HeadOrder>, offset: f32) -> ConstantId {
        let parts = weights.iter().map(|weight| Part { weight: *weight, order: order.cloned() }).collect();
        self.constant(Constant::Weights { parts, offset })
    }

    /// Rows of cosines and sines are the same in all layers: they are gathered once, at the start.
    fn angles(&mut self) -> Result<(), OpenError> {
        for op in &self.program.ops {
            let Op::Rope { head_dim, rope, .. } = *op else { continue };
            if self.tables.contains_key(&(rope.0, head_dim)) {
                continue;
            }
            let form = self.take_form()?;
            let mut gather = |table: Constant| {
                let out = self.storage(StorageSpec { width: head_dim, rows: Rows::Tokens, single: false });
                let table = self.constant(table);
                self.push(Kernel::Angles { table, form, out });
                out
            };
            let cos = gather(Constant::Cos { rope, head_dim });
            let sin = gather(Constant::Sin { rope, head_dim });
            self.tables.insert((rope.0, head_dim), (cos, sin));
        }
        Ok(())
    }

    fn take_form(&mut self) -> Result<TakeForm, OpenError> {
        let name = self.choose(Need::TakeRows)?;
        Ok(if name == "aclnnIndexSelect" { TakeForm::IndexSelect } else { TakeForm::Gather })
    }

    fn op(&mut self, at: usize, op: &Op) -> Result<(), OpenError> {
        match *op {
            Op::Embed { table, out, scale } => self.embed(table, out, scale)?,
            Op::RmsNorm { input, weight, offset, epsilon, out } => {
                self.choose(Need::Norm)?;
                let gamma = self.weights(&[weight], None, offset);
                let (input, out) = (self.at(input), self.at(out));
                let rstd = self.scratch(Scratch::Reciprocals, 1, self.plan.spec(out).rows);
                self.push(Kernel::RmsNorm { input, gamma, groups: 1, epsilon, rstd, out });
            }
            Op::HeadNorm { buffer, head_dim, weight, offset, epsilon } => {
                self.choose(Need::Norm)?;
                let order = self.analysis.orders[at].clone();
                let gamma = self.weights(&[weight], order.as_ref(), offset);
                let input = self.at(buffer);
                let spec = self.plan.spec(input).clone();
                let groups = spec.width / head_dim;
                let rstd = self.scratch(Scratch::Reciprocals, groups, spec.rows);
                let out = self.move_on(buffer);
                self.push(Kernel::RmsNorm { input, gamma, groups, epsilon, rstd, out });
            }
            Op::MatMul { input, weight, bias, out } => self.product(at, input, weight, bias, out)?,
            Op::Rope { buffer, head_dim, rope } => self.rope(at, buffer, head_dim, rope)?,
            Op::WriteKv { layer, key, value } => self.write_kv(layer, key, value)?,
            Op::Attention { layer, query, out, heads, scale, window } => {
                let form = match self.choose(Need::Attention)? {
                    "aclnnFusedInferAttentionScoreV3" => AttentionForm::Third,
                    "aclnnFusedInferAttentionScoreV2" => AttentionForm::Second,
                    _ => AttentionForm::First,
                };
                let (query, out) = (self.at(query), self.at(out));
                self.push(Kernel::Attention(Attention { layer, query, out, heads, scale, window, form }));
            }
            Op::Gate { gate, up, out, activation } => self.gate(at, gate, up, out, activation)?,
            Op::Add { into, input } => {
                self.choose(Need::Add)?;
                let (into, input) = (self.at(into), self.at(input));
                self.push(Kernel::Add { into, input });
            }
            Op::AddRmsNorm { into, input, weight, offset, epsilon, out } => {
                self.add_norm(into, input, weight, offset, epsilon, out)?;
            }
            Op::RopeWriteKv { .. } => {
                return Err(OpenError::Unsupported("a fused operation was not taken apart".to_owned()));
            }
            Op::TakeLogitRows { input, out } => {
                let form = self.take_form()?;
                let (input, out) = (self.at(input), self.at(out));
                self.push(Kernel::TakeLogitRows { input, form, out });
            }
        }
        Ok(())
    }

    fn add_norm(
        &mut self,
        into: BufferId,
        input: BufferId,
        weight: WeightId,
        offset: f32,
        epsilon: f32,
        out: BufferId,
    ) -> Result<(), OpenError> {
        let gamma = self.weights(&[weight], None, offset);
        let (before, input, out) = (self.at(into), self.at(input), self.at(out));
        let rstd = self.scratch(Scratch::Reciprocals, 1, self.plan.spec(out).rows);
        if self.choose(Need::AddNorm)? == "aclnnAddRmsNorm" {
            let sum = self.move_on(into);
            self.push(Kernel::AddRmsNorm(AddRmsNorm { into: before, input, gamma, epsilon, rstd, sum, out }));
        } else {
            self.push(Kernel::Add { into: before, input });
            self.push(Kernel::RmsNorm { input: before, gamma, groups: 1, epsilon, rstd, out });
        }
        Ok(())
    }

    fn embed(&mut self, table: WeightId, out: BufferId, scale: f32) -> Result<(), OpenError> {
        self.choose(Need::Embed)?;
        let table = self.weights(&[table], None, 0.0);
        let out = self.at(out);
        if scale.to_bits() == 1.0_f32.to_bits() {
            self.push(Kernel::Embed { table, out });
            return Ok(());
        }
        self.choose(Need::Scale)?;
        let rows = self.scratch(Scratch::Between, self.plan.spec(out).width, Rows::Tokens);
        self.push(Kernel::Embed { table, out: rows });
        self.push(Kernel::Scale { input: rows, factor: scale, out });
        Ok(())
    }

    fn product(
        &mut self,
        at: usize,
        input: BufferId,
        weight: WeightId,
        bias: Option<WeightId>,
        out: BufferId,
    ) -> Result<(), OpenError> {
        let joined = if self.installed_swi_glu()? {
            self.analysis.joins.iter().copied().find(|join| join.first == at || join.second == at)
        } else {
            None
        };
        let order = self.analysis.orders[at].clone();
        let Some(join) = joined else {
            let out = self.at(out);
            let bias = bias.as_slice();
            return self.joined_product(input, &[weight], bias, order.as_ref(), out);
        };
        if join.first == at {
            return Ok(());
        }
        let sides = [join.gate, join.up].map(|side| match self.program.ops[side] {
            Op::MatMul { weight, bias, .. } => (weight, bias),
            _ => (weight, bias),
        });
        let biases: Vec<WeightId> = sides.iter().filter_map(|(_, bias)| *bias).collect();
        let width = self.plan.spec(self.at(out)).width;
        let rows = self.plan.spec(self.at(out)).rows;
        let out = self.scratch(Scratch::Joined, 2 * width, rows);
        self.joined_product(input, &sides.map(|(weight, _)| weight), &biases, None, out)
    }

    fn joined_product(
        &mut self,
        input: BufferId,
        weights: &[WeightId],
        biases: &[WeightId],
        order: Option<&HeadOrder>,
        out: StorageId,
    ) -> Result<(), OpenError> {
        self.choose(Need::MatMul)?;
        let weight = self.weights(weights, order, 0.0);
        let input = self.at(input);
        if biases.is_empty() {
            self.push(Kernel::MatMul { input, weight, bias: None, out });
            return Ok(());
        }
        let bias = self.weights(biases, order, 0.0);
        if self.choose(Need::BiasedMatMul)? == "aclnnAddmm" {
            self.push(Kernel::MatMul { input, weight, bias: Some(bias), out });
        } else {
            self.push(Kernel::MatMul { input, weight, bias: None, out });
            self.push(Kernel::AddBias { into: out, bias });
        }
        Ok(())
    }

    fn rope(&mut self, at: usize, buffer: BufferId, head_dim: u32, rope: RopeId) -> Result<(), OpenError> {
        let (cos, sin) = self.tables[&(rope.0, head_dim)];
        let pair = self.analysis.pairs.iter().copied().find(|(first, second)| *first == at || *second == at);
        let together = match (pair, self.installed.choose(Need::Rope)) {
            (Some(pair), Ok(name)) if name != "aclnnRotaryPositionEmbedding" => Some((pair, name)),
            (Some(_), Err(missing)) => return Err(missing.into()),
            _ => None,
        };
        let Some(((first, _), name)) = together else {
            self.choose(Need::RopeAlone)?;
            let input = self.at(buffer);
            let out = self.move_on(buffer);
            self.push(Kernel::RopeAlone { input, head_dim, cos, sin, out });
            return Ok(());
        };
        if first == at {
            return Ok(());
        }
        let other = match self.program.ops[first] {
            Op::Rope { buffer, .. } => buffer,
            _ => buffer,
        };
        let (one, two) = (self.at(other), self.at(buffer));
        let wider = self.plan.spec(one).width >= self.plan.spec(two).width;
        let (query, key) = if wider { (one, two) } else { (two, one) };
        let form = if name == "aclnnApplyRotaryPosEmbV2" { RopeForm::Second } else { RopeForm::First };
        self.push(Kernel::Rope { query, key, head_dim, cos, sin, form });
        Ok(())
    }

    fn write_kv(&mut self, layer: u32, key: BufferId, value: BufferId) -> Result<(), OpenError> {
        let (key, value) = (self.at(key), self.at(value));
        if self.choose(Need::WriteKv)? == "aclnnScatterPaKvCache" {
            self.push(Kernel::WriteKv { layer, key, value });
        } else {
            self.push(Kernel::WriteHalf { layer, input: key, is_key: true });
            self.push(Kernel::WriteHalf { layer, input: value, is_key: false });
        }
        Ok(())
    }

    fn installed_swi_glu(&mut self) -> Result<bool, OpenError> {
        let silu = |op: &Op| matches!(op, Op::Gate { activation: Activation::Silu, .. });
        Ok(self.program.ops.iter().any(silu) && self.choose(Need::SiluGate)? == "aclnnSwiGlu")
    }

    fn gate(
        &mut self,
        at: usize,
        gate: BufferId,
        up: BufferId,
        out: BufferId,
        activation: Activation,
    ) -> Result<(), OpenError> {
        let out = self.at(out);
        let spec = self.plan.spec(out).clone();
        let joined = self.analysis.joins.iter().any(|join| join.at == at);
        if activation == Activation::Silu && joined && self.installed_swi_glu()? {
            let input = self.scratch(Scratch::Joined, 2 * spec.width, spec.rows);
            self.push(Kernel::SwiGlu { input, out });
            return Ok(());
        }
        let (gate, up) = (self.at(gate), self.at(up));
        let activated = self.scratch(Scratch::Between, spec.width, spec.rows);
        if activation == Activation::Silu {
            self.choose(Need::SiluGate)?;
            self.push(Kernel::Silu { input: gate, out: activated });
        } else {
            self.choose(Need::GeluGate)?;
            self.push(Kernel::Gelu { input: gate, out: activated });
        }
        self.push(Kernel::Mul { input: activated, other: up, out });
        Ok(())
    }

    fn logits(&mut self) -> Result<(), OpenError> {
        self.choose(Need::Cast)?;
        // The program was checked: it has logits.
        let Some(logits) = self.program.logits else { return Ok(()) };
        let input = self.at(logits);
        let out = self.storage(StorageSpec { width: self.program.vocab, rows: Rows::Logits, single: true });
        self.plan.logits = Some(out);
        self.push(Kernel::Cast { input, out });
        Ok(())
    }
}
