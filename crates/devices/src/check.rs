//! Whether a program makes sense: every name exists and every shape fits, so that nothing can go wrong later.

use updraft_core::program::{
    BufferId, BufferSpec, KvLayerSpec, Op, Program, RopeId, Rows, WeightId, WeightRole,
};

/// Says what is wrong with an operation of the program, or with the program as a whole (no operation).
pub(crate) fn program(program: &Program) -> Result<(), (Option<usize>, String)> {
    whole(program).map_err(|problem| (None, problem))?;
    for (index, op) in program.ops.iter().enumerate() {
        Checker(program).op(op).map_err(|problem| (Some(index), problem))?;
    }
    Ok(())
}

fn whole(program: &Program) -> Result<(), String> {
    for buffer in &program.buffers {
        ensure(buffer.width > 0, || format!("buffer {:?} has no columns", buffer.name))?;
    }
    for weight in &program.weights {
        let dimensions = if weight.role == WeightRole::Vector { 1 } else { 2 };
        ensure(weight.shape.len() == dimensions && !weight.shape.contains(&0), || {
            format!("weight {:?} of shape {:?} cannot be a {:?}", weight.name, weight.shape, weight.role)
        })?;
    }
    for (index, layer) in program.kv_layers.iter().enumerate() {
        ensure(layer.kv_heads > 0 && layer.head_dim > 0, || format!("KV layer {index} is empty"))?;
    }
    let logits = program.logits.ok_or("no buffer holds the logits")?;
    let logits = Checker(program).buffer(logits)?;
    ensure(program.vocab > 0, || "the vocabulary is empty".to_owned())?;
    ensure(logits.rows == Rows::Logits && logits.width == program.vocab, || {
        format!("logits of {} columns do not fit a vocabulary of {}", logits.width, program.vocab)
    })
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

struct Checker<'a>(&'a Program);

impl<'a> Checker<'a> {
    fn op(&self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Embed { table, out, .. } => {
                let out = self.tokens(out)?;
                let shape = self.matrix(table)?;
                ensure(shape[1] == out.width, || {
                    format!("a table of shape {shape:?} does not fill {:?}", out.name)
                })
            }
            Op::RmsNorm { input, weight, out, .. } => {
                self.same_shape(&[input, out])?;
                self.vector(weight, self.buffer(out)?.width)
            }
            Op::HeadNorm { buffer, head_dim, weight, .. } => {
                self.heads(buffer, head_dim)?;
                self.vector(weight, head_dim)
            }
            Op::MatMul { input, weight, bias, out } => self.product(input, weight, bias, out),
            Op::Rope { buffer, head_dim, rope } => self.rope(buffer, head_dim, rope),
            Op::WriteKv { layer, key, value } => {
                let layer = self.layer(layer)?;
                for buffer in [key, value] {
                    self.heads_exactly(buffer, layer.kv_heads, layer.head_dim)?;
                }
                self.distinct(&[key, value])
            }
            Op::Attention { layer, query, out, heads, window, .. } => {
                let layer = self.layer(layer)?;
                ensure(heads > 0 && heads.is_multiple_of(layer.kv_heads), || {
                    format!("{heads} query heads cannot share {} key heads", layer.kv_heads)
                })?;
                ensure(window != Some(0), || "a window of zero tokens sees nothing".to_owned())?;
                self.heads_exactly(query, heads, layer.head_dim)?;
                self.heads_exactly(out, heads, layer.head_dim)?;
                self.distinct(&[query, out])
            }
            Op::Gate { gate, up, out, .. } => self.same_shape(&[gate, up, out]),
            Op::Add { into, input } => self.same_shape(&[into, input]),
            Op::TakeLogitRows { input, out } => {
                let (from, to) = (self.tokens(input)?, self.buffer(out)?);
                ensure(to.rows == Rows::Logits && from.width == to.width, || {
                    format!("rows of {:?} cannot be taken into {:?}", from.name, to.name)
                })
            }
            Op::AddRmsNorm { into, input, out, .. } => {
                self.distinct(&[into, input, out])?;
                op.sequence().iter().try_for_each(|part| self.op(part))
            }
            Op::RopeWriteKv { query, key, value, .. } => {
                self.distinct(&[query, key, value])?;
                op.sequence().iter().try_for_each(|part| self.op(part))
            }
        }
    }

    fn product(
        &self,
        input: BufferId,
        weight: WeightId,
        bias: Option<WeightId>,
        out: BufferId,
    ) -> Result<(), String> {
        let shape = self.matrix(weight)?;
        self.distinct(&[input, out])?;
        let (from, to) = (self.buffer(input)?, self.buffer(out)?);
        ensure(shape == [to.width, from.width] && from.rows == to.rows, || {
            format!("a matrix of shape {shape:?} does not lead from {:?} to {:?}", from.name, to.name)
        })?;
        bias.map_or(Ok(()), |bias| self.vector(bias, to.width))
    }

    fn rope(&self, buffer: BufferId, head_dim: u32, rope: RopeId) -> Result<(), String> {
        self.heads(buffer, head_dim)?;
        self.tokens(buffer)?;
        let spec = self
            .0
            .ropes
            .get(rope.0 as usize)
            .ok_or_else(|| format!("there is no rotary table {}", rope.0))?;
        ensure(2 * spec.inverse_frequencies.len() <= head_dim as usize, || {
            format!("{} pairs cannot be rotated in a head of {head_dim}", spec.inverse_frequencies.len())
        })
    }

    fn buffer(&self, id: BufferId) -> Result<&'a BufferSpec, String> {
        self.0.buffers.get(id.0 as usize).ok_or_else(|| format!("there is no buffer {}", id.0))
    }

    fn tokens(&self, id: BufferId) -> Result<&'a BufferSpec, String> {
        let buffer = self.buffer(id)?;
        ensure(buffer.rows == Rows::Tokens, || {
            format!("buffer {:?} has no row for each token", buffer.name)
        })?;
        Ok(buffer)
    }

    fn layer(&self, layer: u32) -> Result<KvLayerSpec, String> {
        self.0.kv_layers.get(layer as usize).copied().ok_or_else(|| format!("there is no KV layer {layer}"))
    }

    fn shape(&self, id: WeightId) -> Result<&'a [u32], String> {
        let weight =
            self.0.weights.get(id.0 as usize).ok_or_else(|| format!("there is no weight {}", id.0))?;
        Ok(&weight.shape)
    }

    fn matrix(&self, id: WeightId) -> Result<[u32; 2], String> {
        let shape = self.shape(id)?;
        shape.try_into().map_err(|_| format!("weight {} of shape {shape:?} is no matrix", id.0))
    }

    fn vector(&self, id: WeightId, width: u32) -> Result<(), String> {
        let shape = self.shape(id)?;
        ensure(shape == [width], || format!("a vector of shape {shape:?} does not fit {width} columns"))
    }

    fn heads(&self, id: BufferId, head_dim: u32) -> Result<(), String> {
        let buffer = self.buffer(id)?;
        ensure(head_dim > 0 && buffer.width.is_multiple_of(head_dim), || {
            format!("buffer {:?} of {} columns is not whole heads of {head_dim}", buffer.name, buffer.width)
        })
    }

    fn heads_exactly(&self, id: BufferId, heads: u32, head_dim: u32) -> Result<(), String> {
        let buffer = self.tokens(id)?;
        ensure(u64::from(buffer.width) == u64::from(heads) * u64::from(head_dim), || {
            format!("buffer {:?} of {} columns is not {heads} heads of {head_dim}", buffer.name, buffer.width)
        })
    }

    /// All different buffers of the same width and kind of rows.
    fn same_shape(&self, ids: &[BufferId]) -> Result<(), String> {
        self.distinct(ids)?;
        let Some((first, rest)) = ids.split_first() else { return Ok(()) };
        let first = self.buffer(*first)?;
        for id in rest {
            let other = self.buffer(*id)?;
            ensure(first.width == other.width && first.rows == other.rows, || {
                format!("buffers {:?} and {:?} differ in shape", first.name, other.name)
            })?;
        }
        Ok(())
    }

    fn distinct(&self, ids: &[BufferId]) -> Result<(), String> {
        for (index, id) in ids.iter().enumerate() {
            self.buffer(*id)?;
            ensure(!ids[..index].contains(id), || format!("buffer {} is used twice in one operation", id.0))?;
        }
        Ok(())
    }
}
