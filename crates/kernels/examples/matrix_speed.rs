//! Prints how fast matrix products are on this machine: `cargo run --release -p updraft-kernels --example
//! matrix_speed`.
//!
//! One row of input shows how fast weights are streamed (GB/s), many rows how fast they are multiplied (GOPS:
//! two for each weight and row). One thread; the best of several runs. `UPDRAFT_KERNELS` chooses the
//! instruction set.

use std::time::{Duration, Instant};

use updraft_kernels::activations::Activations;
use updraft_kernels::cpu_features::Isa;
use updraft_kernels::matrix::{PackedMatrix, Precision};
use updraft_kernels::tensor::{ElementType, TensorView};

/// Rows and columns: a projection, a wide one, and an output matrix that fits no cache near the core.
const SHAPES: [[usize; 2]; 3] = [[1536, 512], [512, 1536], [49_152, 512]];
const BATCHES: [usize; 5] = [1, 4, 8, 64, 1024];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("instruction set: {}", Isa::selected()?);
    let only = std::env::args().nth(1);
    for element in ElementType::ALL.into_iter().filter(|e| only.as_ref().is_none_or(|only| only == e.name()))
    {
        for precision in [Precision::Auto, Precision::Float32] {
            if precision == Precision::Float32 && !element.is_quantized() {
                continue;
            }
            for shape in SHAPES {
                measure(element, precision, shape)?;
            }
        }
    }
    Ok(())
}

fn measure(
    element: ElementType,
    precision: Precision,
    shape: [usize; 2],
) -> Result<(), Box<dyn std::error::Error>> {
    // Bytes that make small scales and floats, none of them subnormal, whatever they stand for.
    let bytes: Vec<u8> = (0..TensorView::bytes_for(element, &shape)?)
        .map(|at| (at.wrapping_mul(0x9E37_79B1) >> 27) as u8 & 0x1F | 0x20)
        .collect();
    let view = TensorView::new(element, &shape, &bytes)?;
    let start = Instant::now();
    let matrix = PackedMatrix::pack(&view, precision)?;
    let packing = bytes.len() as f64 / start.elapsed().as_secs_f64() / 1e9;
    print!("{:5} {precision:7?} {:6}x{:<5} pack {packing:5.2} GB/s |", element.name(), shape[0], shape[1]);
    for batch in BATCHES {
        if batch * shape[0] > 4_000_000 {
            continue;
        }
        let input: Vec<f32> = (0..batch * shape[1]).map(|at| (at % 97) as f32 / 97.0 - 0.5).collect();
        let mut activations = Activations::with_capacity(batch, shape[1]);
        let form = matrix.input_form();
        let filling = best(|| activations.fill(&input, shape[1], form));
        let mut out = vec![0.0; batch * shape[0]];
        let seconds = best(|| matrix.multiply_all(&activations, None, &mut out, shape[0])).as_secs_f64();
        if batch == 1 {
            print!(" 1 row {:6.2} GB/s |", matrix.bytes() as f64 / seconds / 1e9);
        } else {
            let operations = 2.0 * (batch * shape[0] * shape[1]) as f64;
            print!(" {batch} rows {:6.1} GOPS |", operations / seconds / 1e9);
        }
        if batch == 8 || batch == 1024 {
            print!(" taking over {:4.2} ns a value |", filling.as_secs_f64() * 1e9 / input.len() as f64);
        }
    }
    println!();
    Ok(())
}

/// The shortest of the runs that fit into a tenth of a second.
fn best(mut run: impl FnMut()) -> Duration {
    let begin = Instant::now();
    let mut shortest = Duration::MAX;
    while begin.elapsed() < Duration::from_millis(100) || shortest == Duration::MAX {
        let start = Instant::now();
        run();
        shortest = shortest.min(start.elapsed());
    }
    shortest
}
