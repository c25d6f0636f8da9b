//! Copies and fills.

use std::ffi::c_void;

use super::{call, invalid, put};
use crate::machine::copy::{self, Copy};
use crate::machine::refusal::Answer;
use crate::machine::{capture, stream};

/// Copies of one batch.
const BATCH_MAX: usize = 4096;

fn fits(max: usize, bytes: usize) -> Answer {
    if bytes > max {
        invalid(format!("{bytes} bytes do not fit the target, which has {max}"))
    } else {
        Ok(())
    }
}

/// Copies, and returns when it is done.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpy(
    dst: *mut c_void,
    max: usize,
    src: *const c_void,
    bytes: usize,
    kind: i32,
) -> i32 {
    let _ = kind;
    call(|| {
        fits(max, bytes)?;
        copy::copy_now(Copy::row(dst as usize, src as usize, bytes))
    })
}

/// Copies on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyAsync(
    dst: *mut c_void,
    max: usize,
    src: *const c_void,
    bytes: usize,
    kind: i32,
    stream: *mut c_void,
) -> i32 {
    let _ = kind;
    call(|| {
        let stream = stream::find(stream)?;
        fits(max, bytes).map_err(|refusal| capture::break_stream(&stream, refusal))?;
        copy::copy_on(Copy::row(dst as usize, src as usize, bytes), &stream)
    })
}

/// The same; the condition of the name is that host memory is pinned, which is found out anyway.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyAsyncWithCondition(
    dst: *mut c_void,
    max: usize,
    src: *const c_void,
    bytes: usize,
    kind: i32,
    stream: *mut c_void,
) -> i32 {
    aclrtMemcpyAsync(dst, max, src, bytes, kind, stream)
}

fn rectangle(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    height: usize,
) -> Copy {
    Copy { dst: dst as usize, src: src as usize, dst_pitch, src_pitch, width, height }
}

/// Copies rows, and returns when it is done.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpy2d(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    height: usize,
    kind: i32,
) -> i32 {
    let _ = kind;
    call(|| copy::copy_now(rectangle(dst, dst_pitch, src, src_pitch, width, height)))
}

/// Copies rows on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpy2dAsync(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    height: usize,
    kind: i32,
    stream: *mut c_void,
) -> i32 {
    let _ = kind;
    call(|| copy::copy_on(rectangle(dst, dst_pitch, src, src_pitch, width, height), &stream::find(stream)?))
}

/// Fills, and returns when it is done.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemset(dst: *mut c_void, max: usize, value: i32, bytes: usize) -> i32 {
    call(|| {
        fits(max, bytes)?;
        copy::fill_now(dst as usize, value as u8, bytes)
    })
}

/// Fills on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemsetAsync(
    dst: *mut c_void,
    max: usize,
    value: i32,
    bytes: usize,
    stream: *mut c_void,
) -> i32 {
    call(|| {
        let stream = stream::find(stream)?;
        fits(max, bytes).map_err(|refusal| capture::break_stream(&stream, refusal))?;
        copy::fill_on(dst as usize, value as u8, bytes, &stream)
    })
}

/// The arrays of a batch of copies.
#[derive(Clone, Copy)]
struct Batch {
    dsts: *const *mut c_void,
    maxs: *const usize,
    srcs: *const *mut c_void,
    sizes: *const usize,
    count: usize,
}

impl Batch {
    fn each(self, failed: *mut usize, copy: impl Fn(Copy) -> Answer) -> Answer {
        if self.dsts.is_null() || self.maxs.is_null() || self.srcs.is_null() || self.sizes.is_null() {
            return invalid("an array of the batch is null");
        }
        if self.count == 0 || self.count > BATCH_MAX {
            return invalid(format!("a batch has 1 to {BATCH_MAX} copies"));
        }
        for index in 0..self.count {
            // SAFETY: the arrays are not null, and the caller of the ABI vouches that each has `count`
            // entries.
            let (dst, max, src, bytes) = unsafe {
                (*self.dsts.add(index), *self.maxs.add(index), *self.srcs.add(index), *self.sizes.add(index))
            };
            let done = fits(max, bytes).and_then(|()| copy(Copy::row(dst as usize, src as usize, bytes)));
            if let Err(refusal) = done {
                if !failed.is_null() {
                    put(failed, index)?;
                }
                return Err(refusal);
            }
        }
        Ok(())
    }
}

/// Copies many ranges, and returns when they are done.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyBatch(
    dsts: *mut *mut c_void,
    maxs: *mut usize,
    srcs: *mut *mut c_void,
    sizes: *mut usize,
    count: usize,
    _attributes: *mut c_void,
    _indexes: *mut usize,
    _attribute_count: usize,
    failed: *mut usize,
) -> i32 {
    call(|| Batch { dsts, maxs, srcs, sizes, count }.each(failed, copy::copy_now))
}

/// Copies many ranges on a stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyBatchAsync(
    dsts: *mut *mut c_void,
    maxs: *mut usize,
    srcs: *mut *mut c_void,
    sizes: *mut usize,
    count: usize,
    _attributes: *mut c_void,
    _indexes: *mut usize,
    _attribute_count: usize,
    failed: *mut usize,
    stream: *mut c_void,
) -> i32 {
    call(|| {
        let stream = stream::find(stream)?;
        Batch { dsts, maxs, srcs, sizes, count }.each(failed, |copy| copy::copy_on(copy, &stream))
    })
}
