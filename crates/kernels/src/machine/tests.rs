//! The loops do the work that they claim.
#![allow(clippy::expect_used, reason = "all of this is a test")]

use super::{Arithmetic, LINE, Probe, ROUNDS_MAX};
use crate::cpu_features::Isa;

fn probes() -> Vec<Probe> {
    Isa::available().into_iter().filter_map(Probe::of).collect()
}

#[test]
fn every_multiply_add_adds_one() {
    for probe in probes() {
        for arithmetic in Arithmetic::ALL {
            let Some(done) = probe.multiply(arithmetic, 1000) else { continue };
            let claimed = done.operations as f64 / 2.0;
            assert!((done.sum - claimed).abs() < 0.5, "{} {}: {done:?}", probe.isa(), arithmetic.name());
            assert!(done.operations >= 1000, "{} {}", probe.isa(), arithmetic.name());
        }
    }
}

#[test]
fn the_longest_call_is_still_exact() {
    for probe in probes().into_iter().filter(|probe| probe.isa() != Isa::Portable) {
        for arithmetic in Arithmetic::ALL {
            let Some(done) = probe.multiply(arithmetic, u32::MAX) else { continue };
            let claimed = done.operations as f64 / 2.0;
            assert!((done.sum - claimed).abs() < 0.5, "{} {}: {done:?}", probe.isa(), arithmetic.name());
            assert_eq!(done.operations % u64::from(ROUNDS_MAX), 0, "{}", arithmetic.name());
        }
    }
}

#[test]
fn a_read_finds_the_only_set_bit_wherever_it_is() {
    for probe in probes() {
        for count in [0, 1, 3, 4, 7, 64, 65] {
            let mut lines = vec![[0; LINE]; count];
            assert_eq!(probe.read(&lines), 0);
            for at in 0..count * LINE {
                let bit = 1 << (at % 32);
                let word = lines.get_mut(at / LINE).and_then(|line| line.get_mut(at % LINE));
                *word.expect("the word exists") = bit;
                assert_eq!(probe.read(&lines), bit, "{} word {at} of {count} lines", probe.isa());
                lines[at / LINE] = [0; LINE];
            }
        }
    }
}

#[test]
fn every_set_has_integer_and_single_precision_loops() {
    for probe in probes() {
        assert!(probe.instruction(Arithmetic::Int8).is_some(), "{}", probe.isa());
        assert!(probe.instruction(Arithmetic::Fp32).is_some(), "{}", probe.isa());
        let has_bf16 = probe.instruction(Arithmetic::Bf16).is_some();
        assert_eq!(has_bf16, probe.multiply(Arithmetic::Bf16, 1).is_some());
    }
}
