//! Products of quantised matrices: `QuantMatmul` in its versions, `WeightQuantBatchMatmul`,
//! `TransQuantParamV2`.
//!
//! Always holds: byte products are summed exactly; scales are applied in `f32`, the column's before the
//! row's; one rounding at the end.
//!
//! Refuses to know: 4-bit activations and block scales.

use super::matmul::{SYSTEM_WORKSPACE, gemm};
use super::numeric::integer::{pack, product, scales, to_byte};
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather, rounded, scatter};
use crate::tensor::view::View;

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];

/// Arguments of a quantised product.
struct Quantised {
    x1: Slot,
    x2: Slot,
    scale: Slot,
    offset: Option<Slot>,
    row_scale: Option<Slot>,
    bias: Option<Slot>,
    transpose1: bool,
    transpose2: bool,
    out: Slot,
}

operator!(aclnnQuantMatmulV3, aclnnQuantMatmulV3GetWorkspaceSize,
    (x1: input, x2: input, scale: input, offset: optional, bias: optional, transposeX1: bool,
     transposeX2: bool, out: output) =>
    |plan: &mut Plan, x1, x2, scale, offset, bias, transpose1, transpose2, out| quant_matmul(
        plan, Quantised { x1, x2, scale, offset, row_scale: None, bias, transpose1, transpose2, out }));
operator!(aclnnQuantMatmulV4, aclnnQuantMatmulV4GetWorkspaceSize,
    (x1: input, x2: input, scale: input, offset: optional, pertokenScaleOptional: optional, bias: optional,
     transposeX1: bool, transposeX2: bool, out: output) =>
    |plan: &mut Plan, x1, x2, scale, offset, row_scale, bias, transpose1, transpose2, out| quant_matmul(
        plan, Quantised { x1, x2, scale, offset, row_scale, bias, transpose1, transpose2, out }));
macro_rules! quant_matmul_v5 {
    ($($name:ident $first:ident)*) => {
        $(operator!($name, $first,
            (x1: input, x2: input, x1Scale: optional, x2Scale: input, yScale: optional, x1Offset: optional,
             x2Offset: optional, yOffset: optional, bias: optional, transposeX1: bool, transposeX2: bool,
             groupSize: i64, out: output) =>
            |plan: &mut Plan, x1, x2, row_scale, scale, y_scale: Option<Slot>, x1_offset: Option<Slot>,
                offset,
             y_offset: Option<Slot>, bias, transpose1, transpose2, group: i64, out| {
                if [y_scale, x1_offset, y_offset].iter().any(Option::is_some) || group > 0 {
                    return Err(Refusal::NoKernel("yScale, x1Offset, yOffset or groupSize".to_owned()));
                }
                quant_matmul(
                    plan, Quantised { x1, x2, scale, offset, row_scale, bias, transpose1, transpose2, out })
            });)*
    };
}
quant_matmul_v5!(aclnnQuantMatmulV5 aclnnQuantMatmulV5GetWorkspaceSize
    aclnnQuantMatmulWeightNz aclnnQuantMatmulWeightNzGetWorkspaceSize);
operator!(aclnnTransQuantParamV2, aclnnTransQuantParamV2GetWorkspaceSize,
(scale: input, offset: optional, out: output) => |plan: &mut Plan, scale, offset, out| {
    plan.types(scale, &[DType::F32])?;
    plan.types(out, &[DType::U64, DType::I64])?;
    plan.shape(out, plan.view(scale).shape())?;
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let all: Vec<f32> = gather(&views[scale]);
            let offsets: Option<Vec<f32>> = views.maybe(offset).map(|view| gather(view));
            let offset = |at: usize| offsets.as_ref().map_or(0.0, |all| all[at.min(all.len() - 1)]);
            let packed: Vec<i64> = all.iter().enumerate().map(|(at, scale)| pack(*scale,
                offset(at))).collect();
            scatter(&views[out], &packed);
        }
        Ok(())
    })
});
macro_rules! weight_quant {
    ($name:ident $first:ident $(, $extra:ident)?) => {
        operator!($name, $first,
            (x: input, weight: input, antiquantScale: input, antiquantOffsetOptional: optional,
             quantScaleOptional: optional, quantOffsetOptional: optional, biasOptional: optional,
             antiquantGroupSize: i32, $($extra: i32,)? y: output) =>
            |plan: &mut Plan, x, weight, scale, offset, quant: Option<Slot>, quant_offset: Option<Slot>, bias,
             group: i32, $($extra: i32,)? y| {
                $(let _ = $extra;)?
                if quant.is_some() || quant_offset.is_some() {
                    return Err(Refusal::NoKernel("quantised output".to_owned()));
                }
                weight_quant(plan, x, weight, scale, offset, bias, group, y)
            });
    };
}
weight_quant!(aclnnWeightQuantBatchMatmulV2 aclnnWeightQuantBatchMatmulV2GetWorkspaceSize);
weight_quant!(aclnnWeightQuantBatchMatmulV3 aclnnWeightQuantBatchMatmulV3GetWorkspaceSize, innerPrecise);

fn quant_matmul(plan: &mut Plan, q: Quantised) -> Planned {
    plan.types(q.x1, &[DType::I8])?;
    plan.types(q.x2, &[DType::I8])?;
    plan.types(q.scale, &[DType::U64, DType::I64, DType::F32, DType::BF16])?;
    let target = plan.types(q.out, &[DType::F16, DType::BF16, DType::I8, DType::I32])?;
    let packed = matches!(plan.view(q.scale).dtype, DType::U64 | DType::I64);
    let fits = match target {
        DType::F16 => packed || (plan.view(q.scale).dtype == DType::F32 && q.row_scale.is_some()),
        DType::I8 => packed,
        DType::BF16 => true,
        _ => !packed,
    };
    ensure(fits, || {
        let scale = plan.view(q.scale).dtype;
        {
            let rule = "a float16 or int8 result takes a scale packed by TransQuantParamV2";
            format!("scale {scale:?} does not give {target:?}: {rule}")
        }
    })?;
    ensure(!packed || q.row_scale.is_none(), || {
        "a packed scale cannot be used with pertokenScale".to_owned()
    })?;
    let turn = |view: View, turned: bool| {
        let rank = view.rank();
        let mut order: Vec<usize> = (0..rank).collect();
        if turned && rank >= 2 {
            order.swap(rank - 2, rank - 1);
        }
        view.permuted(&order).unwrap_or(view)
    };
    plan.rank(q.x2, &[2])?;
    let (a, b) = (turn(plan.view(q.x1), q.transpose1), turn(plan.view(q.x2), q.transpose2));
    ensure(a.rank() >= 2 && a.last() == b.dim(0), || {
        format!("shapes {:?} and {:?} do not match in the inner dimension", a.shape(), b.shape())
    })?;
    let mut shape = a.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = b.shape()[1];
    }
    plan.shape(q.out, &shape)?;
    let (rows, n) = (a.numel() / a.last().max(1), b.dim(1));
    for (slot, size) in [(Some(q.scale), n), (q.offset, n), (q.row_scale, rows), (q.bias, n)] {
        if let Some(slot) = slot {
            let count = plan.view(slot).numel();
            ensure(count == size || (count == 1 && Some(slot) != q.bias), || {
                format!("{} has {count} values, {size} are needed", plan.name(slot))
            })?;
        }
    }
    if let Some(row_scale) = q.row_scale {
        plan.types(row_scale, &[DType::F32])?;
    }
    if let Some(bias) = q.bias {
        plan.types(bias, &[DType::I32, DType::F32, DType::F16, DType::BF16])?;
    }
    plan.replace(q.x1, a);
    plan.replace(q.x2, b);
    plan.scratch(SYSTEM_WORKSPACE + rows * n * 4);
    work(move |views| {
        let (x1, k) = (&views[q.x1], views[q.x1].last());
        let at = |all: &[f32], place: usize| all[if all.len() == 1 { 0 } else { place }];
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let flat = super::numeric::integer::bytes(x1);
            let left =
                View::dense(flat.as_ptr() as usize, DType::I8, &[rows as i64, k as i64]).unwrap_or(*x1);
            let scale = scales(&views[q.scale]);
            let read = |slot: Option<Slot>| views.maybe(slot).map(|view| scales(view));
            let (offset, row_scale, bias) = (read(q.offset), read(q.row_scale), read(q.bias));
            let whole = q.bias.is_some_and(|bias| views[bias].dtype == DType::I32);
            let mut results = vec![0f64; rows * n];
            product(&left, &views[q.x2], |row, column, sum| {
                let bias = bias.as_ref().map_or(0.0, |bias| bias[column]);
                let sum = if whole { sum.wrapping_add(bias as i32) } else { sum };
                if target == DType::I32 {
                    results[row * n + column] = f64::from(sum);
                    return;
                }
                let mut value = sum as f32 * at(&scale, column);
                if let Some(row_scale) = &row_scale {
                    value *= at(row_scale, row);
                }
                if !whole {
                    value += bias;
                }
                results[row * n + column] = if target == DType::I8 {
                    to_byte(value + offset.as_ref().map_or(0.0, |offset| at(offset, column))) as f64
                } else {
                    f64::from(value)
                };
            });
            scatter(&views[q.out], &results);
        }
        Ok(())
    })
}

fn weight_quant(
    plan: &mut Plan,
    x: Slot,
    weight: Slot,
    scale: Slot,
    offset: Option<Slot>,
    bias: Option<Slot>,
    group: i32,
    y: Slot,
) -> Planned {
    let dtype = plan.types(x, &[DType::F16, DType::BF16])?;
    plan.types(weight, &[DType::I8, DType::I4])?;
    plan.types(y, &[DType::F16, DType::BF16])?;
    plan.types(scale, FLOATS)?;
    plan.rank(x, &[2])?;
    plan.rank(weight, &[2])?;
    let (a, b) = (plan.view(x), plan.view(weight));
    let (k, n) = (b.dim(0), b.dim(1));
    ensure(a.dim(1) == k, || {
        format!("shapes {:?} and {:?} do not match in the inner dimension", a.shape(), b.shape())
    })?;
    plan.shape(y, &[a.shape()[0], n as i64])?;
    let size = usize::try_from(group).unwrap_or(0);
    ensure(size == 0 || (size.is_multiple_of(32) && size < k), || {
        format!("antiquantGroupSize is {group}; accepted are 0 and multiples of 32 below {k}")
    })?;
    let groups = if size == 0 { 1 } else { k.div_ceil(size) };
    for slot in [Some(scale), offset].into_iter().flatten() {
        let view = plan.view(slot);
        let whole = view.numel() == groups * n || (size == 0 && view.numel() == 1);
        ensure(whole, || {
            format!("{} has shape {:?}; {groups} groups of {n} are needed", plan.name(slot), view.shape())
        })?;
    }
    if let Some(bias) = bias {
        ensure(plan.view(bias).numel() == n, || format!("biasOptional needs {n} values"))?;
    }
    plan.scratch(SYSTEM_WORKSPACE);
    work(move |views| {
        // SAFETY: the views of a launch are the caller's to read and write.
        unsafe {
            let turned = views[weight].permuted(&[1, 0]).unwrap_or(views[weight]);
            let mut values: Vec<f32> = gather(&turned);
            let scale: Vec<f32> = gather(&views[scale]);
            let offset: Option<Vec<f32>> = views.maybe(offset).map(|view| gather(view));
            for (i, value) in values.iter_mut().enumerate() {
                let (column, row) = (i / k, i % k);
                let group = row.checked_div(size).unwrap_or(0);
                let at = if scale.len() == 1 { 0 } else { group * n + column };
                let moved = *value + offset.as_ref().map_or(0.0, |offset| offset[at.min(offset.len() - 1)]);
                // The weight the matrix unit sees has the type of the input.
                *value = rounded(moved * scale[at], dtype);
            }
            let bias: Option<Vec<f32>> = views.maybe(bias).map(|view| gather(view));
            let dense =
                View::new(values.as_ptr() as usize, DType::F32, &[k as i64, n as i64], &[1, k as i64], 0)
                    .unwrap_or(turned);
            gemm(&views[x], &dense, &views[y], &|_, column, value| {
                value + bias.as_ref().map_or(0.0, |bias| bias[column])
            })
        }
    })
}
