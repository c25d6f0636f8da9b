//! Where a head of a token lies, for each layout that has a name.
//!
//! Always holds: offsets are in elements from the view's data.
//!
//! Refuses to know: masks and lengths.

use crate::executor::status::{AICORE_FAULT, Refusal, ensure};
use crate::tensor::lane::gather;
use crate::tensor::view::View;

/// Order of the dimensions of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Batch, token, all heads side by side.
    Bsh,
    /// Batch, token, head, element.
    Bsnd,
    /// Batch, head, token, element.
    Bnsd,
    /// Tokens of all sequences, head, element.
    Tnd,
    /// Head, tokens of all sequences, element.
    Ntd,
}

impl Layout {
    /// The layouts of input and output by the name of `inputLayout`.
    pub(super) fn parse(name: &str) -> Result<(Self, Self), Refusal> {
        let one = |name: &str| {
            Some(match name {
                "BSH" => Self::Bsh,
                "BSND" => Self::Bsnd,
                "BNSD" => Self::Bnsd,
                "TND" => Self::Tnd,
                "NTD" => Self::Ntd,
                _ => return None,
            })
        };
        let (input, output) = name.split_once('_').unwrap_or((name, name));
        one(input).zip(one(output)).ok_or_else(|| {
            let known = "BSH, BSND, BNSD, TND, NTD and pairs such as BNSD_BSND";
            Refusal::Invalid(format!("inputLayout is {name:?}; accepted are {known}"))
        })
    }

    /// Whether sequences follow one another without a batch dimension.
    pub(super) fn is_ragged(self) -> bool {
        matches!(self, Self::Tnd | Self::Ntd)
    }
}

/// A tensor of heads, addressed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) view: View,
    batch: i64,
    token: i64,
    head: i64,
    /// Between elements of a head.
    pub(super) element: i64,
    pub(super) batches: usize,
    pub(super) tokens: usize,
    /// Elements of a head.
    pub(super) size: usize,
}

impl Heads {
    /// Reads a view in a layout.
    pub(super) fn new(view: View, layout: Layout, heads: usize, name: &str) -> Result<Self, Refusal> {
        let (rank, axes) = match layout {
            Layout::Bsh => (3, [Some(0), Some(1), None, Some(2)]),
            Layout::Bsnd => (4, [Some(0), Some(1), Some(2), Some(3)]),
            Layout::Bnsd => (4, [Some(0), Some(2), Some(1), Some(3)]),
            Layout::Tnd => (3, [None, Some(0), Some(1), Some(2)]),
            Layout::Ntd => (3, [None, Some(1), Some(0), Some(2)]),
        };
        ensure(view.rank() == rank, || {
            format!("{name} has shape {:?}; {layout:?} has {rank} dimensions", view.shape())
        })?;
        let dim = |axis: Option<usize>| axis.map_or(1, |axis| view.dim(axis));
        let stride = |axis: Option<usize>| axis.map_or(0, |axis| view.stride(axis));
        let (size, head) = if layout == Layout::Bsh {
            let whole = view.last();
            ensure(whole.is_multiple_of(heads), || {
                format!("{name} has {whole} elements a token, which {heads} heads do not share evenly")
            })?;
            (whole / heads, (whole / heads) as i64 * view.last_stride())
        } else {
            ensure(dim(axes[2]) == heads, || {
                format!("{name} has {} heads, but {heads} were announced", dim(axes[2]))
            })?;
            (view.last(), stride(axes[2]))
        };
        Ok(Self {
            view,
            batch: stride(axes[0]),
            token: stride(axes[1]),
            head,
            element: stride(axes[3]),
            batches: dim(axes[0]),
            tokens: dim(axes[1]),
            size,
        })
    }

    /// A paged cache: `[blocks, tokens, all heads]` or `[blocks, heads, tokens, element]`.
    pub(super) fn paged(view: View, heads: usize, block: usize, name: &str) -> Result<Self, Refusal> {
        if view.rank() == 5 {
            return Err(Refusal::NoKernel("a cache in the fractal layout".to_owned()));
        }
        let layout = if view.rank() == 3 { Layout::Bsh } else { Layout::Bnsd };
        let cache = Self::new(view, layout, heads, name)?;
        ensure(cache.tokens == block, || {
            format!("{name} has {} tokens a block, but blockSize is {block}", cache.tokens)
        })?;
        Ok(cache)
    }

    /// First element of a head.
    #[inline(always)]
    pub(super) fn at(&self, batch: usize, token: usize, head: usize) -> i64 {
        self.view.offset + batch as i64 * self.batch + token as i64 * self.token + head as i64 * self.head
    }

    /// The same places in memory that moved.
    pub(super) fn moved(&self, view: &View) -> Self {
        let mut moved = *self;
        moved.view.data = view.data;
        moved
    }
}

/// Which block of the cache a token of a sequence is in.
pub(super) struct Pages {
    /// Blocks of one sequence, those that its length needs.
    blocks: Vec<usize>,
    size: usize,
}

impl Pages {
    /// Reads a row of the block table, for `tokens` tokens; a block that does not exist is a device fault.
    pub(super) fn read(
        table: &View,
        row: usize,
        tokens: usize,
        size: usize,
        blocks: usize,
    ) -> Result<Self, i32> {
        let needed = tokens.div_ceil(size);
        if row >= table.dim(0) || needed > table.dim(1) {
            return Err(AICORE_FAULT);
        }
        // SAFETY: the table is one of the launch's views.
        let entries: Vec<i64> = unsafe { gather(&table.select(0, row).slice(0, 0, needed, 1)) };
        let known: Option<Vec<usize>> = entries
            .iter()
            .map(|entry| usize::try_from(*entry).ok().filter(|entry| *entry < blocks))
            .collect();
        known.map(|blocks| Self { blocks, size }).ok_or(AICORE_FAULT)
    }

    /// Block and place in it of a token.
    #[inline(always)]
    pub(super) fn find(&self, token: usize) -> (usize, usize) {
        (self.blocks[token / self.size], token % self.size)
    }
}
