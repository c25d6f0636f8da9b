//! Prompt lookup: the last tokens of a sequence have often stood in it before, and what followed then may
//! follow now. After "Prompt Lookup Decoding" (Saxena 2023) and LLMA (Yang et al., arXiv 2304.04487).
//!
//! All places where the shortest n-gram of interest stood are linked into chains by a hash of its tokens, as a
//! deflate compressor links its window. Taking in a token costs the length of that n-gram (and the table's
//! growth, constant on average); a proposal looks at [`CANDIDATES_MAX`] places at most. Memory: 12 to 24 bytes
//! a token.

use serde::{Deserialize, Serialize};

use crate::ids::TokenId;

/// Places that one proposal compares, most recent first. Among them the longest match wins.
pub const CANDIDATES_MAX: usize = 64;
/// Buckets of an empty table.
const BUCKETS_MIN: usize = 64;
/// Odd, with bits all over: the golden ratio's.
const MIXER: u64 = 0x9E37_79B9_7F4A_7C15;

/// How many of the last tokens must have stood before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NgramLengths {
    /// At least; 1 or more.
    pub min: u32,
    /// More than these are not compared.
    pub max: u32,
}

/// The tokens of one sequence, and where each of its n-grams stood.
#[derive(Clone, Debug)]
pub struct Ngram {
    min: usize,
    max: usize,
    tokens: Vec<TokenId>,
    /// By bucket: the latest place, counted from 1; 0 for none. A place is where an n-gram ends.
    heads: Vec<u32>,
    /// By place: the one before it in the same bucket.
    previous: Vec<u32>,
}

impl Ngram {
    /// One that has seen no token. Lengths of zero count as one, and a maximum below the minimum as the
    /// minimum.
    #[must_use]
    pub fn new(lengths: NgramLengths) -> Self {
        let min = lengths.min.max(1) as usize;
        let max = (lengths.max as usize).max(min);
        Self { min, max, tokens: Vec::new(), heads: vec![0; BUCKETS_MIN], previous: Vec::new() }
    }

    /// Tokens it has seen.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.tokens.len()
    }

    /// Takes in the tokens that follow those it has seen.
    pub fn extend(&mut self, tokens: impl IntoIterator<Item = TokenId>) {
        self.tokens.extend(tokens);
        let buckets = buckets_for(self.tokens.len());
        if buckets > self.heads.len() {
            self.heads = vec![0; buckets];
            self.previous.clear();
        }
        while self.previous.len() < self.tokens.len() {
            let end = self.previous.len() + 1;
            let before = self.bucket(end).and_then(|bucket| self.heads.get_mut(bucket));
            self.previous.push(before.map_or(0, |head| std::mem::replace(head, end as u32)));
        }
    }

    /// What followed the most recent of the longest matches, at most `most` tokens. Where the match reaches
    /// into what it predicts, the text repeats itself, and so does the draft.
    #[must_use]
    pub fn propose(&self, most: usize) -> Vec<TokenId> {
        let seen = self.tokens.len();
        let Some(from) = self.best_match() else { return Vec::new() };
        let period = seen - from;
        let again = self.tokens.get(from..).unwrap_or_default();
        (0..most).filter_map(|ahead| again.get(ahead % period).copied()).collect()
    }

    /// Where the text after the best match begins.
    fn best_match(&self) -> Option<usize> {
        let (mut best, mut longest) = (None, self.min - 1);
        let mut place = self.previous.last().copied()?;
        for _ in 0..CANDIDATES_MAX {
            let end = place as usize;
            if end == 0 || longest >= self.max {
                break;
            }
            let length = self.match_length(end);
            if length > longest {
                (best, longest) = (Some(end), length);
            }
            place = self.previous.get(end - 1).copied()?;
        }
        best
    }

    /// How many tokens before `end` are the last ones of the sequence too, up to the maximum.
    fn match_length(&self, end: usize) -> usize {
        let before = self.tokens.get(..end).unwrap_or_default().iter().rev();
        before.zip(self.tokens.iter().rev()).take(self.max).take_while(|(a, b)| a == b).count()
    }

    /// The bucket of the n-gram that ends here.
    fn bucket(&self, end: usize) -> Option<usize> {
        let tokens = self.tokens.get(end.checked_sub(self.min)?..end)?;
        let fold =
            |hash: u64, token: &TokenId| (hash ^ u64::from(*token)).wrapping_mul(MIXER).rotate_left(29);
        let hash = tokens.iter().fold(MIXER, fold);
        Some(hash as usize & (self.heads.len() - 1))
    }
}

/// Buckets of the table of so many tokens, however they came: a proposal depends on them only. Each growth is fourfold, so
/// that a token is linked less than twice on average.
fn buckets_for(tokens: usize) -> usize {
    let mut buckets = BUCKETS_MIN;
    while buckets < tokens {
        buckets *= 4;
    }
    buckets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(tokens: &[TokenId], min: u32, max: u32) -> Ngram {
        let mut ngram = Ngram::new(NgramLengths { min, max });
        ngram.extend(tokens.iter().copied());
        ngram
    }

    #[test]
    fn what_followed_before_is_drafted_again() {
        let text = [1, 2, 3, 4, 5, 9, 2, 3];
        assert_eq!(after(&text, 2, 4).propose(3), [4, 5, 9]);
        assert!(after(&text, 3, 4).propose(3).is_empty());
        assert!(after(&text, 2, 4).propose(0).is_empty());
        assert!(after(&[7], 1, 1).propose(3).is_empty());
        assert!(after(&[], 1, 1).propose(3).is_empty());
    }

    #[test]
    fn the_longest_match_wins_and_then_the_most_recent() {
        // "2 3" stood twice; with "1" before it only once, and earlier.
        let text = [1, 2, 3, 40, 8, 2, 3, 50, 1, 2, 3];
        assert_eq!(after(&text, 2, 3).propose(1), [40]);
        assert_eq!(after(&text, 2, 2).propose(1), [50]);
    }

    #[test]
    fn a_text_that_repeats_itself_is_drafted_beyond_its_end() {
        assert_eq!(after(&[5, 5, 5], 2, 4).propose(4), [5, 5, 5, 5]);
        assert_eq!(after(&[1, 2, 3, 1, 2, 3, 1, 2], 2, 4).propose(5), [3, 1, 2, 3, 1]);
    }

    /// The same by looking everywhere.
    fn by_hand(tokens: &[TokenId], min: usize, max: usize, most: usize) -> Vec<TokenId> {
        for length in (min..=max.min(tokens.len().saturating_sub(1))).rev() {
            let last = &tokens[tokens.len() - length..];
            let found = tokens[..tokens.len() - 1].windows(length).rposition(|window| window == last);
            if let Some(at) = found {
                let mut text = tokens.to_vec();
                for ahead in 0..most {
                    text.push(text[at + length + ahead]);
                }
                return text.split_off(tokens.len());
            }
        }
        Vec::new()
    }

    proptest! {
        #[test]
        fn drafts_are_those_of_a_search_by_hand(tokens in prop::collection::vec(0_u32..3, 0..60),
                                                (min, more) in (1_u32..4, 0_u32..4), most in 0_usize..6) {
            let drafts = after(&tokens, min, min + more).propose(most);
            prop_assert_eq!(drafts, by_hand(&tokens, min as usize, (min + more) as usize, most));
        }

        #[test]
        fn pieces_make_the_same_as_the_whole(pieces in prop::collection::vec(
                                                 prop::collection::vec(0_u32..9, 0..40), 0..12)) {
            let mut grown = after(&[], 2, 4);
            for piece in &pieces {
                grown.extend(piece.iter().copied());
            }
            let whole = after(&pieces.concat(), 2, 4);
            prop_assert_eq!(grown.seen(), whole.seen());
            prop_assert_eq!(grown.propose(4), whole.propose(4));
        }
    }
}
