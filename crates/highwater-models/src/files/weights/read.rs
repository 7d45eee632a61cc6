//! Reading weights, a tensor at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use highwater_memory::{FilePart, Files, SharedFile};
use safetensors::Dtype;

use super::header::{HEADER_BYTES_MAX, Header, TensorInfo};
use super::{WINDOW_BYTES, WeightsError, WeightsProblem, float_bytes};

/// An open file of weights. Holds its header and one window of [`WINDOW_BYTES`], whatever the
/// size of the tensors.
#[derive(Debug)]
pub struct WeightsReader {
    path: PathBuf,
    file: SharedFile,
    header: Header,
    /// Where the tensors start in the file.
    data_at: u64,
    window: Vec<u8>,
}

impl WeightsReader {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// [`WeightsError`], naming the file and, where one is at fault, the tensor.
    pub fn open(files: &dyn Files, path: &Path) -> Result<Self, WeightsError> {
        let file = files.open(path);
        let file = file.map_err(|error| WeightsProblem::from(error).at(path))?;
        Self::of_file(SharedFile::new(file), path)
    }

    /// Of a file that is open already.
    ///
    /// # Errors
    /// As [`WeightsReader::open`].
    pub fn of_file(file: SharedFile, path: &Path) -> Result<Self, WeightsError> {
        Self::of_file_inner(file, path).map_err(|problem| problem.at(path))
    }

    fn of_file_inner(file: SharedFile, path: &Path) -> Result<Self, WeightsProblem> {
        let file_bytes = file.bytes();
        let Some(after_length) = file_bytes.checked_sub(8) else {
            return Err(WeightsProblem::TooShort { bytes: file_bytes });
        };
        let mut length = [0; 8];
        file.read_exact_at(0, &mut length)?;
        let bytes = u64::from_le_bytes(length);
        let max = after_length.min(HEADER_BYTES_MAX);
        if bytes > max {
            return Err(WeightsProblem::HeaderLength { bytes, max });
        }
        let mut json = vec![0; bytes as usize];
        file.read_exact_at(8, &mut json)?;
        Ok(Self {
            path: path.to_owned(),
            header: Header::parse(&json, after_length - bytes)?,
            file,
            data_at: 8 + bytes,
            window: vec![0; WINDOW_BYTES],
        })
    }

    /// The file, for others who read it.
    pub fn file(&self) -> &SharedFile {
        &self.file
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.header.tensors
    }

    /// What the file says about itself.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The bytes of a tensor as the file has them, in this shape and type; none if it has others. They can be read at
    /// any time, as long as nobody writes to the file.
    pub fn part(&self, name: &str, shape: &[usize], dtype: Dtype) -> Option<FilePart> {
        let info = self.header.tensors.get(name)?;
        let same = info.shape == shape && info.dtype == dtype;
        let at = self.data_at + info.start;
        same.then(|| FilePart::new(self.file.clone(), at, info.bytes()))
    }

    /// Reads a tensor of floats as f32. BF16 and F16 become f32 exactly, F64 is rounded.
    ///
    /// # Errors
    /// [`WeightsError`] for a tensor that is missing, of another shape or of integers, for a
    /// buffer of another length than the tensor, and for a read that fails.
    pub fn read_f32(
        &mut self,
        name: &str,
        shape: &[usize],
        out: &mut [f32],
    ) -> Result<(), WeightsError> {
        self.read_f32_inner(name, shape, out)
            .map_err(|problem| problem.at(&self.path))
    }

    /// Reads a tensor of floats as elements of `dtype`, `F32`, `BF16` or `F16`: as they are, or rounded to nearest
    /// even (`F64` to `F32` first).
    ///
    /// # Errors
    /// As [`WeightsReader::read_f32`].
    pub fn read_floats(
        &mut self,
        name: &str,
        shape: &[usize],
        dtype: Dtype,
        out: &mut [u8],
    ) -> Result<(), WeightsError> {
        self.read_floats_inner(name, shape, dtype, out)
            .map_err(|problem| problem.at(&self.path))
    }

    fn read_floats_inner(
        &mut self,
        name: &str,
        shape: &[usize],
        dtype: Dtype,
        out: &mut [u8],
    ) -> Result<(), WeightsProblem> {
        let (info, width) = self.floats(name, shape)?;
        if info.dtype == dtype {
            return self.read_bytes_inner(name, out);
        }
        let to = float_bytes(dtype).unwrap_or(width);
        check_buffer(name, &info, (out.len() / to * width) as u64)?;
        let (mut rest, mut wide) = (out, [0.0; 1024]);
        self.windows(&info, |window| {
            for piece in window.chunks(wide.len() * width) {
                let wide = &mut wide[..piece.len() / width];
                widen(info.dtype, piece, wide);
                let (now, later) = std::mem::take(&mut rest).split_at_mut(wide.len() * to);
                narrow(wide, dtype, now);
                rest = later;
            }
        })
    }

    /// Reads some rows of a tensor of floats of two dimensions as f32, from the `first` on: as many as `out` holds.
    ///
    /// # Errors
    /// As [`WeightsReader::read_f32`]; for rows that are not there.
    pub fn read_f32_rows(
        &mut self,
        name: &str,
        shape: [usize; 2],
        first: usize,
        out: &mut [f32],
    ) -> Result<(), WeightsError> {
        self.read_rows_inner(name, shape, first, out)
            .map_err(|problem| problem.at(&self.path))
    }

    fn read_rows_inner(
        &mut self,
        name: &str,
        shape: [usize; 2],
        first: usize,
        out: &mut [f32],
    ) -> Result<(), WeightsProblem> {
        let (info, width) = self.floats(name, &shape)?;
        let rows = out.len().div_ceil(shape[1].max(1));
        if first.checked_add(rows).is_none_or(|end| end > shape[0]) {
            // More than there is.
            check_buffer(name, &info, u64::MAX)?;
        }
        let start = info.start + (first * shape[1] * width) as u64;
        let part = TensorInfo {
            start,
            end: start + (out.len() * width) as u64,
            ..info.clone()
        };
        let mut rest = out;
        self.windows(&part, |window| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(window.len() / width);
            widen(part.dtype, window, now);
            rest = later;
        })
    }

    fn read_f32_inner(
        &mut self,
        name: &str,
        shape: &[usize],
        out: &mut [f32],
    ) -> Result<(), WeightsProblem> {
        let (info, width) = self.floats(name, shape)?;
        check_buffer(name, &info, out.len() as u64 * width as u64)?;
        let mut rest = out;
        self.windows(&info, |window| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(window.len() / width);
            widen(info.dtype, window, now);
            rest = later;
        })
    }

    /// A tensor of floats and the bytes of each.
    fn floats(&self, name: &str, shape: &[usize]) -> Result<(TensorInfo, usize), WeightsProblem> {
        let info = find(&self.header, name)?;
        if info.shape != shape {
            return Err(WeightsProblem::Shape {
                tensor: name.to_owned(),
                expected: shape.to_vec(),
                found: info.shape,
            });
        }
        let width = float_bytes(info.dtype).ok_or_else(|| WeightsProblem::NotFloat {
            tensor: name.to_owned(),
            dtype: info.dtype,
        })?;
        Ok((info, width))
    }

    /// Reads a tensor's bytes as they are.
    ///
    /// # Errors
    /// [`WeightsError`] for a tensor that is missing or of another length than `out`, and for a
    /// read that fails.
    pub fn read_bytes(&mut self, name: &str, out: &mut [u8]) -> Result<(), WeightsError> {
        self.read_bytes_inner(name, out)
            .map_err(|problem| problem.at(&self.path))
    }

    fn read_bytes_inner(&mut self, name: &str, out: &mut [u8]) -> Result<(), WeightsProblem> {
        let info = find(&self.header, name)?;
        check_buffer(name, &info, out.len() as u64)?;
        let mut rest = out;
        self.windows(&info, |window| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(window.len());
            now.copy_from_slice(window);
            rest = later;
        })
    }

    /// Shows `take` the bytes of a tensor of floats, and their values as f32, a window after the other.
    pub(crate) fn each_piece(
        &mut self,
        name: &str,
        mut take: impl FnMut(&[u8], &[f32]),
    ) -> Result<(), WeightsError> {
        self.each_piece_inner(name, &mut take)
            .map_err(|problem| problem.at(&self.path))
    }

    fn each_piece_inner(
        &mut self,
        name: &str,
        take: &mut dyn FnMut(&[u8], &[f32]),
    ) -> Result<(), WeightsProblem> {
        let info = find(&self.header, name)?;
        let (tensor, dtype) = (name.to_owned(), info.dtype);
        let width = float_bytes(dtype).ok_or(WeightsProblem::NotFloat { tensor, dtype })?;
        let mut values = vec![0.0; WINDOW_BYTES / width];
        self.windows(&info, |window| {
            let values = &mut values[..window.len() / width];
            widen(dtype, window, values);
            take(window, values);
        })
    }

    /// Shows `take` the bytes of a tensor, a window after the other.
    fn windows(
        &mut self,
        info: &TensorInfo,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), WeightsProblem> {
        let mut at = info.start;
        while at < info.end {
            let bytes = (info.end - at).min(WINDOW_BYTES as u64);
            let window = &mut self.window[..bytes as usize];
            self.file.read_exact_at(self.data_at + at, window)?;
            take(window);
            at += bytes;
        }
        Ok(())
    }
}

fn find(header: &Header, name: &str) -> Result<TensorInfo, WeightsProblem> {
    let info = header.tensors.get(name).cloned();
    info.ok_or_else(|| WeightsProblem::Missing {
        tensor: name.to_owned(),
    })
}

fn check_buffer(name: &str, info: &TensorInfo, found: u64) -> Result<(), WeightsProblem> {
    if found == info.bytes() {
        return Ok(());
    }
    Err(WeightsProblem::Buffer {
        tensor: name.to_owned(),
        expected: info.bytes(),
        found,
    })
}

/// Elements of `dtype` as f32.
fn widen(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        Dtype::BF16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F16 => each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        _ => each(bytes, out, f32::from_le_bytes),
    }
}

/// Numbers as elements of `dtype`.
fn narrow(wide: &[f32], dtype: Dtype, bytes: &mut [u8]) {
    fn each<const N: usize>(wide: &[f32], bytes: &mut [u8], element: impl Fn(f32) -> [u8; N]) {
        let (elements, _) = bytes.as_chunks_mut();
        for (to, &x) in elements.iter_mut().zip(wide) {
            *to = element(x);
        }
    }
    match dtype {
        Dtype::F64 => each(wide, bytes, |x| f64::from(x).to_le_bytes()),
        Dtype::BF16 => each(wide, bytes, |x| bf16::from_f32(x).to_le_bytes()),
        Dtype::F16 => each(wide, bytes, |x| f16::from_f32(x).to_le_bytes()),
        _ => each(wide, bytes, f32::to_le_bytes),
    }
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], element: impl Fn([u8; N]) -> f32) {
    let (elements, _) = bytes.as_chunks();
    for (out, &bytes) in out.iter_mut().zip(elements) {
        *out = element(bytes);
    }
}
