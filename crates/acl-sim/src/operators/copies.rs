//! Moving elements without computing: casts, copies, permutations, concatenation, slices, repeats, fills.
//!
//! Always holds: between equal types bits are kept; between others a value is rounded once, or cut towards
//! zero when it becomes an integer.
//!
//! Refuses to know: indices in device memory; see [`super::gathers`].

use super::elementwise::copies;
use super::numeric::map;
use crate::executor::plan::{Plan, Planned, Slot, Slots, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::objects::Scalar;
use crate::tensor::view::View;

operator!(aclnnCast, aclnnCastGetWorkspaceSize, (x: input, dtype: i32, out: output) => cast);
operator!(aclnnInplaceCopy, aclnnInplaceCopyGetWorkspaceSize, (selfRef: inout, src: input) =>
|plan: &mut Plan, target, src| {
    let shape = plan.view(target).shape().to_vec();
    plan.stretch(src, &shape)?;
    copies(plan, &[src]);
    moved(src, target)
});
operator!(aclnnPermute, aclnnPermuteGetWorkspaceSize, (x: input, dims: ints, out: output) => permute);
operator!(aclnnCat, aclnnCatGetWorkspaceSize, (tensors: list, dim: i64, out: output) => cat);
operator!(aclnnSplitTensor, aclnnSplitTensorGetWorkspaceSize,
    (x: input, splitSections: u64, dim: i64, out: output_list) => split_tensor);
operator!(aclnnSlice, aclnnSliceGetWorkspaceSize,
    (x: input, dim: i64, start: i64, end: i64, step: i64, out: output) =>
    |plan: &mut Plan, x, dim, start, end, step, out| sliced(plan, x, &[(dim, start, end, step)], out));
operator!(aclnnSliceV2, aclnnSliceV2GetWorkspaceSize,
    (x: input, starts: ints, ends: ints, axes: ints, steps: ints, out: output) => slice_v2);
operator!(aclnnRepeat, aclnnRepeatGetWorkspaceSize, (x: input, repeats: ints, out: output) => repeat);
operator!(aclnnRepeatInterleaveIntWithDim, aclnnRepeatInterleaveIntWithDimGetWorkspaceSize,
    (x: input, repeats: i64, dim: i64, outputSize: i64, out: output) => repeat_interleave);
operator!(aclnnInplaceFillScalar, aclnnInplaceFillScalarGetWorkspaceSize,
    (selfRef: inout, value: scalar) => |plan: &mut Plan, x, value| fill(plan, x, value));
operator!(aclnnInplaceZero, aclnnInplaceZeroGetWorkspaceSize, (selfRef: inout) =>
    |plan: &mut Plan, x| fill(plan, x, Scalar::Int(0)));
operator!(aclnnInplaceOne, aclnnInplaceOneGetWorkspaceSize, (selfRef: inout) =>
    |plan: &mut Plan, x| fill(plan, x, Scalar::Int(1)));
operator!(aclnnArange, aclnnArangeGetWorkspaceSize,
    (start: scalar, end: scalar, step: scalar, out: output) => arange);
operator!(aclnnConstantPadNd, aclnnConstantPadNdGetWorkspaceSize,
    (x: input, pad: ints, value: scalar, out: output) => constant_pad);
operator!(aclnnTransMatmulWeight, aclnnTransMatmulWeightGetWorkspaceSize, (mmWeightRef: inout) =>
    |_: &mut Plan, _| work(|_| Ok(())));
operator!(aclnnNpuFormatCast, aclnnNpuFormatCastGetWorkspaceSize, (srcTensor: input, dstTensor: output) =>
|plan: &mut Plan, src, target| {
    plan.same_type(src, target)?;
    plan.shape(target, plan.view(src).shape())?;
    moved(src, target)
});

/// Elements a weight takes in the fractal layout: as many as it has, because the layout here is the plain
/// one.
#[unsafe(no_mangle)]
pub extern "C" fn aclnnCalculateMatmulWeightSizeV2(
    shape: *const crate::tensor::handle::Handle<crate::tensor::lists::IntArray>,
    _dtype: i32,
    size: *mut u64,
) -> i32 {
    match crate::tensor::handle::get(shape) {
        Some(shape) if !size.is_null() => {
            // SAFETY: not null, and the caller's to write.
            unsafe { size.write(shape.0.iter().map(|size| (*size).max(0) as u64).product()) };
            0
        }
        _ => crate::executor::status::NULL,
    }
}

/// Copies one view to another of its shape, converting the type.
pub(crate) fn move_elements(from: &View, to: &View) {
    match (from.dtype, to.dtype) {
        (DType::F64, _) | (_, DType::F64) => map::unary::<f64>(from, to, |value| value),
        (DType::F16 | DType::BF16, same) if same == from.dtype => {
            // As bits, so that payloads of not-a-numbers survive.
            let (mut from, mut to) = (*from, *to);
            (from.dtype, to.dtype) = (DType::U16, DType::U16);
            map::unary::<i64>(&from, &to, |value| value);
        }
        (DType::F32, DType::F32) => {
            let (mut from, mut to) = (*from, *to);
            (from.dtype, to.dtype) = (DType::U32, DType::U32);
            map::unary::<i64>(&from, &to, |value| value);
        }
        (a, b) if a.is_float() || b.is_float() => map::unary::<f32>(from, to, |value| value),
        _ => map::unary::<i64>(from, to, |value| value),
    }
}

fn moved(from: Slot, to: Slot) -> Planned {
    work(move |views| {
        move_elements(&views[from], &views[to]);
        Ok(())
    })
}

fn cast(plan: &mut Plan, x: Slot, dtype: i32, out: Slot) -> Planned {
    plan.shape(out, plan.view(x).shape())?;
    let have = plan.view(out).dtype;
    ensure(have.code() == dtype, || {
        format!("dtype is {dtype}, but out has data type {have:?} ({})", have.code())
    })?;
    copies(plan, &[x]);
    moved(x, out)
}

fn permute(plan: &mut Plan, x: Slot, dims: Vec<i64>, out: Slot) -> Planned {
    plan.same_type(x, out)?;
    let view = plan.view(x);
    let order: Vec<usize> = dims.iter().filter_map(|dim| view.axis(*dim)).collect();
    let mut seen = order.clone();
    seen.sort_unstable();
    seen.dedup();
    ensure(seen.len() == view.rank() && dims.len() == view.rank(), || {
        format!("dims {dims:?} is not an order of the dimensions of {:?}", view.shape())
    })?;
    let turned = view.permuted(&order).unwrap_or(view);
    plan.shape(out, turned.shape())?;
    plan.replace(x, turned);
    moved(x, out)
}

fn cat(plan: &mut Plan, tensors: Slots, dim: i64, out: Slot) -> Planned {
    let target = plan.view(out);
    let axis = plan.axis(out, dim)?;
    let mut start = 0;
    let mut pairs = Vec::new();
    for index in tensors.0 {
        let part = Slot(index);
        let view = plan.view(part);
        // An empty one-dimensional tensor is let through, as in the frameworks.
        if view.rank() == 1 && view.numel() == 0 {
            continue;
        }
        let mut want = target.shape().to_vec();
        if let Some(size) = want.get_mut(axis) {
            *size = view.dim(axis) as i64;
        }
        plan.shape(part, &want)?;
        ensure(start + view.dim(axis) <= target.dim(axis), || {
            format!("out has {} along dimension {dim}, too few for the tensors", target.dim(axis))
        })?;
        let window = plan.derive(out, target.slice(axis, start, view.dim(axis), 1));
        pairs.push((part, window));
        start += view.dim(axis);
    }
    ensure(start == target.dim(axis), || {
        format!("out has {} along dimension {dim}, the tensors have {start}", target.dim(axis))
    })?;
    work(move |views| {
        for (from, to) in &pairs {
            move_elements(&views[*from], &views[*to]);
        }
        Ok(())
    })
}

fn split_tensor(plan: &mut Plan, x: Slot, section: u64, dim: i64, out: Slots) -> Planned {
    let view = plan.view(x);
    let axis = plan.axis(x, dim)?;
    let section = section as usize;
    let size = view.dim(axis);
    ensure(section > 0 && size.div_ceil(section) == out.0.len(), || {
        format!("splitting {size} in sections of {section} does not give {} tensors", out.0.len())
    })?;
    let mut pairs = Vec::new();
    for (number, index) in out.0.enumerate() {
        let start = number * section;
        let part = view.slice(axis, start, section.min(size - start), 1);
        plan.shape(Slot(index), part.shape())?;
        pairs.push((plan.derive(x, part), Slot(index)));
    }
    work(move |views| {
        for (from, to) in &pairs {
            move_elements(&views[*from], &views[*to]);
        }
        Ok(())
    })
}

fn sliced(plan: &mut Plan, x: Slot, cuts: &[(i64, i64, i64, i64)], out: Slot) -> Planned {
    plan.same_type(x, out)?;
    let mut view = plan.view(x);
    for (dim, start, end, step) in cuts {
        let axis = plan.axis(x, *dim)?;
        let size = view.dim(axis) as i64;
        let clip = |at: i64| (if at < 0 { at + size } else { at }).clamp(0, size);
        let (start, end) = (clip(*start), clip(*end));
        ensure(*step > 0, || format!("step is {step}, but must be positive"))?;
        let length = ((end - start).max(0) as usize).div_ceil(*step as usize) as i64;
        view = view.slice(axis, start as usize, length as usize, *step as usize);
    }
    plan.shape(out, view.shape())?;
    plan.replace(x, view);
    moved(x, out)
}

fn slice_v2(
    plan: &mut Plan,
    x: Slot,
    starts: Vec<i64>,
    ends: Vec<i64>,
    axes: Vec<i64>,
    steps: Vec<i64>,
    out: Slot,
) -> Planned {
    let count = axes.len();
    ensure([starts.len(), ends.len(), steps.len()] == [count; 3], || {
        "starts, ends, axes and steps must have one length".to_owned()
    })?;
    let cuts: Vec<_> = (0..count).map(|at| (axes[at], starts[at], ends[at], steps[at])).collect();
    sliced(plan, x, &cuts, out)
}

fn repeat(plan: &mut Plan, x: Slot, repeats: Vec<i64>, out: Slot) -> Planned {
    plan.same_type(x, out)?;
    let view = plan.view(x);
    let rank = repeats.len();
    ensure(rank >= view.rank() && 2 * rank <= crate::tensor::view::MAX_RANK, || {
        format!("repeats {repeats:?} has too few or too many values for {:?}", view.shape())
    })?;
    let lead = rank - view.rank();
    let target = plan.view(out);
    let (mut shape, mut from, mut to, mut whole) = (vec![], vec![], vec![], vec![]);
    for (axis, times) in repeats.iter().enumerate() {
        let (size, stride) = match axis.checked_sub(lead) {
            Some(axis) => (view.dim(axis) as i64, view.stride(axis)),
            None => (1, 0),
        };
        let step = target.stride(axis);
        shape.extend([*times, size]);
        from.extend([0, stride]);
        to.extend([step * size, step]);
        whole.push(times * size);
    }
    plan.shape(out, &whole)?;
    let bad = || Refusal::Invalid(format!("repeats {repeats:?} must not be negative"));
    plan.replace(x, view.with(&shape, &from).ok_or_else(bad)?);
    plan.replace(out, target.with(&shape, &to).ok_or_else(bad)?);
    moved(x, out)
}

fn repeat_interleave(plan: &mut Plan, x: Slot, repeats: i64, dim: i64, size: i64, out: Slot) -> Planned {
    plan.same_type(x, out)?;
    let axis = plan.axis(x, dim)?;
    let (view, target) = (plan.view(x), plan.view(out));
    let mut whole = view.shape().to_vec();
    if let Some(at) = whole.get_mut(axis) {
        *at *= repeats;
    }
    ensure(repeats >= 0 && whole.get(axis).copied() == Some(size), || {
        format!("outputSize is {size}, but {repeats} repeats of {:?} give {whole:?}", view.shape())
    })?;
    plan.shape(out, &whole)?;
    let (mut shape, mut from, mut to) = (vec![], vec![], vec![]);
    for at in 0..view.rank() {
        let (count, stride, step) = (view.dim(at) as i64, view.stride(at), target.stride(at));
        if at == axis {
            shape.extend([count, repeats]);
            from.extend([stride, 0]);
            to.extend([step * repeats, step]);
        } else {
            shape.push(count);
            from.push(stride);
            to.push(step);
        }
    }
    let bad = || Refusal::Invalid(format!("{:?} has too many dimensions", view.shape()));
    plan.replace(x, view.with(&shape, &from).ok_or_else(bad)?);
    plan.replace(out, target.with(&shape, &to).ok_or_else(bad)?);
    moved(x, out)
}

#[allow(clippy::unnecessary_wraps, reason = "it is an operator's plan")]
fn fill(plan: &mut Plan, x: Slot, value: Scalar) -> Planned {
    let float = plan.view(x).dtype.is_float();
    work(move |views| {
        let view = &views[x];
        if float {
            let value: f64 = value.lane();
            map::unary::<f64>(view, view, |_| value);
        } else {
            let value = value.to_i64();
            map::unary::<i64>(view, view, |_| value);
        }
        Ok(())
    })
}

fn arange(plan: &mut Plan, start: Scalar, end: Scalar, step: Scalar, out: Slot) -> Planned {
    let (first, last, by): (f64, f64, f64) = (start.lane(), end.lane(), step.lane());
    ensure(by != 0.0 && (last - first) / by >= 0.0, || {
        format!("a range from {first} to {last} does not get there in steps of {by}")
    })?;
    let count = ((last - first) / by).ceil() as i64;
    plan.shape(out, &[count])?;
    work(move |views| {
        let mut at = 0.0;
        map::unary::<f64>(&views[out], &views[out], |_| 0.0);
        let values: Vec<f64> = (0..count)
            .map(|_| {
                let value = first + at * by;
                at += 1.0;
                value
            })
            .collect();
        // SAFETY: the output of the launch, with as many elements.
        unsafe { crate::tensor::lane::scatter(&views[out], &values) };
        Ok(())
    })
}

fn constant_pad(plan: &mut Plan, x: Slot, pad: Vec<i64>, value: Scalar, out: Slot) -> Planned {
    plan.same_type(x, out)?;
    let view = plan.view(x);
    let mut window = plan.view(out);
    let mut whole = view.shape().to_vec();
    ensure(
        pad.len().is_multiple_of(2) && pad.len() <= 2 * view.rank() && pad.iter().all(|p| *p >= 0),
        || format!("pad {pad:?} must be pairs that are not negative, at most one a dimension"),
    )?;
    for (pair, sizes) in pad.chunks_exact(2).enumerate() {
        let axis = view.rank() - 1 - pair;
        whole[axis] += sizes[0] + sizes[1];
    }
    plan.shape(out, &whole)?;
    for (pair, sizes) in pad.chunks_exact(2).enumerate() {
        let axis = view.rank() - 1 - pair;
        window = window.slice(axis, sizes[0] as usize, view.dim(axis), 1);
    }
    let inside = plan.derive(out, window);
    let value: f64 = value.lane();
    work(move |views| {
        map::unary::<f64>(&views[out], &views[out], |_| value);
        move_elements(&views[x], &views[inside]);
        Ok(())
    })
}
