//! Reductions along dimensions: sums, means, maxima, softmax, running sums.
//!
//! Always holds: a line is reduced from its first element to its last; of equal maxima the first one wins.
//!
//! Refuses to know: sorting; see `sampling`.

use super::elementwise::{computable, copies};
use super::numeric::map::lines;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, scatter};
use crate::tensor::view::View;

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];

operator!(aclnnArgMax, aclnnArgMaxGetWorkspaceSize, (x: input, dim: i64, keepdim: bool, out: output) =>
    |plan: &mut Plan, x, dim, keep, out| best(plan, x, dim, keep, None, out, true));
operator!(aclnnArgMin, aclnnArgMinGetWorkspaceSize, (x: input, dim: i64, keepdim: bool, out: output) =>
    |plan: &mut Plan, x, dim, keep, out| best(plan, x, dim, keep, None, out, false));
operator!(aclnnMaxDim, aclnnMaxDimGetWorkspaceSize,
    (x: input, dim: i64, keepdim: bool, out: output, indices: output) =>
    |plan: &mut Plan, x, dim, keep, out, indices| best(plan, x, dim, keep, Some(out), indices, true));
operator!(aclnnSoftmax, aclnnSoftmaxGetWorkspaceSize, (x: input, dim: i64, out: output) =>
    |plan: &mut Plan, x, dim, out| soft(plan, x, dim, out, false));
operator!(aclnnLogSoftmax, aclnnLogSoftmaxGetWorkspaceSize, (x: input, dim: i64, out: output) =>
    |plan: &mut Plan, x, dim, out| soft(plan, x, dim, out, true));
operator!(aclnnCumsum, aclnnCumsumGetWorkspaceSize, (x: input, dim: i64, dtype: i32, out: output) => cumsum);
operator!(aclnnReduceSum, aclnnReduceSumGetWorkspaceSize,
    (x: input, dims: ints, keepDims: bool, dtype: i32, out: output) =>
    |plan: &mut Plan, x, dims, keep, dtype, out| reduce(plan, x, dims, keep, dtype, out, false));
operator!(aclnnMean, aclnnMeanGetWorkspaceSize,
    (x: input, dim: ints, keepDim: bool, dtype: i32, out: output) =>
    |plan: &mut Plan, x, dims, keep, dtype, out| reduce(plan, x, dims, keep, dtype, out, true));
operator!(aclnnMax, aclnnMaxGetWorkspaceSize, (x: input, out: output) => |plan: &mut Plan, x, out| {
    computable(plan, &[x])?;
    plan.same_type(x, out)?;
    ensure(plan.view(out).numel() == 1 && plan.view(x).numel() > 0, || {
        "out must have one element, and x at least one".to_owned()
    })?;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let all: Vec<f32> = unsafe { gather(&views[x]) };
        // SAFETY: as above, to write.
        unsafe { scatter(&views[out], &[all.iter().copied().fold(f32::NEG_INFINITY, f32::max)]) };
        Ok(())
    })
});

/// A shape without, or with one element in, the dimensions that are reduced.
fn reduced(view: &View, axes: &[usize], keep: bool) -> Vec<i64> {
    view.shape()
        .iter()
        .enumerate()
        .filter_map(|(at, size)| match (axes.contains(&at), keep) {
            (false, _) => Some(*size),
            (true, true) => Some(1),
            (true, false) => None,
        })
        .collect()
}

/// A result view with a dimension of one element where `axis` was taken out.
pub(crate) fn with_unit(view: &View, axis: usize) -> Option<View> {
    let (mut shape, mut strides) = (view.shape().to_vec(), view.strides().to_vec());
    shape.insert(axis.min(shape.len()), 1);
    strides.insert(axis.min(strides.len()), 0);
    view.with(&shape, &strides)
}

fn best(
    plan: &mut Plan,
    x: Slot,
    dim: i64,
    keep: bool,
    values: Option<Slot>,
    out: Slot,
    largest: bool,
) -> Planned {
    computable(plan, &[x])?;
    plan.types(out, &[DType::I32, DType::I64])?;
    let axis = plan.axis(x, dim)?;
    let view = plan.view(x);
    ensure(view.rank() > 0 && view.dim(axis) > 0, || {
        format!("dimension {dim} of x with shape {:?} is empty", view.shape())
    })?;
    for slot in [Some(out), values].into_iter().flatten() {
        plan.shape(slot, &reduced(&view, &[axis], keep))?;
        if !keep {
            let wide = with_unit(&plan.view(slot), axis)
                .ok_or_else(|| Refusal::Invalid("x has too many dimensions".to_owned()))?;
            plan.replace(slot, wide);
        }
    }
    copies(plan, &[x]);
    let target = values.unwrap_or(out);
    work(move |views| {
        lines([&views[x], &views[out], &views[target]], axis, |[line, index, value]| {
            // SAFETY: a line of the launch's views.
            let all: Vec<f32> = unsafe { gather(&line) };
            let mut winner = 0;
            for (at, candidate) in all.iter().enumerate() {
                let held = all[winner];
                let better = if largest { *candidate > held } else { *candidate < held };
                if better || (candidate.is_nan() && !held.is_nan()) {
                    winner = at;
                }
            }
            // SAFETY: as above, to write.
            unsafe {
                scatter(&index, &[winner as i64]);
                if values.is_some() {
                    scatter(&value, &[all[winner]]);
                }
            }
        });
        Ok(())
    })
}

/// Softmax of a line, or its logarithm.
pub(crate) fn softmax(line: &mut [f32], log: bool) {
    let highest = line.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in line.iter() {
        sum += (*value - highest).exp();
    }
    if log {
        let shift = highest + sum.ln();
        for value in line.iter_mut() {
            *value -= shift;
        }
    } else {
        for value in line.iter_mut() {
            *value = (*value - highest).exp() / sum;
        }
    }
}

fn soft(plan: &mut Plan, x: Slot, dim: i64, out: Slot, log: bool) -> Planned {
    plan.types(x, FLOATS)?;
    plan.types(out, FLOATS)?;
    let axis = plan.axis(x, dim)?;
    plan.shape(out, plan.view(x).shape())?;
    copies(plan, &[x]);
    work(move |views| {
        lines([&views[x], &views[out]], axis, |[from, to]| {
            // SAFETY: a line of the launch's views.
            let mut line: Vec<f32> = unsafe { gather(&from) };
            softmax(&mut line, log);
            // SAFETY: as above, to write.
            unsafe { scatter(&to, &line) };
        });
        Ok(())
    })
}

fn typed(plan: &Plan, out: Slot, dtype: i32) -> Result<(), Refusal> {
    let have = plan.view(out).dtype;
    ensure(have.code() == dtype, || format!("dtype is {dtype}, but out has data type {have:?}"))
}

fn cumsum(plan: &mut Plan, x: Slot, dim: i64, dtype: i32, out: Slot) -> Planned {
    computable(plan, &[x, out])?;
    typed(plan, out, dtype)?;
    let axis = plan.axis(x, dim)?;
    plan.shape(out, plan.view(x).shape())?;
    let float = plan.view(out).dtype.is_float();
    work(move |views| {
        lines([&views[x], &views[out]], axis, |[from, to]| {
            // SAFETY: a line of the launch's views.
            unsafe {
                if float {
                    let mut line: Vec<f32> = gather(&from);
                    let mut sum = 0.0;
                    for value in &mut line {
                        sum += *value;
                        *value = sum;
                    }
                    scatter(&to, &line);
                } else {
                    let mut line: Vec<i64> = gather(&from);
                    let mut sum = 0i64;
                    for value in &mut line {
                        sum = sum.wrapping_add(*value);
                        *value = sum;
                    }
                    scatter(&to, &line);
                }
            }
        });
        Ok(())
    })
}

fn reduce(
    plan: &mut Plan,
    x: Slot,
    dims: Vec<i64>,
    keep: bool,
    dtype: i32,
    out: Slot,
    mean: bool,
) -> Planned {
    computable(plan, &[x, out])?;
    typed(plan, out, dtype)?;
    let view = plan.view(x);
    let mut axes = Vec::new();
    for dim in &dims {
        axes.push(plan.axis(x, *dim)?);
    }
    if axes.is_empty() {
        axes = (0..view.rank()).collect();
    }
    axes.sort_unstable();
    axes.dedup();
    plan.shape(out, &reduced(&view, &axes, keep))?;
    let rest: Vec<usize> = (0..view.rank()).filter(|at| !axes.contains(at)).collect();
    let count = axes.len();
    let order: Vec<usize> = rest.into_iter().chain(axes).collect();
    plan.replace(x, view.permuted(&order).unwrap_or(view));
    let float = plan.view(out).dtype.is_float();
    work(move |views| {
        let (outer, inner) = views[x].split_trailing(count);
        let length = inner.numel();
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        crate::tensor::view::walk([&outer], 1, |first, _, _| {
            let mut part = inner;
            part.offset = first[0];
            // SAFETY: a part of the launch's views.
            unsafe {
                if float {
                    let sum: f32 = gather::<f32>(&part).iter().sum();
                    floats.push(if mean { sum / length as f32 } else { sum });
                } else {
                    ints.push(gather::<i64>(&part).iter().fold(0i64, |sum, value| sum.wrapping_add(*value)));
                }
            }
        });
        // SAFETY: one value for each element of the output.
        unsafe { if float { scatter(&views[out], &floats) } else { scatter(&views[out], &ints) } }
        Ok(())
    })
}
