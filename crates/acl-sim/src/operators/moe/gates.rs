//! Which experts a token goes to: `MoeGatingTopKSoftmax` in two versions, `MoeGatingTopK`.
//!
//! Always holds: of equal scores the lower expert number wins.
//!
//! Refuses to know: what experts compute.

use super::super::reductions::softmax;
use super::super::selection::order;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::ensure;
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, scatter};

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];

operator!(aclnnMoeGatingTopKSoftmax, aclnnMoeGatingTopKSoftmaxGetWorkspaceSize,
(x: input, finishedOptional: optional, k: i64, yOut: output, expertIdxOut: output, rowIdxOut: output) =>
|plan: &mut Plan, x, finished, k, y, experts, rows| {
    plan.types(rows, &[DType::I32])?;
    plan.shape(rows, plan.view(experts).shape())?;
    soft_gate(plan, x, finished, k, 0, y, experts, Some(rows), None)
});
operator!(aclnnMoeGatingTopKSoftmaxV2, aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize,
(x: input, finishedOptional: optional, k: i64, renorm: i64, outputSoftmaxResultFlag: bool, yOut: output,
 expertIdxOut: output, softmaxResultOutOptional: optional_output) =>
|plan: &mut Plan, x, finished, k, renorm, flag: bool, y, experts, all: Option<Slot>| {
    soft_gate(plan, x, finished, k, renorm, y, experts, None, all.filter(|_| flag && renorm == 0))
});
operator!(aclnnMoeGatingTopK, aclnnMoeGatingTopKGetWorkspaceSize,
    (x: input, biasOptional: optional, k: i64, kGroup: i64, groupCount: i64, groupSelectMode: i64,
        renorm: i64,
     normType: i64, outFlag: bool, routedScalingFactor: f64, eps: f64, yOut: output, expertIdxOut: output,
     outOut: optional_output) => gate);

fn soft_gate(
    plan: &mut Plan,
    x: Slot,
    finished: Option<Slot>,
    k: i64,
    renorm: i64,
    y: Slot,
    experts: Slot,
    row_numbers: Option<Slot>,
    all: Option<Slot>,
) -> Planned {
    plan.types(x, FLOATS)?;
    plan.same_type(x, y)?;
    plan.types(experts, &[DType::I32])?;
    plan.rank(x, &[2, 3])?;
    let view = plan.view(x);
    let width = view.last();
    ensure(k > 0 && k as usize <= width, || format!("k is {k}, there are {width} experts"))?;
    ensure((0..=1).contains(&renorm), || format!("renorm is {renorm}; accepted are 0 and 1"))?;
    let mut shape = view.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = k;
    }
    plan.shape(y, &shape)?;
    plan.shape(experts, &shape)?;
    if let Some(all) = all {
        plan.shape(all, view.shape())?;
    }
    if let Some(finished) = finished {
        plan.types(finished, &[DType::Bool])?;
        plan.shape(finished, &view.shape()[..view.rank() - 1])?;
    }
    let k = k as usize;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let mut values: Vec<f32> = gather(&views[x]);
            let finished: Option<Vec<i64>> = views.maybe(finished).map(|view| gather(view));
            let rows = values.len() / width;
            let (mut weights, mut chosen, mut numbers) = (vec![], vec![], vec![]);
            for (row, line) in values.chunks_mut(width).enumerate() {
                let mut winners = order(line, true);
                winners.truncate(k);
                if renorm == 1 {
                    let mut kept: Vec<f32> = winners.iter().map(|expert| line[*expert]).collect();
                    softmax(&mut kept, false);
                    weights.extend(kept);
                } else {
                    softmax(line, false);
                    weights.extend(winners.iter().map(|expert| line[*expert]));
                }
                let done = finished.as_ref().is_some_and(|finished| finished[row] != 0);
                chosen.extend(winners.iter().map(|expert| if done { width as i64 } else { *expert as i64 }));
                numbers.extend((0..k).map(|choice| (choice * rows + row) as i64));
            }
            scatter(&views[y], &weights);
            scatter(&views[experts], &chosen);
            if let Some(view) = views.maybe(row_numbers) {
                scatter(view, &numbers);
            }
            if let Some(view) = views.maybe(all) {
                scatter(view, &values);
            }
        }
        Ok(())
    })
}

fn gate(
    plan: &mut Plan,
    x: Slot,
    bias: Option<Slot>,
    k: i64,
    kept_groups: i64,
    groups: i64,
    select: i64,
    renorm: i64,
    kind: i64,
    flag: bool,
    factor: f64,
    epsilon: f64,
    y: Slot,
    experts: Slot,
    all: Option<Slot>,
) -> Planned {
    plan.types(x, FLOATS)?;
    plan.types(experts, &[DType::I32])?;
    plan.rank(x, &[2])?;
    let view = plan.view(x);
    let (rows, width) = (view.shape()[0], view.last());
    ensure(
        groups > 0 && width.is_multiple_of(groups as usize) && (1..=groups).contains(&kept_groups),
        || format!("kGroup is {kept_groups} of groupCount {groups} with {width} experts"),
    )?;
    let size = width / groups as usize;
    ensure(k > 0 && k as usize <= size * kept_groups as usize, || {
        format!("k is {k}, {kept_groups} groups have {} experts", size * kept_groups as usize)
    })?;
    ensure((0..=1).contains(&select) && (0..=1).contains(&kind) && renorm == 0, || {
        format!("groupSelectMode {select} and normType {kind} must be 0 or 1, renorm {renorm} must be 0")
    })?;
    plan.shape(y, &[rows, k])?;
    plan.shape(experts, &[rows, k])?;
    if let Some(bias) = bias {
        plan.shape(bias, &[width as i64])?;
    }
    let (k, kept_groups) = (k as usize, kept_groups as usize);
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let mut values: Vec<f32> = gather(&views[x]);
            let bias: Option<Vec<f32>> = views.maybe(bias).map(|view| gather(view));
            let (mut weights, mut chosen) = (vec![], vec![]);
            for line in values.chunks_mut(width) {
                if kind == 1 {
                    for value in line.iter_mut() {
                        *value = 1.0 / (1.0 + (-*value).exp());
                    }
                } else {
                    softmax(line, false);
                }
                let added = |at: usize| line[at] + bias.as_ref().map_or(0.0, |bias| bias[at]);
                let mut ranked: Vec<f32> = (0..width).map(added).collect();
                let merits: Vec<f32> = ranked
                    .chunks(size)
                    .map(|group| {
                        let best = order(group, true);
                        best.iter().take(if select == 1 { 2 } else { 1 }).map(|at| group[*at]).sum()
                    })
                    .collect();
                for group in order(&merits, true).into_iter().skip(kept_groups) {
                    ranked[group * size..][..size].fill(f32::NEG_INFINITY);
                }
                let mut winners = order(&ranked, true);
                winners.truncate(k);
                let mut kept: Vec<f32> = winners.iter().map(|expert| line[*expert]).collect();
                if kind == 1 {
                    let sum: f32 = kept.iter().sum::<f32>() + epsilon as f32;
                    for value in &mut kept {
                        *value /= sum;
                    }
                }
                weights.extend(kept.iter().map(|value| value * factor as f32));
                chosen.extend(winners.iter().map(|expert| *expert as i64));
            }
            scatter(&views[y], &weights);
            scatter(&views[experts], &chosen);
            if let Some(view) = views.maybe(all).filter(|_| flag) {
                scatter(view, &values);
            }
        }
        Ok(())
    })
}
