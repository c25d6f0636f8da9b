//! What an Ascend device is made for, and what that takes of its memory.

use updraft_core::program::Program;
use updraft_core::{Blocks, Tokens};

use super::error::OpenError;
use super::lower::{Compute, Plan, Sizes};
use super::operators::Installed;
use crate::MemoryUse;
use crate::inputs::Limits;

/// Sizes of heads for which attention takes blocks of nearly any size.
const USUAL_HEADS: [u32; 2] = [64, 128];
/// Sizes of blocks for them: multiples of the first, up to the second.
const USUAL_BLOCKS: (u32, u32) = (16, 1024);
/// Sizes of blocks for all other heads, with which prompts and decoding both run.
const OTHER_BLOCKS: (u32, u32) = (128, 512);

/// Sizes of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AscendOptions {
    /// Which of the devices that the process sees.
    pub ordinal: u32,
    /// Type of weights, activations and cache.
    pub compute: Compute,
    /// Blocks of the KV cache, in every layer. Some more are allocated, for rows of nobody: as many tokens as a graph has
    /// rows at most.
    pub blocks: Blocks,
    /// Tokens in a block: a multiple of 16, at most 1024; with heads of other than 64 or 128 values a multiple of 128, at
    /// most 512.
    pub block_size: Tokens,
    /// Rows of a step, at most.
    pub max_rows: usize,
    /// Rows with logits of a step, at most.
    pub max_logit_rows: usize,
    /// Sequences of a step, at most.
    pub max_sequences: usize,
    /// Tokens of a sequence, at most.
    pub max_model_len: usize,
    /// Operators that are not used although they are installed, because they are known to be bad there.
    pub avoid: Vec<String>,
}

/// The memory that a device would take of these sizes, without the workspace that its operators ask for when they run.
/// Needs no device.
///
/// # Errors
/// As [`super::AscendDevice::open`], for what the program and the options alone decide.
pub fn footprint(program: &Program, options: &AscendOptions) -> Result<MemoryUse, OpenError> {
    check_options(program, options)?;
    let everything = Installed { has: &|_| true, chip: None, version: None };
    Ok(Plan::of(program, &everything)?.footprint(program, &sizes(program, options)))
}

pub(super) fn check_options(program: &Program, options: &AscendOptions) -> Result<(), OpenError> {
    let size = options.block_size.0;
    let fits = |(step, max): (u32, u32)| size > 0 && size.is_multiple_of(step) && size <= max;
    if !fits(USUAL_BLOCKS) {
        let (step, max) = USUAL_BLOCKS;
        return Err(OpenError::Options(format!(
            "blocks of {size} tokens cannot be used on Ascend devices; take a multiple of {step} up to {max}, 128 for \
             instance"
        )));
    }
    let mut heads = program.kv_layers.iter().map(|layer| layer.head_dim);
    if let Some(head) = heads.find(|head| !USUAL_HEADS.contains(head) && !fits(OTHER_BLOCKS)) {
        let (step, max) = OTHER_BLOCKS;
        return Err(OpenError::Options(format!(
            "blocks of {size} tokens cannot be used on Ascend devices for this model, whose heads have {head} values; take \
             a multiple of {step} up to {max}"
        )));
    }
    let sizes = [options.max_rows, options.max_logit_rows, options.max_sequences, options.max_model_len];
    if sizes.contains(&0) || options.blocks.0 == 0 {
        return Err(OpenError::Options(
            "a device needs at least one row, sequence, token and block".to_owned(),
        ));
    }
    let slots = self::sizes(program, options).all_blocks() as u64 * u64::from(size);
    if i32::try_from(slots).is_err() {
        return Err(OpenError::Options(format!(
            "{slots} tokens of KV cache are more than slots can be numbered for; take fewer blocks"
        )));
    }
    Ok(())
}

pub(super) fn sizes(program: &Program, options: &AscendOptions) -> Sizes {
    Sizes {
        rows: options.max_rows,
        logit_rows: options.max_logit_rows,
        sequences: options.max_sequences,
        blocks: options.blocks.0 as usize,
        block_size: options.block_size.0 as usize,
        positions: options.max_model_len.min(Limits::positions_of(program)),
    }
}
