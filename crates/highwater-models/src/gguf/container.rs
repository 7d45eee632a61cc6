//! The container: metadata, a table of tensors, their bytes (GGUF's specification, version 3).

use half::{bf16, f16};
use highwater_memory::{FileWrite, FilesError};

/// How tensors are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufType {
    /// Single precision.
    F32,
    /// IEEE's half precision.
    F16,
    /// Google's.
    Bf16,
    /// Blocks of 32 bytes that share an `F16`: 8.5 bits for each number.
    Q8_0,
}

/// Numbers that share a scale in [`GgufType::Q8_0`].
const BLOCK: usize = 32;
/// What tensors begin at a multiple of.
const ALIGNMENT: u64 = 32;

impl GgufType {
    /// The number of it in the table of tensors (`ggml_type`).
    fn number(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 8,
            Self::Bf16 => 30,
        }
    }

    /// `general.file_type`: what most tensors are.
    pub(super) fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 7,
            Self::Bf16 => 32,
        }
    }

    /// What a matrix of such rows is held as: rows that are no whole blocks as `F16`, as llama.cpp has them.
    pub(super) fn of_rows(self, width: usize) -> Self {
        if self == Self::Q8_0 && !width.is_multiple_of(BLOCK) {
            return Self::F16;
        }
        self
    }

    /// Bytes of so many numbers.
    fn bytes(self, count: u64) -> u64 {
        match self {
            Self::F32 => 4 * count,
            Self::F16 | Self::Bf16 => 2 * count,
            Self::Q8_0 => count / BLOCK as u64 * (BLOCK as u64 + 2),
        }
    }

    /// Adds numbers to what is written.
    fn encode(self, values: &[f32], to: &mut Vec<u8>) {
        match self {
            Self::F32 => to.extend(values.iter().flat_map(|x| x.to_le_bytes())),
            Self::F16 => to.extend(values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes())),
            Self::Bf16 => to.extend(values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes())),
            Self::Q8_0 => values.chunks_exact(BLOCK).for_each(|block| {
                let most = block.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
                let scale = most / 127.0;
                let over = if scale == 0.0 { 0.0 } else { 1.0 / scale };
                to.extend(f16::from_f32(scale).to_le_bytes());
                to.extend(block.iter().map(|x| (x * over).round() as i8 as u8));
            }),
        }
    }
}

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Numbers(Vec<i32>),
    Floats(Vec<f32>),
}

impl Value {
    fn write(&self, to: &mut Vec<u8>) {
        let array = |to: &mut Vec<u8>, of: u32, count: usize| {
            to.extend(9_u32.to_le_bytes());
            to.extend(of.to_le_bytes());
            to.extend((count as u64).to_le_bytes());
        };
        match self {
            Self::U32(x) => {
                to.extend(4_u32.to_le_bytes());
                to.extend(x.to_le_bytes());
            }
            Self::F32(x) => {
                to.extend(6_u32.to_le_bytes());
                to.extend(x.to_le_bytes());
            }
            Self::Bool(x) => {
                to.extend(7_u32.to_le_bytes());
                to.push(u8::from(*x));
            }
            Self::Text(text) => {
                to.extend(8_u32.to_le_bytes());
                write_text(text, to);
            }
            Self::Texts(texts) => {
                array(to, 8, texts.len());
                for text in texts {
                    write_text(text, to);
                }
            }
            Self::Numbers(numbers) => {
                array(to, 5, numbers.len());
                to.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
            }
            Self::Floats(numbers) => {
                array(to, 6, numbers.len());
                to.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
            }
        }
    }
}

fn write_text(text: &str, to: &mut Vec<u8>) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// A tensor as the table has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorInfo {
    pub(super) name: String,
    /// The last extent moves fastest, as everywhere here; the file has it first.
    pub(super) shape: Vec<usize>,
    pub(super) kind: GgufType,
}

impl TensorInfo {
    fn bytes(&self) -> u64 {
        self.kind
            .bytes(self.shape.iter().map(|&extent| extent as u64).product())
    }
}

/// What a file begins with, up to the first tensor's bytes.
pub(super) fn head(metadata: &[(String, Value)], tensors: &[TensorInfo]) -> Vec<u8> {
    let mut head = b"GGUF".to_vec();
    head.extend(3_u32.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((metadata.len() as u64).to_le_bytes());
    for (name, value) in metadata {
        write_text(name, &mut head);
        value.write(&mut head);
    }
    let mut offset = 0_u64;
    for tensor in tensors {
        write_text(&tensor.name, &mut head);
        head.extend((tensor.shape.len() as u32).to_le_bytes());
        for &extent in tensor.shape.iter().rev() {
            head.extend((extent as u64).to_le_bytes());
        }
        head.extend(tensor.kind.number().to_le_bytes());
        head.extend(offset.to_le_bytes());
        offset += tensor.bytes().next_multiple_of(ALIGNMENT);
    }
    head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
    head
}

/// Writes the numbers of one tensor, piece by piece.
pub(super) struct TensorSink<'a> {
    file: &'a mut dyn FileWrite,
    kind: GgufType,
    left: u64,
    padding: usize,
    bytes: Vec<u8>,
}

impl<'a> TensorSink<'a> {
    pub(super) fn new(file: &'a mut dyn FileWrite, tensor: &TensorInfo) -> Self {
        let bytes = tensor.bytes();
        Self {
            file,
            kind: tensor.kind,
            left: bytes,
            padding: (bytes.next_multiple_of(ALIGNMENT) - bytes) as usize,
            bytes: Vec::new(),
        }
    }

    /// Whether some of the numbers are too large for what they are held as.
    pub(super) fn overflows(&self, values: &[f32]) -> bool {
        let most = match self.kind {
            GgufType::F16 => f16::MAX.to_f32(),
            GgufType::Q8_0 => 127.0 * f16::MAX.to_f32(),
            GgufType::F32 | GgufType::Bf16 => return false,
        };
        values.iter().any(|x| x.abs() > most)
    }

    /// Whole blocks of numbers.
    pub(super) fn write(&mut self, values: &[f32]) -> Result<(), FilesError> {
        self.bytes.clear();
        self.kind.encode(values, &mut self.bytes);
        self.left -= self.bytes.len() as u64;
        if self.left == 0 {
            self.bytes.resize(self.bytes.len() + self.padding, 0);
        }
        self.file.write_all(&self.bytes)
    }
}
