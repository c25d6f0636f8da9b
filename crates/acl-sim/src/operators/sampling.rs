//! Random numbers and truncated distributions: `InplaceUniform`, `InplaceNormal`, `Multinomial`,
//! `ApplyTopKTopP`.
//!
//! Always holds: a random number depends on seed, offset and position alone; equal logits are kept or cut
//! together in the order of their positions.
//!
//! Refuses to know: the random sequence of real hardware, which is not public. Distributions agree, numbers
//! do not.

use super::reductions::softmax;
use super::selection::order;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::ensure;
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, scatter};

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];

operator!(aclnnInplaceUniform, aclnnInplaceUniformGetWorkspaceSize,
(selfRef: inout, from: f64, to: f64, seed: u64, offset: u64) =>
|plan: &mut Plan, x, from: f64, to: f64, seed: u64, offset: u64| {
    plan.types(x, FLOATS)?;
    ensure(from <= to, || format!("from is {from}, above to, which is {to}"))?;
    filled(x, move |at| (from + (to - from) * uniform(seed, offset, at)) as f32)
});
operator!(aclnnInplaceNormal, aclnnInplaceNormalGetWorkspaceSize,
(selfRef: inout, mean: f32, std: f32, seed: i64, offset: i64) =>
|plan: &mut Plan, x, mean: f32, std: f32, seed: i64, offset: i64| {
    plan.types(x, FLOATS)?;
    ensure(std >= 0.0, || format!("std is {std}, but must not be negative"))?;
    filled(x, move |at| {
        let (a, b) = (uniform(seed as u64, offset as u64, 2 * at), uniform(seed as u64, offset as u64,
            2 * at + 1));
        let radius = (-2.0 * (1.0 - a).ln()).sqrt();
        mean + std * (radius * (2.0 * std::f64::consts::PI * b).cos()) as f32
    })
});
operator!(aclnnMultinomial, aclnnMultinomialGetWorkspaceSize,
    (x: input, numsamples: i64, replacement: bool, seed: i64, offset: i64, out: output) => multinomial);
operator!(aclnnApplyTopKTopP, aclnnApplyTopKTopPGetWorkspaceSize,
    (logits: input, p: optional, k: optional, out: output) => top_k_top_p);

/// A number from 0 to 1 without 1: `SplitMix64` of seed, offset and position.
pub(crate) fn uniform(seed: u64, offset: u64, at: u64) -> f64 {
    let mut state = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(offset.wrapping_mul(0xd1b5_4a32_d192_ed03))
        .wrapping_add(at.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    for _ in 0..2 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    (state >> 40) as f64 / (1u64 << 24) as f64
}

fn filled(x: Slot, value: impl Fn(u64) -> f32 + Send + Sync + 'static) -> Planned {
    work(move |views| {
        let values: Vec<f32> = (0..views[x].numel() as u64).map(&value).collect();
        // SAFETY: the output of the launch, with as many elements.
        unsafe { scatter(&views[x], &values) };
        Ok(())
    })
}

fn multinomial(
    plan: &mut Plan,
    x: Slot,
    samples: i64,
    replacement: bool,
    seed: i64,
    offset: i64,
    out: Slot,
) -> Planned {
    plan.types(x, FLOATS)?;
    plan.types(out, &[DType::I64])?;
    let rank = plan.rank(x, &[1, 2])?;
    let view = plan.view(x);
    let (rows, classes) = (if rank == 2 { view.dim(0) } else { 1 }, view.last());
    ensure(samples > 0 && (replacement || samples as usize <= classes), || {
        format!("numsamples is {samples}; without replacement there are {classes} to draw")
    })?;
    let shape = if rank == 2 { vec![rows as i64, samples] } else { vec![samples] };
    plan.shape(out, &shape)?;
    let samples = samples as usize;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let weights: Vec<f32> = unsafe { gather(&views[x]) };
        let mut drawn = Vec::with_capacity(rows * samples);
        for (row, line) in weights.chunks(classes.max(1)).enumerate() {
            let mut line: Vec<f64> = line.iter().map(|weight| f64::from(*weight)).collect();
            for sample in 0..samples {
                let total: f64 = line.iter().sum();
                let at = (row * samples + sample) as u64;
                let mut rest = uniform(seed as u64, offset as u64, at) * total;
                let mut winner = line.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
                for (class, weight) in line.iter().enumerate() {
                    if rest < *weight {
                        winner = class;
                        break;
                    }
                    rest -= weight;
                }
                drawn.push(winner as i64);
                if !replacement {
                    line[winner] = 0.0;
                }
            }
        }
        // SAFETY: as above, to write.
        unsafe { scatter(&views[out], &drawn) };
        Ok(())
    })
}

fn top_k_top_p(plan: &mut Plan, logits: Slot, p: Option<Slot>, k: Option<Slot>, out: Slot) -> Planned {
    plan.types(logits, FLOATS)?;
    plan.same_type(logits, out)?;
    plan.rank(logits, &[2])?;
    let view = plan.view(logits);
    plan.shape(out, view.shape())?;
    let rows = [view.shape()[0]];
    if let Some(p) = p {
        plan.same_type(logits, p)?;
        plan.shape(p, &rows)?;
    }
    if let Some(k) = k {
        plan.types(k, &[DType::I32])?;
        plan.shape(k, &rows)?;
    }
    ensure(p.is_some() || k.is_some(), || "p and k are both missing".to_owned())?;
    plan.scratch(view.numel() * 8);
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read.
        let read = |slot: Option<Slot>| views.maybe(slot).map(|view| unsafe { gather::<f32>(view) });
        let (p, k) = (read(p), read(k));
        for row in 0..views[logits].dim(0) {
            // SAFETY: as above.
            let mut line: Vec<f32> = unsafe { gather(&views[logits].select(0, row)) };
            let positions = order(&line, true);
            let top = k.as_ref().map_or(line.len(), |k| (k[row].max(1.0) as usize).min(line.len()));
            let mut kept: Vec<f32> = positions.iter().take(top).map(|at| line[*at]).collect();
            softmax(&mut kept, false);
            let mut count = top;
            if let Some(p) = &p {
                let mut sum = 0.0;
                count = 0;
                // The most likely one always stays; the one that crosses the limit stays too.
                for weight in &kept {
                    if count > 0 && sum >= p[row] {
                        break;
                    }
                    sum += weight;
                    count += 1;
                }
            }
            positions.iter().skip(count).for_each(|at| line[*at] = f32::NEG_INFINITY);
            // SAFETY: as above, to write.
            unsafe { scatter(&views[out].select(0, row), &line) };
        }
        Ok(())
    })
}
