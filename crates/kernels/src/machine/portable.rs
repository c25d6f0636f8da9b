//! Multiplications as the compiler makes them for every machine of the architecture: dot products over arrays
//! that stay in the nearest cache.

use std::hint::black_box;

use super::{Arithmetic, Loop};

/// Values of one array: both arrays fit the nearest cache together.
const VALUES: usize = 2048;
/// Independent sums, in whole vectors of any machine.
const SUMS: usize = 32;

pub(super) fn find(arithmetic: Arithmetic) -> Option<Loop> {
    let multiply_adds = VALUES as u64;
    match arithmetic {
        Arithmetic::Int8 => Some(Loop { instruction: "compiled code", multiply_adds, run: int8 }),
        Arithmetic::Bf16 => None,
        Arithmetic::Fp32 => Some(Loop { instruction: "compiled code", multiply_adds, run: fp32 }),
    }
}

fn int8(rounds: u32) -> f64 {
    let (x, y) = ([1_i8; VALUES], [1_i8; VALUES]);
    let mut sum = 0_i64;
    for _ in 0..rounds {
        // Hidden from the compiler, which would otherwise compute one round and multiply.
        let (x, y) = black_box((&x, &y));
        sum += i64::from(x.iter().zip(y).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum::<i32>());
    }
    sum as f64
}

fn fp32(rounds: u32) -> f64 {
    let (x, y) = ([1.0_f32; VALUES], [1.0_f32; VALUES]);
    let mut total = 0.0_f64;
    for _ in 0..rounds {
        let (x, y) = black_box((&x, &y));
        let mut sums = [0.0_f32; SUMS];
        for (x, y) in x.as_chunks::<SUMS>().0.iter().zip(y.as_chunks::<SUMS>().0) {
            for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
                *sum += x * y;
            }
        }
        total += f64::from(sums.iter().sum::<f32>());
    }
    total
}
