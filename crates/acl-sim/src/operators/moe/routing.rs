//! Tokens sorted by expert, and their results brought back: `MoeInitRoutingV2`, `MoeFinalizeRoutingV2`,
//! `MoeTokenPermute`, `MoeTokenUnpermute`, `MoeComputeExpertTokens`.
//!
//! Always holds: the sort is stable; sums over a token's experts run in the order of its choices.
//!
//! Refuses to know: expert capacities that drop tokens; they are refused.

use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{Refusal, VECTOR_FAULT, ensure};
use crate::operator;
use crate::operators::copies::move_elements;
use crate::operators::gathers::INDEX;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, scatter};

operator!(aclnnMoeInitRoutingV2, aclnnMoeInitRoutingV2GetWorkspaceSize,
    (x: input, expertIdx: input, activeNumOptional: i64, expertCapacityOptional: i64, expertNumOptional: i64,
     dropPadModeOptional: i64, expertTokensCountOrCumsumFlagOptional: i64,
     expertTokensBeforeCapacityFlagOptional: bool, expandedXOut: output, expandedRowIdxOut: output,
     expertTokensCountOrCumsumOutOptional: optional_output,
     expertTokensBeforeCapacityOutOptional: optional_output) => init_routing);
operator!(aclnnMoeFinalizeRoutingV2, aclnnMoeFinalizeRoutingV2GetWorkspaceSize,
    (expandedX: input, expandedRowIdx: input, x1Optional: optional, x2Optional: optional,
     biasOptional: optional, scalesOptional: optional, expertIdxOptional: optional, dropPadMode: i64,
     out: output) => finalize);
operator!(aclnnMoeTokenPermute, aclnnMoeTokenPermuteGetWorkspaceSize,
    (tokens: input, indices: input, numOutTokens: i64, paddedMode: bool, permuteTokensOut: output,
     sortedIndicesOut: output) => permute);
operator!(aclnnMoeTokenUnpermute, aclnnMoeTokenUnpermuteGetWorkspaceSize,
(permutedTokens: input, sortedIndices: input, probsOptional: optional, paddedMode: bool,
 restoreShapeOptional: optional_ints, out: output) =>
|plan: &mut Plan, rows, places, probs, padded: bool, _shape: Option<Vec<i64>>, out| {
    if padded {
        return Err(Refusal::NoKernel("paddedMode".to_owned()));
    }
    bring_back(plan, Return { rows, places, probs, ..Return::new(rows, places, out) })
});
operator!(aclnnMoeComputeExpertTokens, aclnnMoeComputeExpertTokensGetWorkspaceSize,
(sortedExperts: input, numExperts: i64, out: output) => |plan: &mut Plan, sorted, count: i64, out| {
    plan.types(sorted, &[DType::I32])?;
    plan.shape(out, &[count])?;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let sorted: Vec<i64> = gather(&views[sorted]);
            let ends: Vec<i64> =
                (0..count).map(|expert| sorted.iter().filter(|at| **at <= expert).count() as i64).collect();
            scatter(&views[out], &ends);
        }
        Ok(())
    })
});

/// Flat choices in the order of their experts, the earlier one first within an expert.
fn by_expert(experts: &[i64]) -> Vec<usize> {
    let mut sorted: Vec<usize> = (0..experts.len()).collect();
    sorted.sort_by_key(|choice| experts[*choice]);
    sorted
}

/// Place of each choice in the sorted order.
fn inverse(sorted: &[usize]) -> Vec<i64> {
    let mut places = vec![0; sorted.len()];
    for (place, choice) in sorted.iter().enumerate() {
        places[*choice] = place as i64;
    }
    places
}

fn init_routing(
    plan: &mut Plan,
    x: Slot,
    experts: Slot,
    active: i64,
    _capacity: i64,
    count: i64,
    mode: i64,
    flag: i64,
    before: bool,
    expanded: Slot,
    rows: Slot,
    tokens: Option<Slot>,
    _before_out: Option<Slot>,
) -> Planned {
    if mode != 0 || before {
        return Err(Refusal::NoKernel(format!("dropPadMode {mode}")));
    }
    plan.types(experts, &[DType::I32])?;
    plan.types(rows, &[DType::I32])?;
    plan.rank(x, &[2])?;
    plan.rank(experts, &[2])?;
    plan.same_type(x, expanded)?;
    let (view, choices) = (plan.view(x), plan.view(experts));
    let k = choices.dim(1);
    let all = choices.numel();
    ensure(choices.dim(0) == view.dim(0) && k > 0, || {
        format!("expertIdx has shape {:?}, x {:?}", choices.shape(), view.shape())
    })?;
    let kept = if active > 0 { all.min(active as usize) } else { all };
    plan.shape(expanded, &[kept as i64, view.shape()[1]])?;
    plan.shape(rows, &[all as i64])?;
    ensure((0..=2).contains(&flag), || {
        format!("expertTokensCountOrCumsumFlag is {flag}; accepted are 0 to 2")
    })?;
    if flag > 0 {
        let tokens = tokens.ok_or(Refusal::Null("expertTokensCountOrCumsumOut"))?;
        plan.types(tokens, &[DType::I32, DType::I64])?;
        plan.shape(tokens, &[count])?;
    }
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let choices: Vec<i64> = gather(&views[experts]);
            let sorted = by_expert(&choices);
            for (place, choice) in sorted.iter().take(kept).enumerate() {
                move_elements(&views[x].select(0, choice / k), &views[expanded].select(0, place));
            }
            scatter(&views[rows], &inverse(&sorted));
            if let (1..=2, Some(view)) = (flag, views.maybe(tokens)) {
                let matches = |expert: i64, at: i64| if flag == 1 { at <= expert } else { at == expert };
                let counts: Vec<i64> = (0..count)
                    .map(|expert| choices.iter().filter(|at| matches(expert, **at)).count() as i64)
                    .collect();
                scatter(view, &counts);
            }
        }
        Ok(())
    })
}

fn permute(
    plan: &mut Plan,
    tokens: Slot,
    indices: Slot,
    kept: i64,
    padded: bool,
    out: Slot,
    sorted_out: Slot,
) -> Planned {
    if padded {
        return Err(Refusal::NoKernel("paddedMode".to_owned()));
    }
    plan.types(indices, INDEX)?;
    plan.types(sorted_out, &[DType::I32])?;
    plan.rank(tokens, &[2])?;
    plan.rank(indices, &[1, 2])?;
    plan.same_type(tokens, out)?;
    let (view, choices) = (plan.view(tokens), plan.view(indices));
    let all = choices.numel();
    let k = if choices.rank() == 2 { choices.dim(1).max(1) } else { 1 };
    ensure(choices.dim(0) == view.dim(0), || {
        format!("indices has shape {:?}, tokens {:?}", choices.shape(), view.shape())
    })?;
    let kept = if kept > 0 { all.min(kept as usize) } else { all };
    plan.shape(out, &[kept as i64, view.shape()[1]])?;
    plan.shape(sorted_out, &[all as i64])?;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let sorted = by_expert(&gather::<i64>(&views[indices]));
            for (place, choice) in sorted.iter().take(kept).enumerate() {
                move_elements(&views[tokens].select(0, choice / k), &views[out].select(0, place));
            }
            scatter(&views[sorted_out], &inverse(&sorted));
        }
        Ok(())
    })
}

/// How results of experts become results of tokens.
struct Return {
    rows: Slot,
    places: Slot,
    probs: Option<Slot>,
    added: [Option<Slot>; 2],
    bias: Option<Slot>,
    experts: Option<Slot>,
    /// Whether places are listed choice by choice rather than token by token.
    by_choice: bool,
    out: Slot,
}

impl Return {
    fn new(rows: Slot, places: Slot, out: Slot) -> Self {
        Self { rows, places, probs: None, added: [None; 2], bias: None, experts: None, by_choice: false, out }
    }
}

fn finalize(
    plan: &mut Plan,
    rows: Slot,
    places: Slot,
    x1: Option<Slot>,
    x2: Option<Slot>,
    bias: Option<Slot>,
    scales: Option<Slot>,
    experts: Option<Slot>,
    mode: i64,
    out: Slot,
) -> Planned {
    if !matches!(mode, 0 | 2) {
        ensure(matches!(mode, 1 | 3), || format!("dropPadMode is {mode}; accepted are 0 to 3"))?;
        return Err(Refusal::NoKernel(format!("dropPadMode {mode}")));
    }
    ensure(bias.is_none() || experts.is_some(), || "bias needs expertIdx".to_owned())?;
    ensure(x2.is_none() || x1.is_some(), || "x2 needs x1".to_owned())?;
    for added in [x1, x2].into_iter().flatten() {
        plan.shape(added, plan.view(out).shape())?;
    }
    let by_choice = mode == 0;
    bring_back(plan, Return { rows, places, probs: scales, added: [x1, x2], bias, experts, by_choice, out })
}

fn bring_back(plan: &mut Plan, r: Return) -> Planned {
    plan.types(r.places, INDEX)?;
    plan.same_type(r.rows, r.out)?;
    plan.rank(r.rows, &[2])?;
    plan.rank(r.out, &[2])?;
    let (rows, out) = (plan.view(r.rows), plan.view(r.out));
    let (tokens, width) = (out.dim(0), out.dim(1));
    let all = plan.view(r.places).numel();
    ensure(rows.dim(1) == width && tokens > 0 && all.is_multiple_of(tokens), || {
        format!("{all} places of rows {:?} do not make an output of {:?}", rows.shape(), out.shape())
    })?;
    let k = all / tokens;
    for slot in [r.probs, r.experts].into_iter().flatten() {
        let count = plan.view(slot).numel();
        ensure(count == all, || format!("{} has {count} values, {all} are needed", plan.name(slot)))?;
    }
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let rows: Vec<f32> = gather(&views[r.rows]);
            let places: Vec<i64> = gather(&views[r.places]);
            let read = |slot: Option<Slot>| views.maybe(slot).map(|view| gather::<f32>(view));
            let (probs, bias) = (read(r.probs), read(r.bias));
            let added = r.added.map(read);
            let experts: Option<Vec<i64>> = views.maybe(r.experts).map(|view| gather(view));
            let mut result = vec![0f32; tokens * width];
            for (token, line) in result.chunks_mut(width.max(1)).enumerate() {
                for extra in added.iter().flatten() {
                    line.iter_mut().zip(&extra[token * width..]).for_each(|(sum, value)| *sum += value);
                }
                for choice in 0..k {
                    let flat = token * k + choice;
                    let place = places[if r.by_choice { choice * tokens + token } else { flat }];
                    // A place beyond the rows that were kept is a dropped token.
                    let Ok(place) = usize::try_from(place) else { continue };
                    let Some(row) = rows.get(place * width..(place + 1) * width) else { continue };
                    let factor = probs.as_ref().map_or(1.0, |probs| probs[flat]);
                    let shift = match (&bias, &experts) {
                        (Some(bias), Some(experts)) => {
                            let expert = usize::try_from(experts[flat]).map_err(|_| VECTOR_FAULT)?;
                            Some(bias.get(expert * width..(expert + 1) * width).ok_or(VECTOR_FAULT)?)
                        }
                        _ => None,
                    };
                    for (at, sum) in line.iter_mut().enumerate() {
                        *sum += factor * (row[at] + shift.map_or(0.0, |shift| shift[at]));
                    }
                }
            }
            scatter(&views[r.out], &result);
        }
        Ok(())
    })
}
