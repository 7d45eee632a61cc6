//! NumPy's `.npy`.

use crate::{Array, DataError};
use highwater_graph::{DType, Shape};
use highwater_memory::{DiskFiles, FileRead, Files, FilesError};
use std::path::Path;

/// The longest header that is read.
const HEADER_MAX: usize = 64 << 10;

/// What a header of a `.npy` file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// Element type, such as `<f4`.
    pub descr: String,
    /// Whether the first index moves fastest.
    pub fortran_order: bool,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Where the elements start, in bytes.
    pub data_at: u64,
}

impl NpyHeader {
    /// Reads a header, or says what is wrong with the file; the outer error is of reading it.
    ///
    /// # Errors
    /// As the system says.
    pub fn read(file: &mut dyn FileRead) -> Result<Result<Self, String>, FilesError> {
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

    /// A Python literal such as `{'descr': '<u2', 'fortran_order': False, 'shape': (12,), }`, before elements
    /// that start so many bytes into the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(header: &str, data_at: u64) -> Result<Self, String> {
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

/// Reads an array: floats of 16, 32 and 64 bits, and integers of 8 and 16 bits, 32 and 64 bits; those that
/// [`DType`] has no name for become wider (`i8` to 16 bits, `u16` to 32, `i32` and `u64` up to its half to 64),
/// and booleans become bytes of 0 and 1.
///
/// # Errors
/// [`DataError::Files`] for a file that cannot be read; [`DataError::Format`] for one that is no such array.
pub fn read_npy(path: impl AsRef<Path>) -> Result<Array, DataError> {
    read_npy_in(&DiskFiles, path.as_ref())
}

/// As [`read_npy`], through other files than those of the system.
///
/// # Errors
/// As [`read_npy`].
pub fn read_npy_in(files: &dyn Files, path: &Path) -> Result<Array, DataError> {
    let mut file = files.open(path)?;
    read_array(file.as_mut())
}

/// Reads an array from an open file.
pub(crate) fn read_array(file: &mut dyn FileRead) -> Result<Array, DataError> {
    let path = file.path().to_owned();
    let wrong = |problem: String| DataError::format(&path, problem);
    let npy = NpyHeader::read(file)?.map_err(wrong)?;
    let width: u64 = match &*npy.descr {
        "|u1" | "|i1" | "|b1" => 1,
        "<f2" | "<u2" | "<i2" => 2,
        "<f4" | "<u4" | "<i4" => 4,
        "<f8" | "<i8" | "<u8" => 8,
        other => {
            let known = "float16, float32, float64, bool, and integers of up to 64 bits";
            return Err(wrong(format!("element type {other}; {known} are read")));
        }
    };
    let mut extents = npy.shape.iter();
    let bytes = extents.try_fold(width, |bytes, &extent| bytes.checked_mul(extent));
    if bytes.and_then(|bytes| bytes.checked_add(npy.data_at)) != Some(file.bytes()) {
        let (shape, bytes) = (&npy.shape, file.bytes());
        return Err(wrong(format!(
            "shape {shape:?} by its header, but {bytes} bytes long; truncated or damaged"
        )));
    }
    let mut bytes = vec![0; (file.bytes() - npy.data_at) as usize];
    file.read_exact_at(npy.data_at, &mut bytes)?;
    if npy.fortran_order {
        bytes = by_rows(&bytes, &npy.shape, width as usize);
    }
    let shape: Shape = npy.shape.iter().map(|&extent| extent as usize).collect();
    from_elements(&npy.descr, shape, bytes).map_err(|problem| match problem {
        DataError::Usage(message) => wrong(message),
        other => other,
    })
}

/// Elements with the last index fastest, of those with the first index fastest.
fn by_rows(bytes: &[u8], shape: &[u64], width: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0; shape.len()];
    for _ in 0..bytes.len() / width {
        let extents = shape.iter().zip(&index).rev();
        let at = extents.fold(0, |at, (&extent, &i)| at * extent as usize + i);
        out.extend_from_slice(&bytes[at * width..][..width]);
        for (i, &extent) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < extent as usize {
                break;
            }
            *i = 0;
        }
    }
    out
}

fn from_elements(descr: &str, shape: Shape, bytes: Vec<u8>) -> Result<Array, DataError> {
    macro_rules! widened {
        ($from:ty as $to:ty) => {{
            let elements = bytes.as_chunks().0.iter();
            let wide = elements.map(|&e| <$to>::try_from(<$from>::from_le_bytes(e)));
            let wide: Result<Vec<$to>, _> = wide.collect();
            let wide = wide.map_err(|_| DataError::Usage("uint64 above int64".to_owned()))?;
            Array::from_slice(&wide, shape)
        }};
    }
    let dtype = match descr {
        "<f2" => DType::F16,
        "<f4" => DType::F32,
        "<f8" => DType::F64,
        "<i2" => DType::I16,
        "<i8" => DType::I64,
        "<u4" => DType::U32,
        "|i1" => return widened!(i8 as i16),
        "<u2" => return widened!(u16 as u32),
        "<i4" => return widened!(i32 as i64),
        "<u8" => return widened!(u64 as i64),
        _ => DType::U8,
    };
    Array::from_bytes(dtype, shape, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_memory::files::MemoryFiles;

    fn read(header: &str, data: &[u8]) -> Result<Array, DataError> {
        let files = MemoryFiles::new();
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        let path = Path::new("/a.npy");
        files.create(path).unwrap().write_all(&bytes).unwrap();
        read_npy_in(&files, path)
    }

    fn of(descr: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}")
    }

    #[test]
    fn arrays_are_read_in_their_shape() {
        let numbers = [1.5_f32, -2.0, 3.0, 4.0, 5.0, 6.0];
        let data: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let array = read(&of("<f4", "2, 3"), &data).unwrap();
        assert_eq!((array.dims(), array.dtype()), (&[2, 3][..], DType::F32));
        assert_eq!(array.to_vec::<f32>().unwrap(), numbers);
        let array = read(&of("<i4", "2,"), &[255, 255, 255, 255, 7, 0, 0, 0]).unwrap();
        assert_eq!(array.to_vec::<i64>().unwrap(), [-1, 7]);
        let array = read(&of("|i1", "2,"), &[255, 7]).unwrap();
        assert_eq!(array.to_vec::<i16>().unwrap(), [-1, 7]);
        let array = read(&of("<u2", "1,"), &[255, 255]).unwrap();
        assert_eq!(array.to_vec::<u32>().unwrap(), [65_535]);
        let array = read(&of("|b1", "2,"), &[0, 1]).unwrap();
        assert_eq!(array.to_vec::<u8>().unwrap(), [0, 1]);
        // The first index fastest, as NumPy has it in Fortran's order.
        let turned: Vec<u8> = (0..24).collect();
        let shape = of("|u1", "2, 3, 4").replace("False", "True");
        let found = read(&shape, &turned).unwrap().to_vec::<u8>().unwrap();
        let places =
            (0..2).flat_map(|i| (0..3).flat_map(move |j| (0..4).map(move |k| i + 2 * j + 6 * k)));
        assert!(found.into_iter().eq(places));
        let scalar = "{'descr': '<f8', 'fortran_order': True, 'shape': (), }";
        let scalar = read(scalar, &2.5_f64.to_le_bytes()).unwrap();
        assert_eq!(scalar.to_vec::<f64>().unwrap(), [2.5]);
    }

    #[test]
    fn what_is_no_array_is_refused() {
        let refused = |header: &str, data: &[u8]| read(header, data).unwrap_err().to_string();
        let header = of("<f4", "2, 3");
        assert!(refused(&header, &[0; 20]).contains("truncated"));
        assert!(refused(&header.replace("<f4", ">f4"), &[0; 24]).contains(">f4"));
        let huge = header.replace("2, 3", "4611686018427387904, 16");
        assert!(refused(&huge, &[0; 24]).contains("truncated"));
        assert!(refused(&header.replace("2, 3", "x"), &[0; 24]).contains("no extents"));
        assert!(refused("{}", &[0; 24]).contains("no shape"));
        assert!(refused(&of("<u8", "1,"), &[255; 8]).contains("uint64"));
    }
}
