//! Arithmetic between two tensors, or a tensor and a scalar, with broadcasting.
//!
//! Always holds: floats are computed in `f32`, integers in `i64`; a result is rounded once.
//!
//! Refuses to know: 64-bit floats, which no model computes with; they are refused.
#![allow(clippy::float_cmp, reason = "EqTensor and NeTensor compare exactly")]

use super::numeric::map;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::objects::Scalar;
use crate::tensor::view::broadcast_shape;

operator!(aclnnAdd, aclnnAddGetWorkspaceSize,
    (x: input, other: input, alpha: scalar, out: output) => add);
operator!(aclnnInplaceAdd, aclnnInplaceAddGetWorkspaceSize,
    (selfRef: inout, other: input, alpha: scalar) =>
    |plan: &mut Plan, x, other, alpha| add(plan, x, other, alpha, x));
operator!(aclnnSub, aclnnSubGetWorkspaceSize,
    (x: input, other: input, alpha: scalar, out: output) => sub);
operator!(aclnnInplaceSub, aclnnInplaceSubGetWorkspaceSize,
    (selfRef: inout, other: input, alpha: scalar) =>
    |plan: &mut Plan, x, other, alpha| sub(plan, x, other, alpha, x));
operator!(aclnnMul, aclnnMulGetWorkspaceSize, (x: input, other: input, out: output) => mul);
operator!(aclnnInplaceMul, aclnnInplaceMulGetWorkspaceSize, (selfRef: inout, other: input) =>
    |plan: &mut Plan, x, other| mul(plan, x, other, x));
operator!(aclnnDiv, aclnnDivGetWorkspaceSize, (x: input, other: input, out: output) => div);
operator!(aclnnInplaceDiv, aclnnInplaceDivGetWorkspaceSize, (selfRef: inout, other: input) =>
    |plan: &mut Plan, x, other| div(plan, x, other, x));
operator!(aclnnMaximum, aclnnMaximumGetWorkspaceSize, (x: input, other: input, out: output) =>
    |plan: &mut Plan, x, other, out| two(plan, x, other, out, f32::max, i64::max));
operator!(aclnnMinimum, aclnnMinimumGetWorkspaceSize, (x: input, other: input, out: output) =>
    |plan: &mut Plan, x, other, out| two(plan, x, other, out, f32::min, i64::min));
operator!(aclnnInplacePowTensorTensor, aclnnInplacePowTensorTensorGetWorkspaceSize,
    (selfRef: inout, exponent: input) => |plan: &mut Plan, x, other| two(plan, x, other, x, f32::powf,
        power));

operator!(aclnnAdds, aclnnAddsGetWorkspaceSize,
    (x: input, other: scalar, alpha: scalar, out: output) => adds);
operator!(aclnnInplaceAdds, aclnnInplaceAddsGetWorkspaceSize,
    (selfRef: inout, other: scalar, alpha: scalar) =>
    |plan: &mut Plan, x, other, alpha| adds(plan, x, other, alpha, x));
operator!(aclnnSubs, aclnnSubsGetWorkspaceSize,
    (x: input, other: scalar, alpha: scalar, out: output) => subs);
operator!(aclnnInplaceSubs, aclnnInplaceSubsGetWorkspaceSize,
    (selfRef: inout, other: scalar, alpha: scalar) =>
    |plan: &mut Plan, x, other, alpha| subs(plan, x, other, alpha, x));
operator!(aclnnMuls, aclnnMulsGetWorkspaceSize, (x: input, other: scalar, out: output) => muls);
operator!(aclnnInplaceMuls, aclnnInplaceMulsGetWorkspaceSize, (selfRef: inout, other: scalar) =>
    |plan: &mut Plan, x, other| muls(plan, x, other, x));
operator!(aclnnDivs, aclnnDivsGetWorkspaceSize, (x: input, other: scalar, out: output) => divs);
operator!(aclnnInplaceDivs, aclnnInplaceDivsGetWorkspaceSize, (selfRef: inout, other: scalar) =>
    |plan: &mut Plan, x, other| divs(plan, x, other, x));
operator!(aclnnPowTensorScalar, aclnnPowTensorScalarGetWorkspaceSize,
(x: input, exponent: scalar, out: output) => |plan: &mut Plan, x, exponent: Scalar, out| {
    one(plan, x, exponent, out, f32::powf, power)
});
operator!(aclnnPowScalarTensor, aclnnPowScalarTensorGetWorkspaceSize,
(x: scalar, exponent: input, out: output) => |plan: &mut Plan, base: Scalar, exponent, out| {
    one(plan, exponent, base, out, |exponent, base| base.powf(exponent), |e, b| power(b, e))
});

macro_rules! comparison {
    ($tensors:ident, $tensors_first:ident, $scalar:ident, $scalar_first:ident, $test:tt) => {
        operator!($tensors, $tensors_first, (x: input, other: input, out: output) =>
            |plan: &mut Plan, x, other, out| two(
                plan, x, other, out,
                |a, b| f32::from(u8::from(a $test b)),
                |a, b| i64::from(a $test b),
            ));
        operator!($scalar, $scalar_first, (x: input, other: scalar, out: output) =>
            |plan: &mut Plan, x, other, out| one(
                plan, x, other, out,
                |a, b| f32::from(u8::from(a $test b)),
                |a, b| i64::from(a $test b),
            ));
    };
}
comparison!(aclnnEqTensor, aclnnEqTensorGetWorkspaceSize, aclnnEqScalar, aclnnEqScalarGetWorkspaceSize, ==);
comparison!(aclnnNeTensor, aclnnNeTensorGetWorkspaceSize, aclnnNeScalar, aclnnNeScalarGetWorkspaceSize, !=);
comparison!(aclnnLtTensor, aclnnLtTensorGetWorkspaceSize, aclnnLtScalar, aclnnLtScalarGetWorkspaceSize, <);
comparison!(aclnnLeTensor, aclnnLeTensorGetWorkspaceSize, aclnnLeScalar, aclnnLeScalarGetWorkspaceSize, <=);
comparison!(aclnnGtTensor, aclnnGtTensorGetWorkspaceSize, aclnnGtScalar, aclnnGtScalarGetWorkspaceSize, >);
comparison!(aclnnGeTensor, aclnnGeTensorGetWorkspaceSize, aclnnGeScalar, aclnnGeScalarGetWorkspaceSize, >=);

fn power(base: i64, exponent: i64) -> i64 {
    u32::try_from(exponent).map_or(0, |exponent| base.wrapping_pow(exponent))
}

fn divide(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}

/// Checks that no argument is a 64-bit float, which no kernel here computes with.
pub(crate) fn computable(plan: &Plan, slots: &[Slot]) -> Result<(), Refusal> {
    for slot in slots {
        let dtype = plan.view(*slot).dtype;
        ensure(!matches!(dtype, DType::F64 | DType::I4), || {
            format!("{} has data type {dtype:?}, for which there is no kernel", plan.name(*slot))
        })?;
    }
    Ok(())
}

/// Workspace for copies of tensors that are not dense.
pub(crate) fn copies(plan: &mut Plan, slots: &[Slot]) {
    for slot in slots {
        let view = plan.view(*slot);
        if !view.is_dense() {
            plan.scratch(view.dtype.bytes(view.numel()));
        }
    }
}

fn two(
    plan: &mut Plan,
    x: Slot,
    other: Slot,
    out: Slot,
    floats: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
    ints: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> Planned {
    computable(plan, &[x, other, out])?;
    let (a, b) = (plan.view(x), plan.view(other));
    let shape = broadcast_shape(a.shape(), b.shape()).ok_or_else(|| {
        Refusal::Invalid(format!("shapes {:?} and {:?} do not broadcast", a.shape(), b.shape()))
    })?;
    plan.shape(out, &shape)?;
    copies(plan, &[x, other]);
    plan.stretch(other, &shape)?;
    if x != out {
        plan.stretch(x, &shape)?;
    }
    if a.dtype.is_float() || b.dtype.is_float() {
        work(move |views| {
            map::binary::<f32>(&views[x], &views[other], &views[out], &floats);
            Ok(())
        })
    } else {
        work(move |views| {
            map::binary::<i64>(&views[x], &views[other], &views[out], &ints);
            Ok(())
        })
    }
}

fn one(
    plan: &mut Plan,
    x: Slot,
    other: Scalar,
    out: Slot,
    floats: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
    ints: impl Fn(i64, i64) -> i64 + Send + Sync + 'static,
) -> Planned {
    computable(plan, &[x, out])?;
    let view = plan.view(x);
    plan.shape(out, view.shape())?;
    copies(plan, &[x]);
    if view.dtype.is_float() || other.is_float() {
        let value = other.to_f32();
        work(move |views| {
            map::unary::<f32>(&views[x], &views[out], |x| floats(x, value));
            Ok(())
        })
    } else {
        let value = other.to_i64();
        work(move |views| {
            map::unary::<i64>(&views[x], &views[out], |x| ints(x, value));
            Ok(())
        })
    }
}

fn add(plan: &mut Plan, x: Slot, other: Slot, alpha: Scalar, out: Slot) -> Planned {
    let (float, int) = (alpha.to_f32(), alpha.to_i64());
    two(plan, x, other, out, move |a, b| a + float * b, move |a, b| a.wrapping_add(int.wrapping_mul(b)))
}

fn sub(plan: &mut Plan, x: Slot, other: Slot, alpha: Scalar, out: Slot) -> Planned {
    let (float, int) = (alpha.to_f32(), alpha.to_i64());
    two(plan, x, other, out, move |a, b| a - float * b, move |a, b| a.wrapping_sub(int.wrapping_mul(b)))
}

fn mul(plan: &mut Plan, x: Slot, other: Slot, out: Slot) -> Planned {
    two(plan, x, other, out, |a, b| a * b, i64::wrapping_mul)
}

fn div(plan: &mut Plan, x: Slot, other: Slot, out: Slot) -> Planned {
    two(plan, x, other, out, |a, b| a / b, divide)
}

fn adds(plan: &mut Plan, x: Slot, other: Scalar, alpha: Scalar, out: Slot) -> Planned {
    let (float, int) = (alpha.to_f32(), alpha.to_i64());
    one(plan, x, other, out, move |a, b| a + float * b, move |a, b| a.wrapping_add(int.wrapping_mul(b)))
}

fn subs(plan: &mut Plan, x: Slot, other: Scalar, alpha: Scalar, out: Slot) -> Planned {
    let (float, int) = (alpha.to_f32(), alpha.to_i64());
    one(plan, x, other, out, move |a, b| a - float * b, move |a, b| a.wrapping_sub(int.wrapping_mul(b)))
}

fn muls(plan: &mut Plan, x: Slot, other: Scalar, out: Slot) -> Planned {
    one(plan, x, other, out, |a, b| a * b, i64::wrapping_mul)
}

fn divs(plan: &mut Plan, x: Slot, other: Scalar, out: Slot) -> Planned {
    one(plan, x, other, out, |a, b| a / b, divide)
}
