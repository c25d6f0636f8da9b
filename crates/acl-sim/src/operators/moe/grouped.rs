//! One product a group of rows: `GroupedMatmulV4` and its successors.
//!
//! Always holds: a row meets the weight of its own group alone; rows beyond the last group are left as they
//! are.
//!
//! Refuses to know: splitting along the inner dimension, activations, and weights that are quantised alone.

use crate::executor::plan::{Plan, Planned, Slot, Slots, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::operators::matmul::{SYSTEM_WORKSPACE, gemm};
use crate::operators::numeric::integer::{groups, product, scales};
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, write};
use crate::tensor::view::View;

/// Arguments of a grouped product.
struct Grouped {
    x: Slots,
    weight: Slots,
    bias: Option<Slots>,
    scale: Option<Slots>,
    row_scale: Option<Slots>,
    list: Option<Slot>,
    out: Slots,
    cumulative: bool,
}

macro_rules! grouped {
    ($name:ident $first:ident $(, $extra:ident: $kind:tt)*) => {
        operator!($name, $first,
            (x: list, weight: list, biasOptional: optional_list, scaleOptional: optional_list,
             offsetOptional: optional_list, antiquantScaleOptional: optional_list,
             antiquantOffsetOptional: optional_list, perTokenScaleOptional: optional_list,
             groupListOptional: optional, activationInputOptional: optional_list,
             activationQuantScaleOptional: optional_list, activationQuantOffsetOptional: optional_list,
             splitItem: i64, groupType: i64, groupListType: i64, actType: i64,
                 $($extra: $kind,)* out: output_list,
             activationFeatureOutOptional: optional_output_list,
                 dynQuantScaleOutOptional: optional_output_list) =>
            |plan: &mut Plan, x, weight, bias, scale, offset: Option<Slots>, anti_scale: Option<Slots>,
             anti_offset: Option<Slots>, row_scale, list, act: Option<Slots>, act_scale: Option<Slots>,
             act_offset: Option<Slots>, split, kind, list_type, act_type, $($extra,)* out,
             _feature: Option<Slots>, _dynamic: Option<Slots>| {
                $(let _ = $extra;)*
                let foreign = [offset, anti_scale, anti_offset, act, act_scale, act_offset];
                if foreign.iter().any(Option::is_some) || act_type != 0 {
                    let text = format!("actType {act_type}, offsets or quantised weights");
                    return Err(Refusal::NoKernel(text));
                }
                ensure((0..=1).contains(&list_type), || {
                    format!("groupListType is {list_type}; accepted are 0 cumulative and 1 counts")
                })?;
                let cumulative = list_type == 0;
                matmul(plan, Grouped { x, weight, bias, scale, row_scale, list, out, cumulative }, split,
                    kind)
            });
    };
}
grouped!(aclnnGroupedMatmulV4 aclnnGroupedMatmulV4GetWorkspaceSize);
grouped!(aclnnGroupedMatmulV5 aclnnGroupedMatmulV5GetWorkspaceSize, tuningConfigOptional: optional_ints);
grouped!(aclnnGroupedMatmulWeightNz aclnnGroupedMatmulWeightNzGetWorkspaceSize,
    tuningConfigOptional: optional_ints, quantGroupSize: i64);

/// One product: rows of `x` from `start`, weight `group`.
struct Part {
    x: Slot,
    weight: Slot,
    /// The group's place in tensors that hold all groups; none if it has tensors of its own.
    inside: Option<usize>,
    bias: Option<Slot>,
    scale: Option<Slot>,
    row_scale: Option<Slot>,
    out: Slot,
}

fn matmul(plan: &mut Plan, g: Grouped, split: i64, kind: i64) -> Planned {
    ensure((0..=3).contains(&split), || format!("splitItem is {split}; accepted are 0 to 3"))?;
    let single = g.weight.0.len() == 1 && plan.view(Slot(g.weight.0.start)).rank() == 3;
    let count = if single { plan.view(Slot(g.weight.0.start)).dim(0) } else { g.weight.0.len() };
    let one = |slots: &Slots, at: usize| Slot(slots.0.start + if slots.0.len() == 1 { 0 } else { at });
    ensure(matches!(kind, -1 | 0), || {
        format!("groupType is {kind}; supported are -1 (no split) and 0 (rows)")
    })?;
    ensure(kind == 0 || (g.x.0.len() == count && g.out.0.len() == count), || {
        format!("without a split there must be as many x and out as weights, {count}")
    })?;
    let many_out = g.out.0.len() == count && count > 1;
    ensure(kind == -1 || (g.x.0.len() == 1 && (many_out || g.out.0.len() == 1)), || {
        "a split by rows takes one x, and one out or one for each weight".to_owned()
    })?;
    ensure(kind == -1 || g.list.is_some(), || "a split by rows needs groupList".to_owned())?;
    if many_out && kind == 0 {
        return Err(Refusal::NoKernel("a split by rows into many outputs".to_owned()));
    }
    let mut parts = Vec::new();
    for group in 0..count {
        let (x, weight, out) = (one(&g.x, group), one(&g.weight, group), one(&g.out, group));
        let dtype = plan.types(x, &[DType::F32, DType::F16, DType::BF16, DType::I8])?;
        plan.types(weight, &[dtype])?;
        plan.rank(x, &[2])?;
        let (a, mut b) = (plan.view(x), plan.view(weight));
        if single {
            b = b.select(0, group);
        }
        ensure(b.rank() == 2 && a.dim(1) == b.dim(0), || {
            format!("shapes {:?} and {:?} do not match in the inner dimension", a.shape(), b.shape())
        })?;
        plan.shape(out, &[a.shape()[0], b.shape()[1]])?;
        let pick = |slots: &Option<Slots>| slots.as_ref().map(|slots| one(slots, group));
        let (bias, scale, row_scale) = (pick(&g.bias), pick(&g.scale), pick(&g.row_scale));
        if dtype == DType::I8 {
            ensure(scale.is_some() || plan.view(out).dtype == DType::I32, || {
                "int8 operands need scale, or an int32 out".to_owned()
            })?;
        }
        let inside = single.then_some(group);
        for slot in [bias, scale].into_iter().flatten() {
            let want = if inside.is_some() { count * b.dim(1) } else { b.dim(1) };
            let have = plan.view(slot).numel();
            ensure(have == want, || format!("{} has {have} values, {want} are needed", plan.name(slot)))?;
        }
        parts.push(Part { x, weight, inside, bias, scale, row_scale, out });
    }
    if let Some(list) = g.list {
        plan.types(list, &[DType::I64])?;
        ensure(plan.view(list).numel() == count, || format!("groupList must have {count} values"))?;
    }
    plan.scratch(SYSTEM_WORKSPACE);
    let (list, cumulative) = (g.list, g.cumulative);
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let list: Option<Vec<i64>> = views.maybe(list).map(|view| gather(view));
            let rows = views[parts[0].x].dim(0);
            let of = list.filter(|_| kind == 0).map(|list| groups(&list, cumulative, rows));
            for (group, part) in parts.iter().enumerate() {
                let (mut x, mut out, mut w) = (views[part.x], views[part.out], views[part.weight]);
                let mut start = 0;
                if let Some(of) = &of {
                    start = of.iter().position(|at| *at == Some(group)).unwrap_or(0);
                    let length = of.iter().filter(|at| **at == Some(group)).count();
                    x = x.slice(0, start, length, 1);
                    out = out.slice(0, start, length, 1);
                }
                if let Some(inside) = part.inside {
                    w = w.select(0, inside);
                }
                if x.dim(0) == 0 {
                    continue;
                }
                let n = w.dim(1);
                let first = part.inside.unwrap_or(0) * n;
                let read = |slot: Option<Slot>| views.maybe(slot).map(|view| scales(view));
                let (bias, scale, row_scale) = (read(part.bias), read(part.scale), read(part.row_scale));
                let bias = |column: usize| bias.as_ref().map_or(0.0, |bias| bias[first + column]);
                if x.dtype == DType::I8 {
                    let row = |row: usize| row_scale.as_ref().map_or(1.0, |scale| scale[start + row]);
                    let column = |column: usize| scale.as_ref().map_or(1.0, |scale| scale[first + column]);
                    bytes(&x, &w, &out, bias, row, column);
                } else {
                    gemm(&x, &w, &out, &|_, column, value| value + bias(column))?;
                }
            }
        }
        Ok(())
    })
}

/// # Safety
/// The views must be readable and writable.
unsafe fn bytes(
    x: &View,
    w: &View,
    out: &View,
    bias: impl Fn(usize) -> f32,
    row_scale: impl Fn(usize) -> f32,
    column_scale: impl Fn(usize) -> f32,
) {
    let at =
        |row: usize, column: usize| out.offset + row as i64 * out.stride(0) + column as i64 * out.stride(1);
    // SAFETY: passed on; row and column lie within the output.
    unsafe {
        product(x, w, |row, column, sum| {
            if out.dtype == DType::I32 {
                write(out, at(row, column), 1, &[i64::from(sum)]);
            } else {
                let value = sum as f32 * column_scale(column) * row_scale(row) + bias(column);
                write(out, at(row, column), 1, &[value]);
            }
        });
    }
}
