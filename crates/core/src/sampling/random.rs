//! Random numbers that are a function of their name: no state, no order of drawing.
//!
//! The generator is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
//! 2, 3" (SC 2011), checked here against the known answers published with it. The key is the request's seed,
//! the counter is the position of the token and a lane for independent numbers at one position.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The numbers of one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
}

impl Philox {
    /// Numbers of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32] }
    }

    /// A number evenly spread over `[0, 1)` in steps of 2^-53, the same for the same seed, position and lane.
    #[must_use]
    pub fn uniform(self, position: u64, lane: u32) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        let words = self.block([position as u32, (position >> 32) as u32, lane, 0]);
        let bits = (u64::from(words[1]) << 32) | u64::from(words[0]);
        (bits >> 11) as f64 * STEP
    }

    /// The 128 random bits that belong to a counter.
    fn block(self, mut counter: [u32; 4]) -> [u32; 4] {
        let mut key = self.key;
        for _ in 0..ROUNDS {
            let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
            let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
            counter = [
                (second >> 32) as u32 ^ counter[1] ^ key[0],
                second as u32,
                (first >> 32) as u32 ^ counter[3] ^ key[1],
                first as u32,
            ];
            key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        }
        counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_known_answers() {
        let zeros = Philox { key: [0, 0] }.block([0; 4]);
        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = Philox { key: [u32::MAX; 2] }.block([u32::MAX; 4]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let digits_of_pi = Philox { key: [0xa409_3822, 0x299f_31d0] };
        let digits_of_pi = digits_of_pi.block([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]);
        assert_eq!(digits_of_pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn is_even_over_positions_lanes_and_seeds() {
        const BINS: usize = 32;
        let number = |kind: usize, at: u64| match kind {
            0 => Philox::new(7).uniform(at, 0),
            1 => Philox::new(7).uniform(3, at as u32),
            _ => Philox::new(at).uniform(3, 0),
        };
        for kind in 0..3 {
            let mut counts = [0_u32; BINS];
            for at in 0..32_000 {
                let value = number(kind, at);
                assert!((0.0..1.0).contains(&value));
                counts[(value * BINS as f64) as usize] += 1;
            }
            let chi_square: f64 = counts.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
            // 31 degrees of freedom: beyond 65 once in three thousand.
            assert!(chi_square < 65.0, "kind {kind}: {chi_square}");
        }
    }
}
