//! The table's rows of updates in all forms.

/// Rows for all forms of parameters and gradients, for each list of what holds an update's moments. Some
/// of them also take what a row of the plain form does, so the kernel is generic over the type of all
/// tensors in that form; which form it is, it sees from its operation.
///
/// ```text
/// formats::rows! { cpu::kernel; [F32, F32], [U8, F32, U8, F32] }
/// ```
macro_rules! rows {
    ($m:ident::$kernel:ident; $([$($moment:ident),*]),+ $(,)?) => {
        &[$(
            $crate::kernels::formats::rows!(@ $m::$kernel::<f32>; F32 $($moment)* F32),
            $crate::kernels::formats::rows!(@ $m::$kernel::<half::f16>; F16 F32 $($moment)* F16),
            $crate::kernels::formats::rows!(@ $m::$kernel::<f32>; F16 F32 $($moment)* F32),
            $crate::kernels::formats::rows!(@ $m::$kernel::<half::bf16>; BF16 F32 $($moment)* BF16),
            $crate::kernels::formats::rows!(@ $m::$kernel::<f32>; BF16 F32 $($moment)* F32),
            $crate::kernels::formats::rows!(@ $m::$kernel::<half::bf16>; BF16 I16 $($moment)* BF16),
            $crate::kernels::formats::rows!(@ $m::$kernel::<f32>; BF16 I16 $($moment)* F32),
            $crate::kernels::formats::rows!(@ $m::$kernel::<half::bf16>; BF16 $($moment)* BF16),
            $crate::kernels::formats::rows!(@ $m::$kernel::<f32>; BF16 $($moment)* F32),
        )+]
    };
    (@ $kernel:expr; $($dtype:ident)*) => {
        $crate::Row::cpu(
            $crate::DTypes::new(&[$(highwater_graph::DType::$dtype),*], &[]),
            || std::sync::Arc::new($kernel),
        )
    };
}
pub(crate) use rows;
