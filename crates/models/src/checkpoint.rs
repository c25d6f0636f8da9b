//! A checkpoint that has been opened and found whole.
//!
//! Opening reads configuration, headers and text assets, writes the step program, and checks every tensor that the
//! program names. It reads no weights but the few numbers that shape the program, so it takes milliseconds and little memory.
//! Values that are no numbers are found later, while a device packs the weights.

mod vocabulary;
mod weights;

use std::path::{Path, PathBuf};

use updraft_core::program::Program;
use updraft_core::units::Tokens;
use updraft_kernels::tensor::{ElementType, TensorSource, TensorView};

use crate::config::{self, ModelConfig};
use crate::error::CheckpointError;
use crate::families::{Family, Naming};
use crate::hub::{self, HubId};
use crate::tensors::TensorStore;
use crate::text_assets::{self, TextAssets};
use crate::{gguf, safetensors};

/// How to open a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Longest context that will be served; absent: the model's own. Rotary tables are made for it.
    pub max_model_len: Option<Tokens>,
    /// Where checkpoints from the hub are kept; absent: where `HF_HOME` says, or the user's cache folder.
    pub download_dir: Option<PathBuf>,
    /// Branch, tag or commit of a hub id that names none itself.
    pub revision: Option<String>,
}

/// An open checkpoint. Its tensors are read through [`TensorSource`].
#[derive(Debug)]
pub struct Checkpoint {
    /// What the model is.
    pub config: ModelConfig,
    /// Its step.
    pub program: Program,
    /// What the text side needs.
    pub text: TextAssets,
    /// The folder or file that it lies in (of a hub id: where it was put).
    pub path: PathBuf,
    store: TensorStore,
}

impl Checkpoint {
    /// Opens a folder, a GGUF file or, when nothing lies at the path and it looks like one, a hub id
    /// (`org/name` or `org/name@revision`).
    ///
    /// # Errors
    /// Whatever is missing, damaged, unknown or does not fit together, by name. NaN weights are not looked for.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, CheckpointError> {
        if path.is_dir() {
            return open_folder(path, options);
        }
        if path.is_file() {
            return open_file(path, options);
        }
        let Some(id) = HubId::parse(&path.to_string_lossy(), options.revision.as_deref()) else {
            return Err(CheckpointError::NotFound { path: path.to_owned() });
        };
        let fetched = hub::fetch(&id, options.download_dir.as_deref())?;
        if fetched.is_dir() { open_folder(&fetched, options) } else { open_file(&fetched, options) }
    }
}

fn open_folder(folder: &Path, options: &OpenOptions) -> Result<Checkpoint, CheckpointError> {
    let hf = config::hf::read(folder)?;
    let store = safetensors::open_folder(folder)?;
    let naming = Naming::of_folder(&store);
    let config_file = folder.join(config::hf::CONFIG_FILE);
    let parts = Parts {
        family: hf.family,
        naming,
        store,
        config_file: &config_file,
        elements: &safetensors::ELEMENTS,
    };
    let (config, program, store) = parts.build(hf.config, options)?;
    let text = text_assets::hf::read(folder, hf.eos_token_ids, config.vocab)?;
    let checkpoint = Checkpoint { config, program, text, path: folder.to_owned(), store };
    vocabulary::check(&checkpoint, hf.family)?;
    Ok(checkpoint)
}

fn open_file(file: &Path, options: &OpenOptions) -> Result<Checkpoint, CheckpointError> {
    if !starts_as_gguf(file)? {
        return Err(CheckpointError::NotACheckpoint { path: file.to_owned(), help: file_help(file) });
    }
    let (mut metadata, store) = gguf::open(file)?;
    let (config, family) = config::gguf::read(file, &metadata, &store)?;
    let parts = Parts { family, naming: Naming::Gguf, store, config_file: file, elements: &ElementType::ALL };
    let (config, program, store) = parts.build(config, options)?;
    let text = text_assets::gguf::take(file, &mut metadata, config.vocab)?;
    let checkpoint = Checkpoint { config, program, text, path: file.to_owned(), store };
    vocabulary::check(&checkpoint, family)?;
    Ok(checkpoint)
}

fn starts_as_gguf(file: &Path) -> Result<bool, CheckpointError> {
    let read = || -> std::io::Result<Vec<u8>> {
        use std::io::Read;
        let mut start = Vec::new();
        std::fs::File::open(file)?.take(4).read_to_end(&mut start)?;
        Ok(start)
    };
    let start = read().map_err(|source| CheckpointError::Read { file: file.to_owned(), source })?;
    // A file that calls itself GGUF is judged by the reader, which says more about what is wrong.
    Ok(gguf::looks_like(&start) || file.extension().is_some_and(|extension| extension == "gguf"))
}

fn file_help(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors" | "json") => "give the folder that it lies in",
        _ => "give a folder with config.json and safetensors, or a .gguf file",
    }
}

/// What both kinds of checkpoints have once their configuration is read.
struct Parts<'a> {
    family: &'static Family,
    naming: Naming,
    store: TensorStore,
    config_file: &'a Path,
    elements: &'a [ElementType],
}

impl Parts<'_> {
    fn build(
        self,
        mut config: ModelConfig,
        options: &OpenOptions,
    ) -> Result<(ModelConfig, Program, TensorStore), CheckpointError> {
        let context = config.context_length.0;
        let positions = options.max_model_len.map_or(context, |asked| asked.0);
        if positions > context {
            return Err(CheckpointError::ContextTooLong {
                file: self.config_file.to_owned(),
                asked: positions,
                context,
            });
        }
        // Before the program is written: it would name as many layers as a damaged configuration asks for.
        weights::check_layer_count(&self.store, &self.naming, &config)?;
        let program = self.family.program(&config, &self.naming, positions);
        let found = weights::check(&self.store, &self.naming, &config, &program, self.elements)?;
        config.stored_dtype = found.stored_dtype;
        config.parameters = found.parameters;
        Ok((config, program, self.store))
    }
}

impl TensorSource for Checkpoint {
    fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.store.view(name)
    }

    fn release(&self, name: &str) {
        self.store.release(name);
    }

    fn file_of(&self, name: &str) -> String {
        self.store.file_of(name).display().to_string()
    }
}
