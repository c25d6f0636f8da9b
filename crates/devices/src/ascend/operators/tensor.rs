//! The objects that operators take: tensors, lists of them, scalars, arrays of integers.

use std::ffi::c_void;
use std::rc::Rc;

use crate::ascend::error::Fault;
use crate::ascend::runtime::{Api, Slice};

/// `ACL_FORMAT_ND`: plain rows.
const PLAIN: i32 = 2;
/// Most dimensions that a tensor has here.
const MAX_DIMS: usize = 4;

/// Element types, by CANN's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(in crate::ascend) enum DataType {
    F32 = 0,
    F16 = 1,
    I8 = 2,
    I32 = 3,
    Bf16 = 27,
}

impl DataType {
    pub(in crate::ascend) fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 => 1,
        }
    }
}

/// An object of CANN with what it refers to.
#[derive(Debug)]
pub(in crate::ascend) struct Object {
    api: Rc<Api>,
    handle: *mut c_void,
    destroy: unsafe extern "C" fn(*const c_void) -> i32,
    /// Memory that it points into.
    _memory: Vec<Slice>,
}

impl Object {
    fn new(
        api: &Rc<Api>,
        handle: *mut c_void,
        destroy: unsafe extern "C" fn(*const c_void) -> i32,
        memory: Vec<Slice>,
        call: &str,
    ) -> Result<Rc<Self>, Fault> {
        /// What a constructor that returns null stands for.
        const BAD_ALLOC: i32 = 200_000;
        if handle.is_null() {
            return Err(api.fault(BAD_ALLOC, call));
        }
        Ok(Rc::new(Self { api: Rc::clone(api), handle, destroy, _memory: memory }))
    }

    pub(super) fn handle(&self) -> *mut c_void {
        self.handle
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        debug_assert!(!self.api.device.is_empty());
        // SAFETY: made by the constructor that belongs to this destructor, and given up here.
        unsafe { (self.destroy)(self.handle) };
    }
}

/// A tensor on the device.
#[derive(Clone, Debug)]
pub(in crate::ascend) struct Tensor(pub(super) Rc<Object>);

impl Tensor {
    /// Rows one behind the other, from the beginning of a piece of memory on.
    pub(in crate::ascend) fn new(
        api: &Rc<Api>,
        data_type: DataType,
        memory: &Slice,
        dims: &[i64],
    ) -> Result<Self, Fault> {
        let mut strides = [1; MAX_DIMS];
        for at in (0..dims.len().saturating_sub(1)).rev() {
            strides[at] = strides[at + 1] * dims[at + 1];
        }
        let handle = create(api, data_type, memory, dims, &strides[..dims.len()], dims);
        Self::wrap(api, handle, memory)
    }

    /// The transpose of a matrix that lies in memory as `[rows, cols]`.
    pub(in crate::ascend) fn transposed(
        api: &Rc<Api>,
        data_type: DataType,
        memory: &Slice,
        [rows, cols]: [i64; 2],
    ) -> Result<Self, Fault> {
        let handle = create(api, data_type, memory, &[cols, rows], &[1, cols], &[rows, cols]);
        Self::wrap(api, handle, memory)
    }

    fn wrap(api: &Rc<Api>, handle: *mut c_void, memory: &Slice) -> Result<Self, Fault> {
        let destroy = api.library.tensors.destroy_tensor;
        Object::new(api, handle, destroy, vec![memory.clone()], "aclCreateTensor").map(Self)
    }
}

fn create(
    api: &Rc<Api>,
    data_type: DataType,
    memory: &Slice,
    dims: &[i64],
    strides: &[i64],
    storage: &[i64],
) -> *mut c_void {
    debug_assert!(dims.len() <= MAX_DIMS && dims.len() == strides.len());
    let values: i64 = storage.iter().product();
    debug_assert!(values as usize * data_type.bytes() <= memory.bytes(), "{dims:?} in {}", memory.bytes());
    // SAFETY: three arrays with their lengths; the tensor lies inside the piece of memory.
    unsafe {
        (api.library.tensors.create_tensor)(
            dims.as_ptr(),
            dims.len() as u64,
            data_type as i32,
            strides.as_ptr(),
            0,
            PLAIN,
            storage.as_ptr(),
            storage.len() as u64,
            memory.address(),
        )
    }
}

/// A list of one tensor.
#[derive(Clone, Debug)]
pub(in crate::ascend) struct TensorList(pub(super) Rc<Object>);

impl TensorList {
    /// Destroying a list destroys its tensor, so the tensor is made here.
    pub(in crate::ascend) fn of_one(
        api: &Rc<Api>,
        data_type: DataType,
        memory: &Slice,
        dims: &[i64],
    ) -> Result<Self, Fault> {
        let mut strides = [1; MAX_DIMS];
        for at in (0..dims.len().saturating_sub(1)).rev() {
            strides[at] = strides[at + 1] * dims[at + 1];
        }
        let tensor = create(api, data_type, memory, dims, &strides[..dims.len()], dims);
        if tensor.is_null() {
            return Err(api.fault(200_000, "aclCreateTensor"));
        }
        // SAFETY: an array of one handle, which the list takes over.
        let handle = unsafe { (api.library.tensors.create_tensor_list)(&raw const tensor, 1) };
        let destroy = api.library.tensors.destroy_tensor_list;
        Object::new(api, handle, destroy, vec![memory.clone()], "aclCreateTensorList").map(Self)
    }
}

/// A number.
#[derive(Clone, Debug)]
pub(in crate::ascend) struct Scalar(pub(super) Rc<Object>);

impl Scalar {
    pub(in crate::ascend) fn new(api: &Rc<Api>, mut value: f32) -> Result<Self, Fault> {
        let create = api.library.tensors.create_scalar;
        // SAFETY: the value is copied before the call returns, and is of the type that is named.
        let handle = unsafe { create((&raw mut value).cast(), DataType::F32 as i32) };
        let destroy = api.library.tensors.destroy_scalar;
        Object::new(api, handle, destroy, Vec::new(), "aclCreateScalar").map(Self)
    }
}

/// Integers on the host.
#[derive(Clone, Debug)]
pub(in crate::ascend) struct IntArray(pub(super) Rc<Object>);

impl IntArray {
    pub(in crate::ascend) fn new(api: &Rc<Api>, values: &[i64]) -> Result<Self, Fault> {
        let create = api.library.tensors.create_int_array;
        // SAFETY: an array with its length, copied before the call returns.
        let handle = unsafe { create(values.as_ptr(), values.len() as u64) };
        let destroy = api.library.tensors.destroy_int_array;
        Object::new(api, handle, destroy, Vec::new(), "aclCreateIntArray").map(Self)
    }
}
