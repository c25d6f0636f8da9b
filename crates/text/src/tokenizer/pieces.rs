//! What each token id stands for, as bytes, in one flat table.

/// How a token takes part in decoding and in reading text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A piece of text.
    Text,
    /// One byte of a character that has no token; a run of these is decoded together.
    Byte,
    /// A piece of text that is never cut when it occurs in a prompt.
    Added,
    /// A control token: as [`TokenKind::Added`], and left out of the text on request.
    Special,
    /// No token has this id.
    Missing,
}

/// Byte strings by id, one behind the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Table {
    pub(crate) fn with_capacity(entries: usize) -> Self {
        Self { bytes: Vec::with_capacity(entries * 8), ends: Vec::with_capacity(entries) }
    }

    pub(crate) fn push(&mut self, entry: &[u8]) {
        self.bytes.extend_from_slice(entry);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The entry of this id; empty when there is none.
    pub(crate) fn get(&self, id: u32) -> &[u8] {
        let at = id as usize;
        let Some(&end) = self.ends.get(at) else { return &[] };
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start as usize..end as usize).unwrap_or(&[])
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// The decoding side of a tokenizer.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    table: Table,
    /// Entries that differ when the token is the first of a text.
    first: Option<Table>,
    kinds: Vec<TokenKind>,
    /// Characters of this kind are dropped at the start of a text, so many at most.
    lead: Option<(char, usize)>,
    longest: usize,
}

impl Pieces {
    /// `table` and `kinds` have one entry for each id.
    pub(crate) fn new(table: Table, kinds: Vec<TokenKind>) -> Self {
        let longest = (0..table.len()).map(|id| table.get(id as u32).len()).max().unwrap_or(0);
        Self { table, first: None, kinds, lead: None, longest }
    }

    /// Sets what the first token of a text stands for.
    pub(crate) fn with_first(mut self, first: Option<Table>) -> Self {
        self.first = first;
        self
    }

    /// Sets what is dropped at the start of a text.
    pub(crate) fn with_lead(mut self, lead: Option<(char, usize)>) -> Self {
        self.lead = lead;
        self
    }

    /// One more than the largest id.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Bytes of the longest piece.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    pub(crate) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Missing)
    }

    /// The bytes of a token within a text.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        self.table.get(id)
    }

    /// The bytes of a token at the start of a text.
    pub(crate) fn first_bytes(&self, id: u32) -> &[u8] {
        self.first.as_ref().unwrap_or(&self.table).get(id)
    }

    pub(crate) fn lead(&self) -> Option<(char, usize)> {
        self.lead
    }
}
