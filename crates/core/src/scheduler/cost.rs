//! What a step costs, learnt from steps that have ended: `a + b * tokens + c * attention`.
//!
//! `a` is what every step pays (reading the weights), `b` what a row pays, `c` what a row pays for each position that
//! it looks back at. Always holds: none of the three is negative, so more work never costs less; the same steps give
//! the same figures; single steps that took far too long (a busy neighbour, a fault repaired) or too short change
//! little, because up to a quarter is left out; where steps do not tell figures apart, the cost goes to the rows.
//! Refuses to know: clocks, what is done with the figures.

use std::collections::VecDeque;

/// Steps that computed no prompt which are remembered: their cost follows the number of streams, so few and recent.
const LIGHT_MAX: usize = 16;
/// Steps that computed some of a prompt which are remembered.
const READING_MAX: usize = 48;
/// Steps of the second kind that it takes to say anything.
const READING_MIN: usize = 3;
/// Weights are figures of attention over this many positions, so that the three columns are of one size.
const ATTENTION_UNIT: f64 = 4096.0;
/// Below this share of its own size, a pivot is rounding.
const PIVOT_MIN: f64 = 1e-9;
/// Steps among which the largest tells how far the figures can be trusted.
const RECENT: usize = 4;
/// Errors up to this share of a step's time are no accident, nor those up to so many times the usual one.
const ERROR_MIN: f64 = 0.1;
const ERROR_TIMES: f64 = 3.0;
/// Which figures may be other than zero (1: a step, 2: a row, 4: a position), the likeliest first: steps of one size
/// do not tell the cost of a step from that of its rows, and to take it for the first would promise that any number of
/// rows costs nothing.
const CHOICES: [u8; 7] = [7, 6, 3, 2, 5, 4, 1];
/// What a later choice must explain better, as a share of all there is to explain.
const BETTER: f64 = 1e-4;

/// The size of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Rows computed.
    pub(super) tokens: u64,
    /// Positions they look back at, all together.
    pub(super) attention: u64,
}

impl Work {
    /// With `count` more rows of a sequence, from position `start` on.
    pub(super) fn with(self, start: u32, count: u32) -> Self {
        let (start, count) = (u64::from(start), u64::from(count));
        Self {
            tokens: self.tokens + count,
            attention: self.attention + count * start + count * (count + 1) / 2,
        }
    }

    fn columns(self) -> [f64; 3] {
        [1.0, self.tokens as f64, self.attention as f64 / ATTENTION_UNIT]
    }
}

/// A step that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    work: Work,
    micros: f64,
    /// Prompt tokens among its rows.
    prompt: u32,
}

/// The steps that the figures come from.
#[derive(Clone, Debug, Default)]
pub(super) struct CostModel {
    light: VecDeque<Sample>,
    reading: VecDeque<Sample>,
}

/// The three figures, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures([f64; 3]);

impl Figures {
    /// Microseconds that a step of this size takes.
    pub(super) fn cost(self, work: Work) -> f64 {
        self.0.iter().zip(work.columns()).map(|(figure, column)| figure * column).sum()
    }
}

impl CostModel {
    /// Takes in a step that has ended. One that took no time was not measured.
    pub(super) fn observe(&mut self, work: Work, prompt: u32, micros: u64) {
        if micros == 0 || work.tokens == 0 {
            return;
        }
        let (steps, most) =
            if prompt == 0 { (&mut self.light, LIGHT_MAX) } else { (&mut self.reading, READING_MAX) };
        if steps.len() == most {
            steps.pop_front();
        }
        steps.push_back(Sample { work, micros: micros as f64, prompt });
    }

    /// The most prompt tokens of the last few steps with any.
    pub(super) fn largest_read(&self) -> u32 {
        self.reading.iter().rev().take(RECENT).map(|sample| sample.prompt).max().unwrap_or(0)
    }

    /// The figures; none while too few steps are known.
    pub(super) fn figures(&self) -> Option<Figures> {
        if self.reading.len() < READING_MIN {
            return None;
        }
        let classes = [Weighed::all(&self.light), Weighed::all(&self.reading)];
        let first = least_squares(classes.iter().flatten())?;
        // Of each kind by itself: otherwise the many cheap steps would vote the few that matter out.
        let kept = classes.map(|class| best(class, first));
        least_squares(kept.iter().flatten())
    }
}

/// A step, and how large an error of its cost is one.
#[derive(Clone, Copy, Debug)]
struct Weighed {
    sample: Sample,
    scale: f64,
}

impl Weighed {
    /// Errors count in proportion to the time a step took, so that large steps do not outvote small ones; but not as
    /// if it had been next to none.
    fn all(samples: &VecDeque<Sample>) -> Vec<Self> {
        let mut times: Vec<f64> = samples.iter().map(|sample| sample.micros).collect();
        times.sort_unstable_by(f64::total_cmp);
        let floor = times.get(times.len() / 2).map_or(1.0, |median| median / 2.0);
        samples.iter().map(|&sample| Self { sample, scale: sample.micros.max(floor) }).collect()
    }

    fn error(&self, figures: Figures) -> f64 {
        (figures.cost(self.sample.work) - self.sample.micros).abs() / self.scale
    }
}

/// Without accidents: at most a quarter, of what the figures explain worst.
fn best(mut class: Vec<Weighed>, figures: Figures) -> Vec<Weighed> {
    class.sort_by(|a, b| a.error(figures).total_cmp(&b.error(figures)));
    let usual = class.get(class.len() / 2).map_or(0.0, |step| step.error(figures));
    let bearable = ERROR_MIN.max(ERROR_TIMES * usual);
    let fine = class.iter().take_while(|step| step.error(figures) <= bearable).count();
    class.truncate(fine.max(class.len() - class.len() / 4));
    class
}

/// The figures, none negative, with the least sum of squared errors.
///
/// With three of them every choice of which are zero can be tried: seven small systems of equations.
fn least_squares<'a>(samples: impl Iterator<Item = &'a Weighed>) -> Option<Figures> {
    let (mut matrix, mut right, mut all) = ([[0.0; 3]; 3], [0.0; 3], 0.0);
    for Weighed { sample, scale } in samples {
        let columns = sample.work.columns().map(|column| column / scale);
        all += (sample.micros / scale).powi(2);
        for (row, x) in columns.iter().enumerate() {
            right[row] += x * sample.micros / scale;
            for (column, y) in columns.iter().enumerate() {
                matrix[row][column] += x * y;
            }
        }
    }
    let mut found: Option<(f64, Figures)> = None;
    for used in CHOICES {
        let Some(figures) = solve(&matrix, &right, used).filter(|figures| figures.iter().all(|x| *x >= 0.0))
        else {
            continue;
        };
        // The sum of squares, less what is the same for all choices.
        let quadratic: f64 = (0..3)
            .flat_map(|row| (0..3).map(move |column| (row, column)))
            .map(|(row, column)| figures[row] * matrix[row][column] * figures[column])
            .sum();
        let linear: f64 = figures.iter().zip(&right).map(|(x, y)| x * y).sum();
        let error = quadratic - 2.0 * linear;
        if found.is_none_or(|(least, _)| error < least - BETTER * all) {
            found = Some((error, Figures(figures)));
        }
    }
    found.map(|(_, figures)| figures)
}

/// Solves for the unknowns whose bit is set in `used`; the others are zero. None when they cannot be told apart.
fn solve(matrix: &[[f64; 3]; 3], right: &[f64; 3], used: u8) -> Option<[f64; 3]> {
    let is_used = |index: usize| used & (1 << index) != 0;
    let (mut matrix, mut right) = (*matrix, *right);
    for index in (0..3).filter(|index| !is_used(*index)) {
        matrix[index] = [0.0; 3];
        for row in &mut matrix {
            row[index] = 0.0;
        }
        matrix[index][index] = 1.0;
        right[index] = 0.0;
    }
    let sizes = [matrix[0][0], matrix[1][1], matrix[2][2]];
    // The matrix is symmetric and not negative, so its diagonal gives good pivots.
    for pivot in 0..3 {
        if matrix[pivot][pivot] <= sizes[pivot] * PIVOT_MIN {
            return None;
        }
        let (first, above) = (matrix[pivot], right[pivot]);
        for (row, right) in matrix.iter_mut().zip(&mut right).skip(pivot + 1) {
            let factor = row[pivot] / first[pivot];
            row.iter_mut().zip(first).for_each(|(value, above)| *value -= factor * above);
            *right -= factor * above;
        }
    }
    let mut solution = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3).map(|column| matrix[row][column] * solution[column]).sum();
        solution[row] = (right[row] - known) / matrix[row][row];
    }
    solution.iter().all(|x| x.is_finite()).then_some(solution)
}
