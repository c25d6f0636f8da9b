//! Elementwise maps over strided tensors of one shape.
//!
//! Always holds: a run of elements is read before it is written, so an output may be one of the inputs.
//!
//! Refuses to know: broadcasting; views come stretched to one shape.

use crate::tensor::lane::{Lane, read, write};
use crate::tensor::view::{CHUNK, View, walk};

/// `out = f(x)`.
pub fn unary<L: Lane>(x: &View, out: &View, f: impl Fn(L) -> L) {
    let mut buffer = [L::default(); CHUNK];
    walk([x, out], CHUNK, |first, stride, length| {
        let run = &mut buffer[..length];
        // SAFETY: `walk` stays inside both views.
        unsafe { read(x, first[0], stride[0], run) };
        for value in run.iter_mut() {
            *value = f(*value);
        }
        // SAFETY: as above.
        unsafe { write(out, first[1], stride[1], run) };
    });
}

/// `out = f(x, y)`.
pub fn binary<L: Lane>(x: &View, y: &View, out: &View, f: impl Fn(L, L) -> L) {
    let mut left = [L::default(); CHUNK];
    let mut right = [L::default(); CHUNK];
    walk([x, y, out], CHUNK, |first, stride, length| {
        let (a, b) = (&mut left[..length], &mut right[..length]);
        // SAFETY: `walk` stays inside all views.
        unsafe {
            read(x, first[0], stride[0], a);
            read(y, first[1], stride[1], b);
        }
        a.iter_mut().zip(b).for_each(|(a, b)| *a = f(*a, *b));
        // SAFETY: as above.
        unsafe { write(out, first[2], stride[2], a) };
    });
}

/// Visits every line of a view along `axis`: `visit(view of the line)`.
pub fn lines<const N: usize>(views: [&View; N], axis: usize, mut visit: impl FnMut([View; N])) {
    let outer = views.map(|view| if view.rank() == 0 { *view } else { view.select(axis, 0) });
    let references: [&View; N] = std::array::from_fn(|n| &outer[n]);
    walk(references, 1, |first, _, _| {
        visit(std::array::from_fn(|n| {
            let (size, stride) = ([views[n].dim(axis) as i64], [views[n].stride(axis)]);
            let mut line = views[n].with(&size, &stride).unwrap_or(*views[n]);
            line.offset = first[n];
            line
        }));
    });
}
