//! Turning a program and a checkpoint's tensors into a [`CpuModel`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;
use updraft_core::Bytes;
use updraft_core::program::{Program, WeightId, WeightRole, WeightSpec};
use updraft_kernels::activations::InputForm;
use updraft_kernels::matrix::{PackError, PackedMatrix, Precision};
use updraft_kernels::tensor::{TensorError, TensorSource, TensorView};

use super::stages::{Stages, VectorId};
use crate::check;

/// How a model is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Whether the input of integer weights may be quantised.
    pub precision: Precision,
    /// Threads that pack weights. Zero counts as one.
    pub threads: usize,
}

/// How far loading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes of the checkpoint's tensors that are packed.
    pub bytes: Bytes,
    /// Bytes of all tensors that the program needs.
    pub total: Bytes,
}

/// Why a model cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The program contradicts itself.
    #[error("the model's program is broken{}: {problem}", at_op(*.op))]
    Program {
        /// Index of the operation, if one is to blame.
        op: Option<usize>,
        /// What is wrong.
        problem: String,
    },
    /// The checkpoint lacks a tensor.
    #[error("{file} lacks the tensor {tensor:?}; the checkpoint is incomplete or of another kind of model")]
    Missing {
        /// Name in the checkpoint.
        tensor: String,
        /// The file that should hold it.
        file: String,
    },
    /// A tensor has another shape than the model's configuration says.
    #[error(
        "tensor {tensor:?} in {file} has the shape {actual:?}, but the configuration asks for {expected:?}"
    )]
    Shape {
        /// Name in the checkpoint.
        tensor: String,
        /// The file that holds it.
        file: String,
        /// Shape that it should have.
        expected: Vec<u32>,
        /// Shape that it has.
        actual: Vec<usize>,
    },
    /// A tensor holds values that are infinite or not numbers.
    #[error(
        "tensor {tensor:?} in {file} is damaged: row {row} holds a value that is infinite or not a number"
    )]
    NotFinite {
        /// Name in the checkpoint.
        tensor: String,
        /// The file that holds it.
        file: String,
        /// The first such row.
        row: usize,
    },
    /// A tensor cannot be used for another reason.
    #[error("tensor {tensor:?} in {file} cannot be used: {source}")]
    Tensor {
        /// Name in the checkpoint.
        tensor: String,
        /// The file that holds it.
        file: String,
        /// The reason.
        source: PackError,
    },
}

fn at_op(op: Option<usize>) -> String {
    op.map_or_else(String::new, |index| format!(" at operation {index}"))
}

/// A model ready to run: immutable, shared by the lives of an executor.
#[derive(Debug)]
pub struct CpuModel {
    program: Program,
    stages: Stages,
    weights: Vec<Weight>,
    vectors: Vec<Vec<f32>>,
}

#[derive(Debug)]
enum Weight {
    Matrix(PackedMatrix),
    Vector(Vec<f32>),
}

impl CpuModel {
    /// Packs all tensors that the program names. `progress` is told after each, from several threads.
    ///
    /// # Errors
    /// [`LoadError`] for the first tensor (in the program's order) that was found unusable.
    pub fn load(
        program: Program,
        source: &dyn TensorSource,
        options: &LoadOptions,
        progress: &(dyn Fn(Loaded) + Sync),
    ) -> Result<Arc<Self>, LoadError> {
        check::program(&program).map_err(|(op, problem)| LoadError::Program { op, problem })?;
        let tensors = program.weights.iter().map(|spec| find(source, spec)).collect::<Result<Vec<_>, _>>()?;
        let weights = Packing::new(&program.weights, &tensors, source, options.precision, progress)
            .run(options.threads.max(1))?;
        let form = |id: WeightId| match &weights[id.0 as usize] {
            Weight::Matrix(matrix) => matrix.input_form(),
            Weight::Vector(_) => InputForm::default(),
        };
        let stages = Stages::new(&program, form);
        let vectors = stages.vectors.iter().map(|spec| {
            let values: &[f32] = match &weights[spec.weight.0 as usize] {
                Weight::Vector(values) => values,
                Weight::Matrix(_) => &[],
            };
            values.iter().map(|value| value + spec.offset).collect()
        });
        let vectors = vectors.collect();
        Ok(Arc::new(Self { program, stages, weights, vectors }))
    }

    /// Memory that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        let weights = self.weights.iter().map(|weight| match weight {
            Weight::Matrix(matrix) => matrix.bytes(),
            Weight::Vector(values) => size_of_val(values.as_slice()),
        });
        let vectors = self.vectors.iter().map(|values| size_of_val(values.as_slice()));
        Bytes(weights.chain(vectors).map(|bytes| bytes as u64).sum())
    }

    /// Tokens in the vocabulary.
    #[must_use]
    pub fn vocab(&self) -> usize {
        self.program.vocab as usize
    }

    /// The program that the model runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    pub(super) fn stages(&self) -> &Stages {
        &self.stages
    }

    /// A weight that the program uses as a matrix (checked at loading).
    pub(super) fn matrix(&self, id: WeightId) -> Option<&PackedMatrix> {
        match &self.weights[id.0 as usize] {
            Weight::Matrix(matrix) => Some(matrix),
            Weight::Vector(_) => None,
        }
    }

    pub(super) fn vector(&self, id: VectorId) -> &[f32] {
        &self.vectors[id.0]
    }
}

/// The tensor of a weight, if it is there and has the right shape.
pub(crate) fn find<'a>(source: &'a dyn TensorSource, spec: &WeightSpec) -> Result<TensorView<'a>, LoadError> {
    let (tensor, file) = (|| spec.name.clone(), || source.file_of(&spec.name));
    let view =
        source.tensor(&spec.name).ok_or_else(|| LoadError::Missing { tensor: tensor(), file: file() })?;
    let fits = view.shape.len() == spec.shape.len()
        && view.shape.iter().zip(&spec.shape).all(|(actual, expected)| *actual == *expected as usize);
    if fits {
        Ok(view)
    } else {
        let (expected, actual) = (spec.shape.clone(), view.shape.to_vec());
        Err(LoadError::Shape { tensor: tensor(), file: file(), expected, actual })
    }
}

/// The work of packing, shared by some threads.
struct Packing<'a> {
    specs: &'a [WeightSpec],
    tensors: &'a [TensorView<'a>],
    source: &'a dyn TensorSource,
    precision: Precision,
    progress: &'a (dyn Fn(Loaded) + Sync),
    /// Indices of tensors, the largest first, so that threads end together.
    order: Vec<usize>,
    next: AtomicUsize,
    failed: AtomicBool,
    bytes: AtomicU64,
    total: Bytes,
    results: Mutex<Vec<Option<Result<Weight, LoadError>>>>,
}

impl<'a> Packing<'a> {
    fn new(
        specs: &'a [WeightSpec],
        tensors: &'a [TensorView<'a>],
        source: &'a dyn TensorSource,
        precision: Precision,
        progress: &'a (dyn Fn(Loaded) + Sync),
    ) -> Self {
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(tensors[*index].bytes.len()));
        Self {
            specs,
            tensors,
            source,
            precision,
            progress,
            order,
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            total: Bytes(tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum()),
            results: Mutex::new((0..tensors.len()).map(|_| None).collect()),
        }
    }

    fn run(self, threads: usize) -> Result<Vec<Weight>, LoadError> {
        std::thread::scope(|scope| {
            for _ in 1..threads.min(self.order.len()) {
                scope.spawn(|| self.work());
            }
            self.work();
        });
        // Without a failure every tensor has a result; with one, the first failure is returned.
        self.results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
    }

    fn work(&self) {
        while !self.failed.load(Ordering::Relaxed) {
            let Some(&index) = self.order.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            let result = self.pack(index);
            if result.is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
            self.results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
            let packed = self.tensors[index].bytes.len() as u64;
            let bytes = self.bytes.fetch_add(packed, Ordering::Relaxed) + packed;
            (self.progress)(Loaded { bytes: Bytes(bytes), total: self.total });
        }
    }

    fn pack(&self, index: usize) -> Result<Weight, LoadError> {
        let (spec, tensor) = (&self.specs[index], &self.tensors[index]);
        let packed = match spec.role {
            WeightRole::Matrix | WeightRole::Embedding => {
                PackedMatrix::pack(tensor, self.precision).map(Weight::Matrix)
            }
            WeightRole::Vector => vector(tensor).map(Weight::Vector),
        };
        self.source.release(&spec.name);
        packed.map_err(|error| {
            let (tensor, file) = (spec.name.clone(), self.source.file_of(&spec.name));
            match error {
                PackError::NotFinite { row } => LoadError::NotFinite { tensor, file, row },
                source => LoadError::Tensor { tensor, file, source },
            }
        })
    }
}

fn vector(tensor: &TensorView<'_>) -> Result<Vec<f32>, PackError> {
    let values = tensor.to_f32().map_err(|error: TensorError| PackError::Tensor(error))?;
    if values.iter().all(|value| value.is_finite()) {
        Ok(values)
    } else {
        Err(PackError::NotFinite { row: 0 })
    }
}
