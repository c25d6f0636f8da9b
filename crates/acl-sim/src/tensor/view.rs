//! A tensor by value: address, type, shape and strides, and the walks over it.
//!
//! Always holds: rank is at most [`MAX_RANK`]; strides and offset count elements, as in the C ABI; a view
//! owns nothing.
//!
//! Refuses to know: whether the memory behind the address is there.

use super::dtype::DType;

/// Dimensions a tensor may have.
pub const MAX_RANK: usize = 8;

/// Elements handled between two looks at the outer dimensions; buffers of the elementwise operators have this
/// length.
pub const CHUNK: usize = 1024;

/// A strided window on device memory.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Address of the storage, without the offset.
    pub data: usize,
    /// Elements between the storage's beginning and the view's first element.
    pub offset: i64,
    /// Element type.
    pub dtype: DType,
    /// `aclFormat` number.
    pub format: i32,
    rank: u8,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
}

impl View {
    /// A view with these dimensions and strides; `None` if there are too many, or a dimension is negative.
    #[must_use]
    pub fn new(data: usize, dtype: DType, shape: &[i64], strides: &[i64], offset: i64) -> Option<Self> {
        if shape.len() > MAX_RANK || strides.len() != shape.len() || shape.iter().any(|size| *size < 0) {
            return None;
        }
        let mut view = Self {
            data,
            offset,
            dtype,
            format: 2,
            rank: shape.len() as u8,
            shape: [1; MAX_RANK],
            strides: [0; MAX_RANK],
        };
        view.shape[..shape.len()].copy_from_slice(shape);
        view.strides[..shape.len()].copy_from_slice(strides);
        Some(view)
    }

    /// A dense row-major view.
    #[must_use]
    pub fn dense(data: usize, dtype: DType, shape: &[i64]) -> Option<Self> {
        Self::new(data, dtype, shape, &row_major(shape), 0)
    }

    /// Dimensions.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        &self.shape[..self.rank()]
    }

    /// Elements between neighbours of each dimension.
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.rank()]
    }

    /// How many dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// Size of a dimension; 1 where there is none.
    #[must_use]
    pub fn dim(&self, axis: usize) -> usize {
        self.shape().get(axis).map_or(1, |size| *size as usize)
    }

    /// Stride of a dimension; 0 where there is none.
    #[must_use]
    pub fn stride(&self, axis: usize) -> i64 {
        self.strides().get(axis).copied().unwrap_or(0)
    }

    /// Size of the last dimension; 1 for a scalar.
    #[must_use]
    pub fn last(&self) -> usize {
        self.shape().last().map_or(1, |size| *size as usize)
    }

    /// Stride of the last dimension.
    #[must_use]
    pub fn last_stride(&self) -> i64 {
        self.strides().last().copied().unwrap_or(1)
    }

    /// Elements.
    #[must_use]
    pub fn numel(&self) -> usize {
        self.shape().iter().map(|size| *size as usize).product()
    }

    /// An axis counted from the front or, negative, from the back.
    #[must_use]
    pub fn axis(&self, axis: i64) -> Option<usize> {
        let rank = self.rank().max(1) as i64;
        let axis = if axis < 0 { axis + rank } else { axis };
        (0..rank).contains(&axis).then_some(axis as usize)
    }

    /// Whether elements follow one another in row-major order.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        let mut expected = 1;
        for (size, stride) in self.shape().iter().zip(self.strides()).rev() {
            if *size != 1 && *stride != expected {
                return false;
            }
            expected *= (*size).max(1);
        }
        true
    }

    /// The same memory with other dimensions and strides.
    #[must_use]
    pub fn with(&self, shape: &[i64], strides: &[i64]) -> Option<Self> {
        let mut view = Self::new(self.data, self.dtype, shape, strides, self.offset)?;
        view.format = self.format;
        Some(view)
    }

    /// Dimensions in another order.
    #[must_use]
    pub fn permuted(&self, order: &[usize]) -> Option<Self> {
        let shape: Vec<i64> = order.iter().map(|axis| self.dim(*axis) as i64).collect();
        let strides: Vec<i64> = order.iter().map(|axis| self.stride(*axis)).collect();
        self.with(&shape, &strides)
    }

    /// Stretched to `shape` by the broadcasting rule, or `None` if it does not fit.
    #[must_use]
    pub fn broadcast(&self, shape: &[i64]) -> Option<Self> {
        let lead = shape.len().checked_sub(self.rank())?;
        let mut strides = [0; MAX_RANK];
        let strides = strides.get_mut(..shape.len())?;
        for axis in 0..self.rank() {
            let want = *shape.get(lead + axis)?;
            if self.shape()[axis] == want {
                strides[lead + axis] = self.strides()[axis];
            } else if self.shape()[axis] != 1 {
                return None;
            }
        }
        self.with(shape, strides)
    }

    /// Everything at index `at` of an axis; the axis goes away.
    #[must_use]
    pub fn select(&self, axis: usize, at: usize) -> Self {
        let mut view = *self;
        view.offset += at as i64 * self.stride(axis);
        for next in axis + 1..self.rank() {
            view.shape[next - 1] = self.shape[next];
            view.strides[next - 1] = self.strides[next];
        }
        view.rank = self.rank.saturating_sub(1);
        view
    }

    /// A range of an axis.
    #[must_use]
    pub fn slice(&self, axis: usize, start: usize, length: usize, step: usize) -> Self {
        let mut view = *self;
        view.offset += start as i64 * self.stride(axis);
        if axis < self.rank() {
            view.shape[axis] = length as i64;
            view.strides[axis] = self.strides[axis] * step as i64;
        }
        view
    }

    /// The last dimension split from the others: `(outer, inner)`.
    #[must_use]
    pub fn split_trailing(&self, trailing: usize) -> (Self, Self) {
        let cut = self.rank().saturating_sub(trailing);
        let (mut outer, mut inner) = (*self, *self);
        outer.rank = cut as u8;
        inner.rank = (self.rank() - cut) as u8;
        for axis in cut..self.rank() {
            inner.shape[axis - cut] = self.shape[axis];
            inner.strides[axis - cut] = self.strides[axis];
        }
        (outer, inner)
    }

    /// Lowest and one past the highest byte it touches, or `None` if it is empty.
    #[must_use]
    pub fn span(&self) -> Option<(usize, usize)> {
        if self.numel() == 0 {
            return None;
        }
        let (mut low, mut high) = (self.offset, self.offset);
        for (size, stride) in self.shape().iter().zip(self.strides()) {
            let reach = (size - 1) * stride;
            if reach < 0 { low += reach } else { high += reach }
        }
        let bits = self.dtype.bits() as i64;
        let start = self.data as i64 + (low * bits).div_euclid(8);
        let end = self.data as i64 + ((high + 1) * bits + 7).div_euclid(8);
        Some((start as usize, end as usize))
    }
}

/// Row-major strides of a shape.
#[must_use]
pub fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1].max(1);
    }
    strides
}

/// The shape two shapes broadcast to.
#[must_use]
pub fn broadcast_shape(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[i64], axis: usize| {
        (axis + shape.len()).checked_sub(rank).and_then(|axis| shape.get(axis)).copied().unwrap_or(1)
    };
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// Visits views of one shape together: `visit(first elements, strides, length)` for runs of at most `limit`
/// elements along the last dimension, after dimensions that run on in every view have been joined.
pub fn walk<const N: usize>(
    views: [&View; N],
    limit: usize,
    mut visit: impl FnMut([i64; N], [i64; N], usize),
) {
    let rank = views.first().map_or(0, |view| view.rank());
    let mut shape = [1usize; MAX_RANK];
    let mut strides = [[0i64; MAX_RANK]; N];
    let mut used = 0;
    for axis in 0..rank {
        let size = views.first().map_or(1, |view| view.dim(axis));
        if size == 0 {
            return;
        }
        if size == 1 {
            continue;
        }
        let joins = used > 0 && (0..N).all(|n| strides[n][used - 1] == views[n].stride(axis) * size as i64);
        if joins {
            shape[used - 1] *= size;
            for n in 0..N {
                strides[n][used - 1] = views[n].stride(axis);
            }
        } else {
            shape[used] = size;
            for n in 0..N {
                strides[n][used] = views[n].stride(axis);
            }
            used += 1;
        }
    }
    let offsets = views.map(|view| view.offset);
    if used == 0 {
        visit(offsets, [1; N], 1);
        return;
    }
    let inner = used - 1;
    let inner_strides = std::array::from_fn(|n| strides[n][inner]);
    let mut index = [0usize; MAX_RANK];
    loop {
        let first: [i64; N] = std::array::from_fn(|n| {
            offsets[n] + (0..inner).map(|axis| index[axis] as i64 * strides[n][axis]).sum::<i64>()
        });
        let mut done = 0;
        while done < shape[inner] {
            let length = limit.min(shape[inner] - done);
            visit(std::array::from_fn(|n| first[n] + done as i64 * strides[n][inner]), inner_strides, length);
            done += length;
        }
        let mut axis = inner;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}
