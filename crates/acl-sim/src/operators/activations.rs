//! Functions of one element, and the gated ones that halve a dimension.
//!
//! Always holds: computed in `f32`, rounded once.
//!
//! Refuses to know: integers, except where the real operator takes them (`Neg`, `Abs`).

use std::f32::consts::FRAC_1_SQRT_2;

use super::elementwise::copies;
use super::numeric::map;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::ensure;
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::objects::Scalar;

const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16];

/// `x · sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function, to about the last bits of `f32` (Abramowitz and Stegun's 7.1.26 is too coarse; this is
/// a series near zero and a continued fraction beyond, in `f64`).
fn erf(x: f32) -> f32 {
    let x = f64::from(x);
    let a = x.abs();
    let value = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-12 {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let mut fraction = 0.0;
        for n in (1..=60).rev() {
            fraction = f64::from(n) / 2.0 / (a + fraction);
        }
        1.0 - (-a * a).exp() / ((a + fraction) * std::f64::consts::PI.sqrt())
    };
    value.copysign(x) as f32
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

fn gelu_tanh(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
}

/// `out = f(x)` for float tensors of one shape.
pub(crate) fn float(
    plan: &mut Plan,
    x: Slot,
    out: Slot,
    f: impl Fn(f32) -> f32 + Send + Sync + 'static,
) -> Planned {
    plan.types(x, TYPES)?;
    plan.types(out, TYPES)?;
    plan.shape(out, plan.view(x).shape())?;
    copies(plan, &[x]);
    work(move |views| {
        map::unary::<f32>(&views[x], &views[out], &f);
        Ok(())
    })
}

macro_rules! unary {
    ($($name:ident $first:ident $f:expr;)*) => {
        $(operator!($name, $first, (x: input, out: output) =>
            |plan: &mut Plan, x, out| float(plan, x, out, $f));)*
    };
}
unary! {
    aclnnSilu aclnnSiluGetWorkspaceSize silu;
    aclnnSigmoid aclnnSigmoidGetWorkspaceSize sigmoid;
    aclnnGelu aclnnGeluGetWorkspaceSize gelu;
    aclnnExp aclnnExpGetWorkspaceSize f32::exp;
    aclnnLog aclnnLogGetWorkspaceSize f32::ln;
    aclnnSin aclnnSinGetWorkspaceSize f32::sin;
    aclnnCos aclnnCosGetWorkspaceSize f32::cos;
    aclnnTanh aclnnTanhGetWorkspaceSize f32::tanh;
    aclnnRelu aclnnReluGetWorkspaceSize |x: f32| x.max(0.0);
    aclnnSqrt aclnnSqrtGetWorkspaceSize f32::sqrt;
    aclnnRsqrt aclnnRsqrtGetWorkspaceSize |x: f32| x.sqrt().recip();
    aclnnReciprocal aclnnReciprocalGetWorkspaceSize f32::recip;
    aclnnHardswish aclnnHardswishGetWorkspaceSize |x: f32| x * (x + 3.0).clamp(0.0, 6.0) / 6.0;
    aclnnHardsigmoid aclnnHardsigmoidGetWorkspaceSize |x: f32| (x + 3.0).clamp(0.0, 6.0) / 6.0;
}

macro_rules! unary_in_place {
    ($($name:ident $first:ident $f:expr;)*) => {
        $(operator!($name, $first, (selfRef: inout) => |plan: &mut Plan, x| float(plan, x, x, $f));)*
    };
}
unary_in_place! {
    aclnnInplaceExp aclnnInplaceExpGetWorkspaceSize f32::exp;
    aclnnInplaceSin aclnnInplaceSinGetWorkspaceSize f32::sin;
    aclnnInplaceCos aclnnInplaceCosGetWorkspaceSize f32::cos;
}

fn signed(plan: &mut Plan, x: Slot, out: Slot, floats: fn(f32) -> f32, ints: fn(i64) -> i64) -> Planned {
    if plan.view(x).dtype.is_float() {
        return float(plan, x, out, floats);
    }
    plan.same_type(x, out)?;
    plan.shape(out, plan.view(x).shape())?;
    work(move |views| {
        map::unary::<i64>(&views[x], &views[out], ints);
        Ok(())
    })
}
operator!(aclnnNeg, aclnnNegGetWorkspaceSize, (x: input, out: output) =>
    |plan: &mut Plan, x, out| signed(plan, x, out, |x| -x, i64::wrapping_neg));
operator!(aclnnAbs, aclnnAbsGetWorkspaceSize, (x: input, out: output) =>
    |plan: &mut Plan, x, out| signed(plan, x, out, f32::abs, i64::wrapping_abs));

operator!(aclnnGeluV2, aclnnGeluV2GetWorkspaceSize, (x: input, approximate: i64, y: output) =>
|plan: &mut Plan, x, approximate, y| match approximate {
    0 => float(plan, x, y, gelu),
    1 => float(plan, x, y, gelu_tanh),
    _ => {
        ensure(false, || format!("approximate is {approximate}; accepted are 0 (exact) and 1 (tanh)"))?;
        float(plan, x, y, gelu)
    }
});
operator!(aclnnLeakyRelu, aclnnLeakyReluGetWorkspaceSize,
(x: input, negativeSlope: scalar, out: output) => |plan: &mut Plan, x, slope: Scalar, out| {
    let slope = slope.to_f32();
    float(plan, x, out, move |x| if x < 0.0 { slope * x } else { x })
});
operator!(aclnnElu, aclnnEluGetWorkspaceSize,
(x: input, alpha: scalar, scale: scalar, inputScale: scalar, out: output) =>
|plan: &mut Plan, x, alpha: Scalar, scale: Scalar, input: Scalar, out| {
    let (alpha, scale, input) = (alpha.to_f32(), scale.to_f32(), input.to_f32());
    float(plan, x, out, move |x| {
        if x > 0.0 { scale * x } else { scale * alpha * ((x * input).exp() - 1.0) }
    })
});
operator!(aclnnSoftplus, aclnnSoftplusGetWorkspaceSize,
(x: input, beta: scalar, threshold: scalar, out: output) =>
|plan: &mut Plan, x, beta: Scalar, threshold: Scalar, out| {
    let (beta, threshold) = (beta.to_f32(), threshold.to_f32());
    float(plan, x, out, move |x| if x * beta > threshold { x } else { (x * beta).exp().ln_1p() / beta })
});
operator!(aclnnClamp, aclnnClampGetWorkspaceSize,
(x: input, clipValueMin: optional_scalar, clipValueMax: optional_scalar, out: output) =>
|plan: &mut Plan, x, low: Option<Scalar>, high: Option<Scalar>, out| {
    let low = low.map_or(f32::NEG_INFINITY, Scalar::to_f32);
    let high = high.map_or(f32::INFINITY, Scalar::to_f32);
    float(plan, x, out, move |x| x.max(low).min(high))
});
operator!(aclnnClampMin, aclnnClampMinGetWorkspaceSize,
(x: input, clipValueMin: scalar, out: output) => |plan: &mut Plan, x, low: Scalar, out| {
    let low = low.to_f32();
    float(plan, x, out, move |x| x.max(low))
});
operator!(aclnnInplaceClampMax, aclnnInplaceClampMaxGetWorkspaceSize,
(selfRef: inout, clipValueMax: scalar) => |plan: &mut Plan, x, high: Scalar| {
    let high = high.to_f32();
    float(plan, x, x, move |x| x.min(high))
});
operator!(aclnnInplaceThreshold, aclnnInplaceThresholdGetWorkspaceSize,
(selfRef: inout, threshold: scalar, value: scalar) =>
|plan: &mut Plan, x, threshold: Scalar, value: Scalar| {
    let (threshold, value) = (threshold.to_f32(), value.to_f32());
    float(plan, x, x, move |x| if x > threshold { x } else { value })
});

operator!(aclnnSwiGlu, aclnnSwiGluGetWorkspaceSize, (x: input, dim: i64, out: output) =>
    |plan: &mut Plan, x, dim, out| gated(plan, x, dim, out, |gate, up| silu(gate) * up));
operator!(aclnnGeGluV3, aclnnGeGluV3GetWorkspaceSize,
(x: input, dim: i64, approximate: i64, activateLeft: bool, out: output, outGelu: output) =>
|plan: &mut Plan, x, dim, approximate, left: bool, out, gelu_out| {
    let act = if approximate == 1 { gelu_tanh } else { gelu };
    plan.shape(gelu_out, plan.view(out).shape())?;
    let (a, b) = halves(plan, x, dim, out)?;
    let (gate, up) = if left { (a, b) } else { (b, a) };
    work(move |views| {
        map::unary::<f32>(&views[gate], &views[gelu_out], act);
        map::binary::<f32>(&views[gate], &views[up], &views[out], |gate, up| act(gate) * up);
        Ok(())
    })
});

fn halves(
    plan: &mut Plan,
    x: Slot,
    dim: i64,
    out: Slot,
) -> Result<(Slot, Slot), crate::executor::status::Refusal> {
    plan.types(x, TYPES)?;
    plan.same_type(x, out)?;
    let axis = plan.axis(x, dim)?;
    let view = plan.view(x);
    let whole = view.dim(axis);
    ensure(view.rank() > 0 && whole.is_multiple_of(2), || {
        format!("dimension {dim} of x with shape {:?} must be even", view.shape())
    })?;
    let mut shape = view.shape().to_vec();
    shape[axis] = whole as i64 / 2;
    plan.shape(out, &shape)?;
    let first = plan.derive(x, view.slice(axis, 0, whole / 2, 1));
    let second = plan.derive(x, view.slice(axis, whole / 2, whole / 2, 1));
    Ok((first, second))
}

fn gated(
    plan: &mut Plan,
    x: Slot,
    dim: i64,
    out: Slot,
    f: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
) -> Planned {
    let (gate, up) = halves(plan, x, dim, out)?;
    work(move |views| {
        map::binary::<f32>(&views[gate], &views[up], &views[out], &f);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_error_function_is_exact_to_single_precision() {
        for (x, want) in
            [(0.0, 0.0), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.4, 0.999_311_5), (3.0, 0.999_977_9)]
        {
            assert!((super::erf(x) - want).abs() < 2e-7, "erf({x}) is {}", super::erf(x));
            assert!((super::erf(-x) + want).abs() < 2e-7);
        }
    }
}
