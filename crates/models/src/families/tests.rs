//! The registry, and that every family writes a program in which data flows.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use updraft_core::program::{BufferId, Op, Rows};

use super::*;
use crate::{Checkpoint, OpenOptions};

#[test]
fn names_lead_to_one_family() {
    let lists: [fn(&Family) -> &'static [&'static str]; 3] =
        [|family| family.architectures, |family| family.model_types, |family| family.gguf_architectures];
    for names in lists {
        let all: Vec<&str> = FAMILIES.into_iter().flat_map(names).copied().collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "a name is there twice in {all:?}");
    }
    for family in FAMILIES {
        assert_eq!(by_architecture(family.canonical_architecture()).unwrap().name, family.name);
    }
    assert!(by_architecture("BloomForCausalLM").is_none());
    assert!(known_architectures().contains("Qwen3ForCausalLM"));
}

/// Buffers that an operation reads, and the one that it writes.
fn data_flow(op: &Op) -> (Vec<BufferId>, Option<BufferId>) {
    match *op {
        Op::Embed { out, .. } => (vec![], Some(out)),
        Op::RmsNorm { input, out, .. } | Op::MatMul { input, out, .. } | Op::TakeLogitRows { input, out } => {
            (vec![input], Some(out))
        }
        Op::HeadNorm { buffer, .. } | Op::Rope { buffer, .. } => (vec![buffer], Some(buffer)),
        Op::WriteKv { key, value, .. } => (vec![key, value], None),
        Op::Attention { query, out, .. } => (vec![query], Some(out)),
        Op::Gate { gate, up, out, .. } => (vec![gate, up], Some(out)),
        Op::Add { into, input } => (vec![into, input], Some(into)),
        Op::AddRmsNorm { .. } | Op::RopeWriteKv { .. } => unreachable!("families write simple operations"),
    }
}

#[test]
fn data_flows_through_every_program() {
    for name in ["llama-untied-sharded", "mistral-swa", "qwen2-bias", "qwen3-bf16", "gemma3-text"] {
        let folder =
            PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models")).join(name);
        let program = Checkpoint::open(&folder, &OpenOptions::default()).unwrap().program;
        let rows = |id: BufferId| program.buffers[id.0 as usize].rows;
        let mut written = HashSet::new();
        for op in &program.ops {
            let (reads, writes) = data_flow(op);
            for read in &reads {
                assert!(written.contains(read), "{name}: {op:?} reads what was never written");
            }
            if let Some(write) = writes {
                let in_place = matches!(op, Op::HeadNorm { .. } | Op::Rope { .. } | Op::Add { .. });
                assert!(in_place || !reads.contains(&write), "{name}: {op:?} writes what it reads");
                let narrows = matches!(op, Op::TakeLogitRows { .. });
                assert!(
                    reads.iter().all(|&read| (rows(read) == rows(write)) != narrows),
                    "{name}: {op:?} mixes rows"
                );
                written.insert(write);
            }
        }
        assert!(written.contains(&program.logits.unwrap()));
        let unused: Vec<_> =
            (0..program.buffers.len() as u32).filter(|&id| !written.contains(&BufferId(id))).collect();
        // The first norm of the feed-forward part is the only one of the logit rows before them.
        assert!(unused.is_empty(), "{name}: buffers {unused:?} are never used");
        let last_attention = program.ops.iter().rposition(|op| matches!(op, Op::Attention { .. })).unwrap();
        let wide = |op: &Op| data_flow(op).1.is_some_and(|out| rows(out) == Rows::Tokens);
        assert!(
            !program.ops[last_attention + 1..].iter().any(wide),
            "{name}: rows without logits go on for nothing"
        );
    }
}

#[test]
fn an_asked_context_bounds_the_rotary_tables() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/gemma3-text"));
    let positions = |max_model_len: Option<u32>| {
        let options = OpenOptions {
            max_model_len: max_model_len.map(updraft_core::units::Tokens),
            ..OpenOptions::default()
        };
        let program = Checkpoint::open(folder, &options).unwrap().program;
        program.ropes.iter().map(|rope| rope.max_positions).collect::<Vec<_>>()
    };
    assert_eq!(positions(None), [1024, 1024]);
    assert_eq!(positions(Some(100)), [100, 100]);
}
