//! GGUF files (versions 2 and 3, little-endian): metadata and tensors, with every offset and length checked.
//!
//! A file that is cut short, lies about a count or points outside itself is refused; no input makes the reader panic
//! or reserve more memory than a small multiple of the file's own size. Quantised tensors stay as they are.
//! What the metadata means for a model is said in `config::gguf`, what it means for text in `text_assets::gguf`.

mod cursor;
mod elements;
#[cfg(test)]
mod tests;
mod value;

use std::ops::Range;
use std::path::Path;

use updraft_kernels::memory::MappedFile;
use updraft_kernels::tensor::TensorView;

use crate::error::CheckpointError;
use crate::tensors::{StoredKind, StoredTensor, TensorStore};

use cursor::{Cursor, CursorError};
pub(crate) use value::{Array, Metadata, Value};

/// The first bytes of every file.
const MAGIC: &[u8; 4] = b"GGUF";
/// Where tensors start is rounded up to this when the metadata is silent.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Dimensions that the format allows.
const MAX_DIMENSIONS: u32 = 4;
/// Least bytes of one tensor entry: empty name, one dimension, kind and offset.
const MIN_TENSOR_ENTRY: u64 = 8 + 4 + 8 + 4 + 8;

/// Whether a file starts as a GGUF file does.
pub(crate) fn looks_like(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Opens a file and checks all of it but the values of the tensors.
pub(crate) fn open(path: &Path) -> Result<(Metadata, TensorStore), CheckpointError> {
    let map =
        MappedFile::open(path).map_err(|source| CheckpointError::Read { file: path.to_owned(), source })?;
    let (metadata, tensors) = read(path, map.bytes())?;
    let mut store = TensorStore::default();
    store.add_file(path.to_owned(), map);
    for (name, tensor) in tensors {
        if let Some(at) = store.get(&name) {
            let reason = format!("tensor `{name}` is there twice (the first has shape {:?})", at.shape);
            return Err(damaged(path, reason));
        }
        store.add_tensor(name, tensor);
    }
    Ok((metadata, store))
}

/// Reads header, metadata and tensor table from the bytes of a whole file.
pub(crate) fn read(
    path: &Path,
    bytes: &[u8],
) -> Result<(Metadata, Vec<(String, StoredTensor)>), CheckpointError> {
    let mut cursor = Cursor::new(bytes);
    let header = read_counts(path, &mut cursor)?;
    let metadata = Metadata::read(path, &mut cursor, header.metadata)?;
    refuse_split(path, &metadata)?;
    let entries = read_entries(path, &mut cursor, header.tensors)?;
    let data_start = data_start(path, &metadata, cursor.position())?;
    let mut tensors = Vec::with_capacity(entries.len());
    for entry in entries {
        tensors.push(locate(path, entry, data_start, bytes.len() as u64)?);
    }
    refuse_overlap(path, &tensors)?;
    Ok((metadata, tensors))
}

struct Counts {
    tensors: u64,
    metadata: u64,
}

fn read_counts(path: &Path, cursor: &mut Cursor<'_>) -> Result<Counts, CheckpointError> {
    let header = |error: CursorError| damaged(path, format!("its header {error}"));
    let magic = cursor.bytes(MAGIC.len() as u64).map_err(header)?;
    if magic != MAGIC {
        return Err(damaged(path, format!("it starts with {magic:?}, not with `GGUF`")));
    }
    let version = cursor.u32().map_err(header)?;
    if version.swap_bytes() == 2 || version.swap_bytes() == 3 {
        return Err(CheckpointError::Unsupported {
            file: path.to_owned(),
            what: "big-endian numbers".to_owned(),
            help: "take the little-endian file".to_owned(),
        });
    }
    if version != 2 && version != 3 {
        return Err(CheckpointError::Unsupported {
            file: path.to_owned(),
            what: format!("GGUF version {version}"),
            help: "versions 2 and 3 are read; convert the model again".to_owned(),
        });
    }
    let tensors = cursor.u64().map_err(header)?;
    let metadata = cursor.u64().map_err(header)?;
    if tensors > cursor.remaining() / MIN_TENSOR_ENTRY {
        return Err(damaged(path, format!("{tensors} tensors cannot fit into its {} bytes", cursor.len())));
    }
    Ok(Counts { tensors, metadata })
}

fn refuse_split(path: &Path, metadata: &Metadata) -> Result<(), CheckpointError> {
    match metadata.integer("split.count") {
        Some(parts) if parts > 1 => Err(CheckpointError::Unsupported {
            file: path.to_owned(),
            what: format!("a model split into {parts} files"),
            help: "join them into one file (llama.cpp's gguf-split --merge does it)".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// A tensor as the table describes it.
struct Entry {
    name: String,
    /// Outermost dimension first.
    shape: Vec<usize>,
    kind: u32,
    /// From the start of the data.
    offset: u64,
}

fn read_entries(path: &Path, cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Entry>, CheckpointError> {
    let mut entries = Vec::with_capacity(count as usize);
    for at in 0..count {
        let in_table =
            |error: CursorError| damaged(path, format!("the entry of tensor {} of {count} {error}", at + 1));
        let name = cursor.string().map_err(in_table)?;
        let in_entry = |error: CursorError| damaged(path, format!("the entry of tensor `{name}` {error}"));
        let dimensions = cursor.u32().map_err(in_entry)?;
        if dimensions == 0 || dimensions > MAX_DIMENSIONS {
            return Err(damaged(path, format!("tensor `{name}` has {dimensions} dimensions")));
        }
        let mut shape = Vec::with_capacity(dimensions as usize);
        for _ in 0..dimensions {
            let length = cursor.u64().map_err(in_entry)?;
            let length = usize::try_from(length).ok().filter(|&length| length > 0).ok_or_else(|| {
                damaged(path, format!("tensor `{name}` has a dimension of {length} values"))
            })?;
            shape.push(length);
        }
        // The format writes the contiguous dimension first.
        shape.reverse();
        let kind = cursor.u32().map_err(in_entry)?;
        let offset = cursor.u64().map_err(in_entry)?;
        entries.push(Entry { name, shape, kind, offset });
    }
    Ok(entries)
}

fn data_start(path: &Path, metadata: &Metadata, table_end: u64) -> Result<u64, CheckpointError> {
    let alignment = metadata.integer("general.alignment").unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > 1 << 20 {
        return Err(CheckpointError::BadValue {
            file: path.to_owned(),
            key: "general.alignment".to_owned(),
            found: alignment.to_string(),
            expected: "a power of two up to 2^20".to_owned(),
        });
    }
    Ok(table_end.next_multiple_of(alignment))
}

/// Turns an entry into a tensor whose bytes are known to lie within the file.
fn locate(
    path: &Path,
    entry: Entry,
    data_start: u64,
    file_len: u64,
) -> Result<(String, StoredTensor), CheckpointError> {
    let Entry { name, shape, kind, offset } = entry;
    let truncated = |needed: u64| CheckpointError::Truncated {
        file: path.to_owned(),
        tensor: name.clone(),
        needed,
        found: file_len,
    };
    let start = data_start.saturating_add(offset);
    let Some(element) = elements::by_code(kind) else {
        if start > file_len {
            return Err(truncated(start));
        }
        let kind = StoredKind::Foreign(elements::name_of(kind));
        return Ok((name, StoredTensor { file: 0, kind, shape, range: 0..0 }));
    };
    let len = TensorView::bytes_for(element, &shape)
        .map_err(|error| damaged(path, format!("tensor `{name}` is impossible: {error}")))?;
    let end = start.saturating_add(len as u64);
    if end > file_len {
        return Err(truncated(end));
    }
    let range: Range<usize> = start as usize..end as usize;
    Ok((name, StoredTensor { file: 0, kind: StoredKind::Known(element), shape, range }))
}

fn refuse_overlap(path: &Path, tensors: &[(String, StoredTensor)]) -> Result<(), CheckpointError> {
    let mut ranges: Vec<(&Range<usize>, &str)> = tensors
        .iter()
        .filter(|(_, tensor)| !tensor.range.is_empty())
        .map(|(name, tensor)| (&tensor.range, name.as_str()))
        .collect();
    ranges.sort_by_key(|(range, _)| range.start);
    for pair in ranges.windows(2) {
        if let [(first, first_name), (second, second_name)] = pair
            && first.end > second.start
        {
            let reason = format!(
                "tensor `{first_name}` (bytes {first:?}) and tensor `{second_name}` (bytes {second:?}) overlap"
            );
            return Err(damaged(path, reason));
        }
    }
    Ok(())
}

fn damaged(path: &Path, reason: String) -> CheckpointError {
    CheckpointError::Damaged { file: path.to_owned(), reason }
}
