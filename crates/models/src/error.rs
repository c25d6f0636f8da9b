//! Why a checkpoint cannot be used.
//!
//! Every message stands alone: it names the file, the tensor or key, what was expected and what was found, and
//! what to do where that is not obvious. The server prints it and ends before its port opens.

use std::path::PathBuf;

use thiserror::Error;

/// Why a checkpoint was refused.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// Nothing lies at the path, and it does not look like a hub id.
    #[error(
        "`{path}` does not exist: give a folder with config.json and safetensors, a .gguf file, or a hub id such as org/name"
    )]
    NotFound {
        /// What was asked for.
        path: PathBuf,
    },
    /// Something lies at the path, but it is no checkpoint of a known kind.
    #[error("`{path}` is neither a folder nor a GGUF file: {help}")]
    NotACheckpoint {
        /// What was asked for.
        path: PathBuf,
        /// What to do.
        help: &'static str,
    },
    /// The system refused to read a file.
    #[error("cannot read `{file}`: {source}")]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that belongs to every checkpoint of this kind is missing.
    #[error("`{file}` is missing: {help}")]
    MissingFile {
        /// The file that was looked for.
        file: PathBuf,
        /// What to do.
        help: String,
    },
    /// A file is no JSON, or not of the expected form.
    #[error("`{file}` cannot be understood: {reason}; fetch it again")]
    BadJson {
        /// The file.
        file: PathBuf,
        /// What the parser says.
        reason: String,
    },
    /// A key without which the model cannot be built is missing.
    #[error("`{file}` has no `{key}`: {help}")]
    MissingKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// What to do.
        help: String,
    },
    /// A key has a value that makes no sense.
    #[error("`{key}` in `{file}` is {found}, but must be {expected}")]
    BadValue {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// No family builds this architecture.
    #[error("`{file}` asks for the architecture `{found}`, which is unknown here; known are {known}")]
    UnknownArchitecture {
        /// The file.
        file: PathBuf,
        /// The architecture.
        found: String,
        /// All that are known.
        known: String,
    },
    /// The checkpoint uses something that is not built here.
    #[error("`{file}` uses {what}, which is not supported: {help}")]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The feature.
        what: String,
        /// What to do.
        help: String,
    },
    /// The header of a weights file contradicts itself or the format.
    #[error("`{file}` is damaged: {reason}; fetch it again")]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong, with the tensor or key where one is to blame.
        reason: String,
    },
    /// A weights file ends before its tensors do.
    #[error(
        "`{file}` is cut short: tensor `{tensor}` ends at byte {needed}, but the file has {found}; fetch it again"
    )]
    Truncated {
        /// The file.
        file: PathBuf,
        /// The first tensor that is not whole.
        tensor: String,
        /// Length that the file should have at least.
        needed: u64,
        /// Length that it has.
        found: u64,
    },
    /// The index names a file that is not there.
    #[error(
        "`{shard}` is missing, but `{index}` says that it holds tensor `{tensor}`: fetch the missing file, or remove the index if it is stale"
    )]
    MissingShard {
        /// The index file.
        index: PathBuf,
        /// The file it names.
        shard: PathBuf,
        /// A tensor it should hold.
        tensor: String,
    },
    /// The index names a tensor that is not in the file it points to.
    #[error(
        "`{index}` says that tensor `{tensor}` lies in `{shard}`, but that file does not hold it: index and shards are of different downloads"
    )]
    NotInShard {
        /// The index file.
        index: PathBuf,
        /// The file it names.
        shard: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// The model needs a tensor that the checkpoint lacks.
    #[error("`{file}` has no tensor `{tensor}` (shape {expected:?}): {help}")]
    MissingTensor {
        /// Where it was looked for.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shape it would have.
        expected: Vec<u32>,
        /// What to do.
        help: String,
    },
    /// The checkpoint has a layer tensor that the model would not use.
    #[error(
        "`{file}` holds tensor `{tensor}`, which a {family} model of {layers} layers does not have: the configuration and the weights do not belong together"
    )]
    UnexpectedTensor {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// The family that the configuration names.
        family: String,
        /// Layers that the configuration names.
        layers: u32,
    },
    /// A tensor has another shape than the configuration says.
    #[error(
        "tensor `{tensor}` in `{file}` has shape {found:?}, but the configuration makes it {expected:?}: the configuration and the weights do not belong together"
    )]
    WrongShape {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Shape by the configuration.
        expected: Vec<u32>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// A tensor is stored in a way that cannot be computed with.
    #[error("tensor `{tensor}` in `{file}` is stored as {found}, which is unknown here; known are {known}")]
    UnknownElement {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// How it is stored.
        found: String,
        /// What is known.
        known: String,
    },
    /// A tensor holds values that make no sense where they are used.
    #[error("tensor `{tensor}` in `{file}` {reason}")]
    BadTensor {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// The tokenizer can produce tokens that the embedding has no row for.
    #[error(
        "the tokenizer in `{tokenizer}` has the token {token} with id {id}, but tensor `{tensor}` in `{file}` has only {rows} rows: tokenizer and weights do not belong together"
    )]
    VocabularyTooLarge {
        /// The file with the tokenizer.
        tokenizer: PathBuf,
        /// The token with the largest id.
        token: String,
        /// Its id.
        id: u64,
        /// The embedding.
        tensor: String,
        /// The file it lies in.
        file: PathBuf,
        /// Its rows.
        rows: u32,
    },
    /// More positions were asked for than the model can tell apart.
    #[error(
        "a context of {asked} tokens was asked for, but `{file}` gives the model {context}: ask for at most that many"
    )]
    ContextTooLong {
        /// The file.
        file: PathBuf,
        /// Tokens asked for.
        asked: u32,
        /// Tokens that the model has.
        context: u32,
    },
    /// A checkpoint could not be fetched from the hub.
    #[error("cannot fetch `{id}` from the hub at {endpoint}: {reason}; {help}")]
    Hub {
        /// The hub id.
        id: String,
        /// The address that was asked.
        endpoint: String,
        /// What went wrong.
        reason: String,
        /// What to do.
        help: &'static str,
    },
}
