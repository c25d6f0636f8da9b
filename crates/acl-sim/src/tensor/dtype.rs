//! Element types by their number in the C ABI.
//!
//! Always holds: a type that is listed has a size and can be read and written by [`super::lane`], except
//! where an operator refuses it by name.

/// One element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 16-bit IEEE float.
    F16,
    /// Signed byte.
    I8,
    /// 32-bit integer.
    I32,
    /// Unsigned byte.
    U8,
    /// 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// 64-bit float.
    F64,
    /// One byte, zero or not.
    Bool,
    /// 16-bit brain float.
    BF16,
    /// Two signed nibbles a byte, the low one first.
    I4,
}

impl DType {
    /// The type of an `aclDataType` number, if this library computes with it.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::I8,
            3 => Self::I32,
            4 => Self::U8,
            6 => Self::I16,
            7 => Self::U16,
            8 => Self::U32,
            9 => Self::I64,
            10 => Self::U64,
            11 => Self::F64,
            12 => Self::Bool,
            27 => Self::BF16,
            29 => Self::I4,
            _ => return None,
        })
    }

    /// Its `aclDataType` number.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::I8 => 2,
            Self::I32 => 3,
            Self::U8 => 4,
            Self::I16 => 6,
            Self::U16 => 7,
            Self::U32 => 8,
            Self::I64 => 9,
            Self::U64 => 10,
            Self::F64 => 11,
            Self::Bool => 12,
            Self::BF16 => 27,
            Self::I4 => 29,
        }
    }

    /// Bits of one element.
    #[must_use]
    pub fn bits(self) -> usize {
        match self {
            Self::I4 => 4,
            Self::I8 | Self::U8 | Self::Bool => 8,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 16,
            Self::F32 | Self::I32 | Self::U32 => 32,
            Self::I64 | Self::U64 | Self::F64 => 64,
        }
    }

    /// Bytes that `elements` elements in a row take.
    #[must_use]
    pub fn bytes(self, elements: usize) -> usize {
        (elements * self.bits()).div_ceil(8)
    }

    /// Whether arithmetic on it is floating point.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// Whether it is one of the two 16-bit float types.
    #[must_use]
    pub fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::BF16)
    }

    /// Whether it may hold an index.
    #[must_use]
    pub fn is_index(self) -> bool {
        matches!(self, Self::I32 | Self::I64)
    }
}

#[cfg(test)]
mod tests {
    use super::DType;

    #[test]
    fn codes_go_both_ways() {
        let known: Vec<i32> = (-1..64).filter(|code| DType::from_code(*code).is_some()).collect();
        assert_eq!(known, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 27, 29]);
        for code in known {
            assert_eq!(DType::from_code(code).map(DType::code), Some(code));
        }
    }

    #[test]
    fn nibbles_round_up_to_bytes() {
        assert_eq!(DType::I4.bytes(3), 2);
        assert_eq!(DType::BF16.bytes(3), 6);
    }
}
