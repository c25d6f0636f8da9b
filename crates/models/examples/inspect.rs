//! Opens a checkpoint and prints what is in it: `cargo run -p updraft-models --example inspect -- PATH`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use updraft_kernels::tensor::TensorSource;
use updraft_models::{Checkpoint, OpenOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path =
        std::env::args_os().nth(1).map(PathBuf::from).ok_or("give the path of a checkpoint, or a hub id")?;
    let start = Instant::now();
    let checkpoint = Checkpoint::open(&path, &OpenOptions::default())?;
    println!("opened in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    println!("{:#?}", checkpoint.config);
    println!(
        "tokenizer ends with {:?}, defaults {:?}",
        checkpoint.text.eos_token_ids, checkpoint.text.generation
    );
    println!("chat template: {}", if checkpoint.text.chat_template.is_some() { "yes" } else { "no" });

    let mut kinds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for weight in &checkpoint.program.weights {
        if let Some(view) = checkpoint.tensor(&weight.name) {
            let (count, bytes) = kinds.entry(view.element.name()).or_default();
            *count += 1;
            *bytes += view.bytes.len();
        }
    }
    for (kind, (count, bytes)) in kinds {
        println!("{kind:>5}: {count} tensors, {:.1} MB", bytes as f64 / 1e6);
    }
    println!("{} operations over {} buffers", checkpoint.program.ops.len(), checkpoint.program.buffers.len());
    Ok(())
}
