//! Operations that are one step of an optimizer.

use super::Formats;
use highwater_graph::{Op, OpError};
use std::hash::Hasher;

/// One step of an optimizer on one parameter.
pub(crate) trait Update: Op + Copy {
    /// [`Op::name`].
    const NAME: &'static str;
    /// Floating-point operations per element.
    const FLOPS: f64;

    /// The names of the moments.
    fn moments(&self) -> &'static [&'static str];

    /// How parameter and moments are held.
    fn formats(&self) -> Formats;

    /// The same step on other forms.
    fn in_formats(self, formats: Formats) -> Self;

    /// What is structure beside the forms.
    fn hash(&self, _hasher: &mut dyn Hasher) {}

    /// Refuses settings that contradict each other.
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }
}

/// Implements [`Op`] by [`Update`].
macro_rules! update_op {
    ($type:ty) => {
        impl highwater_graph::Op for $type {
            fn name(&self) -> &'static str {
                <Self as $crate::kernels::formats::Update>::NAME
            }

            fn hash_attributes(&self, hasher: &mut dyn std::hash::Hasher) {
                use $crate::kernels::formats::Update;
                Update::hash(self, hasher);
                hasher.write_u8(Update::formats(self).tag());
            }

            fn infer(
                &self,
                inputs: &[highwater_graph::Spec],
            ) -> Result<smallvec::SmallVec<[highwater_graph::Spec; 2]>, highwater_graph::OpError>
            {
                use $crate::kernels::formats::Update;
                Update::check(self)?;
                let (name, moments) = (<Self as Update>::NAME, Update::moments(self).len());
                Update::formats(self).check(name, inputs, moments)?;
                Ok(smallvec::SmallVec::new())
            }

            fn cost(
                &self,
                inputs: &[highwater_graph::Spec],
                _outputs: &[highwater_graph::Spec],
                _threads: usize,
            ) -> highwater_graph::Cost {
                let flops = <Self as $crate::kernels::formats::Update>::FLOPS;
                $crate::kernels::cells::update_cost(inputs, flops)
            }

            fn effect(&self) -> highwater_graph::Effect {
                highwater_graph::Effect::WritesCell
            }

            fn writes(&self) -> smallvec::SmallVec<[usize; 4]> {
                use $crate::kernels::formats::Update;
                let moments = Update::moments(self).len();
                (0..Update::formats(self).written(moments)).collect()
            }
        }
    };
}
pub(crate) use update_op;
