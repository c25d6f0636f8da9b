//! A kernel for a number of rows: the operator call with its tensors.

use std::ffi::CStr;

use super::attention::AttentionTensors;
use super::model::Model;
use super::plan::{AddRmsNorm, ConstantId, Kernel, RopeForm, StorageId, TakeForm};
use super::weights::Filled;
use crate::ascend::error::Fault;
use crate::ascend::operators::{self, Call, DataType, Scalar, Tensor};
use crate::ascend::runtime::Slice;

/// `cubeMathType`: compute in the types that the operands have.
const KEEP_TYPE: i8 = 0;
/// `layout` of rotary embedding: batch, token, head, value.
const BSND: i64 = 1;
/// `mode` of rotary embedding: first half of a head against the second.
const HALVES: i64 = 0;
/// The same as `rotaryMode`.
const HALVES_NAME: &CStr = c"half";
/// `approximate` of GELU: the tanh form.
const TANH: i64 = 1;

/// A kernel that can be put onto a stream.
#[derive(Debug)]
pub(in crate::ascend) enum Ready {
    Call(Call),
    /// Planned at the last moment, with a step's lengths.
    Attention(AttentionTensors),
}

/// The first rows of a storage, in these dimensions.
pub(super) fn tensor_rows(model: &Model, storage: StorageId, dims: &[u32]) -> Result<Tensor, Fault> {
    let mut sizes = [1_i64; 4];
    for (size, dim) in sizes.iter_mut().zip(dims) {
        *size = i64::from(*dim);
    }
    let single = model.plan.spec(storage).single;
    let data_type = if single { DataType::F32 } else { model.compute.data_type() };
    Tensor::new(model.api(), data_type, model.storage(storage), &sizes[..dims.len()])
}

/// Plans a kernel for a number of its rows.
pub(super) fn prepare(model: &Model, kernel: &Kernel, rows: u32) -> Result<Ready, Fault> {
    if let Kernel::Attention(attention) = kernel {
        return AttentionTensors::new(model, attention, rows).map(Ready::Attention);
    }
    Planner { model, rows }.call(kernel).map(|call| Ready::Call(call.repeatable()))
}

struct Planner<'a> {
    model: &'a Model,
    rows: u32,
}

impl Planner<'_> {
    fn call(&self, kernel: &Kernel) -> Result<Call, Fault> {
        let (model, operators) = (self.model, &self.model.operators);
        match *kernel {
            Kernel::Embed { table, out } => {
                let ids = self.indices(&model.inputs.tokens(self.rows))?;
                operators::embedding(operators, &self.constant(table)?, &ids, &self.matrix(out)?)
            }
            Kernel::Scale { input, factor, out } => {
                let factor = Scalar::new(model.api(), factor)?;
                operators::muls(operators, &self.matrix(input)?, &factor, &self.matrix(out)?)
            }
            Kernel::Angles { table, form, out } => {
                let positions = self.indices(&model.inputs.positions(self.rows))?;
                self.take(form, &self.constant(table)?, &positions, out)
            }
            Kernel::RmsNorm { input, gamma, groups, epsilon, rstd, out } => {
                self.norm(input, gamma, groups, epsilon, rstd, out)
            }
            Kernel::AddRmsNorm(AddRmsNorm { into, input, gamma, epsilon, rstd, sum, out }) => {
                let gamma = self.vector(gamma)?;
                let rstd = tensor_rows(model, rstd, &[self.rows, 1])?;
                let (into, input) = (self.matrix(into)?, self.matrix(input)?);
                let (out, sum) = (self.matrix(out)?, self.matrix(sum)?);
                operators::add_rms_norm(
                    operators,
                    &into,
                    &input,
                    &gamma,
                    f64::from(epsilon),
                    &out,
                    &rstd,
                    &sum,
                )
            }
            Kernel::MatMul { input, weight, bias, out } => self.product(input, weight, bias, out),
            Kernel::AddBias { into, bias } => {
                operators::inplace_add(operators, &self.matrix(into)?, &self.vector(bias)?, &model.one)
            }
            Kernel::Rope { query, key, head_dim, cos, sin, form } => {
                let (query, key) = (self.heads(query, head_dim)?, self.heads(key, head_dim)?);
                let (cos, sin) = (self.heads(cos, head_dim)?, self.heads(sin, head_dim)?);
                match form {
                    RopeForm::First => {
                        operators::apply_rotary_pos_emb(operators, &query, &key, &cos, &sin, BSND)
                    }
                    RopeForm::Second => operators::apply_rotary_pos_emb_v2(
                        operators,
                        &query,
                        &key,
                        &cos,
                        &sin,
                        BSND,
                        HALVES_NAME,
                    ),
                }
            }
            Kernel::RopeAlone { input, head_dim, cos, sin, out } => {
                let [x, out] = [self.heads(input, head_dim)?, self.heads(out, head_dim)?];
                let [cos, sin] = [self.heads(cos, head_dim)?, self.heads(sin, head_dim)?];
                operators::rotary_position_embedding(operators, &x, &cos, &sin, HALVES, &out)
            }
            Kernel::WriteKv { layer, key, value } => self.write_kv(layer, key, value),
            Kernel::WriteHalf { layer, input, is_key } => self.write_half(layer, input, is_key),
            Kernel::SwiGlu { input, out } => {
                operators::swi_glu(operators, &self.matrix(input)?, -1, &self.matrix(out)?)
            }
            Kernel::Silu { input, out } => {
                operators::silu(operators, &self.matrix(input)?, &self.matrix(out)?)
            }
            Kernel::Gelu { input, out } => {
                operators::gelu_v2(operators, &self.matrix(input)?, TANH, &self.matrix(out)?)
            }
            Kernel::Mul { input, other, out } => {
                let (input, other) = (self.matrix(input)?, self.matrix(other)?);
                operators::mul(operators, &input, &other, &self.matrix(out)?)
            }
            Kernel::Add { into, input } => {
                operators::inplace_add(operators, &self.matrix(into)?, &self.matrix(input)?, &model.one)
            }
            Kernel::TakeLogitRows { input, form, out } => {
                let width = model.plan.spec(input).width;
                let all = tensor_rows(model, input, &[model.sizes.rows as u32, width])?;
                let index = self.indices(&model.inputs.logit_rows)?;
                self.take(form, &all, &index, out)
            }
            // Attention never comes here: it is planned with a step's lengths.
            Kernel::Cast { input, out }
            | Kernel::Attention(super::plan::Attention { query: input, out, .. }) => {
                operators::cast(operators, &self.matrix(input)?, DataType::F32 as i32, &self.matrix(out)?)
            }
        }
    }

    fn norm(
        &self,
        input: StorageId,
        gamma: ConstantId,
        groups: u32,
        epsilon: f32,
        rstd: StorageId,
        out: StorageId,
    ) -> Result<Call, Fault> {
        let (model, rows) = (self.model, self.rows * groups);
        let width = model.plan.spec(input).width / groups;
        let x = tensor_rows(model, input, &[rows, width])?;
        let out = tensor_rows(model, out, &[rows, width])?;
        let rstd = tensor_rows(model, rstd, &[rows, 1])?;
        operators::rms_norm(&model.operators, &x, &self.vector(gamma)?, f64::from(epsilon), &out, &rstd)
    }

    fn product(
        &self,
        input: StorageId,
        weight: ConstantId,
        bias: Option<ConstantId>,
        out: StorageId,
    ) -> Result<Call, Fault> {
        let model = self.model;
        let Filled { memory, shape } = model.constant(weight);
        let right = Tensor::transposed(model.api(), model.compute.data_type(), memory, *shape)?;
        let (left, out) = (self.matrix(input)?, self.matrix(out)?);
        match bias {
            None => operators::mm(&model.operators, &left, &right, &out, KEEP_TYPE),
            Some(bias) => operators::addmm(
                &model.operators,
                &self.vector(bias)?,
                &left,
                &right,
                &model.one,
                &model.one,
                &out,
                KEEP_TYPE,
            ),
        }
    }

    fn write_kv(&self, layer: u32, key: StorageId, value: StorageId) -> Result<Call, Fault> {
        let (model, none) = (self.model, None);
        let cache = &model.caches[layer as usize];
        let slots = self.indices(&model.inputs.slots(self.rows))?;
        let dims = [self.rows, cache.kv_heads, cache.head_dim];
        let (key, value) = (tensor_rows(model, key, &dims)?, tensor_rows(model, value, &dims)?);
        let blocks = [
            model.sizes.all_blocks() as i64,
            model.sizes.block_size as i64,
            i64::from(cache.kv_heads),
            i64::from(cache.head_dim),
        ];
        let whole = |memory: &Slice| Tensor::new(model.api(), model.compute.data_type(), memory, &blocks);
        let (keys, values) = (whole(&cache.key)?, whole(&cache.value)?);
        operators::scatter_pa_kv_cache(
            &model.operators,
            &key,
            &keys,
            &slots,
            &value,
            &values,
            none,
            none,
            none,
            c"Norm",
            c"None",
            None,
            None,
        )
    }

    fn write_half(&self, layer: u32, input: StorageId, is_key: bool) -> Result<Call, Fault> {
        let model = self.model;
        let cache = &model.caches[layer as usize];
        let memory = if is_key { &cache.key } else { &cache.value };
        let slots = model.inputs.slots(self.rows);
        let indices = Tensor::new(model.api(), DataType::I32, &slots, &[i64::from(self.rows), 1])?;
        let flat = [
            (model.sizes.all_blocks() * model.sizes.block_size) as i64,
            i64::from(cache.kv_heads * cache.head_dim),
        ];
        let into = Tensor::new(model.api(), model.compute.data_type(), memory, &flat)?;
        operators::scatter_nd_update(&model.operators, &into, &indices, &self.matrix(input)?)
    }

    fn take(&self, form: TakeForm, table: &Tensor, index: &Tensor, out: StorageId) -> Result<Call, Fault> {
        let (operators, out) = (&self.model.operators, self.matrix(out)?);
        match form {
            TakeForm::IndexSelect => operators::index_select(operators, table, 0, index, &out),
            TakeForm::Gather => operators::gather_v2(operators, table, 0, index, &out),
        }
    }

    /// `[rows, width]`.
    fn matrix(&self, storage: StorageId) -> Result<Tensor, Fault> {
        tensor_rows(self.model, storage, &[self.rows, self.model.plan.spec(storage).width])
    }

    /// `[1, rows, heads, head_dim]`.
    fn heads(&self, storage: StorageId, head_dim: u32) -> Result<Tensor, Fault> {
        let heads = self.model.plan.spec(storage).width / head_dim;
        tensor_rows(self.model, storage, &[1, self.rows, heads, head_dim])
    }

    fn indices(&self, memory: &Slice) -> Result<Tensor, Fault> {
        Tensor::new(self.model.api(), DataType::I32, memory, &[i64::from(self.rows)])
    }

    fn constant(&self, id: ConstantId) -> Result<Tensor, Fault> {
        let Filled { memory, shape } = self.model.constant(id);
        Tensor::new(self.model.api(), self.model.compute.data_type(), memory, shape)
    }

    fn vector(&self, id: ConstantId) -> Result<Tensor, Fault> {
        let Filled { memory, shape } = self.model.constant(id);
        let values = [shape[0] * shape[1]];
        Tensor::new(self.model.api(), self.model.compute.data_type(), memory, &values)
    }
}
