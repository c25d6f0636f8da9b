//! Which numbers of rows graphs are captured for, and which of two sets of them is the better one.
//!
//! All functions are pure. A step of some rows is replayed from the smallest bucket that takes it; rows
//! beyond its own are computed for nobody.

/// No default bucket has more rows.
pub const LARGEST_BUCKET: u32 = 512;

/// Below this, buckets are [`FINE_STEP`] apart, from there on [`COARSE_STEP`].
const FINE_UNTIL: u32 = 256;
const FINE_STEP: u32 = 8;
const COARSE_STEP: u32 = 16;

/// What an eager step costs, counted in padded rows: more than the largest bucket can pad.
const EAGER_ROWS: u64 = 2 * LARGEST_BUCKET as u64;

/// How much one observed step counts beside the assumption about steps that were not observed.
const OBSERVED_WEIGHT: u64 = 1 << 20;

/// Sizes for steps of up to `max_sequences` rows: 1, 2, 4, multiples of 8 below 256, then multiples of 16.
/// Neither [`LARGEST_BUCKET`] nor `token_cap` is passed; the last size is the least of the three bounds.
#[must_use]
pub fn default_sizes(max_sequences: u32, token_cap: u32) -> Vec<u32> {
    let bound = max_sequences.min(token_cap).min(LARGEST_BUCKET);
    let fine = (FINE_STEP..FINE_UNTIL).step_by(FINE_STEP as usize);
    let coarse = (FINE_UNTIL..=LARGEST_BUCKET).step_by(COARSE_STEP as usize);
    let mut sizes: Vec<u32> =
        [1, 2, 4].into_iter().chain(fine).chain(coarse).take_while(|size| *size < bound).collect();
    sizes.extend((bound > 0).then_some(bound));
    sizes
}

/// `count` of the sizes, evenly spread; both ends stay (the last one alone when `count` is 1).
#[must_use]
pub fn sample_evenly(sizes: &[u32], count: usize) -> Vec<u32> {
    let Some(last) = sizes.len().checked_sub(1) else { return Vec::new() };
    match count {
        0 => Vec::new(),
        _ if count >= sizes.len() => sizes.to_vec(),
        1 => sizes.last().copied().into_iter().collect(),
        _ => (0..count).filter_map(|place| sizes.get(place * last / (count - 1)).copied()).collect(),
    }
}

/// What a further bucket would save, in padded rows: `steps` says how many steps of some rows there were,
/// `have` are the buckets that are there, ascending. Row counts that nobody has seen count a little, small
/// ones more.
#[must_use]
pub(super) fn gain(have: &[u32], bucket: u32, steps: &dyn Fn(u32) -> u64) -> u64 {
    let place = have.partition_point(|size| *size < bucket);
    let above = have.get(place).copied();
    if above == Some(bucket) {
        return 0;
    }
    let below = place.checked_sub(1).and_then(|place| have.get(place)).copied().unwrap_or(0);
    (below + 1..=bucket)
        .map(|rows| {
            let weight = steps(rows).saturating_mul(OBSERVED_WEIGHT) + OBSERVED_WEIGHT / 64 / u64::from(rows);
            let saved = match above {
                Some(above) => u64::from(above - bucket),
                None => EAGER_ROWS.saturating_sub(u64::from(bucket - rows)),
            };
            weight.saturating_mul(saved)
        })
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn default_sizes_are_the_known_ones() {
        assert_eq!(default_sizes(1, 100), [1]);
        assert_eq!(default_sizes(0, 100), [0; 0]);
        assert_eq!(default_sizes(20, 100), [1, 2, 4, 8, 16, 20]);
        assert_eq!(default_sizes(100, 20), [1, 2, 4, 8, 16, 20]);
        let all = default_sizes(10_000, 10_000);
        assert_eq!(all.len(), 3 + 31 + 17);
        assert_eq!(all[33..37], [248, 256, 272, 288]);
        assert_eq!(all.last(), Some(&512));
    }

    #[test]
    fn samples_keep_both_ends() {
        let sizes = default_sizes(512, 512);
        assert_eq!(sample_evenly(&sizes, 4), [1, 112, 248, 512]);
        assert_eq!(sample_evenly(&sizes, 1), [512]);
        assert_eq!(sample_evenly(&sizes, 0), [0; 0]);
        assert_eq!(sample_evenly(&[], 3), [0; 0]);
        assert_eq!(sample_evenly(&sizes, 99), sizes);
    }

    #[test]
    fn the_first_bucket_to_gain_from_covers_everything() {
        let sizes = default_sizes(64, 64);
        let best = sizes.iter().max_by_key(|size| gain(&[], **size, &|_| 0));
        assert_eq!(best, Some(&64));
        // Then what is seen most often decides.
        let seen = |rows| u64::from(rows == 30) * 1_000 + u64::from(rows == 3);
        let best = sizes.iter().max_by_key(|size| gain(&[1, 64], **size, &seen));
        assert_eq!(best, Some(&32));
        assert_eq!(gain(&[1, 32, 64], 32, &seen), 0);
    }

    proptest! {
        #[test]
        fn default_sizes_ascend_and_end_at_the_bound(sequences in 1_u32..2_000, cap in 1_u32..2_000) {
            let sizes = default_sizes(sequences, cap);
            prop_assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(sizes.last().copied(), Some(sequences.min(cap).min(LARGEST_BUCKET)));
        }

        #[test]
        fn samples_are_as_many_as_asked_for(sequences in 1_u32..600, count in 1_usize..80) {
            let sizes = default_sizes(sequences, 600);
            let sample = sample_evenly(&sizes, count);
            prop_assert_eq!(sample.len(), count.min(sizes.len()));
            prop_assert!(sample.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(sample.last(), sizes.last());
            prop_assert!(count == 1 || sample.first() == sizes.first());
        }

        #[test]
        fn more_buckets_never_make_one_worth_more(have in proptest::collection::btree_set(1_u32..64, 0..6),
                                                  more in 1_u32..64, bucket in 1_u32..64) {
            let few: Vec<u32> = have.iter().copied().collect();
            let mut many = have;
            many.insert(more);
            let many: Vec<u32> = many.into_iter().collect();
            let seen = |rows| u64::from(rows % 5);
            prop_assert!(gain(&many, bucket, &seen) <= gain(&few, bucket, &seen));
        }
    }
}
