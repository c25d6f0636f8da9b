//! Names of block contents: a hash chained over everything that decides a block's keys and values.
//!
//! Two blocks have the same hash only when all tokens up to their end, the adapter, the images and the salt
//! are the same. The hash is the same in every process, so replicas and routers can compare them.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::TokenId;

/// Tokens encoded at once into the hash; a stack buffer of four times as many bytes.
const ENCODE_AT_ONCE: usize = 64;

/// SHA-256 of a block's content and of all before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockHash(pub [u8; 32]);

/// Everything that decides the keys and values of one full block.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockContent<'a> {
    /// Hash of the block before; none for the first.
    pub parent: Option<BlockHash>,
    /// The block's tokens.
    pub tokens: &'a [TokenId],
    /// Name and version of the adapter, in every block it changes.
    pub adapter: Option<&'a str>,
    /// Images that overlap the block: placeholder tokens alone do not tell two images apart.
    pub images: &'a [ImageInBlock],
    /// Keeps owners apart; in the first block only, from where the chain carries it on.
    pub salt: Option<&'a str>,
}

/// One image that overlaps a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageInBlock {
    /// SHA-256 of the image.
    pub digest: [u8; 32],
    /// First token of the image relative to the start of the block; negative when it began before.
    pub offset: i32,
}

impl BlockContent<'_> {
    /// The name of this content.
    ///
    /// Every part is written with a tag and its length, so that no two contents give the same bytes.
    #[must_use]
    pub fn hash(&self) -> BlockHash {
        let mut hasher = Sha256::new();
        if let Some(parent) = self.parent {
            hasher.update(b"p");
            hasher.update(parent.0);
        }
        hasher.update(b"t");
        hasher.update((self.tokens.len() as u64).to_le_bytes());
        for tokens in self.tokens.chunks(ENCODE_AT_ONCE) {
            let mut bytes = [0_u8; ENCODE_AT_ONCE * size_of::<TokenId>()];
            for (place, token) in bytes.chunks_exact_mut(size_of::<TokenId>()).zip(tokens) {
                place.copy_from_slice(&token.to_le_bytes());
            }
            hasher.update(&bytes[..size_of_val(tokens)]);
        }
        if let Some(adapter) = self.adapter {
            update_text(&mut hasher, b"a", adapter);
        }
        for image in self.images {
            hasher.update(b"i");
            hasher.update(image.digest);
            hasher.update(image.offset.to_le_bytes());
        }
        if let Some(salt) = self.salt {
            update_text(&mut hasher, b"s", salt);
        }
        BlockHash(hasher.finalize().into())
    }
}

impl BlockHash {
    /// The low 64 bits, by which routers know a block.
    #[must_use]
    pub fn short(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl std::fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockHash({:016x})", self.short())
    }
}

fn update_text(hasher: &mut Sha256, tag: &[u8], text: &str) {
    hasher.update(tag);
    hasher.update((text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_changes_the_hash() {
        let tokens = [1, 2, 3, 4];
        let plain = BlockContent { tokens: &tokens, ..BlockContent::default() };
        let image = [ImageInBlock { digest: [7; 32], offset: 0 }];
        let moved = [ImageInBlock { digest: [7; 32], offset: -1 }];
        let all = [
            plain,
            BlockContent { tokens: &[1, 2, 3, 5], ..plain },
            BlockContent { tokens: &[1, 2, 3], ..plain },
            BlockContent { parent: Some(plain.hash()), ..plain },
            BlockContent { adapter: Some("x"), ..plain },
            BlockContent { salt: Some("x"), ..plain },
            BlockContent { salt: Some(""), ..plain },
            BlockContent { images: &image, ..plain },
            BlockContent { images: &moved, ..plain },
        ];
        for (i, one) in all.iter().enumerate() {
            for other in &all[i + 1..] {
                assert_ne!(one.hash(), other.hash());
            }
        }
    }

    #[test]
    fn the_hash_is_the_same_in_every_process() {
        let tokens: Vec<u32> = (0..130).collect();
        let hash = BlockContent { tokens: &tokens, salt: Some("tenant"), ..BlockContent::default() }.hash();
        let mut bytes = b"t".to_vec();
        bytes.extend(130_u64.to_le_bytes());
        bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        bytes.extend(b"s");
        bytes.extend(6_u64.to_le_bytes());
        bytes.extend(b"tenant");
        assert_eq!(hash.0[..], Sha256::digest(&bytes)[..]);
        assert_eq!(hash.short().to_be_bytes(), hash.0[24..]);
    }
}
