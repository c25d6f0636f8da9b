//! Rotary position embedding: `RotaryPositionEmbedding`, `ApplyRotaryPosEmb` and its second version.
//!
//! Always holds: `x · cos + rotate(x) · sin` in `f32`, rounded once.
//!
//! Refuses to know: how cosine and sine were made; a table comes with the call.

use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{read, write};
use crate::tensor::view::{View, walk};

const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16];

/// Which partner an element is rotated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The one half a head further.
    Half,
    /// Its neighbour.
    Interleave,
    /// The one a quarter of a head further, in each half.
    Quarter,
}

operator!(aclnnRotaryPositionEmbedding, aclnnRotaryPositionEmbeddingGetWorkspaceSize,
    (x: input, cos: input, sin: input, mode: i64, out: output) => rotary);
operator!(aclnnApplyRotaryPosEmb, aclnnApplyRotaryPosEmbGetWorkspaceSize,
    (queryRef: inout, keyRef: inout, cos: input, sin: input, layout: i64) =>
    |plan: &mut Plan, q, k, cos, sin, layout| apply(plan, q, k, cos, sin, layout, "half"));
operator!(aclnnApplyRotaryPosEmbV2, aclnnApplyRotaryPosEmbV2GetWorkspaceSize,
    (queryRef: inout, keyRef: inout, cos: input, sin: input, layout: i64, rotaryMode: text) =>
    |plan: &mut Plan, q, k, cos, sin, layout, mode: String| apply(plan, q, k, cos, sin, layout, &mode));

fn even_head(plan: &Plan, x: Slot, mode: Mode) -> Result<(), Refusal> {
    let head = plan.view(x).last();
    let parts = if mode == Mode::Quarter { 4 } else { 2 };
    ensure(head > 0 && head.is_multiple_of(parts), || {
        format!("{} has head size {head}, which must be a multiple of {parts}", plan.name(x))
    })
}

fn rotary(plan: &mut Plan, x: Slot, cos: Slot, sin: Slot, mode: i64, out: Slot) -> Planned {
    let mode = match mode {
        0 => Mode::Half,
        1 => Mode::Interleave,
        2 => Mode::Quarter,
        _ => {
            return Err(Refusal::Invalid(format!(
                "mode is {mode}; accepted are 0 half, 1 interleave, 2 quarter"
            )));
        }
    };
    plan.types(x, TYPES)?;
    plan.rank(x, &[3, 4])?;
    for other in [cos, sin, out] {
        plan.same_type(x, other)?;
    }
    plan.same_type(cos, sin)?;
    even_head(plan, x, mode)?;
    let view = plan.view(x);
    plan.shape(out, view.shape())?;
    let table = plan.view(cos);
    plan.shape(sin, table.shape())?;
    ensure(table.last() == view.last(), || {
        format!("cos has last dimension {}, the head size is {}", table.last(), view.last())
    })?;
    plan.stretch(cos, view.shape())?;
    plan.stretch(sin, view.shape())?;
    work(move |views| {
        rotate(&views[x], &views[cos], &views[sin], &views[out], mode);
        Ok(())
    })
}

fn apply(plan: &mut Plan, q: Slot, k: Slot, cos: Slot, sin: Slot, layout: i64, mode: &str) -> Planned {
    let mode = match mode {
        "half" | "" => Mode::Half,
        "interleave" => Mode::Interleave,
        "quarter" => Mode::Quarter,
        other => {
            let text = format!("rotaryMode is {other:?}; accepted are \"half\", \"interleave\", \"quarter\"");
            return Err(Refusal::Invalid(text));
        }
    };
    let rank = match layout {
        1 => 4,
        4 => 3,
        _ => return Err(Refusal::Invalid(format!("layout is {layout}; supported are 1 (BSND) and 4 (TND)"))),
    };
    plan.types(q, TYPES)?;
    for other in [k, cos, sin] {
        plan.same_type(q, other)?;
    }
    for slot in [q, k, cos, sin] {
        plan.rank(slot, &[rank])?;
    }
    let (query, key, table) = (plan.view(q), plan.view(k), plan.view(cos));
    plan.shape(sin, table.shape())?;
    even_head(plan, q, mode)?;
    let heads = rank - 2;
    ensure(table.dim(heads) == 1 && table.last() == query.last() && key.last() == query.last(), || {
        format!(
            "cos has shape {:?}: one head of size {} is needed, and key heads of the same size",
            table.shape(),
            query.last()
        )
    })?;
    let (cos_k, sin_k) = (plan.derive(cos, table), plan.derive(sin, plan.view(sin)));
    plan.stretch(cos, query.shape())?;
    plan.stretch(sin, query.shape())?;
    plan.stretch(cos_k, key.shape())?;
    plan.stretch(sin_k, key.shape())?;
    work(move |views| {
        rotate(&views[q], &views[cos], &views[sin], &views[q], mode);
        rotate(&views[k], &views[cos_k], &views[sin_k], &views[k], mode);
        Ok(())
    })
}

fn rotate(x: &View, cos: &View, sin: &View, out: &View, mode: Mode) {
    let head = x.last();
    let mut buffers = [vec![0f32; head], vec![0f32; head], vec![0f32; head], vec![0f32; head]];
    let outer = [x, cos, sin, out].map(|view| view.split_trailing(1).0);
    walk([&outer[0], &outer[1], &outer[2], &outer[3]], 1, |first, _, _| {
        let [value, c, s, result] = &mut buffers;
        // SAFETY: one head of each of the launch's views.
        unsafe {
            read(x, first[0], x.last_stride(), value);
            read(cos, first[1], cos.last_stride(), c);
            read(sin, first[2], sin.last_stride(), s);
        }
        for (at, slot) in result.iter_mut().enumerate() {
            let (partner, sign) = match mode {
                Mode::Half => pair(at, 0, head / 2),
                Mode::Interleave => (at ^ 1, if at & 1 == 0 { -1.0 } else { 1.0 }),
                Mode::Quarter => {
                    let base = if at < head / 2 { 0 } else { head / 2 };
                    pair(at, base, head / 4)
                }
            };
            *slot = value[at] * c[at] + sign * value[partner] * s[at];
        }
        // SAFETY: as above.
        unsafe { write(out, first[3], out.last_stride(), result) };
    });
}

fn pair(at: usize, base: usize, distance: usize) -> (usize, f32) {
    if at - base < distance { (at + distance, -1.0) } else { (at - distance, 1.0) }
}
