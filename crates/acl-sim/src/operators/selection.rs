//! Choosing and ordering: `Topk`, `Sort`, `Argsort`, `SWhere`, masked fills, triangles, element scatters.
//!
//! Always holds: orders are stable, and not-a-number counts as the largest, so a result is one and the same
//! on every run.
//!
//! Refuses to know: probabilities; see [`super::sampling`].

use std::cmp::Ordering;

use super::copies::move_elements;
use super::elementwise::computable;
use super::gathers::{INDEX, place};
use super::numeric::map::{self, lines};
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, read, scatter, write};
use crate::tensor::objects::Scalar;
use crate::tensor::view::{View, broadcast_shape, walk};

operator!(aclnnTopk, aclnnTopkGetWorkspaceSize,
(x: input, k: i64, dim: i64, largest: bool, sorted: bool, valuesOut: output, indicesOut: output) =>
|plan: &mut Plan, x, k: i64, dim, largest, _sorted: bool, values, indices| {
    ordered(plan, x, dim, largest, Some(values), indices, Some(k))
});
operator!(aclnnSort, aclnnSortGetWorkspaceSize,
(x: input, stable: bool, dim: i64, descending: bool, valuesOut: output, indicesOut: output) =>
|plan: &mut Plan, x, _stable: bool, dim, descending, values, indices| {
    ordered(plan, x, dim, descending, Some(values), indices, None)
});
operator!(aclnnArgsort, aclnnArgsortGetWorkspaceSize,
    (x: input, dim: i64, descending: bool, out: output) =>
    |plan: &mut Plan, x, dim, descending, out| ordered(plan, x, dim, descending, None, out, None));
operator!(aclnnSWhere, aclnnSWhereGetWorkspaceSize,
    (condition: input, x: input, other: input, out: output) => choose);
operator!(aclnnInplaceMaskedFillScalar, aclnnInplaceMaskedFillScalarGetWorkspaceSize,
    (selfRef: inout, mask: input, value: scalar) => masked_fill);
operator!(aclnnTril, aclnnTrilGetWorkspaceSize, (x: input, diagonal: i64, out: output) =>
    |plan: &mut Plan, x, diagonal, out| triangle(plan, x, diagonal, out, true));
operator!(aclnnTriu, aclnnTriuGetWorkspaceSize, (x: input, diagonal: i64, out: output) =>
    |plan: &mut Plan, x, diagonal, out| triangle(plan, x, diagonal, out, false));
operator!(aclnnInplaceTril, aclnnInplaceTrilGetWorkspaceSize, (selfRef: inout, diagonal: i64) =>
    |plan: &mut Plan, x, diagonal| triangle(plan, x, diagonal, x, true));
operator!(aclnnInplaceTriu, aclnnInplaceTriuGetWorkspaceSize, (selfRef: inout, diagonal: i64) =>
    |plan: &mut Plan, x, diagonal| triangle(plan, x, diagonal, x, false));
operator!(aclnnScatter, aclnnScatterGetWorkspaceSize,
    (x: input, dim: i64, index: input, src: input, reduce: i64, out: output) => scatter_elements);

/// Descending order of floats with not-a-number first.
pub(crate) fn falling(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Positions of a line in order, the earlier one first among equals.
pub(crate) fn order(line: &[f32], descending: bool) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..line.len()).collect();
    positions.sort_by(|a, b| {
        let order = falling(line[*a], line[*b]);
        if descending { order } else { order.reverse() }
    });
    positions
}

fn ordered(
    plan: &mut Plan,
    x: Slot,
    dim: i64,
    descending: bool,
    values: Option<Slot>,
    indices: Slot,
    top: Option<i64>,
) -> Planned {
    computable(plan, &[x])?;
    plan.types(indices, INDEX)?;
    let axis = plan.axis(x, dim)?;
    let view = plan.view(x);
    let whole = view.dim(axis) as i64;
    let kept = top.unwrap_or(whole);
    ensure((0..=whole).contains(&kept), || {
        format!("k is {kept}, dimension {dim} of x has {whole} elements")
    })?;
    let mut shape = view.shape().to_vec();
    if let Some(size) = shape.get_mut(axis) {
        *size = kept;
    }
    for slot in [Some(indices), values].into_iter().flatten() {
        plan.shape(slot, &shape)?;
    }
    if let Some(values) = values {
        plan.same_type(x, values)?;
    }
    plan.scratch(view.dtype.bytes(view.numel()) * 2);
    let target = values.unwrap_or(indices);
    work(move |views| {
        lines([&views[x], &views[indices], &views[target]], axis, |[from, index, value]| {
            // SAFETY: lines of the launch's views.
            let line: Vec<f32> = unsafe { gather(&from) };
            let mut winners = order(&line, descending);
            winners.truncate(kept as usize);
            let numbers: Vec<i64> = winners.iter().map(|at| *at as i64).collect();
            // SAFETY: as above, to write.
            unsafe {
                scatter(&index, &numbers);
                if values.is_some() {
                    let picked: Vec<f32> = winners.iter().map(|at| line[*at]).collect();
                    scatter(&value, &picked);
                }
            }
        });
        Ok(())
    })
}

fn choose(plan: &mut Plan, condition: Slot, x: Slot, other: Slot, out: Slot) -> Planned {
    plan.types(condition, &[DType::Bool, DType::U8])?;
    plan.same_type(x, other)?;
    plan.same_type(x, out)?;
    let all = [condition, x, other].map(|slot| plan.view(slot));
    let shape = broadcast_shape(all[0].shape(), all[1].shape())
        .and_then(|shape| broadcast_shape(&shape, all[2].shape()))
        .ok_or_else(|| Refusal::Invalid("condition, self and other do not broadcast".to_owned()))?;
    plan.shape(out, &shape)?;
    for slot in [condition, x, other] {
        plan.stretch(slot, &shape)?;
    }
    work(move |views| {
        let (test, a, b, out) = (&views[condition], &views[x], &views[other], &views[out]);
        walk([test, a, b, out], 1, |first, _, _| {
            let mut chosen = [0i64];
            // SAFETY: one element of each of the launch's views.
            unsafe { read(test, first[0], 1, &mut chosen) };
            let (from, at) = if chosen[0] == 0 { (b, first[2]) } else { (a, first[1]) };
            copy_one(from, at, out, first[3]);
        });
        Ok(())
    })
}

/// Copies one element, floats as `f64` and integers as they are.
fn copy_one(from: &View, at: i64, to: &View, place: i64) {
    // SAFETY: the callers pass elements of the launch's views.
    unsafe {
        if from.dtype.is_float() {
            let mut value = [0f64];
            read(from, at, 1, &mut value);
            write(to, place, 1, &value);
        } else {
            let mut value = [0i64];
            read(from, at, 1, &mut value);
            write(to, place, 1, &value);
        }
    }
}

fn masked_fill(plan: &mut Plan, x: Slot, mask: Slot, value: Scalar) -> Planned {
    plan.types(mask, &[DType::Bool])?;
    let shape = plan.view(x).shape().to_vec();
    plan.stretch(mask, &shape)?;
    let value: f64 = value.lane();
    work(move |views| {
        let (target, mask) = (&views[x], &views[mask]);
        walk([target, mask], 1, |first, _, _| {
            let mut hidden = [0i64];
            // SAFETY: one element of each of the launch's views.
            unsafe {
                read(mask, first[1], 1, &mut hidden);
                if hidden[0] != 0 {
                    write(target, first[0], 1, &[value]);
                }
            }
        });
        Ok(())
    })
}

fn triangle(plan: &mut Plan, x: Slot, diagonal: i64, out: Slot, lower: bool) -> Planned {
    plan.same_type(x, out)?;
    let view = plan.view(x);
    plan.shape(out, view.shape())?;
    ensure(view.rank() >= 2, || format!("a triangle needs two dimensions, x has shape {:?}", view.shape()))?;
    work(move |views| {
        let ((outer, plane), (outer_out, plane_out)) =
            (views[x].split_trailing(2), views[out].split_trailing(2));
        walk([&outer, &outer_out], 1, |first, _, _| {
            let (mut from, mut to) = (plane, plane_out);
            (from.offset, to.offset) = (first[0], first[1]);
            let columns = from.dim(1) as i64;
            for row in 0..from.dim(0) {
                let cut = (row as i64 + diagonal + i64::from(lower)).clamp(0, columns);
                let (kept, cleared) = if lower { (0..cut, cut..columns) } else { (cut..columns, 0..cut) };
                let part = |view: &View, range: &std::ops::Range<i64>| {
                    let length = (range.end - range.start) as usize;
                    view.select(0, row).slice(0, range.start as usize, length, 1)
                };
                move_elements(&part(&from, &kept), &part(&to, &kept));
                let empty = part(&to, &cleared);
                map::unary::<f64>(&empty, &empty, |_| 0.0);
            }
        });
        Ok(())
    })
}

fn scatter_elements(
    plan: &mut Plan,
    x: Slot,
    dim: i64,
    index: Slot,
    src: Slot,
    reduce: i64,
    out: Slot,
) -> Planned {
    plan.types(index, INDEX)?;
    for other in [src, out] {
        plan.same_type(x, other)?;
    }
    computable(plan, &[x])?;
    let axis = plan.axis(x, dim)?;
    let (view, indices) = (plan.view(x), plan.view(index));
    plan.shape(out, view.shape())?;
    ensure((0..=2).contains(&reduce), || {
        format!("reduce is {reduce}; accepted are 0 none, 1 add, 2 multiply")
    })?;
    let source = plan.view(src);
    let fits = [source.rank(), indices.rank()] == [view.rank(); 2]
        && (0..view.rank())
            .all(|at| indices.dim(at) <= source.dim(at) && (at == axis || indices.dim(at) <= view.dim(at)));
    ensure(fits, || format!("index has shape {:?}, too large for src or self", indices.shape()))?;
    work(move |views| {
        if views[x].data != views[out].data {
            move_elements(&views[x], &views[out]);
        }
        let (mut to, mut from) = (views[out], views[src]);
        for at in 0..to.rank() {
            from = from.slice(at, 0, views[index].dim(at), 1);
            if at != axis {
                to = to.slice(at, 0, views[index].dim(at), 1);
            }
        }
        let mut result = Ok(());
        lines([&to, &views[index], &from], axis, |[to, index, from]| {
            // SAFETY: lines of the launch's views.
            let (numbers, values): (Vec<i64>, Vec<f32>) = unsafe { (gather(&index), gather(&from)) };
            for (number, value) in numbers.iter().zip(values) {
                match place(*number, to.dim(0)) {
                    Ok(at) => {
                        let at = to.offset + at as i64 * to.stride(0);
                        let mut old = [0f32];
                        // SAFETY: as above; the index was checked.
                        unsafe {
                            read(&to, at, 1, &mut old);
                            let new = match reduce {
                                1 => old[0] + value,
                                2 => old[0] * value,
                                _ => value,
                            };
                            write(&to, at, 1, &[new]);
                        }
                    }
                    Err(code) => result = Err(code),
                }
            }
        });
        result
    })
}
