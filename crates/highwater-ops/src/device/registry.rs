//! The registry of kernels: by operation, device and dtypes.

#![expect(unsafe_code, reason = "kernels trust that their tensors fit together")]

use crate::{Args, Kernel, KernelError, Pairs, Piece};
use highwater_graph::{Backend, BuildMixer, Cost, DType, KernelId, Op, OpError, Spec};
use std::fmt;
use std::sync::Arc;

/// Where kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The host's processor.
    Cpu,
}

impl Device {
    /// The device's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
        }
    }
}

/// The dtypes of tensors that a kernel takes: of the inputs in order, the last of which stands for
/// all that follow, and of the outputs likewise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DTypes {
    /// Of the inputs; empty for none.
    pub inputs: &'static [DType],
    /// Of the outputs; empty for none.
    pub outputs: &'static [DType],
}

impl DTypes {
    /// Every input and output is `F32`.
    pub const F32: Self = Self::new(&[DType::F32], &[DType::F32]);

    /// From the dtypes of inputs and outputs.
    pub const fn new(inputs: &'static [DType], outputs: &'static [DType]) -> Self {
        Self { inputs, outputs }
    }

    fn take(
        self,
        inputs: impl Iterator<Item = DType>,
        outputs: impl Iterator<Item = DType>,
    ) -> bool {
        fits(self.inputs, inputs) && fits(self.outputs, outputs)
    }
}

fn fits(taken: &[DType], mut given: impl Iterator<Item = DType>) -> bool {
    let mut last = None;
    let mut taken = taken.iter();
    given.all(|dtype| {
        last = taken.next().or(last);
        last == Some(&dtype)
    })
}

impl fmt::Display for DTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&listed(self.inputs, self.outputs))
    }
}

/// One name where all are the same, else those of the inputs and those of the outputs.
fn listed(inputs: &[DType], outputs: &[DType]) -> String {
    let mut all = inputs.iter().chain(outputs);
    let Some(first) = all.next() else {
        return "no tensors".to_owned();
    };
    if all.all(|dtype| dtype == first) {
        return first.to_string();
    }
    let names = |dtypes: &[DType]| {
        let names: Vec<String> = dtypes.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    format!("{} -> {}", names(inputs), names(outputs))
}

/// A row of the table: for which device and dtypes an operation has a kernel.
#[derive(Clone, Copy)]
pub struct Row {
    device: Device,
    dtypes: DTypes,
    kernel: fn() -> Arc<dyn Kernel>,
}

impl Row {
    /// A kernel on the host's processor.
    pub const fn cpu(dtypes: DTypes, kernel: fn() -> Arc<dyn Kernel>) -> Self {
        Self {
            device: Device::Cpu,
            dtypes,
            kernel,
        }
    }

    /// A kernel on the host's processor whose inputs and outputs are all `F32`.
    pub const fn f32(kernel: fn() -> Arc<dyn Kernel>) -> Self {
        Self::cpu(DTypes::F32, kernel)
    }

    /// The kernel, to be called.
    pub(crate) fn registered(&self) -> Registered {
        Registered {
            dtypes: self.dtypes,
            kernel: (self.kernel)(),
        }
    }
}

#[cfg(feature = "laws")]
impl Row {
    /// The dtypes of inputs, the last of them again and again.
    pub(crate) fn input_dtypes(&self) -> impl Iterator<Item = DType> + use<> {
        let inputs = self.dtypes.inputs;
        let last = inputs.last().copied();
        (inputs.iter().copied()).chain(std::iter::repeat_with(move || last).map_while(|last| last))
    }

    /// The dtypes of outputs, the last of which may stand for several.
    pub(crate) fn output_dtypes(&self) -> &'static [DType] {
        self.dtypes.outputs
    }

    /// Whether it takes these tensors.
    pub(crate) fn takes(&self, inputs: &[Spec], outputs: &[Spec]) -> bool {
        self.dtypes.take(dtypes(inputs), dtypes(outputs))
    }
}

fn dtypes(specs: &[Spec]) -> impl Iterator<Item = DType> + Clone {
    specs.iter().map(|spec| spec.dtype)
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.dtypes, self.device.name())
    }
}

/// A kernel that is registered for certain dtypes.
#[derive(Clone)]
pub struct Registered {
    dtypes: DTypes,
    kernel: Arc<dyn Kernel>,
}

impl Registered {
    /// [`Kernel::scratch_bytes`].
    pub fn scratch_bytes(
        &self,
        op: &dyn Op,
        inputs: &[Spec],
        outputs: &[Spec],
        threads: usize,
    ) -> u64 {
        self.kernel.scratch_bytes(op, inputs, outputs, threads)
    }

    /// [`Kernel::in_place`], but for pairs that differ in dtype or layout or do not exist.
    pub fn in_place(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let mut pairs = self.kernel.in_place(op, inputs, outputs);
        pairs.retain(|&mut (i, o)| {
            let pair = inputs.get(i).zip(outputs.get(o));
            pair.is_some_and(|(input, output)| input == output)
        });
        pairs
    }

    /// [`Kernel::optional`].
    pub fn optional(
        &self,
        op: &dyn Op,
        output: usize,
        inputs: &[Spec],
        outputs: &[Spec],
    ) -> Option<Cost> {
        self.kernel.optional(op, output, inputs, outputs)
    }

    /// [`Kernel::may_overlap`].
    pub fn may_overlap(&self, read: usize, written: usize) -> bool {
        self.kernel.may_overlap(read, written)
    }

    /// [`Kernel::piece`].
    pub fn piece(&self, op: &dyn Op) -> Option<Piece> {
        self.kernel.piece(op)
    }

    /// [`Kernel::launch`].
    ///
    /// # Errors
    /// What the kernel answers.
    ///
    /// # Safety
    /// The operation must take the specs of `args.inputs` and infer those of `args.outputs`, all of
    /// dtypes that the kernel is registered for; what the operation writes must be writable, all
    /// other inputs not; an input without memory of its own, or an output that is left out, must be
    /// one that the kernel declared; scratch memory must be as the kernel declared for
    /// `args.pool`'s threads, and aligned to 64 bytes.
    pub unsafe fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        self.kernel.launch(op, args)
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a kernel for {}", self.dtypes)
    }
}

/// The kernels there are, by operation, device and dtypes.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    all: Vec<Registered>,
    /// Those of an operation, the one that was registered last first.
    #[expect(clippy::disallowed_types, reason = "its order is never read")]
    rows: std::collections::HashMap<(&'static str, Device), Vec<KernelId>, BuildMixer>,
    /// The kernel of fused operations. It has no name, by which another could take its place.
    fused: Option<KernelId>,
}

impl Kernels {
    /// Takes this as the kernel of fused operations, of whatever dtypes.
    pub(crate) fn add_fused(&mut self, kernel: impl Kernel + 'static) {
        self.fused = Some(self.push(Registered {
            dtypes: DTypes::new(&[], &[]),
            kernel: Arc::new(kernel),
        }));
    }

    /// The kernel of fused operations, of whatever dtypes.
    pub fn of_fused(&self) -> Option<KernelId> {
        self.fused
    }

    /// Registers kernels of an operation, in place of those there were for the same dtypes.
    pub(crate) fn add_rows(&mut self, op: &'static str, rows: &[Row]) {
        for row in rows {
            self.insert(op, row.device, row.registered());
        }
    }

    /// Registers a kernel, in place of the one there was for the same dtypes.
    pub fn register(
        &mut self,
        op: &'static str,
        device: Device,
        dtypes: DTypes,
        kernel: impl Kernel + 'static,
    ) {
        let kernel = Arc::new(kernel);
        self.insert(op, device, Registered { dtypes, kernel });
    }

    fn insert(&mut self, op: &'static str, device: Device, registered: Registered) {
        let dtypes = registered.dtypes;
        let id = self.push(registered);
        let rows = self.rows.entry((op, device)).or_default();
        rows.retain(|row| self.all[row.index()].dtypes != dtypes);
        rows.insert(0, id);
    }

    fn push(&mut self, registered: Registered) -> KernelId {
        self.all.push(registered);
        KernelId::new(self.all.len() - 1)
    }

    /// The kernel of an operation on a device, for inputs and outputs of these dtypes.
    ///
    /// # Errors
    /// [`OpError::NoKernel`] if there is none, with those there are.
    pub fn find(
        &self,
        op: &'static str,
        device: Device,
        inputs: impl Iterator<Item = DType> + Clone,
        outputs: impl Iterator<Item = DType> + Clone,
    ) -> Result<KernelId, OpError> {
        let rows = self.rows.get(&(op, device)).map_or(&[][..], Vec::as_slice);
        let takes = |row: &KernelId| {
            let dtypes = self.kernel(*row).dtypes;
            dtypes.take(inputs.clone(), outputs.clone())
        };
        rows.iter().copied().find(takes).ok_or_else(|| {
            let known = rows.iter().rev().map(|&row| self.kernel(row).dtypes);
            let known: Vec<String> = known.map(|dtypes| dtypes.to_string()).collect();
            let (inputs, outputs): (Vec<_>, Vec<_>) = (inputs.collect(), outputs.collect());
            OpError::NoKernel {
                op,
                device: device.name(),
                dtypes: listed(&inputs, &outputs),
                known: if known.is_empty() {
                    "register one with Engine::builder().kernel(..)".to_owned()
                } else {
                    format!("it has {}", known.join("; "))
                },
            }
        })
    }

    /// [`Kernels::find`] on the host's processor.
    ///
    /// # Errors
    /// As [`Kernels::find`].
    pub fn on_cpu(
        &self,
        op: &dyn Op,
        inputs: &[Spec],
        outputs: &[Spec],
    ) -> Result<&Registered, OpError> {
        let found = self.find_on_cpu(op, inputs, outputs);
        found.map(|kernel| self.kernel(kernel))
    }

    /// One that this registry found.
    ///
    /// # Panics
    /// Perhaps, if another registry found it.
    pub fn kernel(&self, id: KernelId) -> &Registered {
        &self.all[id.index()]
    }

    fn find_on_cpu(
        &self,
        op: &dyn Op,
        inputs: &[Spec],
        outputs: &[Spec],
    ) -> Result<KernelId, OpError> {
        self.find(op.name(), Device::Cpu, dtypes(inputs), dtypes(outputs))
    }
}

impl Backend for Kernels {
    fn find(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Result<KernelId, OpError> {
        self.find_on_cpu(op, inputs, outputs)
    }

    fn may_overlap(&self, kernel: KernelId, read: usize, written: usize) -> bool {
        self.kernel(kernel).may_overlap(read, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALVES: DTypes = DTypes::new(&[DType::BF16, DType::F32], &[DType::BF16]);

    fn fails(op: &dyn Op, _: &mut Args<'_>) -> Result<(), KernelError> {
        Err(KernelError::WrongOp { op: op.name() })
    }

    fn find(kernels: &Kernels, inputs: &[DType], outputs: &[DType]) -> Result<DTypes, String> {
        let (inputs, outputs) = (inputs.iter().copied(), outputs.iter().copied());
        let found = kernels.find("toy", Device::Cpu, inputs, outputs);
        found
            .map(|id| kernels.kernel(id).dtypes)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn kernels_are_found_by_their_dtypes() {
        use DType::{BF16, F32, I64};
        let mut kernels = Kernels::default();
        let error = find(&kernels, &[F32], &[F32]).unwrap_err();
        assert!(error.contains("Engine::builder().kernel(..)"), "{error}");
        kernels.register("toy", Device::Cpu, DTypes::F32, fails);
        kernels.register("toy", Device::Cpu, HALVES, fails);
        assert_eq!(find(&kernels, &[F32; 3], &[F32; 2]), Ok(DTypes::F32));
        assert_eq!(find(&kernels, &[], &[]), Ok(HALVES));
        assert_eq!(find(&kernels, &[BF16, F32, F32], &[BF16]), Ok(HALVES));
        let error = find(&kernels, &[BF16], &[F32]).unwrap_err();
        let text = "toy has no cpu kernel for bfloat16 -> float32; it has float32; bfloat16, \
                    float32 -> bfloat16";
        assert_eq!(error, text);
        assert!(find(&kernels, &[F32, I64], &[F32]).is_err());
        assert!(find(&kernels, &[F32, BF16], &[F32]).is_err());
    }
}
