//! The library, devices, sequences.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use updraft_core::ids::{BlockId, SlotId};
use updraft_core::program::Program;
use updraft_core::step::{SequenceSpan, StepInputs};
use updraft_core::{Blocks, Tokens};
use updraft_devices::Device;
use updraft_devices::ascend::{AscendDevice, AscendOptions, Compute, Library, OpenError, SearchPath};

use super::models::{self, Kind, Tensors};

pub(crate) const BLOCK_SIZE: usize = 16;
pub(crate) const BLOCKS: usize = 64;

/// The names under which a CANN of the 8.1 kind is looked for.
pub(crate) const NAMES: [&str; 4] = ["libascendcl.so", "libnnopbase.so", "libopapi.so", "libhccl.so"];

/// The simulated library beside this program.
pub(crate) fn simulated() -> PathBuf {
    let folder = std::env::current_exe().expect("this program").parent().expect("its folder").to_owned();
    let library = folder.join("libacl_sim.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

/// A folder with links to the simulated library under some names.
pub(crate) fn folder(purpose: &str, names: &[&str]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ascend-{purpose}-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    std::fs::create_dir_all(folder.join("lib64")).expect("a folder");
    for name in names {
        std::os::unix::fs::symlink(simulated(), folder.join("lib64").join(name)).expect("a link");
    }
    folder
}

/// The library that all tests of this process use.
pub(crate) fn library() -> &'static Arc<Library> {
    static LIBRARY: OnceLock<Arc<Library>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let search = match std::env::var_os("ASCEND_HOME_PATH") {
            Some(home) => SearchPath::from_environment(Some(Path::new(&home))),
            None => SearchPath::only(&folder("library", &NAMES)),
        };
        Library::load(&search).expect("a complete library")
    })
}

pub(crate) fn options() -> AscendOptions {
    AscendOptions {
        ordinal: 0,
        compute: Compute::Bf16,
        blocks: Blocks(BLOCKS as u32),
        block_size: Tokens(BLOCK_SIZE as u32),
        max_rows: 128,
        max_logit_rows: 128,
        max_sequences: 16,
        max_model_len: 400,
        avoid: Vec::new(),
    }
}

pub(crate) fn open(
    program: &Program,
    tensors: &Tensors,
    options: &AscendOptions,
) -> Result<AscendDevice, OpenError> {
    AscendDevice::open(library(), program, tensors, options, &|_| ())
}

/// A device with the program of a kind.
pub(crate) fn device(kind: Kind) -> AscendDevice {
    open(&models::program(kind), &models::tensors(kind), &options()).expect("a device")
}

/// A sequence with its blocks.
#[derive(Clone)]
pub(crate) struct Sequence {
    pub(crate) tokens: Vec<u32>,
    pub(crate) table: Vec<u32>,
}

impl Sequence {
    pub(crate) fn new(seed: u32, len: usize, first_block: u32) -> Self {
        let tokens = (0..len as u32).map(|i| (i * 7 + seed * 13 + i * i % 11) % models::VOCAB);
        let blocks = len.div_ceil(BLOCK_SIZE) as u32;
        // Backwards, so that nothing can rely on neighbouring blocks.
        Self { tokens: tokens.collect(), table: (first_block..first_block + blocks).rev().collect() }
    }
}

/// A sequence, its first token to compute, and how many.
pub(crate) type Part<'a> = (&'a Sequence, usize, usize);

/// Inputs of a step with logits for every row.
pub(crate) fn inputs(parts: &[Part<'_>]) -> StepInputs {
    let mut inputs = StepInputs::default();
    for (sequence, start, count) in parts {
        inputs.spans.push(SequenceSpan {
            row_start: inputs.rows() as u32,
            row_count: *count as u32,
            context: (start + count) as u32,
            table_start: inputs.block_tables.len() as u32,
            table_len: sequence.table.len() as u32,
        });
        inputs.block_tables.extend(sequence.table.iter().map(|block| BlockId(*block)));
        for position in *start..start + count {
            let block = sequence.table[position / BLOCK_SIZE] as usize;
            inputs.token_ids.push(sequence.tokens[position]);
            inputs.positions.push(position as u32);
            inputs.slots.push(SlotId((block * BLOCK_SIZE + position % BLOCK_SIZE) as u32));
        }
    }
    inputs.logit_rows = (0..inputs.rows() as u32).collect();
    inputs
}

/// The logits that the last step left.
pub(crate) fn logits(device: &dyn Device, rows: usize) -> Vec<Vec<f32>> {
    (0..rows).map(|row| device.logits(row).to_vec()).collect()
}

/// Runs one step and returns the logits of all its rows.
pub(crate) fn step(device: &mut dyn Device, parts: &[Part<'_>]) -> Vec<Vec<f32>> {
    let inputs = inputs(parts);
    device.run(&inputs).expect("a step");
    logits(device, inputs.rows())
}
