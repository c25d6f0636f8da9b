//! The tensors of an open checkpoint, whatever its format: mapped files and where in them each tensor lies.
//!
//! Both readers fill a [`TensorStore`]; they have checked that every range lies within its file and has the length
//! that shape and element type take. Tensors of foreign element types are kept by name, so that only a model
//! that needs one is refused.

use std::ops::Range;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use updraft_kernels::memory::MappedFile;
use updraft_kernels::tensor::{ElementType, TensorView};

/// Mapped files and the tensors in them.
#[derive(Debug, Default)]
pub(crate) struct TensorStore {
    files: Vec<StoreFile>,
    tensors: IndexMap<String, StoredTensor>,
}

#[derive(Debug)]
struct StoreFile {
    path: PathBuf,
    map: MappedFile,
}

/// Where a tensor lies and what it is.
#[derive(Clone, Debug)]
pub(crate) struct StoredTensor {
    /// Index of its file.
    pub(crate) file: usize,
    /// How its values are stored.
    pub(crate) kind: StoredKind,
    /// Outermost dimension first.
    pub(crate) shape: Vec<usize>,
    /// Its bytes in the file; empty for a foreign kind.
    pub(crate) range: Range<usize>,
}

/// How values are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredKind {
    /// One that can be computed with.
    Known(ElementType),
    /// Any other, by its name.
    Foreign(String),
}

impl TensorStore {
    /// Takes a file in; its index goes into [`StoredTensor::file`].
    pub(crate) fn add_file(&mut self, path: PathBuf, map: MappedFile) -> usize {
        self.files.push(StoreFile { path, map });
        self.files.len() - 1
    }

    /// Takes a tensor in; false when one of that name is there already.
    pub(crate) fn add_tensor(&mut self, name: String, tensor: StoredTensor) -> bool {
        self.tensors.insert(name, tensor).is_none()
    }

    /// The tensor of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    /// Whether a tensor of that name exists.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// All tensors, in the order of the files.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &StoredTensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The bytes of a tensor of a known kind.
    pub(crate) fn view(&self, name: &str) -> Option<TensorView<'_>> {
        let tensor = self.tensors.get(name)?;
        let StoredKind::Known(element) = tensor.kind else {
            return None;
        };
        let bytes = self.files.get(tensor.file)?.map.bytes().get(tensor.range.clone())?;
        Some(TensorView { element, shape: &tensor.shape, bytes })
    }

    /// Gives the memory of a tensor's bytes back until they are read again.
    pub(crate) fn release(&self, name: &str) {
        if let Some(tensor) = self.tensors.get(name)
            && let Some(file) = self.files.get(tensor.file)
        {
            file.map.release(tensor.range.clone());
        }
    }

    /// The file that holds the tensor; the first file when there is no such tensor.
    pub(crate) fn file_of(&self, name: &str) -> &Path {
        let at = self.tensors.get(name).map_or(0, |tensor| tensor.file);
        self.files.get(at).map_or(Path::new(""), |file| &file.path)
    }
}

/// Names of all element types that can be computed with, for messages.
pub(crate) fn known_elements(elements: &[ElementType]) -> String {
    elements.iter().map(|element| element.name()).collect::<Vec<_>>().join(", ")
}
