//! Tensors in memory, as kernels see them.

use super::error::KernelError;
use highwater_graph::{DType, Layout, Spec};

/// A Rust type whose slices tensors of one dtype can be seen as.
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// Whether tensors of `dtype` are made of this type.
    fn is(dtype: DType) -> bool;
}

mod sealed {
    /// What types are elements is known here.
    pub trait Sealed {}
}

macro_rules! element {
    ($($type:ty: $pattern:pat),* $(,)?) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            fn is(dtype: DType) -> bool {
                matches!(dtype, $pattern)
            }
        }
    )*};
}
element!(f32: DType::F32, f64: DType::F64, half::bf16: DType::BF16, half::f16: DType::F16);
element!(i64: DType::I64, i16: DType::I16, u32: DType::U32, u8: DType::U8 | DType::Bool);

/// A tensor in memory: an input to read, or an output or cell to fill.
///
/// Where an input shares its memory with something that the kernel writes, it has no memory of its
/// own here: the kernel finds its elements in the other view, before it overwrites them. So no two
/// slices ever overlap, whatever a kernel declares.
pub struct View<'a> {
    memory: Memory<'a>,
    spec: &'a Spec,
}

enum Memory<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    Shared(SharedWith),
    LeftOut,
}

/// Whose memory an input lies in that has none of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedWith {
    /// The output at this position, which is written over it: a pair that
    /// [`Kernel::in_place`](crate::Kernel::in_place) offered. Both have one layout, and the output
    /// holds the input's elements when the kernel starts.
    Output(usize),
    /// The input at this position, a cell that the kernel writes, in whose storage this one's layout
    /// is: the kernel said that it [may](crate::Kernel::may_overlap).
    Input(usize),
}

impl<'a> View<'a> {
    /// A tensor to read: the bytes of its whole storage, aligned to its dtype.
    pub fn read(bytes: &'a [u8], spec: &'a Spec) -> Self {
        let memory = Memory::Read(bytes);
        Self { memory, spec }
    }

    /// A tensor to write: the bytes of its whole storage, aligned to its dtype.
    pub fn write(bytes: &'a mut [u8], spec: &'a Spec) -> Self {
        let memory = Memory::Write(bytes);
        Self { memory, spec }
    }

    /// An input whose elements lie in the memory of another view.
    pub fn shared(with: SharedWith, spec: &'a Spec) -> Self {
        let memory = Memory::Shared(with);
        Self { memory, spec }
    }

    /// An output that this run leaves out; only for those that
    /// [`Kernel::optional`](crate::Kernel::optional) lists.
    pub fn left_out(spec: &'a Spec) -> Self {
        let memory = Memory::LeftOut;
        Self { memory, spec }
    }

    /// Whether this run leaves the output out.
    pub fn is_left_out(&self) -> bool {
        matches!(self.memory, Memory::LeftOut)
    }

    /// Where the elements of an input are that has no memory of its own.
    pub fn shared_with(&self) -> Option<SharedWith> {
        match self.memory {
            Memory::Shared(with) => Some(with),
            _ => None,
        }
    }

    /// Whether an output is written over this input: see [`SharedWith::Output`].
    pub fn is_overwritten(&self) -> bool {
        matches!(self.memory, Memory::Shared(SharedWith::Output(_)))
    }

    /// Dtype and layout.
    pub fn spec(&self) -> &'a Spec {
        self.spec
    }

    /// Layout in the storage.
    pub fn layout(&self) -> &'a Layout {
        &self.spec.layout
    }

    /// Extents.
    pub fn dims(&self) -> &'a [usize] {
        self.spec.shape().dims()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.spec.layout.numel()
    }

    /// The whole storage as elements, for kernels that read strides.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for another dtype, or an input without memory of its own.
    pub fn storage<T: Element>(&self) -> Result<&[T], KernelError> {
        let bytes = self.readable()?;
        let end = self.end_bytes::<T>(bytes.len())?;
        if end == 0 {
            return Ok(&[]);
        }
        bytemuck::try_cast_slice(&bytes[..end]).map_err(|_| self.unaligned())
    }

    /// The whole storage as elements, to fill through strides.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for another dtype or a view that is not to be written.
    pub fn storage_mut<T: Element>(&mut self) -> Result<&mut [T], KernelError> {
        let end = self.end_bytes::<T>(self.writable()?.len())?;
        let unaligned = self.unaligned();
        match &mut self.memory {
            Memory::Write(bytes) if end > 0 => {
                bytemuck::try_cast_slice_mut(&mut bytes[..end]).map_err(|_| unaligned)
            }
            _ => Ok(&mut []),
        }
    }

    /// The whole storage as bytes, for kernels that take elements of any type: aligned to it.
    pub(crate) fn bytes(&self) -> Result<&[u8], KernelError> {
        let bytes = self.readable()?;
        let end = self.end_of_elements(bytes)?;
        Ok(&bytes[..end])
    }

    /// The whole storage as bytes, to fill.
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], KernelError> {
        let end = self.end_of_elements(self.writable()?)?;
        match &mut self.memory {
            Memory::Write(bytes) => Ok(&mut bytes[..end]),
            _ => Ok(&mut []),
        }
    }

    fn readable(&self) -> Result<&[u8], KernelError> {
        match &self.memory {
            Memory::Read(bytes) => Ok(bytes),
            Memory::Write(bytes) => Ok(bytes),
            Memory::Shared(_) | Memory::LeftOut => Err(self.without_memory()),
        }
    }

    /// What may be filled, to be looked at.
    fn writable(&self) -> Result<&[u8], KernelError> {
        match &self.memory {
            Memory::Write(bytes) => Ok(bytes),
            Memory::Read(_) => Err(self.unsupported("a writable tensor")),
            Memory::Shared(_) | Memory::LeftOut => Err(self.without_memory()),
        }
    }

    fn end_of_elements(&self, bytes: &[u8]) -> Result<usize, KernelError> {
        let width = self.spec.dtype.element_bytes();
        let width = width.ok_or_else(|| self.unsupported("elements with addresses"))? as usize;
        if !bytes.as_ptr().addr().is_multiple_of(width) {
            return Err(self.unaligned());
        }
        self.end_in(bytes.len(), width)
    }

    /// The elements of a contiguous tensor in order.
    ///
    /// # Errors
    /// As [`View::storage`]; also for a layout that is not contiguous.
    pub fn slice<T: Element>(&self) -> Result<&[T], KernelError> {
        let (start, len) = self.contiguous_range()?;
        Ok(&self.storage::<T>()?[start..start + len])
    }

    /// The elements of a contiguous tensor in order, to fill.
    ///
    /// # Errors
    /// As [`View::storage_mut`]; also for a layout that is not contiguous.
    pub fn slice_mut<T: Element>(&mut self) -> Result<&mut [T], KernelError> {
        let (start, len) = self.contiguous_range()?;
        Ok(&mut self.storage_mut::<T>()?[start..start + len])
    }

    fn contiguous_range(&self) -> Result<(usize, usize), KernelError> {
        if !self.layout().is_contiguous() {
            return Err(self.unsupported("a contiguous tensor"));
        }
        let len = self.numel();
        Ok((if len == 0 { 0 } else { self.layout().offset() }, len))
    }

    /// Bytes of the elements of type `T` that `bytes` bytes hold, in which the layout must end.
    fn end_bytes<T: Element>(&self, bytes: usize) -> Result<usize, KernelError> {
        if !T::is(self.spec.dtype) {
            return Err(self.unsupported(std::any::type_name::<T>()));
        }
        self.end_in(bytes, size_of::<T>())
    }

    fn end_in(&self, bytes: usize, width: usize) -> Result<usize, KernelError> {
        let len = bytes / width;
        if self.layout().end() > len {
            return Err(self.unsupported("a layout that ends inside its storage"));
        }
        Ok(len * width)
    }

    fn without_memory(&self) -> KernelError {
        self.unsupported("a tensor with memory of its own")
    }

    fn unaligned(&self) -> KernelError {
        self.unsupported("storage that is aligned to its dtype")
    }

    fn unsupported(&self, expected: &'static str) -> KernelError {
        KernelError::Unsupported {
            expected,
            got: format!("{self:?}"),
        }
    }
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let spec = self.spec;
        match &self.memory {
            Memory::Read(bytes) => write!(f, "{spec:?} in {} bytes to read", bytes.len()),
            Memory::Write(bytes) => write!(f, "{spec:?} in {} bytes to write", bytes.len()),
            Memory::Shared(with) => write!(f, "{spec:?} in the memory of {with:?}"),
            Memory::LeftOut => write!(f, "{spec:?}, left out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(answer: &Result<T, KernelError>) -> bool {
        matches!(answer, Err(KernelError::Unsupported { .. }))
    }

    #[test]
    fn what_has_no_memory_hands_out_no_slice() {
        let empty = Spec::contiguous(DType::F32, [0, 3]);
        let full = Spec::contiguous(DType::F32, [2, 3]);
        for spec in [&empty, &full] {
            for mut view in [
                View::left_out(spec),
                View::shared(SharedWith::Output(0), spec),
                View::shared(SharedWith::Input(0), spec),
            ] {
                assert!(refused(&view.slice::<f32>()) && refused(&view.storage::<f32>()));
                assert!(refused(&view.slice_mut::<f32>()) && refused(&view.storage_mut::<f32>()));
            }
        }
        assert!(View::left_out(&empty).is_left_out());
        assert_eq!(View::read(&[], &empty).slice::<f32>().unwrap().len(), 0);
        assert!(!View::read(&[], &empty).is_left_out());
    }

    #[test]
    fn slices_lie_inside_their_bytes_whatever_the_layout() {
        let mut words = [0_u64; 8];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let half = usize::MAX / 2 + 1;
        for layout in [
            Layout::contiguous([17]),
            Layout::strided([3], &[half], 0),
            Layout::strided([2, 2], &[half, half], 3),
            Layout::strided([2], &[1], usize::MAX),
            Layout::contiguous([1 << 40, 1 << 40]),
            Layout::strided([1 << 33, 1 << 33], &[0, 0], 16),
        ] {
            let dtype = DType::F32;
            let spec = Spec { dtype, layout };
            let mut view = View::write(bytes, &spec);
            assert!(refused(&view.storage::<f32>()) && refused(&view.slice::<f32>()));
            assert!(refused(&view.storage_mut::<f32>()) && refused(&view.slice_mut::<f32>()));
        }
        let spec = Spec::contiguous(DType::F32, [3]);
        assert!(refused(&View::read(&bytes[1..], &spec).storage::<f32>()));
        assert!(refused(&View::read(bytes, &spec).storage::<i64>()));
        assert!(refused(&View::read(bytes, &spec).storage_mut::<f32>()));
        assert_eq!(
            View::read(&bytes[..15], &spec)
                .storage::<f32>()
                .unwrap()
                .len(),
            3
        );
    }

    #[test]
    fn a_view_is_told_in_one_line() {
        let bytes = vec![0; 1 << 20];
        let spec = Spec::contiguous(DType::U8, [1 << 20]);
        assert!(format!("{:?}", View::read(&bytes, &spec)).len() < 100);
    }
}
