//! Floats to bytes: static and dynamic quantisation, alone or behind a norm or a gate.
//!
//! Always holds: rounding is to nearest even, clamped to -128..127; a dynamic scale is the row's largest
//! magnitude over 127.
//!
//! Refuses to know: 4-bit and 8-bit float outputs.

use super::activations::silu;
use super::norms::{rms, trailing};
use super::numeric::integer::{groups, quantise_row, scales, to_byte};
use crate::executor::Views;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, rounded, scatter};
use crate::tensor::view::View;

const HALVES: &[DType] = &[DType::F16, DType::BF16];
const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
/// The number of `int8` among data types.
const INT8: i64 = 2;

operator!(aclnnAscendQuant, aclnnAscendQuantGetWorkspaceSize,
(x: input, scale: input, offset: optional, sqrtMode: bool, roundMode: text, dstType: i32, y: output) =>
|plan: &mut Plan, x, scale, offset, sqrt, round: String, dst, y| {
    quantise(plan, x, scale, offset, sqrt, &round, dst, -1, y)
});
operator!(aclnnAscendQuantV3, aclnnAscendQuantV3GetWorkspaceSize,
(x: input, scale: input, offset: optional, sqrtMode: bool, roundMode: text, dstType: i32, axis: i32,
 y: output) => |plan: &mut Plan, x, scale, offset, sqrt, round: String, dst, axis, y| {
    quantise(plan, x, scale, offset, sqrt, &round, dst, axis, y)
});
operator!(aclnnDynamicQuant, aclnnDynamicQuantGetWorkspaceSize,
    (x: input, smoothScalesOptional: optional, yOut: output, scaleOut: output) =>
    |plan: &mut Plan, x, smooth, y, scale| dynamic(plan, x, smooth, None, INT8, y, scale, None));
operator!(aclnnDynamicQuantV2, aclnnDynamicQuantV2GetWorkspaceSize,
    (x: input, smoothScalesOptional: optional, groupIndexOptional: optional, dstType: i64, yOut: output,
     scaleOut: output, offsetOut: optional_output) => dynamic);
operator!(aclnnAddRmsNormQuant, aclnnAddRmsNormQuantGetWorkspaceSize,
    (x1: input, x2: input, gamma: input, scales1: input, scales2Optional: optional,
     zeroPoints1Optional: optional, zeroPoints2Optional: optional, axis: i64, epsilon: f64, divMode: bool,
     y1Out: output, y2Out: optional_output, xOut: output) => norm_static);
operator!(aclnnAddRmsNormDynamicQuant, aclnnAddRmsNormDynamicQuantGetWorkspaceSize,
    (x1: input, x2: input, gamma: input, smoothScale1Optional: optional, smoothScale2Optional: optional,
     epsilon: f64, y1Out: output, y2Out: optional_output, xOut: output, scale1Out: output,
     scale2Out: optional_output) => norm_dynamic);
operator!(aclnnSwiGluQuant, aclnnSwiGluQuantGetWorkspaceSize,
(x: input, smoothScalesOptional: optional, offsetsOptional: optional, groupIndexOptional: optional,
 activateLeft: bool, quantModeOptional: text, yOut: output, scaleOut: optional_output) =>
|plan: &mut Plan, x, smooth, offset, group, left, mode, y, scale| {
    plan.types(x, FLOATS)?;
    gated(plan, x, Gate { quant: smooth, offset, group, left, mode, ..Gate::default() }, y, scale)
});
operator!(aclnnDequantSwigluQuant, aclnnDequantSwigluQuantGetWorkspaceSize,
(x: input, weightScaleOptional: optional, activationScaleOptional: optional, biasOptional: optional,
 quantScaleOptional: optional, quantOffsetOptional: optional, groupIndexOptional: optional,
 activateLeft: bool, quantModeOptional: text, yOut: output, scaleOut: optional_output) =>
|plan: &mut Plan, x, weight, activation, bias, quant, offset, group, left, mode, y, scale| {
    plan.types(x, &[DType::I32, DType::F16, DType::BF16])?;
    gated(plan, x, Gate { weight, activation, bias, quant, offset, group, left, mode }, y, scale)
});

fn quantise(
    plan: &mut Plan,
    x: Slot,
    scale: Slot,
    offset: Option<Slot>,
    sqrt: bool,
    round: &str,
    dst: i32,
    axis: i32,
    y: Slot,
) -> Planned {
    plan.types(x, FLOATS)?;
    plan.types(scale, FLOATS)?;
    plan.types(y, &[DType::I8])?;
    ensure(i64::from(dst) == INT8, || format!("dstType is {dst}; this library quantises to 2 (int8)"))?;
    ensure(axis == -1 || axis as usize + 1 == plan.view(x).rank(), || {
        format!("axis is {axis}; only the last one is supported")
    })?;
    let rounding: fn(f32) -> f32 = match round {
        "round" | "" => f32::round_ties_even,
        "floor" => f32::floor,
        "ceil" => f32::ceil,
        "trunc" => f32::trunc,
        other => {
            let known = "round, floor, ceil and trunc";
            return Err(Refusal::Invalid(format!("roundMode is {other:?}; accepted are {known}")));
        }
    };
    let view = plan.view(x);
    plan.shape(y, view.shape())?;
    for slot in [Some(scale), offset].into_iter().flatten() {
        let count = plan.view(slot).numel();
        ensure(count == 1 || count == view.last(), || {
            format!("{} has {count} values; 1 or {} are needed", plan.name(slot), view.last())
        })?;
    }
    let width = view.last().max(1);
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let (values, scale): (Vec<f32>, Vec<f32>) = (gather(&views[x]), gather(&views[scale]));
            let offset: Option<Vec<f32>> = views.maybe(offset).map(|view| gather(view));
            let at = |all: &[f32], column: usize| all[if all.len() == 1 { 0 } else { column }];
            let bytes: Vec<i64> = values
                .iter()
                .enumerate()
                .map(|(i, value)| {
                    let column = i % width;
                    let scale = at(&scale, column);
                    let scaled = value * scale * if sqrt { scale } else { 1.0 };
                    let moved = scaled + offset.as_ref().map_or(0.0, |offset| at(offset, column));
                    rounding(moved).clamp(-128.0, 127.0) as i64
                })
                .collect();
            scatter(&views[y], &bytes);
        }
        Ok(())
    })
}

fn row_scales(plan: &Plan, x: Slot, scale: Slot) -> Result<(), Refusal> {
    plan.types(scale, &[DType::F32])?;
    let view = plan.view(x);
    plan.shape(scale, &view.shape()[..view.rank().saturating_sub(1)])
}

fn dynamic(
    plan: &mut Plan,
    x: Slot,
    smooth: Option<Slot>,
    group: Option<Slot>,
    dst: i64,
    y: Slot,
    scale: Slot,
    offset: Option<Slot>,
) -> Planned {
    plan.types(x, HALVES)?;
    plan.types(y, &[DType::I8])?;
    ensure(dst == INT8, || format!("dstType is {dst}; this library quantises to 2 (int8)"))?;
    let view = plan.view(x);
    plan.shape(y, view.shape())?;
    row_scales(plan, x, scale)?;
    if let Some(offset) = offset {
        row_scales(plan, x, offset)?;
    }
    let width = view.last();
    if let Some(smooth) = smooth {
        let count = plan.view(smooth).numel();
        let groups = group.map_or(1, |group| plan.view(group).numel());
        ensure(count == width * groups, || {
            format!("smoothScales has {count} values; {width} for each of {groups} groups are needed")
        })?;
    }
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let mut values: Vec<f32> = gather(&views[x]);
            let rows = values.len() / width.max(1);
            let smooth: Option<Vec<f32>> = views.maybe(smooth).map(|view| gather(view));
            let of = views.maybe(group).map(|view| groups(&gather::<i64>(view), true, rows));
            let (mut bytes, mut scales) = (vec![0i64; values.len()], vec![0f32; rows]);
            let mut offsets = vec![0f32; rows];
            for row in 0..rows {
                let line = &mut values[row * width..][..width];
                if let Some(smooth) = &smooth {
                    let first = of.as_ref().map_or(0, |of| of[row].unwrap_or(0)) * width;
                    line.iter_mut().zip(&smooth[first..]).for_each(|(value, smooth)| *value *= smooth);
                }
                let out = &mut bytes[row * width..][..width];
                if offset.is_some() {
                    let high = line.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let low = line.iter().copied().fold(f32::INFINITY, f32::min);
                    scales[row] = (high - low) / 255.0;
                    let factor = if scales[row] > 0.0 { 1.0 / scales[row] } else { 0.0 };
                    offsets[row] = 127.0 - high * factor;
                    let place = |value: &f32| to_byte(value * factor + offsets[row]);
                    line.iter().zip(out).for_each(|(value, slot)| *slot = place(value));
                } else {
                    scales[row] = quantise_row(line, out);
                }
            }
            scatter(&views[y], &bytes);
            scatter(&views[scale], &scales);
            if let Some(view) = views.maybe(offset) {
                scatter(view, &offsets);
            }
        }
        Ok(())
    })
}

/// Adds, normalises row by row and passes each normalised row on.
///
/// # Safety
/// The views must be readable and writable.
unsafe fn normed_rows(
    views: &Views,
    (x1, x2, gamma, sum): (Slot, Slot, Slot, Slot),
    epsilon: f64,
    mut row_done: impl FnMut(usize, &[f32]),
) {
    super::numeric::map::binary::<f32>(&views[x1], &views[x2], &views[sum], |a, b| a + b);
    // SAFETY: passed on.
    let (mut values, weight): (Vec<f32>, Vec<f32>) = unsafe { (gather(&views[sum]), gather(&views[gamma])) };
    let dtype = views[sum].dtype;
    for (row, line) in values.chunks_mut(weight.len().max(1)).enumerate() {
        rms(line, &weight, epsilon as f32);
        // The norm is rounded as if it had been stored, so that fused and separate operators agree.
        for value in line.iter_mut() {
            *value = rounded(*value, dtype);
        }
        row_done(row, line);
    }
}

fn norm_static(
    plan: &mut Plan,
    x1: Slot,
    x2: Slot,
    gamma: Slot,
    scales1: Slot,
    scales2: Option<Slot>,
    zeros1: Option<Slot>,
    zeros2: Option<Slot>,
    axis: i64,
    epsilon: f64,
    divide: bool,
    y1: Slot,
    y2: Option<Slot>,
    sum: Slot,
) -> Planned {
    trailing(plan, x1, gamma, &[x2, y1, sum], None)?;
    ensure(axis == -1, || format!("axis is {axis}; only -1 is supported"))?;
    let width = plan.view(gamma).numel();
    let mut outputs = vec![(y1, scales1, zeros1)];
    if let Some(second) = scales2 {
        let y2 = y2.ok_or(Refusal::Null("y2Out"))?;
        outputs.push((y2, second, zeros2));
    }
    for (y, scale, zero) in &outputs {
        plan.types(*y, &[DType::I8])?;
        for slot in [Some(*scale), *zero].into_iter().flatten() {
            let count = plan.view(slot).numel();
            ensure(count == width, || format!("{} has {count} values, {width} are needed", plan.name(slot)))?;
        }
    }
    work(move |views| {
        for (y, scale, zero) in &outputs {
            let mut bytes: Vec<i64> = Vec::new();
            // SAFETY: the views of a launch are the caller's to read and write.
            unsafe {
                let scale: Vec<f32> = gather(&views[*scale]);
                let zero: Option<Vec<f32>> = views.maybe(*zero).map(|view| gather(view));
                normed_rows(views, (x1, x2, gamma, sum), epsilon, |_, line| {
                    bytes.extend(line.iter().enumerate().map(|(at, value)| {
                        let scaled = if divide { value / scale[at] } else { value * scale[at] };
                        to_byte(scaled + zero.as_ref().map_or(0.0, |zero| zero[at]))
                    }));
                });
                scatter(&views[*y], &bytes);
            }
        }
        Ok(())
    })
}

fn norm_dynamic(
    plan: &mut Plan,
    x1: Slot,
    x2: Slot,
    gamma: Slot,
    smooth1: Option<Slot>,
    smooth2: Option<Slot>,
    epsilon: f64,
    y1: Slot,
    y2: Option<Slot>,
    sum: Slot,
    scale1: Slot,
    scale2: Option<Slot>,
) -> Planned {
    trailing(plan, x1, gamma, &[x2, y1, sum], None)?;
    ensure(smooth1.is_some() || smooth2.is_none(), || {
        "smoothScale2 without smoothScale1 is not accepted".to_owned()
    })?;
    let width = plan.view(gamma).numel();
    let mut outputs = vec![(y1, scale1, smooth1)];
    if smooth2.is_some() {
        outputs.push((y2.ok_or(Refusal::Null("y2Out"))?, scale2.ok_or(Refusal::Null("scale2Out"))?, smooth2));
    }
    for (y, scale, smooth) in &outputs {
        plan.types(*y, &[DType::I8])?;
        row_scales(plan, x1, *scale)?;
        if let Some(smooth) = smooth {
            plan.shape(*smooth, &[width as i64])?;
        }
    }
    work(move |views| {
        for (y, scale, smooth) in &outputs {
            let (mut bytes, mut all) = (Vec::new(), Vec::new());
            // SAFETY: the views of a launch are the caller's to read and write.
            unsafe {
                let smooth: Option<Vec<f32>> = views.maybe(*smooth).map(|view| gather(view));
                let mut line = vec![0f32; width];
                normed_rows(views, (x1, x2, gamma, sum), epsilon, |row, values| {
                    line.copy_from_slice(values);
                    if let Some(smooth) = &smooth {
                        line.iter_mut().zip(smooth).for_each(|(value, smooth)| *value *= smooth);
                    }
                    bytes.resize((row + 1) * width, 0i64);
                    all.push(quantise_row(&line, &mut bytes[row * width..]));
                });
                scatter(&views[*y], &bytes);
                scatter(&views[*scale], &all);
            }
        }
        Ok(())
    })
}

/// Optional arguments of the gated quantisers.
#[derive(Default)]
struct Gate {
    weight: Option<Slot>,
    activation: Option<Slot>,
    bias: Option<Slot>,
    quant: Option<Slot>,
    offset: Option<Slot>,
    group: Option<Slot>,
    left: bool,
    mode: String,
}

fn gated(plan: &mut Plan, x: Slot, gate: Gate, y: Slot, scale: Option<Slot>) -> Planned {
    plan.types(y, &[DType::I8])?;
    let view = plan.view(x);
    let width = view.last();
    ensure(view.rank() >= 2 && width.is_multiple_of(2), || {
        format!("x has shape {:?}; its last dimension must be even", view.shape())
    })?;
    let half = width / 2;
    let mut shape = view.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = half as i64;
    }
    plan.shape(y, &shape)?;
    let is_static = match gate.mode.as_str() {
        "static" | "" => true,
        "dynamic" => false,
        other => {
            let text = format!("quantMode is {other:?}; accepted are \"static\" and \"dynamic\"");
            return Err(Refusal::Invalid(text));
        }
    };
    ensure(!is_static || gate.quant.is_some(), || "static quantisation needs scales".to_owned())?;
    ensure(is_static || scale.is_some(), || "dynamic quantisation needs scaleOut".to_owned())?;
    if let (false, Some(scale)) = (is_static, scale) {
        row_scales(plan, x, scale)?;
    }
    ensure(view.dtype != DType::I32 || gate.weight.is_some(), || {
        "x is a sum of integers: weightScale is needed".to_owned()
    })?;
    let groups_of = gate.group.map_or(1, |group| plan.view(group).numel());
    for (slot, size) in [(gate.weight, width), (gate.bias, width), (gate.quant, half), (gate.offset, half)] {
        if let Some(slot) = slot {
            let count = plan.view(slot).numel();
            let accepted = count == size || count == size * groups_of || count == groups_of || count == 1;
            ensure(accepted, || {
                format!("{} has {count} values for {groups_of} groups of {size}", plan.name(slot))
            })?;
        }
    }
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe { run_gated(views, x, &gate, y, scale.filter(|_| !is_static)) };
        Ok(())
    })
}

/// A parameter for one column of a group's row: one for all, one a group, or one a column.
fn parameter(all: &[f32], group: usize, column: usize, width: usize) -> f32 {
    let at = match all.len() {
        1 => 0,
        count if count == width => column,
        count if count > width => group * width + column,
        _ => group,
    };
    all.get(at).copied().unwrap_or(0.0)
}

/// # Safety
/// The views must be readable and writable.
unsafe fn run_gated(views: &Views, x: Slot, gate: &Gate, y: Slot, scale: Option<Slot>) {
    // SAFETY: passed on.
    let read = |slot: Option<Slot>| views.maybe(slot).map(|view: &View| unsafe { scales(view) });
    let (weight, activation, bias) = (read(gate.weight), read(gate.activation), read(gate.bias));
    let (quant, offset) = (read(gate.quant), read(gate.offset));
    // SAFETY: passed on.
    let values: Vec<f32> = unsafe { gather(&views[x]) };
    let width = views[x].last();
    let (half, rows) = (width / 2, values.len() / width.max(1));
    // SAFETY: passed on.
    let of = views.maybe(gate.group).map(|view| groups(&unsafe { gather::<i64>(view) }, false, rows));
    let (mut bytes, mut all) = (vec![0i64; rows * half], vec![0f32; rows]);
    let mut wide = vec![0f32; width];
    let mut line = vec![0f32; half];
    for row in 0..rows {
        let group = match &of {
            None => 0,
            Some(of) => match of[row] {
                Some(group) => group,
                None => continue,
            },
        };
        for (column, slot) in wide.iter_mut().enumerate() {
            let mut value = values[row * width + column];
            if let Some(weight) = &weight {
                value *= parameter(weight, group, column, width);
            }
            if let Some(activation) = &activation {
                value *= activation[if activation.len() == 1 { 0 } else { row }];
            }
            if let Some(bias) = &bias {
                value += parameter(bias, group, column, width);
            }
            *slot = value;
        }
        let (first, second) = wide.split_at(half);
        let (gates, ups) = if gate.left { (first, second) } else { (second, first) };
        for (at, slot) in line.iter_mut().enumerate() {
            let factor = quant.as_ref().map_or(1.0, |quant| parameter(quant, group, at, half));
            *slot = silu(gates[at]) * ups[at] * factor;
        }
        let out = &mut bytes[row * half..][..half];
        if scale.is_some() {
            all[row] = quantise_row(&line, out);
        } else {
            for (at, slot) in out.iter_mut().enumerate() {
                let moved = offset.as_ref().map_or(0.0, |offset| parameter(offset, group, at, half));
                *slot = to_byte(line[at] + moved);
            }
        }
    }
    // SAFETY: passed on.
    unsafe {
        scatter(&views[y], &bytes);
        if let Some(view) = views.maybe(scale) {
            scatter(view, &all);
        }
    }
}
