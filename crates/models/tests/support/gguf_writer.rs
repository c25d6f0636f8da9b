//! Writes small GGUF files, right ones and wrong ones.

/// A metadata value.
#[derive(Clone, Debug)]
pub enum Meta {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    /// Values of one type (the type of the first; of an empty list: u32).
    Array(Vec<Meta>),
}

impl Meta {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::String(text.to_owned())
    }

    fn code(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(_) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(value) => out.extend(value.to_le_bytes()),
            Self::I8(value) => out.extend(value.to_le_bytes()),
            Self::U16(value) => out.extend(value.to_le_bytes()),
            Self::I16(value) => out.extend(value.to_le_bytes()),
            Self::U32(value) => out.extend(value.to_le_bytes()),
            Self::I32(value) => out.extend(value.to_le_bytes()),
            Self::U64(value) => out.extend(value.to_le_bytes()),
            Self::I64(value) => out.extend(value.to_le_bytes()),
            Self::F32(value) => out.extend(value.to_le_bytes()),
            Self::F64(value) => out.extend(value.to_le_bytes()),
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::String(text) => write_string(text, out),
            Self::Array(values) => {
                out.extend(values.first().map_or(4, Self::code).to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                for value in values {
                    value.write(out);
                }
            }
        }
    }
}

/// A tensor to write.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<u64>,
    /// The format's number of the element type.
    pub kind: u32,
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// A float32 tensor.
    pub fn floats(name: &str, shape: &[u64], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name: name.to_owned(), shape: shape.to_vec(), kind: 0, bytes }
    }
}

/// A file to write.
#[derive(Clone, Debug)]
pub struct GgufWriter {
    pub version: u32,
    pub alignment: u64,
    pub metadata: Vec<(String, Meta)>,
    pub tensors: Vec<Tensor>,
}

impl GgufWriter {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self { version: 3, alignment: 32, metadata: Vec::new(), tensors: Vec::new() }
    }

    /// Adds a metadata value.
    pub fn meta(&mut self, key: &str, value: Meta) -> &mut Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            write_string(key, &mut out);
            out.extend(value.code().to_le_bytes());
            value.write(&mut out);
        }
        let aligned = |length: u64| length.next_multiple_of(self.alignment);
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            write_string(&tensor.name, &mut out);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().rev().for_each(|length| out.extend(length.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = aligned(offset + tensor.bytes.len() as u64);
        }
        for tensor in &self.tensors {
            out.resize(aligned(out.len() as u64) as usize, 0);
            out.extend(&tensor.bytes);
        }
        out
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
