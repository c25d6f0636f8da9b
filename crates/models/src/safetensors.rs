//! Weights in Hugging Face layout: `model.safetensors`, or the shards that `model.safetensors.index.json` names.
//!
//! Only the files of the checkpoint are opened; other safetensors files beside them are none of its parts. Every
//! tensor of an opened file is checked: its range, its size, that it neither overlaps nor leaves a hole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorInfo};
use serde::Deserialize;
use updraft_kernels::memory::MappedFile;
use updraft_kernels::tensor::ElementType;

use crate::error::CheckpointError;
use crate::tensors::{StoredKind, StoredTensor, TensorStore};

/// Weights in one file.
pub(crate) const SINGLE_FILE: &str = "model.safetensors";
/// Names the file of each tensor when the weights are in several.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";

/// Element types that a safetensors folder may have.
pub(crate) const ELEMENTS: [ElementType; 3] = [ElementType::F32, ElementType::F16, ElementType::BF16];

/// Bytes of the length that a file starts with.
const LENGTH_BYTES: usize = 8;
/// The same limit that the reference reader has.
const MAX_HEADER_BYTES: usize = 100_000_000;

/// Opens the weights of a folder.
pub(crate) fn open_folder(folder: &Path) -> Result<TensorStore, CheckpointError> {
    let single = folder.join(SINGLE_FILE);
    let index = folder.join(INDEX_FILE);
    if single.exists() {
        let mut store = TensorStore::default();
        let (map, header) = open_file(&single)?;
        let file = store.add_file(single, map);
        for (name, info) in header {
            add(&mut store, file, name, info);
        }
        return Ok(store);
    }
    if index.exists() {
        return open_shards(folder, &index);
    }
    Err(CheckpointError::MissingFile { file: single, help: no_weights_help(folder) })
}

/// The part of an index file that is used.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn open_shards(folder: &Path, index_path: &Path) -> Result<TensorStore, CheckpointError> {
    let text = std::fs::read(index_path)
        .map_err(|source| CheckpointError::Read { file: index_path.to_owned(), source })?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| CheckpointError::BadJson {
        file: index_path.to_owned(),
        reason: error.to_string(),
    })?;
    let mut by_shard: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, shard) in &index.weight_map {
        by_shard.entry(shard).or_default().push(tensor);
    }
    if by_shard.is_empty() {
        return Err(CheckpointError::BadJson {
            file: index_path.to_owned(),
            reason: "`weight_map` names no tensor".to_owned(),
        });
    }
    let mut store = TensorStore::default();
    for (shard, tensors) in by_shard {
        let path = shard_path(folder, index_path, shard)?;
        if !path.exists() {
            return Err(CheckpointError::MissingShard {
                index: index_path.to_owned(),
                shard: path,
                tensor: tensors.first().map_or_else(String::new, ToString::to_string),
            });
        }
        let (map, mut header) = open_file(&path)?;
        let file = store.add_file(path.clone(), map);
        for tensor in tensors {
            let Some(info) = header.remove(tensor) else {
                return Err(CheckpointError::NotInShard {
                    index: index_path.to_owned(),
                    shard: path,
                    tensor: tensor.to_owned(),
                });
            };
            add(&mut store, file, tensor.to_owned(), info);
        }
    }
    Ok(store)
}

/// A shard lies in the folder of its index: anything else would be a way out of it.
fn shard_path(folder: &Path, index: &Path, shard: &str) -> Result<PathBuf, CheckpointError> {
    let plain = Path::new(shard).file_name().is_some_and(|name| name == shard);
    if plain {
        return Ok(folder.join(shard));
    }
    Err(CheckpointError::BadValue {
        file: index.to_owned(),
        key: "weight_map".to_owned(),
        found: format!("`{shard}`"),
        expected: "the name of a file in the same folder".to_owned(),
    })
}

fn add(store: &mut TensorStore, file: usize, name: String, info: PlacedTensor) {
    let kind = match info.dtype {
        Dtype::F32 => StoredKind::Known(ElementType::F32),
        Dtype::F16 => StoredKind::Known(ElementType::F16),
        Dtype::BF16 => StoredKind::Known(ElementType::BF16),
        other => StoredKind::Foreign(other.to_string()),
    };
    store.add_tensor(name, StoredTensor { file, kind, shape: info.shape, range: info.start..info.end });
}

/// A tensor with its place from the start of the file.
struct PlacedTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    start: usize,
    end: usize,
}

fn open_file(path: &Path) -> Result<(MappedFile, BTreeMap<String, PlacedTensor>), CheckpointError> {
    let map =
        MappedFile::open(path).map_err(|source| CheckpointError::Read { file: path.to_owned(), source })?;
    let header = read_header(path, map.bytes())?;
    Ok((map, header))
}

fn read_header(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, PlacedTensor>, CheckpointError> {
    let damaged = |reason: String| CheckpointError::Damaged { file: path.to_owned(), reason };
    let (length, rest) = bytes
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| damaged(format!("{} bytes are too few for a safetensors file", bytes.len())))?;
    let length = usize::try_from(u64::from_le_bytes(*length))
        .ok()
        .filter(|&length| length <= MAX_HEADER_BYTES)
        .ok_or_else(|| damaged("it does not start with the length of a safetensors header".to_owned()))?;
    let (header, data) = rest.split_at_checked(length).ok_or_else(|| {
        damaged(format!("its header should have {length} bytes, but only {} follow", rest.len()))
    })?;
    let mut entries: BTreeMap<String, serde_json::Value> = serde_json::from_slice(header)
        .map_err(|error| damaged(format!("its header is no JSON object ({error})")))?;
    entries.remove("__metadata__");

    let mut infos = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let info: TensorInfo = serde_json::from_value(entry)
            .map_err(|error| damaged(format!("the header entry of tensor `{name}` is wrong ({error})")))?;
        infos.push((name, info));
    }
    infos.sort_by_key(|(_, info)| info.data_offsets);
    place(path, infos, LENGTH_BYTES + length, data.len())
}

/// Checks that the tensors fill the data of the file one behind the other, and moves their offsets to its start.
fn place(
    path: &Path,
    infos: Vec<(String, TensorInfo)>,
    data_start: usize,
    data_len: usize,
) -> Result<BTreeMap<String, PlacedTensor>, CheckpointError> {
    let damaged = |reason: String| CheckpointError::Damaged { file: path.to_owned(), reason };
    let mut placed = BTreeMap::new();
    let mut previous = ("the header".to_owned(), 0);
    for (name, info) in infos {
        let (start, end) = info.data_offsets;
        if start != previous.1 || end < start {
            return Err(damaged(format!(
                "tensor `{name}` lies at bytes {start}..{end} of the data, but {} ends at {}, so that they overlap or \
                 leave a hole",
                previous.0, previous.1
            )));
        }
        let bits = info.shape.iter().try_fold(info.dtype.bitsize(), |bits, &length| bits.checked_mul(length));
        if bits.is_none_or(|bits| !bits.is_multiple_of(8) || bits / 8 != end - start) {
            return Err(damaged(format!(
                "tensor `{name}` of shape {:?} and type {} cannot have {} bytes",
                info.shape,
                info.dtype,
                end - start
            )));
        }
        if end > data_len {
            return Err(CheckpointError::Truncated {
                file: path.to_owned(),
                tensor: name,
                needed: data_start as u64 + end as u64,
                found: data_start as u64 + data_len as u64,
            });
        }
        previous = (format!("tensor `{name}`"), end);
        let (start, end) = (data_start + start, data_start + end);
        placed.insert(name, PlacedTensor { dtype: info.dtype, shape: info.shape, start, end });
    }
    if previous.1 == data_len {
        return Ok(placed);
    }
    Err(damaged(format!("{} bytes follow behind {}, its last", data_len - previous.1, previous.0)))
}

/// What to say when a folder has no safetensors of the expected names.
fn no_weights_help(folder: &Path) -> String {
    let names: Vec<String> = std::fs::read_dir(folder)
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    if names.iter().any(|name| name == "quant_model_description.json") {
        return "the folder holds W8A8 weights of the msmodelslim tool, which are not supported; give the unquantised \
                checkpoint"
            .to_owned();
    }
    let ending = |ending: &str| names.iter().find(|name| name.ends_with(ending));
    if let Some(gguf) = ending(".gguf") {
        return format!("the folder holds `{gguf}`; give the path of that file");
    }
    if let Some(pickle) = ending(".bin").or(ending(".pth")) {
        return format!("the folder holds `{pickle}`, in PyTorch's pickle format; convert it to safetensors");
    }
    format!("weights are read from `{SINGLE_FILE}`, or from the shards that `{INDEX_FILE}` names")
}
