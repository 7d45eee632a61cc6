//! Scaled dot-product attention.

mod backward;
mod documents;
mod factors;
mod forward;
mod product;
mod reference;
mod rows;
mod samples;
mod second;
mod sight;
#[cfg(test)]
mod tests;

use crate::kernels::float::sums_in;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::{Entry, KernelError, View};
use documents::Documents;
use highwater_graph::DType::{I64, U32};
use highwater_graph::{Autocast, Backward, Cost, DType, Layout, Op, OpError, Operand, Shape, Spec};
use sight::Sight;
use smallvec::{SmallVec, smallvec};
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ENTRY, ENTRY_BACKWARD];

const NAME: &str = "scaled_dot_product_attention";
const BACKWARD: &str = "scaled_dot_product_attention_backward";

/// The most elements of a query, key or value.
const WIDTH_MAX: usize = 256;

pub(crate) const ENTRY: Entry = Entry {
    name: NAME,
    rows: rows_of_floats! {
        T: [T] -> [T, Sums], [T, T, T, I64] -> [T, Sums], [T, T, T, U32] -> [T, Sums];
        forward::ForwardKernel::<T>(PhantomData);
        Precise::checked(reference::forward, check_documents)
    },
    reference: reference::forward,
    samples: samples::forward,
    rejects: samples::forward_rejects,
};

pub(crate) const ENTRY_BACKWARD: Entry = Entry {
    name: BACKWARD,
    rows: rows_of_floats! {
        T: [T, T, T, T, Sums, T, Sums] -> [T], [T, T, T, T, Sums, Sums] -> [T],
           [T, T, T, I64, T, Sums, T, Sums] -> [T], [T, T, T, I64, T, Sums, Sums] -> [T],
           [T, T, T, U32, T, Sums, T, Sums] -> [T], [T, T, T, U32, T, Sums, Sums] -> [T];
        backward::BackwardKernel::<T>(PhantomData);
        Precise::checked(reference::backward, check_documents)
    },
    reference: reference::backward,
    samples: samples::backward,
    rejects: samples::backward_rejects,
};

/// `o = softmax(scale q k^T) v` for each batch and head, as PyTorch's
/// `torch.nn.functional.scaled_dot_product_attention`.
///
/// Inputs: `q` `[B, H, Tq, D]`, `k` and `v` `[B, G, Tk, D]`, in any layout, D at most 256; H is a multiple
/// of G, and so many consecutive heads of `q` share one of `k` and `v` (grouped queries, Ainslie et al.
/// 2023; PyTorch's `enable_gqa`), which is never repeated in memory; and with [`documents`](Self::documents)
/// their lengths `[B, N]`, of `I64` or `U32`, in any layout. Outputs:
/// `o`, seen as `[B, H, Tq, D]` and stored as `[B, Tq, H, D]`, so that merging the heads again is a
/// view; and `lse` `[B, H, Tq]`, the logarithm of the sum of the exponentials of each query's
/// scores, which backward reads. A query without any key has `o = 0` and `lse = -inf`.
///
/// Blocks of 64 queries meet blocks of 64 keys under a running maximum and sum (the online softmax
/// of Milakov and Gimelshein 2018, in the order of FlashAttention, Dao et al. 2022): no matrix of
/// scores is ever in memory. Everything is summed in `f32`; where the processor multiplies pairs of `BF16`,
/// weights are rounded to it before they meet the values, as in PyTorch's, and are summed as they were. Costs
/// `4 B H D` floating-point operations for each query and key that see each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaledDotProductAttention {
    /// Each query sees the keys up to its own position only; needs as many keys as queries.
    pub causal: bool,
    /// And of these the last ones only, so many, its own among them (a sliding window, as Mistral's in
    /// Hugging Face: query `i` sees key `j` where `i - j < window`); needs `causal`. Blocks of keys that
    /// no query of a block sees are skipped.
    pub window: Option<usize>,
    /// Whether sequences hold several documents, one after the other, and each query sees keys of its own
    /// alone, as where FlashAttention is given `cu_seqlens`. Their lengths are an input, so that a plan holds
    /// for any; what is left of a sequence behind them is one document more. Needs as many keys as queries.
    /// The kernel answers [`KernelError::Unsupported`](crate::KernelError::Unsupported) for lengths below 0
    /// or of more than a sequence. Costs are told as of one document.
    pub documents: bool,
    /// What scores are multiplied by; PyTorch's default is `1 / sqrt(D)`.
    pub scale: f64,
}

impl Op for ScaledDotProductAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write(&[self.causal, self.documents].map(u8::from));
        hasher.write_usize(self.window.unwrap_or(0));
        hasher.write_u64(self.scale.to_bits());
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(NAME, inputs, 3 + usize::from(self.documents))?;
        let [b, h, t, d] = check(NAME, inputs, self.sight(), self.documents)?;
        let dtype = inputs[0].dtype;
        let o = Spec {
            dtype,
            layout: Layout::strided([b, h, t, d], &[t * h * d, d, h * d, 1], 0),
        };
        let lse = Spec::contiguous(sums_in(dtype), [b, h, t]);
        Ok(smallvec![o, lse])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, pairs(inputs, self.sight()), 2.0)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let inputs: [Operand; 3] = std::array::from_fn(|i| backward.input(i));
        let (grad, lse_grad) = (backward.grad(0), backward.grad(1));
        if grad.is_none() && lse_grad.is_none() {
            return Ok(());
        }
        let op = ScaledDotProductAttentionBackward {
            causal: self.causal,
            window: self.window,
            documents: self.documents,
            scale: self.scale,
            output_grad: grad.is_some(),
            lse_grad: lse_grad.is_some(),
            packed: Packed::of(&inputs),
        };
        let mut reads: SmallVec<[Operand; 8]> = inputs.iter().cloned().collect();
        reads.extend(self.documents.then(|| backward.input(3)));
        reads.extend([backward.output(0), backward.output(1)]);
        reads.extend(grad.into_iter().chain(lse_grad));
        let packed = op.packed.is_some();
        let grads = backward.emit(op, &reads)?;
        for (i, input) in inputs.iter().enumerate() {
            if backward.needs(i) {
                let grad = if packed {
                    grads[0].with_layout(input.spec.layout.clone())
                } else {
                    grads[i].clone()
                };
                backward.set(i, grad);
            }
        }
        Ok(())
    }
}

/// The gradients of [`ScaledDotProductAttention`].
///
/// Inputs: `q`, `k`, `v`, the lengths of documents if there are any, `o`, `lse`, then the gradients of `o`
/// and of `lse`, those of them that there are, in any layout. Outputs: with [`packed`](Self::packed) one flat tensor that holds all
/// three gradients; else the gradients of `q`, `k` and `v`, each stored in the order of its input
/// where that is dense, else row-major.
///
/// With `p = exp(scale q k^T - lse)` and `delta` the row sums of `do * o` (less the gradient of
/// `lse`): `dv = p^T do`, `ds = p * (do v^T - delta)`, `dq = scale ds k`, `dk = scale ds^T q`, block
/// by block as in FlashAttention, summed in `f32` in ascending order of the blocks. Costs
/// `10 B H D` floating-point operations for each query and key that see each other (14 where there
/// are fewer heads than threads, see the kernel). Its own gradients are made by other operations, with matrices
/// of scores in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "which inputs there are, each by itself"
)]
pub struct ScaledDotProductAttentionBackward {
    /// As in the forward operation.
    pub causal: bool,
    /// As in the forward operation.
    pub window: Option<usize>,
    /// As in the forward operation.
    pub documents: bool,
    /// As in the forward operation.
    pub scale: f64,
    /// Whether the gradient of `o` is an input; it counts as 0 otherwise.
    pub output_grad: bool,
    /// Whether the gradient of `lse` is an input; it counts as 0 otherwise.
    pub lse_grad: bool,
    /// Where the gradients lie in one packed output; `None` for three outputs.
    pub packed: Option<Packed>,
}

/// Three tensors `[B, H, T, D]` that together tile one storage, such as the thirds of a packed
/// projection `[B, T, 3 H D]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packed {
    /// Strides of each of them.
    pub strides: [usize; 4],
    /// Offset of each in the storage.
    pub offsets: [usize; 3],
}

impl Packed {
    /// How three operands tile one storage, if they do.
    fn of(operands: &[Operand; 3]) -> Option<Self> {
        let [q, k, v] = operands.each_ref().map(|operand| &operand.spec.layout);
        let packed = Self {
            strides: q.strides().try_into().ok()?,
            offsets: [q.offset(), k.offset(), v.offset()],
        };
        let alike = [k, v]
            .iter()
            .all(|other| other.strides() == q.strides() && other.shape() == q.shape())
            && operands
                .iter()
                .all(|operand| operand.source == operands[0].source);
        (alike && packed.tiles(q.shape())).then_some(packed)
    }

    /// Whether the three reach each element of a storage of their size exactly once.
    fn tiles(&self, shape: &Shape) -> bool {
        let mut offsets = self.offsets;
        offsets.sort_unstable();
        let [first, second, third] = offsets;
        let dims: SmallVec<[usize; 5]> = std::iter::once(3).chain(shape.iter().copied()).collect();
        let strides: SmallVec<[usize; 5]> = std::iter::once(second - first)
            .chain(self.strides)
            .collect();
        let all = Layout::strided(dims.as_slice(), &strides, first);
        second - first == third - second && shape.numel() > 0 && all.covers(3 * shape.numel())
    }

    /// Layout of the `i`-th of them.
    pub fn layout(&self, i: usize, shape: &Shape) -> Layout {
        Layout::strided(shape.clone(), &self.strides, self.offsets[i])
    }
}

impl Op for ScaledDotProductAttentionBackward {
    fn name(&self) -> &'static str {
        BACKWARD
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        let flags = [
            self.causal,
            self.documents,
            self.output_grad,
            self.lse_grad,
            self.packed.is_some(),
        ];
        hasher.write(&flags.map(u8::from));
        hasher.write_usize(self.window.unwrap_or(0));
        hasher.write_u64(self.scale.to_bits());
        if let Some(Packed { strides, offsets }) = self.packed {
            strides
                .into_iter()
                .chain(offsets)
                .for_each(|n| hasher.write_usize(n));
        }
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        let grads = usize::from(self.output_grad) + usize::from(self.lse_grad);
        let documents = usize::from(self.documents);
        OpError::check_arity(BACKWARD, inputs, 5 + documents + grads)?;
        let [b, h, t, _] = check(BACKWARD, inputs, self.sight(), self.documents)?;
        let (q, o, lse) = (&inputs[0], &inputs[3 + documents], &inputs[4 + documents]);
        let like_o = (self.output_grad).then(|| &inputs[5 + documents]);
        for input in std::iter::once(o).chain(like_o) {
            OpError::check_dtype(BACKWARD, input, q.dtype)?;
            same_shape(q.shape(), input)?;
        }
        let like_lse = (self.lse_grad).then(|| &inputs[inputs.len() - 1]);
        for input in std::iter::once(lse).chain(like_lse) {
            OpError::check_dtype(BACKWARD, input, sums_in(q.dtype))?;
            same_shape(&Shape::from([b, h, t]), input)?;
        }
        let Some(packed) = self.packed else {
            return Ok(inputs[..3].iter().map(stored_alike).collect());
        };
        if inputs[1].shape() != q.shape() || !packed.tiles(q.shape()) {
            return Err(OpError::Attribute {
                op: BACKWARD,
                attribute: "packed",
                expected: "three tensors that tile one storage".into(),
                got: format!("{packed:?} of {}", q.shape()),
            });
        }
        Ok(smallvec![Spec::contiguous(
            q.dtype,
            [3 * q.shape().numel()]
        )])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], threads: usize) -> Cost {
        let shape = inputs[1].shape();
        let products = if splits(shape[0] * shape[1], threads) {
            7.0
        } else {
            5.0
        };
        cost(inputs, outputs, pairs(inputs, self.sight()), products)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        second::emit(self, backward)
    }
}

/// That lengths of documents, where there are any, fit into sequences.
fn check_documents(_: &dyn Op, inputs: &[View<'_>]) -> Result<(), KernelError> {
    let lengths = inputs.get(3).filter(|view| !view.spec().dtype.is_float());
    let tokens = inputs[0].dims()[2];
    lengths.map_or(Ok(()), |lengths| Documents::new(lengths, tokens).map(drop))
}

/// Whether each head is done twice, for keys and for queries, because whole heads would leave
/// threads idle. Costs seven products instead of five.
fn splits(heads: usize, threads: usize) -> bool {
    heads.div_ceil(threads) * threads * 5 > heads * 7
}

/// So many products, and an exponential with what goes with it, for each query and key that meet.
fn cost(inputs: &[Spec], outputs: &[Spec], pairs: f64, products: f64) -> Cost {
    Cost {
        matmul_flops: 2.0 * products * inputs[0].shape()[3] as f64 * pairs,
        vector_flops: 14.0 * pairs,
        ..Cost::elementwise(inputs, outputs, 0.0)
    }
}

/// How many (query, key) meet, over all batches and heads.
fn pairs(inputs: &[Spec], sight: Sight) -> f64 {
    let (q, keys) = (inputs[0].shape(), inputs[1].shape()[2]);
    (q[0] * q[1]) as f64 * sight.pairs(q[2], keys)
}

impl ScaledDotProductAttention {
    fn sight(&self) -> Sight {
        let Self { causal, window, .. } = *self;
        Sight { causal, window }
    }
}

impl ScaledDotProductAttentionBackward {
    fn sight(&self) -> Sight {
        let Self { causal, window, .. } = *self;
        Sight { causal, window }
    }
}

/// Checks `q`, `k` and `v`, and lengths of documents; answers the extents of `q`.
fn check(
    op: &'static str,
    inputs: &[Spec],
    sight: Sight,
    documents: bool,
) -> Result<[usize; 4], OpError> {
    if let Some(window) = sight.window.filter(|&window| !sight.causal || window == 0) {
        return Err(OpError::Attribute {
            op,
            attribute: "window",
            expected: "1 or more, and causal".into(),
            got: format!("{window}, causal: {}", sight.causal),
        });
    }
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    if !q.dtype.is_float() {
        return Err(OpError::DType {
            op,
            expected: "a float".into(),
            got: q.dtype,
        });
    }
    OpError::check_dtype(op, k, q.dtype)?;
    OpError::check_dtype(op, v, q.dtype)?;
    let error = |expected: String, got: &Spec| Err(OpError::shape(op, expected, got.to_string()));
    let &[b, h, t, d] = q.shape().dims() else {
        return error("q of [B, H, T, D]".into(), q);
    };
    if !(1..=WIDTH_MAX).contains(&d) {
        return error(format!("q of 1 to {WIDTH_MAX} elements in each head"), q);
    }
    match k.shape().dims() {
        &[kb, kh, kt, kd] if (kb, kd) == (b, d) && h.checked_rem(kh).unwrap_or(h) == 0 => {
            if (sight.causal || documents) && kt != t {
                let why = if sight.causal {
                    "they are causal"
                } else {
                    "there are documents"
                };
                return error(format!("as many keys as queries, {t}, as {why}"), k);
            }
        }
        _ => {
            let expected = format!("k of [{b}, G, T, {d}], where {h} heads are a multiple of G");
            return error(expected, k);
        }
    }
    if v.shape() != k.shape() {
        return error(format!("v of {}, as k", k.shape()), v);
    }
    if documents {
        check_lengths(op, &inputs[3], b)?;
    }
    Ok([b, h, t, d])
}

fn check_lengths(op: &'static str, lengths: &Spec, batch: usize) -> Result<(), OpError> {
    if !matches!(lengths.dtype, DType::I64 | DType::U32) {
        return Err(OpError::DType {
            op,
            expected: "int64 or uint32 for the lengths of documents".into(),
            got: lengths.dtype,
        });
    }
    match lengths.shape().dims() {
        &[b, _] if b == batch => Ok(()),
        _ => {
            let expected = format!("lengths of documents of [{batch}, N]");
            Err(OpError::shape(op, expected, lengths.to_string()))
        }
    }
}

fn same_shape(shape: &Shape, input: &Spec) -> Result<(), OpError> {
    if input.shape() == shape {
        return Ok(());
    }
    Err(OpError::shape(
        BACKWARD,
        shape.to_string(),
        input.to_string(),
    ))
}

/// Where a tensor covers a storage of its size, stored as it is; else row-major.
fn stored_alike(input: &Spec) -> Spec {
    if input.layout.covers(input.layout.numel()) {
        input.clone()
    } else {
        Spec::contiguous(input.dtype, input.shape().clone())
    }
}
