//! Fused operations give the bits of the sequences they stand for.

use updraft_core::program::{Level, optimise};

use super::*;

#[test]
fn an_optimised_program_gives_the_same_bits() {
    for kind in Kind::ALL {
        let tensors = small_model::tensors(kind, ElementType::F32);
        let program = small_model::program(kind);
        let (better, report) = optimise(&program, Level::Full);
        assert!(better.ops.len() < program.ops.len(), "{kind:?}: {report}");
        let load = |program| {
            let options = LoadOptions { precision: Precision::Float32, threads: 2 };
            let model = CpuModel::load(program, &tensors, &options, &|_| ()).unwrap();
            CpuDevice::new(model, &super::options(2, KvType::Bf16)).unwrap()
        };
        let sequence = Sequence::new(1, 40, 3);
        let expected = in_chunks(&mut load(program), &sequence, 7);
        assert!(in_chunks(&mut load(better), &sequence, 7) == expected, "{kind:?}: {report}");
    }
}
