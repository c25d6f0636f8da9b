//! Matrix products: `Mm`, `Matmul`, `BatchMatMul`, `Addmm`, `Mv`.
//!
//! Always holds: sums are kept in `f32`; a row of the result has the same bits whatever other rows there are.
//! An operand may be any view: a transposed one, with swapped strides, is the fast one on the right.
//!
//! Refuses to know: fractal layouts. A weight in one is computed from its view, because
//! `aclnnTransMatmulWeight` leaves the data as it is.

use super::numeric::dot::{Bf16, Half, Weight, products};
use super::numeric::team;
use crate::executor::plan::{Plan, Planned, Slot, work};
use crate::executor::status::{INVALID, Refusal, ensure};
use crate::operator;
use crate::tensor::dtype::DType;
use crate::tensor::lane::{gather_into, write};
use crate::tensor::objects::Scalar;
use crate::tensor::view::{View, broadcast_shape, walk};

/// Workspace that the matrix kernels ask for besides that of their shapes.
pub(crate) const SYSTEM_WORKSPACE: usize = 1 << 20;

/// Rows of the left operand converted at once.
const ROWS: usize = 64;

const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16];

operator!(aclnnMm, aclnnMmGetWorkspaceSize,
    (x: input, mat2: input, out: output, cubeMathType: i8) => mm);
operator!(aclnnMatmul, aclnnMatmulGetWorkspaceSize,
    (x: input, mat2: input, out: output, cubeMathType: i8) => matmul);
operator!(aclnnMatmulWeightNz, aclnnMatmulWeightNzGetWorkspaceSize,
    (x: input, mat2: input, out: output, cubeMathType: i8) => matmul);
operator!(aclnnBatchMatMul, aclnnBatchMatMulGetWorkspaceSize,
    (x: input, mat2: input, out: output, cubeMathType: i8) => batch_matmul);
operator!(aclnnAddmm, aclnnAddmmGetWorkspaceSize,
    (x: input, mat1: input, mat2: input, beta: scalar, alpha: scalar, out: output,
        cubeMathType: i8) => addmm);
operator!(aclnnMv, aclnnMvGetWorkspaceSize,
    (x: input, vec: input, out: output, cubeMathType: i8) => matmul);

fn mm(plan: &mut Plan, x: Slot, mat2: Slot, out: Slot, cube: i8) -> Planned {
    plan.rank(x, &[2])?;
    plan.rank(mat2, &[2])?;
    matmul(plan, x, mat2, out, cube)
}

fn batch_matmul(plan: &mut Plan, x: Slot, mat2: Slot, out: Slot, cube: i8) -> Planned {
    plan.rank(x, &[3])?;
    plan.rank(mat2, &[3])?;
    matmul(plan, x, mat2, out, cube)
}

fn types(plan: &Plan, x: Slot, mat2: Slot, out: Slot, cube: i8) -> Result<(), Refusal> {
    plan.types(x, TYPES)?;
    plan.types(mat2, TYPES)?;
    plan.types(out, TYPES)?;
    plan.same_type(x, mat2)?;
    ensure((0..=4).contains(&cube), || format!("cubeMathType is {cube}; accepted are 0 to 4"))
}

fn matmul(plan: &mut Plan, x: Slot, mat2: Slot, out: Slot, cube: i8) -> Planned {
    types(plan, x, mat2, out, cube)?;
    let (mut a, mut b) = (plan.view(x), plan.view(mat2));
    let target = plan.view(out);
    let mut shape;
    // A vector on the left is a row, one on the right a column; the result has no such dimension.
    let row = a.rank() == 1;
    let column = b.rank() == 1;
    ensure(a.rank() > 0 && b.rank() > 0, || "a matrix product needs operands with dimensions".to_owned())?;
    if row {
        a = a.with(&[1, a.shape()[0]], &[0, a.strides()[0]]).unwrap_or(a);
    }
    if column {
        b = b.with(&[b.shape()[0], 1], &[b.strides()[0], 0]).unwrap_or(b);
    }
    let (m, k, n) = (a.dim(a.rank() - 2), a.last(), b.last());
    ensure(b.dim(b.rank() - 2) == k, || {
        format!("shapes {:?} and {:?} do not match in the inner dimension", a.shape(), b.shape())
    })?;
    let batch = broadcast_shape(&a.shape()[..a.rank() - 2], &b.shape()[..b.rank() - 2]).ok_or_else(|| {
        Refusal::Invalid(format!("batches of {:?} and {:?} do not broadcast", a.shape(), b.shape()))
    })?;
    shape = batch.clone();
    if !row {
        shape.push(m as i64);
    }
    if !column {
        shape.push(n as i64);
    }
    plan.shape(out, &shape)?;
    let full = |view: &View, tail: [i64; 2]| {
        let shape: Vec<i64> = batch.iter().copied().chain(tail).collect();
        view.broadcast(&shape)
    };
    let unfit = || Refusal::Invalid("the batch dimensions do not fit".to_owned());
    plan.replace(x, full(&a, [m as i64, k as i64]).ok_or_else(unfit)?);
    plan.replace(mat2, full(&b, [k as i64, n as i64]).ok_or_else(unfit)?);
    if row || column {
        let mut strides: Vec<i64> = target.strides()[..batch.len()].to_vec();
        let inner = target.last_stride();
        strides.extend(if row { [0, inner] } else { [inner, 0] });
        let mut whole = batch;
        whole.extend([m as i64, n as i64]);
        plan.replace(out, target.with(&whole, &strides).ok_or_else(unfit)?);
    }
    plan.scratch(SYSTEM_WORKSPACE);
    work(move |views| batched(&views[x], &views[mat2], &views[out], 1.0, |_, _, value| value))
}

fn addmm(
    plan: &mut Plan,
    x: Slot,
    mat1: Slot,
    mat2: Slot,
    beta: Scalar,
    alpha: Scalar,
    out: Slot,
    cube: i8,
) -> Planned {
    types(plan, mat1, mat2, out, cube)?;
    plan.types(x, TYPES)?;
    plan.rank(mat1, &[2])?;
    plan.rank(mat2, &[2])?;
    let (a, b) = (plan.view(mat1), plan.view(mat2));
    ensure(a.dim(1) == b.dim(0), || {
        format!("shapes {:?} and {:?} do not match in the inner dimension", a.shape(), b.shape())
    })?;
    let shape = [a.shape()[0], b.shape()[1]];
    plan.shape(out, &shape)?;
    plan.stretch(x, &shape)?;
    plan.scratch(SYSTEM_WORKSPACE);
    let (beta, alpha) = (beta.to_f32(), alpha.to_f32());
    work(move |views| {
        let bias = &views[x];
        batched(&views[mat1], &views[mat2], &views[out], alpha, |row, column, value| {
            let mut term = [0f32];
            let at = bias.offset + row as i64 * bias.stride(0) + column as i64 * bias.stride(1);
            // SAFETY: row and column lie within the result's shape, to which the view was stretched.
            unsafe { crate::tensor::lane::read(bias, at, 1, &mut term) };
            beta.mul_add(term[0], value)
        })
    })
}

/// `out = finish(row, column, alpha · x · w)` for each matrix of a batch.
fn batched(
    x: &View,
    w: &View,
    out: &View,
    alpha: f32,
    finish: impl Fn(usize, usize, f32) -> f32 + Sync,
) -> Result<(), i32> {
    let ((outer_x, x2), (outer_w, w2), (outer_out, out2)) =
        (x.split_trailing(2), w.split_trailing(2), out.split_trailing(2));
    let mut result = Ok(());
    walk([&outer_x, &outer_w, &outer_out], 1, |first, _, _| {
        let (mut x, mut w, mut out) = (x2, w2, out2);
        (x.offset, w.offset, out.offset) = (first[0], first[1], first[2]);
        let done = gemm(&x, &w, &out, &|row, column, value| finish(row, column, alpha * value));
        if done.is_err() {
            result = done;
        }
    });
    result
}

/// `out[m, n] = finish(m, n, sum over k of x[m, k] · w[k, n])`.
pub(crate) fn gemm(
    x: &View,
    w: &View,
    out: &View,
    finish: &(impl Fn(usize, usize, f32) -> f32 + Sync),
) -> Result<(), i32> {
    let (k, n) = (w.dim(0), w.dim(1));
    // The dot product wants contiguous weight rows: `w` as `[N, K]` with neighbours side by side.
    if w.stride(0) != 1 && k > 1 {
        let mut packed = vec![0f32; k * n];
        let rows = w.permuted(&[1, 0]).ok_or(INVALID)?;
        // SAFETY: the view's memory is the caller's to read.
        unsafe { gather_into(&rows, &mut packed) };
        return blocks::<f32>(x, packed.as_ptr(), k as isize, n, out, finish);
    }
    let stride = w.stride(1) as isize;
    let at = w.offset as isize;
    match w.dtype {
        DType::F32 => blocks(x, (w.data as *const f32).wrapping_offset(at), stride, n, out, finish),
        DType::BF16 => blocks(x, (w.data as *const Bf16).wrapping_offset(at), stride, n, out, finish),
        DType::F16 => blocks(x, (w.data as *const Half).wrapping_offset(at), stride, n, out, finish),
        _ => return Err(INVALID),
    }?;
    Ok(())
}

/// A pointer that threads of one kernel share to read.
#[derive(Clone, Copy)]
struct Shared<W>(*const W);
// SAFETY: only read, and the scope that shares it ends before the memory may go.
unsafe impl<W> Send for Shared<W> {}
// SAFETY: as above.
unsafe impl<W> Sync for Shared<W> {}

impl<W> Shared<W> {
    fn pointer(self) -> *const W {
        self.0
    }
}

fn blocks<W: Weight>(
    x: &View,
    weights: *const W,
    stride: isize,
    n: usize,
    out: &View,
    finish: &(impl Fn(usize, usize, f32) -> f32 + Sync),
) -> Result<(), i32> {
    let (m, k) = (x.dim(0), x.dim(1));
    let weights = Shared(weights);
    let mut buffer = vec![0f32; ROWS.min(m) * k];
    let mut first = 0;
    while first < m {
        let rows = ROWS.min(m - first);
        let block = x.slice(0, first, rows, 1);
        let values = buffer.get_mut(..rows * k).ok_or(INVALID)?;
        // SAFETY: the view's memory is the caller's to read.
        unsafe { gather_into(&block, values) };
        let values = &*values;
        team::split(n, rows * k * n, |columns| {
            let width = columns.len();
            let mut results = vec![0f32; rows * width];
            let start = columns.start;
            if k > 0 {
                // SAFETY: weight rows `columns` of length `k` are the caller's to read.
                unsafe {
                    products(values, k, weights.pointer(), stride, columns, |row, column, value| {
                        results[row * width + column - start] = value;
                    });
                }
            }
            for row in 0..rows {
                let line = &mut results[row * width..][..width];
                line.iter_mut()
                    .enumerate()
                    .for_each(|(at, value)| *value = finish(first + row, start + at, *value));
                let at = out.offset + (first + row) as i64 * out.stride(0) + start as i64 * out.stride(1);
                // SAFETY: the row lies within the output view; threads write different columns.
                unsafe { write(out, at, out.stride(1), line) };
            }
        });
        first += rows;
    }
    Ok(())
}
