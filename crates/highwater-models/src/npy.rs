//! NumPy's `.npy`: the header of one, and arrays as tensors.

use std::path::Path;

use highwater::{Engine, Error, Result, Shape, Tensor};
use highwater_memory::{DiskFiles, FileRead, Files, FilesError};

/// The longest header that is read.
const HEADER_MAX: usize = 64 << 10;

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Npy {
    /// Element type, such as `<f4`.
    pub(crate) descr: String,
    /// Whether the first index moves fastest.
    pub(crate) fortran_order: bool,
    /// Extents, outermost first.
    pub(crate) shape: Vec<u64>,
    /// Where the elements start, in bytes.
    pub(crate) data_at: u64,
}

impl Npy {
    /// Reads a header, or says what is wrong with the file; the outer error is of reading it.
    pub(crate) fn read(file: &mut dyn FileRead) -> Result<Result<Self, String>, FilesError> {
        let not_npy = || Ok(Err("not a NumPy file".to_owned()));
        if file.bytes() < 12 {
            return not_npy();
        }
        let mut start = [0; 12];
        file.read_exact_at(0, &mut start)?;
        if &start[..6] != b"\x93NUMPY" {
            return not_npy();
        }
        let (header_at, length) = match start[6] {
            1 => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
            2 | 3 => {
                let length = [start[8], start[9], start[10], start[11]];
                (12, u32::from_le_bytes(length) as usize)
            }
            version => {
                return Ok(Err(format!(
                    "NumPy's format version {version}; 1 to 3 are known"
                )));
            }
        };
        let data_at = header_at + length as u64;
        if length > HEADER_MAX || data_at > file.bytes() {
            return Ok(Err(format!(
                "a header of {length} bytes; truncated or damaged"
            )));
        }
        let mut header = vec![0; length];
        file.read_exact_at(header_at, &mut header)?;
        Ok(Self::parse(&String::from_utf8_lossy(&header), data_at))
    }

    /// A Python literal such as `{'descr': '<u2', 'fortran_order': False, 'shape': (12,), }`.
    fn parse(header: &str, data_at: u64) -> Result<Self, String> {
        let value = |key: &str| {
            let (_, rest) = header.split_once(&format!("'{key}'"))?;
            rest.trim_start().strip_prefix(':').map(str::trim_start)
        };
        let descr = value("descr").and_then(|rest| rest.strip_prefix('\''));
        let descr = descr.and_then(|rest| Some(rest.split_once('\'')?.0));
        let shape = value("shape").and_then(|rest| rest.strip_prefix('('));
        let shape = shape.and_then(|rest| Some(rest.split_once(')')?.0));
        let shape = shape.ok_or("damaged header: no shape")?;
        let extents = shape.split(',').map(str::trim).filter(|e| !e.is_empty());
        let extents: Result<Vec<u64>, _> = extents.map(str::parse).collect();
        let short = |text: &str| text.chars().take(40).collect::<String>();
        Ok(Self {
            descr: short(descr.unwrap_or("missing")),
            fortran_order: value("fortran_order").is_some_and(|rest| rest.starts_with("True")),
            shape: extents.map_err(|_| format!("shape ({}): no extents", short(shape)))?,
            data_at,
        })
    }
}

/// Reads an array as a tensor of its shape: floats of 16, 32 and 64 bits, and integers of 8 (without sign),
/// 32 and 64 bits; those of 32 bits with a sign become 64 bits wide. The array is in memory twice meanwhile.
/// Category: input.
///
/// # Errors
/// [`Error::Files`] for a file that cannot be read; [`Error::Saved`] for one that is no such array;
/// [`Error::State`] if there is no room.
#[track_caller]
pub fn read_npy(engine: &Engine, path: impl AsRef<Path>) -> Result<Tensor> {
    read_npy_in(&DiskFiles, engine, path.as_ref())
}

#[track_caller]
fn read_npy_in(files: &dyn Files, engine: &Engine, path: &Path) -> Result<Tensor> {
    let wrong = |problem: String| Error::Saved(format!("{}: {problem}", path.display()));
    let mut file = files.open(path)?;
    let npy = Npy::read(file.as_mut())?.map_err(wrong)?;
    if npy.fortran_order && npy.shape.len() > 1 {
        return Err(wrong(
            "column after column; numpy.ascontiguousarray() makes it row after row".to_owned(),
        ));
    }
    let width: u64 = match &*npy.descr {
        "|u1" => 1,
        "<f2" => 2,
        "<f4" | "<u4" | "<i4" => 4,
        "<f8" | "<i8" => 8,
        other => {
            let known = "float16, float32, float64, uint8, uint32, int32 and int64";
            return Err(wrong(format!("element type {other}; {known} are read")));
        }
    };
    let expected = npy
        .shape
        .iter()
        .try_fold(width, |bytes, &e| bytes.checked_mul(e));
    if expected.and_then(|bytes| bytes.checked_add(npy.data_at)) != Some(file.bytes()) {
        let (shape, bytes) = (&npy.shape, file.bytes());
        return Err(wrong(format!(
            "shape {shape:?} by its header, but {bytes} bytes long; truncated or damaged"
        )));
    }
    let mut bytes = vec![0; (file.bytes() - npy.data_at) as usize];
    file.read_exact_at(npy.data_at, &mut bytes)?;
    let shape: Shape = npy.shape.iter().map(|&extent| extent as usize).collect();
    macro_rules! tensor {
        ($type:ty) => {{
            let elements = bytes.as_chunks().0.iter();
            let elements: Vec<_> = elements.map(|&e| <$type>::from_le_bytes(e)).collect();
            elements
        }};
    }
    match &*npy.descr {
        "|u1" => Tensor::from_slice(engine, &bytes, shape),
        "<f2" => Tensor::from_slice(engine, &tensor!(half::f16), shape),
        "<f4" => Tensor::from_slice(engine, &tensor!(f32), shape),
        "<f8" => Tensor::from_slice(engine, &tensor!(f64), shape),
        "<u4" => Tensor::from_slice(engine, &tensor!(u32), shape),
        "<i8" => Tensor::from_slice(engine, &tensor!(i64), shape),
        _ => {
            let wide: Vec<i64> = tensor!(i32).into_iter().map(i64::from).collect();
            Tensor::from_slice(engine, &wide, shape)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater::DType;
    use highwater_memory::files::MemoryFiles;

    fn file(header: &str, data: &[u8]) -> MemoryFiles {
        let files = MemoryFiles::new();
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        files
            .create(Path::new("/a.npy"))
            .unwrap()
            .write_all(&bytes)
            .unwrap();
        files
    }

    fn read(header: &str, data: &[u8]) -> Result<Tensor> {
        let engine = Engine::builder().threads(1).arena(1 << 20).build()?;
        read_npy_in(&file(header, data), &engine, Path::new("/a.npy"))
    }

    #[test]
    fn arrays_become_tensors_of_their_shape() {
        let data: Vec<u8> = [1.5_f32, -2.0, 3.0, 4.0, 5.0, 6.0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let tensor = read(header, &data).unwrap();
        assert_eq!((tensor.dims(), tensor.dtype()), (&[2, 3][..], DType::F32));
        assert_eq!(
            tensor.to_vec::<f32>().unwrap(),
            [1.5, -2.0, 3.0, 4.0, 5.0, 6.0]
        );
        let header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }";
        let tensor = read(header, &[255, 255, 255, 255, 7, 0, 0, 0]).unwrap();
        assert_eq!(tensor.to_vec::<i64>().unwrap(), [-1, 7]);
        let scalar = read(
            "{'descr': '<f8', 'fortran_order': True, 'shape': (), }",
            &2.5_f64.to_le_bytes(),
        );
        assert_eq!(scalar.unwrap().to_vec::<f64>().unwrap(), [2.5]);
    }

    #[test]
    fn what_is_no_array_is_refused() {
        let refused = |header: &str, data: &[u8]| read(header, data).unwrap_err().to_string();
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert!(refused(header, &[0; 20]).contains("truncated"));
        assert!(refused(&header.replace("<f4", ">f4"), &[0; 24]).contains(">f4"));
        assert!(refused(&header.replace("False", "True"), &[0; 24]).contains("ascontiguousarray"));
        let huge = header.replace("2, 3", "4611686018427387904, 16");
        assert!(refused(&huge, &[0; 24]).contains("truncated"));
        assert!(refused(&header.replace("2, 3", "x"), &[0; 24]).contains("no extents"));
        assert!(refused("{}", &[0; 24]).contains("no shape"));
    }
}
