//! Rows taken by indices that lie in device memory: `Embedding`, `IndexSelect`, `GatherV2`, `Gather`.
//!
//! Always holds: an index out of range is a vector core exception at the next synchronisation, not a wild
//! read.
//!
//! Refuses to know: who made the indices.

use super::copies::move_elements;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{VECTOR_FAULT, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::gather;
use crate::tensor::view::View;

pub(crate) const INDEX: &[DType] = &[DType::I32, DType::I64];

operator!(aclnnEmbedding, aclnnEmbeddingGetWorkspaceSize,
(weight: input, indices: input, out: output) => |plan: &mut Plan, weight, indices, out| {
    plan.rank(weight, &[2])?;
    take(plan, weight, 0, indices, out)
});
operator!(aclnnGatherV2, aclnnGatherV2GetWorkspaceSize,
    (x: input, dim: i64, index: input, out: output) => take);
operator!(aclnnGatherV3, aclnnGatherV3GetWorkspaceSize,
(x: input, dim: i64, index: input, batchDims: i64, mode: i64, out: output) =>
|plan: &mut Plan, x, dim, index, batch: i64, _mode: i64, out| {
    ensure(batch == 0, || format!("batchDims is {batch}; only 0 is supported"))?;
    take(plan, x, dim, index, out)
});
operator!(aclnnIndexSelect, aclnnIndexSelectGetWorkspaceSize,
(x: input, dim: i64, index: input, out: output) => |plan: &mut Plan, x, dim, index, out| {
    plan.rank(index, &[0, 1])?;
    take(plan, x, dim, index, out)
});
operator!(aclnnGather, aclnnGatherGetWorkspaceSize,
    (x: input, dim: i64, index: input, out: output) => gather_elements);

/// An index counted from the front, or from the back if it is negative.
pub(crate) fn place(index: i64, size: usize) -> Result<usize, i32> {
    let at = if index < 0 { index + size as i64 } else { index };
    usize::try_from(at).ok().filter(|at| *at < size).ok_or(VECTOR_FAULT)
}

/// `out[.., i, ..] = x[.., index[i], ..]`, where `i` runs over all of `index`.
fn take(plan: &mut Plan, x: Slot, dim: i64, index: Slot, out: Slot) -> Planned {
    plan.types(index, INDEX)?;
    plan.same_type(x, out)?;
    let axis = plan.axis(x, dim)?;
    let (view, indices) = (plan.view(x), plan.view(index));
    let mut shape = view.shape()[..axis.min(view.rank())].to_vec();
    shape.extend(indices.shape());
    shape.extend(view.shape().iter().skip(axis + 1));
    plan.shape(out, &shape)?;
    let depth = indices.rank();
    work(move |views| {
        let (from, target) = (&views[x], &views[out]);
        // SAFETY: the views of a launch are the caller's to read.
        let indices: Vec<i64> = unsafe { gather(&views[index]) };
        let sizes: Vec<usize> = views[index].shape().iter().map(|size| *size as usize).collect();
        for (number, value) in indices.iter().enumerate() {
            let source = from.select(axis, place(*value, from.dim(axis))?);
            move_elements(&source, &nth(target, axis, depth, &sizes, number));
        }
        Ok(())
    })
}

/// The part of a view at position `number` of `depth` dimensions from `axis` on, which have these sizes.
fn nth(view: &View, axis: usize, depth: usize, sizes: &[usize], number: usize) -> View {
    let mut rest = number;
    let mut part = *view;
    for at in (0..depth).rev() {
        let size = sizes.get(at).copied().unwrap_or(1).max(1);
        part = part.select(axis + at, rest % size);
        rest /= size;
    }
    part
}

fn gather_elements(plan: &mut Plan, x: Slot, dim: i64, index: Slot, out: Slot) -> Planned {
    plan.types(index, INDEX)?;
    plan.same_type(x, out)?;
    let axis = plan.axis(x, dim)?;
    let (view, indices) = (plan.view(x), plan.view(index));
    plan.shape(out, indices.shape())?;
    let fits = indices.rank() == view.rank()
        && (0..view.rank()).all(|at| at == axis || indices.dim(at) <= view.dim(at));
    ensure(fits, || format!("index has shape {:?}, x has {:?}", indices.shape(), view.shape()))?;
    work(move |views| {
        let mut from = views[x];
        for at in (0..from.rank()).filter(|at| *at != axis) {
            from = from.slice(at, 0, views[index].dim(at), 1);
        }
        let mut result = Ok(());
        super::numeric::map::lines([&from, &views[index], &views[out]], axis, |[from, index, out]| {
            // SAFETY: lines of the launch's views.
            let indices: Vec<i64> = unsafe { gather(&index) };
            for (at, value) in indices.iter().enumerate() {
                match place(*value, from.dim(0)) {
                    Ok(source) => move_elements(&from.select(0, source), &out.select(0, at)),
                    Err(code) => result = Err(code),
                }
            }
        });
        result
    })
}
