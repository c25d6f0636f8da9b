//! Normalisation of rows: `RmsNorm` with its fused forms, `LayerNorm`.
//!
//! Always holds: sums run over a row in one order; the fused forms give the bits of the separate ones,
//! because the sum is rounded to its type before it is normalised.
//!
//! Refuses to know: quantised outputs; they are in `quantised_norms`.

use super::numeric::map::binary;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, gather_into, scatter};
use crate::tensor::view::{View, walk};

pub(crate) const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16];

operator!(aclnnRmsNorm, aclnnRmsNormGetWorkspaceSize,
    (x: input, gamma: input, epsilon: f64, yOut: output, rstdOut: optional_output) => rms_norm);
operator!(aclnnAddRmsNorm, aclnnAddRmsNormGetWorkspaceSize,
    (x1: input, x2: input, gamma: input, epsilon: f64, yOut: output, rstdOut: optional_output, xOut: output)
    => add_rms_norm);
operator!(aclnnInplaceAddRmsNorm, aclnnInplaceAddRmsNormGetWorkspaceSize,
(x1Ref: inout, x2Ref: inout, gamma: input, epsilon: f64, rstdOut: optional_output) =>
|plan: &mut Plan, x1, x2, gamma, epsilon, rstd| {
    // The norm goes where x1 was, the sum where x2 was.
    add_rms_norm(plan, x1, x2, gamma, epsilon, x1, rstd, x2)
});
operator!(aclnnLayerNorm, aclnnLayerNormGetWorkspaceSize,
    (x: input, normalizedShape: ints, weightOptional: optional, biasOptional: optional, eps: f64, out: output,
     meanOutOptional: optional_output, rstdOutOptional: optional_output) => layer_norm);

/// Checks a normalised tensor against its weight and statistics. Returns how many trailing dimensions are
/// normalised.
pub(crate) fn trailing(
    plan: &Plan,
    x: Slot,
    gamma: Slot,
    outputs: &[Slot],
    rstd: Option<Slot>,
) -> Result<usize, Refusal> {
    plan.types(x, TYPES)?;
    plan.types(gamma, TYPES)?;
    let (view, weight) = (plan.view(x), plan.view(gamma));
    let count = weight.rank();
    ensure(count >= 1 && view.shape().ends_with(weight.shape()), || {
        format!("gamma has shape {:?}, which is not how {:?} ends", weight.shape(), view.shape())
    })?;
    for out in outputs {
        plan.shape(*out, view.shape())?;
    }
    if let Some(rstd) = rstd {
        plan.types(rstd, &[DType::F32])?;
        let mut shape = view.shape().to_vec();
        let lead = shape.len() - count;
        shape.iter_mut().skip(lead).for_each(|size| *size = 1);
        plan.shape(rstd, &shape)?;
    }
    Ok(count)
}

fn rms_norm(plan: &mut Plan, x: Slot, gamma: Slot, epsilon: f64, y: Slot, rstd: Option<Slot>) -> Planned {
    let count = trailing(plan, x, gamma, &[y], rstd)?;
    plan.same_type(x, y)?;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let weight: Vec<f32> = unsafe { gather(&views[gamma]) };
        rows(&views[x], &views[y], views.maybe(rstd), count, |row| rms(row, &weight, epsilon as f32));
        Ok(())
    })
}

fn add_rms_norm(
    plan: &mut Plan,
    x1: Slot,
    x2: Slot,
    gamma: Slot,
    epsilon: f64,
    y: Slot,
    rstd: Option<Slot>,
    sum: Slot,
) -> Planned {
    let count = trailing(plan, x1, gamma, &[x2, y, sum], rstd)?;
    for other in [x2, y, sum] {
        plan.same_type(x1, other)?;
    }
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let weight: Vec<f32> = unsafe { gather(&views[gamma]) };
        binary::<f32>(&views[x1], &views[x2], &views[sum], |a, b| a + b);
        rows(&views[sum], &views[y], views.maybe(rstd), count, |row| rms(row, &weight, epsilon as f32));
        Ok(())
    })
}

/// Normalises a row by its root mean square. Returns the factor.
pub(crate) fn rms(row: &mut [f32], weight: &[f32], epsilon: f32) -> f32 {
    // Eight sums side by side, so that the compiler may use vectors; the order depends on the length alone.
    let mut lanes = [0f32; 8];
    let mut chunks = row.chunks_exact(8);
    for chunk in &mut chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    let tail: f32 = chunks.remainder().iter().map(|value| value * value).sum();
    let mean = (lanes.iter().sum::<f32>() + tail) / row.len() as f32;
    let factor = 1.0 / (mean + epsilon).sqrt();
    for (value, weight) in row.iter_mut().zip(weight) {
        *value = *value * factor * weight;
    }
    factor
}

/// Runs `f` over rows of `count` trailing dimensions; what it returns goes to `statistic`.
pub(crate) fn rows(
    x: &View,
    out: &View,
    statistic: Option<&View>,
    count: usize,
    mut f: impl FnMut(&mut [f32]) -> f32,
) {
    let ((outer_x, inner_x), (outer_out, inner_out)) = (x.split_trailing(count), out.split_trailing(count));
    let mut buffer = vec![0f32; inner_x.numel()];
    let mut statistics = Vec::new();
    walk([&outer_x, &outer_out], 1, |first, _, _| {
        let (mut from, mut to) = (inner_x, inner_out);
        (from.offset, to.offset) = (first[0], first[1]);
        // SAFETY: rows of the launch's views.
        unsafe { gather_into(&from, &mut buffer) };
        statistics.push(f(&mut buffer));
        // SAFETY: as above.
        unsafe { scatter(&to, &buffer) };
    });
    if let Some(view) = statistic {
        // SAFETY: as above; one value a row.
        unsafe { scatter(view, &statistics) };
    }
}

fn layer_norm(
    plan: &mut Plan,
    x: Slot,
    normalised: Vec<i64>,
    weight: Option<Slot>,
    bias: Option<Slot>,
    epsilon: f64,
    out: Slot,
    mean_out: Option<Slot>,
    rstd_out: Option<Slot>,
) -> Planned {
    plan.types(x, TYPES)?;
    let view = plan.view(x);
    ensure(!normalised.is_empty() && view.shape().ends_with(&normalised), || {
        format!("normalizedShape {normalised:?} is not how {:?} ends", view.shape())
    })?;
    plan.shape(out, view.shape())?;
    for slot in [weight, bias].into_iter().flatten() {
        plan.shape(slot, &normalised)?;
    }
    let count = normalised.len();
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let read = |slot: Option<Slot>| views.maybe(slot).map(|view| unsafe { gather::<f32>(view) });
        let (weight, bias) = (read(weight), read(bias));
        let mut means = Vec::new();
        rows(&views[x], &views[out], views.maybe(rstd_out), count, |row| {
            let length = row.len() as f32;
            let mean = row.iter().sum::<f32>() / length;
            let variance = row.iter().map(|value| (value - mean) * (value - mean)).sum::<f32>() / length;
            let factor = 1.0 / (variance + epsilon as f32).sqrt();
            for (at, value) in row.iter_mut().enumerate() {
                let scale = weight.as_ref().map_or(1.0, |weight| weight[at]);
                *value = (*value - mean) * factor * scale + bias.as_ref().map_or(0.0, |bias| bias[at]);
            }
            means.push(mean);
            factor
        });
        if let Some(view) = views.maybe(mean_out) {
            // SAFETY: as above.
            unsafe { scatter(view, &means) };
        }
        Ok(())
    })
}
