//! A reading position in the bytes of a file that never leaves them.

use std::fmt;

/// Longest string that is read; longer ones are a sign of damage.
const MAX_STRING: u64 = 1 << 26;

/// A position in a byte slice.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Why a value could not be read. Shown after the name of what was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CursorError {
    /// The file ends within the value.
    End {
        /// Where the value starts.
        at: u64,
        /// Bytes that it needs.
        needed: u64,
        /// Length of the file.
        len: u64,
    },
    /// A string is longer than any real one.
    LongString {
        /// Its length.
        len: u64,
    },
}

impl fmt::Display for CursorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End { at, needed, len } => {
                write!(f, "needs {needed} bytes at {at}, but the file ends at {len}")
            }
            Self::LongString { len } => {
                write!(f, "has a string of {len} bytes, which is more than {MAX_STRING}")
            }
        }
    }
}

macro_rules! number {
    ($($name:ident: $type:ty),*) => {
        $(
            /// The next number.
            pub(super) fn $name(&mut self) -> Result<$type, CursorError> {
                self.array().map(<$type>::from_le_bytes)
            }
        )*
    };
}

impl<'a> Cursor<'a> {
    /// The start of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes before the position.
    pub(super) fn position(&self) -> u64 {
        self.at as u64
    }

    /// Bytes behind the position.
    pub(super) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// Bytes in all.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The next `count` bytes.
    pub(super) fn bytes(&mut self, count: u64) -> Result<&'a [u8], CursorError> {
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| self.at.checked_add(count))
            .and_then(|end| self.bytes.get(self.at..end))
            .ok_or_else(|| CursorError::End { at: self.position(), needed: count, len: self.len() })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CursorError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N as u64)?);
        Ok(array)
    }

    number!(
        u8: u8, i8: i8, u16: u16, i16: i16, u32: u32, i32: i32, u64: u64, i64: i64, f32: f32, f64: f64
    );

    /// A string with its length in front. Bytes that are no UTF-8 become U+FFFD.
    pub(super) fn string(&mut self) -> Result<String, CursorError> {
        let len = self.u64()?;
        if len > MAX_STRING && len <= self.remaining() {
            return Err(CursorError::LongString { len });
        }
        Ok(String::from_utf8_lossy(self.bytes(len)?).into_owned())
    }
}
