//! Writing rows at indices: the KV cache operators and the scatters.
//!
//! Always holds: an index beyond the target is a vector core exception; a slot of -1 is a padded token and is
//! skipped.
//!
//! Refuses to know: who owns a cache block.

use super::copies::move_elements;
use super::gathers::{INDEX, place};
use crate::executor::plan::{Plan, Planned, Slot, Slots, work};
use crate::executor::status::{Refusal, VECTOR_FAULT, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::gather;
use crate::tensor::view::View;

operator!(aclnnScatterPaKvCache, aclnnScatterPaKvCacheGetWorkspaceSize,
    (key: input, keyCacheRef: inout, slotMapping: input, value: input, valueCacheRef: inout,
     compressLensOptional: optional, compressSeqOffsetOptional: optional, seqLensOptional: optional,
     cacheModeOptional: text, scatterModeOptional: text, stridesOptional: optional_ints,
     offsetsOptional: optional_ints) => scatter_pa);
operator!(aclnnInplaceIndexCopy, aclnnInplaceIndexCopyGetWorkspaceSize,
    (selfRef: inout, dim: i64, index: input, source: input) => index_copy);
operator!(aclnnScatterNdUpdate, aclnnScatterNdUpdateGetWorkspaceSize,
    (varRef: inout, indices: input, updates: input) => scatter_nd);
operator!(aclnnInplaceScatterUpdate, aclnnInplaceScatterUpdateGetWorkspaceSize,
    (data: inout, indices: input, updates: input, axis: i64) => scatter_update);
operator!(aclnnIndexPutImpl, aclnnIndexPutImplGetWorkspaceSize,
    (selfRef: inout, indices: list, values: input, accumulate: bool, unsafe_: bool) => index_put);
operator!(aclnnInplaceIndexFillTensor, aclnnInplaceIndexFillTensorGetWorkspaceSize,
(selfRef: inout, dim: i64, index: ints, value: scalar) =>
|plan: &mut Plan, x, dim, index: Vec<i64>, value: crate::tensor::objects::Scalar| {
    let axis = plan.axis(x, dim)?;
    let size = plan.view(x).dim(axis);
    let mut rows = Vec::new();
    for at in &index {
        rows.push(place(*at, size).map_err(|_| Refusal::Invalid(format!("index {at} is not below {size}")))?);
    }
    let value: f64 = value.lane();
    work(move |views| {
        for row in &rows {
            let part = views[x].select(axis, *row);
            super::numeric::map::unary::<f64>(&part, &part, |_| value);
        }
        Ok(())
    })
});

fn scatter_pa(
    plan: &mut Plan,
    key: Slot,
    key_cache: Slot,
    slots: Slot,
    value: Slot,
    value_cache: Slot,
    compress_lens: Option<Slot>,
    compress_offset: Option<Slot>,
    lens: Option<Slot>,
    cache_mode: String,
    scatter_mode: String,
    strides: Option<Vec<i64>>,
    offsets: Option<Vec<i64>>,
) -> Planned {
    let plain = [compress_lens, compress_offset, lens].iter().all(Option::is_none)
        && strides.is_none_or(|strides| strides.is_empty() || strides.iter().all(|stride| *stride == 1))
        && offsets.is_none_or(|offsets| offsets.iter().all(|offset| *offset == 0));
    if !plain || !matches!(scatter_mode.as_str(), "" | "None") {
        return Err(Refusal::NoKernel(format!("scatterMode {scatter_mode:?} with compression")));
    }
    if !matches!(cache_mode.as_str(), "" | "Norm") {
        return Err(Refusal::NoKernel(format!("cacheMode {cache_mode:?}")));
    }
    plan.types(slots, INDEX)?;
    plan.rank(slots, &[1])?;
    let tokens = plan.view(slots).dim(0);
    for (rows, cache) in [(key, key_cache), (value, value_cache)] {
        plan.same_type(rows, cache)?;
        plan.rank(rows, &[3])?;
        plan.rank(cache, &[4])?;
        let (new, old) = (plan.view(rows), plan.view(cache));
        ensure(new.dim(0) == tokens, || {
            format!("{} has {} tokens, slotMapping {tokens}", plan.name(rows), new.dim(0))
        })?;
        ensure(new.shape()[1..] == old.shape()[2..], || {
            format!(
                "{} has shape {:?}; a cache of shape {:?} takes heads of {:?}",
                plan.name(rows),
                new.shape(),
                old.shape(),
                &old.shape()[2..]
            )
        })?;
    }
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let wanted: Vec<i64> = unsafe { gather(&views[slots]) };
        for (token, slot) in wanted.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
            for (rows, cache) in [(&views[key], &views[key_cache]), (&views[value], &views[value_cache])] {
                let (blocks, size) = (cache.dim(0), cache.dim(1));
                let slot = *slot as usize;
                if slot >= blocks * size {
                    return Err(VECTOR_FAULT);
                }
                let to = cache.select(0, slot / size).select(0, slot % size);
                move_elements(&rows.select(0, token), &to);
            }
        }
        Ok(())
    })
}

fn index_copy(plan: &mut Plan, x: Slot, dim: i64, index: Slot, source: Slot) -> Planned {
    plan.types(index, INDEX)?;
    plan.rank(index, &[0, 1])?;
    plan.same_type(x, source)?;
    let axis = plan.axis(x, dim)?;
    let mut shape = plan.view(x).shape().to_vec();
    if let Some(size) = shape.get_mut(axis) {
        *size = plan.view(index).numel() as i64;
    }
    plan.shape(source, &shape)?;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let rows: Vec<i64> = unsafe { gather(&views[index]) };
        let (target, source) = (&views[x], &views[source]);
        for (number, row) in rows.iter().enumerate() {
            let to = target.select(axis, place(*row, target.dim(axis))?);
            move_elements(&source.select(axis, number), &to);
        }
        Ok(())
    })
}

fn scatter_nd(plan: &mut Plan, var: Slot, indices: Slot, updates: Slot) -> Planned {
    plan.types(indices, INDEX)?;
    plan.same_type(var, updates)?;
    let (target, index, update) = (plan.view(var), plan.view(indices), plan.view(updates));
    let depth = index.last();
    ensure(index.rank() >= 1 && (1..=target.rank()).contains(&depth), || {
        format!("the last dimension of indices is {depth}, varRef has {} dimensions", target.rank())
    })?;
    let lead = index.rank() - 1;
    let want: Vec<i64> = index.shape()[..lead].iter().chain(&target.shape()[depth..]).copied().collect();
    plan.shape(updates, &want)?;
    let _ = update;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let rows: Vec<i64> = unsafe { gather(&views[indices]) };
        let target = views[var];
        let (outer, inner) = views[updates].split_trailing(target.rank() - depth);
        let mut number = 0;
        let mut result = Ok(());
        crate::tensor::view::walk([&outer], 1, |first, _, _| {
            let mut from: View = inner;
            from.offset = first[0];
            let row = rows.get(number * depth..(number + 1) * depth).unwrap_or_default();
            number += 1;
            let mut to = target;
            for at in row {
                match place(*at, to.dim(0)) {
                    Ok(at) => to = to.select(0, at),
                    Err(code) => {
                        result = Err(code);
                        return;
                    }
                }
            }
            move_elements(&from, &to);
        });
        result
    })
}

fn scatter_update(plan: &mut Plan, data: Slot, indices: Slot, updates: Slot, axis: i64) -> Planned {
    plan.types(indices, INDEX)?;
    plan.rank(indices, &[1])?;
    plan.same_type(data, updates)?;
    let axis = plan.axis(data, axis)?;
    let (target, update) = (plan.view(data), plan.view(updates));
    let fits = axis > 0
        && update.rank() == target.rank()
        && update.dim(0) == plan.view(indices).numel()
        && (0..target.rank()).all(|at| update.dim(at) <= target.dim(at));
    ensure(fits, || {
        let text = "axis above 0 and updates no larger than data are needed";
        format!("updates has shape {:?}, data {:?}: {text}", update.shape(), target.shape())
    })?;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let starts: Vec<i64> = unsafe { gather(&views[indices]) };
        let (target, update) = (&views[data], &views[updates]);
        for (batch, start) in starts.iter().enumerate() {
            let length = update.dim(axis);
            let start = place(*start, target.dim(axis))?;
            if start + length > target.dim(axis) {
                return Err(VECTOR_FAULT);
            }
            let mut to = target.select(0, batch).slice(axis - 1, start, length, 1);
            let from = update.select(0, batch);
            for at in 0..to.rank() {
                to = to.slice(at, 0, from.dim(at), 1);
            }
            move_elements(&from, &to);
        }
        Ok(())
    })
}

fn index_put(plan: &mut Plan, x: Slot, indices: Slots, values: Slot, accumulate: bool, _: bool) -> Planned {
    plan.same_type(x, values)?;
    let view = plan.view(x);
    let slots: Vec<Slot> = indices.0.map(Slot).collect();
    ensure(!slots.is_empty() && slots.len() <= view.rank(), || {
        format!("{} index tensors for {} dimensions", slots.len(), view.rank())
    })?;
    if accumulate || slots.iter().any(|slot| plan.view(*slot).dtype == DType::Bool) {
        return Err(Refusal::NoKernel("accumulating, or indexing by truth values".to_owned()));
    }
    let shape = plan.view(slots[0]).shape().to_vec();
    for slot in &slots {
        plan.types(*slot, INDEX)?;
        plan.shape(*slot, &shape)?;
    }
    let depth = slots.len();
    let want: Vec<i64> = shape.iter().chain(&view.shape()[depth..]).copied().collect();
    plan.stretch(values, &want)?;
    let lead = shape.len();
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let columns: Vec<Vec<i64>> = slots.iter().map(|slot| unsafe { gather(&views[*slot]) }).collect();
        let target = views[x];
        let (outer, inner) = views[values].split_trailing(views[values].rank() - lead);
        let mut number = 0;
        let mut result = Ok(());
        crate::tensor::view::walk([&outer], 1, |first, _, _| {
            let mut from = inner;
            from.offset = first[0];
            let mut to = target;
            for column in &columns {
                match place(column[number], to.dim(0)) {
                    Ok(at) => to = to.select(0, at),
                    Err(code) => result = Err(code),
                }
            }
            number += 1;
            if result.is_ok() {
                move_elements(&from, &to);
            }
        });
        result
    })
}
