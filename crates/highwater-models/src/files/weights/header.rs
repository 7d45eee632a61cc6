//! The header of a safetensors file: eight bytes of length, then JSON.

use std::collections::BTreeMap;
use std::fmt;

use safetensors::Dtype;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::WeightsProblem;

/// The longest header that is read, in bytes: the format's own limit.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The most tensors in a file.
pub const TENSORS_MAX: usize = 1 << 17;
/// The most dimensions of a tensor.
const RANK_MAX: usize = 8;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Element type.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Where its bytes start, from the end of the header.
    pub start: u64,
    /// Where they end.
    pub end: u64,
}

impl TensorInfo {
    /// Bytes that the tensor takes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// A header that has been checked: tensors follow each other without overlap or hole, and each has
/// the bytes that its dtype and shape take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// What the file says about itself.
    pub metadata: BTreeMap<String, String>,
}

impl Header {
    /// Parses and checks a header before `data_bytes` bytes of tensors.
    ///
    /// # Errors
    /// What is wrong with it, naming the tensor.
    pub fn parse(json: &[u8], data_bytes: u64) -> Result<Self, WeightsProblem> {
        let header: Self = serde_json::from_slice(json).map_err(|e| WeightsProblem::Json {
            problem: e.to_string(),
        })?;
        let mut in_order: Vec<_> = header.tensors.iter().collect();
        in_order.sort_by_key(|(_, info)| (info.start, info.end));
        let mut expected = 0;
        for (name, info) in in_order {
            check_size(name, info)?;
            if info.start != expected {
                return Err(WeightsProblem::NotContiguous {
                    tensor: name.clone(),
                    start: info.start,
                    expected,
                });
            }
            expected = info.end;
        }
        if expected != data_bytes {
            return Err(WeightsProblem::DataLength {
                expected,
                found: data_bytes,
            });
        }
        Ok(header)
    }
}

/// Bytes that elements of `dtype` take; none if that overflows or is no whole number.
pub(crate) fn checked_bytes(dtype: Dtype, shape: &[usize]) -> Option<u64> {
    let bits = shape
        .iter()
        .try_fold(dtype.bitsize() as u64, |product, &extent| {
            product.checked_mul(extent as u64)
        })?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

fn check_size(name: &str, info: &TensorInfo) -> Result<(), WeightsProblem> {
    let overflow = || WeightsProblem::Overflow {
        tensor: name.to_owned(),
        shape: info.shape.clone(),
    };
    let expected = checked_bytes(info.dtype, &info.shape).ok_or_else(overflow)?;
    if info.end.checked_sub(info.start) == Some(expected) {
        return Ok(());
    }
    Err(WeightsProblem::Size {
        tensor: name.to_owned(),
        dtype: info.dtype,
        shape: info.shape.clone(),
        expected,
        start: info.start,
        end: info.end,
    })
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one entry for each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                header.metadata = map.next_value()?;
                continue;
            }
            if header.tensors.len() == TENSORS_MAX {
                return Err(A::Error::custom(format!("more than {TENSORS_MAX} tensors")));
            }
            let info = map.next_value_seed(Entry(&name))?;
            if header.tensors.insert(name.clone(), info).is_some() {
                return Err(A::Error::custom(format!("tensor `{name}` is there twice")));
            }
        }
        Ok(header)
    }
}

/// The entry of the tensor of that name.
struct Entry<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = TensorInfo;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<TensorInfo, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = TensorInfo;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "tensor `{}`: an object with dtype, shape and data_offsets",
            self.0
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorInfo, A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        let named = |e: A::Error| A::Error::custom(format!("tensor `{}`: {e}", self.0));
        while let Some(field) = map.next_key::<String>()? {
            match field.as_str() {
                "dtype" => dtype = Some(map.next_value::<Dtype>().map_err(named)?),
                "shape" => shape = Some(map.next_value::<Extents>().map_err(named)?.0),
                "data_offsets" => offsets = Some(map.next_value::<(u64, u64)>().map_err(named)?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let missing = |field| named(A::Error::missing_field(field));
        let (start, end) = offsets.ok_or_else(|| missing("data_offsets"))?;
        Ok(TensorInfo {
            dtype: dtype.ok_or_else(|| missing("dtype"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
            start,
            end,
        })
    }
}

/// A shape of at most [`RANK_MAX`] extents, so that no long list is ever built.
struct Extents(Vec<usize>);

impl<'de> Deserialize<'de> for Extents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Extents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a shape of at most {RANK_MAX} extents")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Extents, A::Error> {
                let mut shape = Vec::new();
                while let Some(extent) = seq.next_element()? {
                    if shape.len() == RANK_MAX {
                        return Err(A::Error::invalid_length(RANK_MAX + 1, &self));
                    }
                    shape.push(extent);
                }
                Ok(Extents(shape))
            }
        }
        deserializer.deserialize_seq(List)
    }
}
