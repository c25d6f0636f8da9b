//! A test's own stream and tensors on the simulated device, filled and read through the C ABI.
#![allow(unreachable_pub, missing_docs, reason = "a module of several test binaries")]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use acl_sim::executor::Executor;
use acl_sim::tensor::dtype::DType;
use acl_sim::tensor::handle::Handle;
use acl_sim::tensor::lane;
use acl_sim::tensor::lists::{IntArray, TensorList, aclCreateIntArray, aclCreateTensorList};
use acl_sim::tensor::objects::{Scalar, Tensor, aclCreateScalar, aclCreateTensor};
use acl_sim::tensor::view::{View, row_major};

unsafe extern "C" {
    fn aclInit(config: *const i8) -> i32;
    pub fn aclrtSetDevice(device: i32) -> i32;
    fn aclrtCreateStream(stream: *mut *mut c_void) -> i32;
    pub fn aclrtSynchronizeStream(stream: *mut c_void) -> i32;
    fn aclrtMalloc(pointer: *mut *mut c_void, size: usize, policy: i32) -> i32;
    fn aclrtFree(pointer: *mut c_void) -> i32;
    fn aclrtMemcpy(dst: *mut c_void, max: usize, src: *const c_void, bytes: usize, kind: i32) -> i32;
}

pub type Phase2 = extern "C" fn(*mut c_void, u64, *mut Handle<Executor>, *mut c_void) -> i32;
pub type Raw = *const Handle<Tensor>;

/// A stream of device 0, current on this thread.
pub struct Bench {
    pub stream: *mut c_void,
}

impl Bench {
    pub fn new() -> Self {
        Self::on(0)
    }

    pub fn on(device: i32) -> Self {
        let mut stream = null_mut();
        // SAFETY: places for what is returned, and a null that means no configuration.
        unsafe {
            aclInit(null());
            assert_eq!(aclrtSetDevice(device), 0);
            assert_eq!(aclrtCreateStream(&raw mut stream), 0);
        }
        Self { stream }
    }

    /// Waits for the stream.
    pub fn synchronise(&self) -> i32 {
        // SAFETY: the stream lives as long as the bench.
        unsafe { aclrtSynchronizeStream(self.stream) }
    }

    /// Runs a planned executor and waits for it.
    pub fn finish(&self, phase2: Phase2, size: u64, executor: *mut Handle<Executor>) -> Result<(), i32> {
        let mut workspace = null_mut();
        // SAFETY: the executor was planned by the operator whose second phase this is; the workspace is as large as asked.
        unsafe {
            if size > 0 {
                assert_eq!(aclrtMalloc(&raw mut workspace, size as usize, 0), 0);
            }
            let launched = phase2(workspace, size, executor, self.stream);
            let done = aclrtSynchronizeStream(self.stream);
            if size > 0 {
                assert_eq!(aclrtFree(workspace), 0);
            }
            match (launched, done) {
                (0, 0) => Ok(()),
                (0, code) | (code, _) => Err(code),
            }
        }
    }
}

/// Plans and runs an operator: `run!(bench, first, second; arguments)`.
#[macro_export]
macro_rules! run {
    ($bench:expr, $first:path, $second:path; $($argument:expr),* $(,)?) => {{
        let (mut size, mut executor) = (0u64, std::ptr::null_mut());
        match $first($($argument,)* &raw mut size, &raw mut executor) {
            0 => $bench.finish($second, size, executor),
            code => Err(code),
        }
    }};
}

/// A tensor and its device memory.
pub struct Dev {
    pub raw: Raw,
    pub view: View,
    pub elements: usize,
}

impl Dev {
    /// Dense, with these values.
    pub fn new(dtype: DType, shape: &[i64], values: &[f64]) -> Self {
        let elements = shape.iter().product::<i64>() as usize;
        assert_eq!(elements, values.len());
        let host = vec![0u8; dtype.bytes(elements).max(1)];
        let on_host = View::dense(host.as_ptr() as usize, dtype, &[elements as i64]).unwrap();
        // SAFETY: the view lies over all of `host`.
        unsafe { lane::scatter(&on_host, values) };
        let mut pointer = null_mut();
        // SAFETY: a place for the pointer, then a copy of as many bytes as both sides have.
        unsafe {
            assert_eq!(aclrtMalloc(&raw mut pointer, host.len(), 0), 0);
            assert_eq!(aclrtMemcpy(pointer, host.len(), host.as_ptr().cast(), host.len(), 1), 0);
        }
        let view = View::dense(pointer as usize, dtype, shape).unwrap();
        Self { raw: tensor(&view), view, elements }
    }

    /// Dense zeros.
    pub fn zeros(dtype: DType, shape: &[i64]) -> Self {
        Self::new(dtype, shape, &vec![0.0; shape.iter().product::<i64>() as usize])
    }

    /// Another window on the same memory.
    pub fn window(&self, shape: &[i64], strides: &[i64], offset: i64) -> Raw {
        let mut view = View::new(self.view.data, self.view.dtype, shape, strides, offset).unwrap();
        view.format = 2;
        tensor(&view)
    }

    /// The same memory with other dimensions.
    pub fn shaped(&self, shape: &[i64]) -> Raw {
        self.window(shape, &row_major(shape), 0)
    }

    /// All values.
    pub fn values(&self) -> Vec<f64> {
        let host = vec![0u8; self.view.dtype.bytes(self.elements).max(1)];
        // SAFETY: both sides have as many bytes.
        unsafe {
            let source = self.view.data as *const c_void;
            assert_eq!(aclrtMemcpy(host.as_ptr().cast_mut().cast(), host.len(), source, host.len(), 2), 0);
        }
        let view = View::dense(host.as_ptr() as usize, self.view.dtype, &[self.elements as i64]).unwrap();
        // SAFETY: the view lies over all of `host`.
        unsafe { lane::gather(&view) }
    }
}

pub fn tensor(view: &View) -> Raw {
    let (shape, strides) = (view.shape(), view.strides());
    aclCreateTensor(
        shape.as_ptr(),
        shape.len() as u64,
        view.dtype.code(),
        strides.as_ptr(),
        view.offset,
        2,
        shape.as_ptr(),
        shape.len() as u64,
        view.data as *mut c_void,
    )
}

pub fn scalar(mut value: f32) -> *const Handle<Scalar> {
    aclCreateScalar((&raw mut value).cast(), 0)
}

pub fn integer(mut value: i64) -> *const Handle<Scalar> {
    aclCreateScalar((&raw mut value).cast(), 9)
}

pub fn ints(values: &[i64]) -> *const Handle<IntArray> {
    aclCreateIntArray(values.as_ptr(), values.len() as u64)
}

pub fn list(members: &[Raw]) -> *const Handle<TensorList> {
    aclCreateTensorList(members.as_ptr(), members.len() as u64)
}

/// Numbers that look random and are the same each time, from -2 to 2 and exact in every float type.
pub fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % 257) as f64 / 64.0 - 2.0
        })
        .collect()
}

/// Fails where two lists differ by more than `relative` of the size of the numbers, or `relative` itself.
pub fn assert_close(got: &[f64], want: &[f64], relative: f64) {
    assert_eq!(got.len(), want.len());
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let allowed = relative * want.abs().max(1.0);
        assert!((got - want).abs() <= allowed, "element {at}: {got} is not {want}");
    }
}
