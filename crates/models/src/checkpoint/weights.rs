//! Checks that the tensors of a checkpoint are those that the program names, neither fewer nor others.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use updraft_core::program::{Program, WeightSpec};
use updraft_kernels::tensor::ElementType;

use crate::config::ModelConfig;
use crate::error::CheckpointError;
use crate::families::{Kind, Naming, Part};
use crate::tensors::{StoredKind, StoredTensor, TensorStore, known_elements};

/// Facts about the weights of a checked checkpoint.
pub(super) struct Found {
    /// How most bytes are stored.
    pub(super) stored_dtype: String,
    /// Values in all weights.
    pub(super) parameters: u64,
}

/// Tensors that old checkpoints have in their layers although every reader computes them itself.
const COMPUTED: [&str; 2] = [".rotary_emb.", ".attn_rot_embd."];

/// Refuses a configuration with more layers than the checkpoint has tensors.
pub(super) fn check_layer_count(
    store: &TensorStore,
    naming: &Naming,
    config: &ModelConfig,
) -> Result<(), CheckpointError> {
    let last = config.layers - 1;
    let prefix = format!("{}{last}.", naming.layers_prefix());
    if store.iter().any(|(name, _)| name.starts_with(&prefix)) {
        return Ok(());
    }
    let tensor = naming.layer(last, Part::AttentionNorm, Kind::Weight);
    Err(CheckpointError::MissingTensor {
        file: store.file_of(&naming.embedding()).to_owned(),
        tensor,
        expected: vec![config.hidden],
        help: format!(
            "the configuration names {} layers, but the weights have no layer {last}; they do not belong together",
            config.layers
        ),
    })
}

/// Checks every weight of the program.
pub(super) fn check(
    store: &TensorStore,
    naming: &Naming,
    config: &ModelConfig,
    program: &Program,
    elements: &[ElementType],
) -> Result<Found, CheckpointError> {
    let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut parameters = 0;
    for weight in &program.weights {
        let (stored, element) = find(store, naming, config, weight, elements)?;
        *bytes.entry(dtype_name(element)).or_default() += stored.range.len();
        parameters += weight.shape.iter().map(|&length| u64::from(length)).product::<u64>();
    }
    refuse_leftovers(store, naming, config, program)?;
    let most = bytes.into_iter().max_by_key(|&(_, bytes)| bytes);
    Ok(Found { stored_dtype: most.map_or_else(String::new, |(name, _)| name.to_owned()), parameters })
}

fn find<'a>(
    store: &'a TensorStore,
    naming: &Naming,
    config: &ModelConfig,
    weight: &WeightSpec,
    elements: &[ElementType],
) -> Result<(&'a StoredTensor, ElementType), CheckpointError> {
    let file = || store.file_of(&weight.name).to_owned();
    let tensor = || weight.name.clone();
    let Some(stored) = store.get(&weight.name) else {
        return Err(CheckpointError::MissingTensor {
            file: file(),
            tensor: tensor(),
            expected: weight.shape.clone(),
            help: missing_help(naming, config, weight),
        });
    };
    let element = match &stored.kind {
        StoredKind::Known(element) if elements.contains(element) => *element,
        other => {
            let found = match other {
                StoredKind::Known(element) => element.name().to_owned(),
                StoredKind::Foreign(name) => name.clone(),
            };
            let known = known_elements(elements);
            return Err(CheckpointError::UnknownElement { file: file(), tensor: tensor(), found, known });
        }
    };
    if !stored.shape.iter().copied().eq(weight.shape.iter().map(|&length| length as usize)) {
        return Err(CheckpointError::WrongShape {
            file: file(),
            tensor: tensor(),
            expected: weight.shape.clone(),
            found: stored.shape.clone(),
        });
    }
    Ok((stored, element))
}

fn missing_help(naming: &Naming, config: &ModelConfig, weight: &WeightSpec) -> String {
    if weight.name == naming.output() && !config.tied_output {
        return "the configuration says that the output matrix is not the embedding (`tie_word_embeddings` false)"
            .to_owned();
    }
    format!(
        "a {} model needs it; the download is incomplete, or the weights are of another model",
        config.family
    )
}

/// Refuses layer tensors that would be ignored: with them left out, the model would compute something, but not
/// what it was trained to.
fn refuse_leftovers(
    store: &TensorStore,
    naming: &Naming,
    config: &ModelConfig,
    program: &Program,
) -> Result<(), CheckpointError> {
    let used: HashSet<&str> = program.weights.iter().map(|weight| weight.name.as_str()).collect();
    let prefix = naming.layers_prefix();
    let leftover = store.iter().map(|(name, _)| name).find(|name| {
        name.starts_with(&prefix) && !COMPUTED.iter().any(|part| name.contains(part)) && !used.contains(name)
    });
    match leftover {
        None => Ok(()),
        Some(name) => Err(CheckpointError::UnexpectedTensor {
            file: Path::to_owned(store.file_of(name)),
            tensor: name.to_owned(),
            family: config.family.to_owned(),
            layers: config.layers,
        }),
    }
}

fn dtype_name(element: ElementType) -> &'static str {
    match element {
        ElementType::F32 => "float32",
        ElementType::F16 => "float16",
        ElementType::BF16 => "bfloat16",
        quantised => quantised.name(),
    }
}
