//! Which tensors an update takes in which form.

use super::{Formats, Master};
use crate::kernels::cells::check_cells_and_value;
use highwater_graph::{DType, OpError, Shape, Spec};

impl Formats {
    /// Checks the inputs of an update: parameter, the cells beside it, gradient.
    pub(crate) fn check(
        &self,
        op: &'static str,
        inputs: &[Spec],
        moments: usize,
    ) -> Result<(), OpError> {
        OpError::check_arity(op, inputs, self.written(moments) + 1)?;
        if self.is_plain() {
            return check_cells_and_value(op, inputs);
        }
        let (parameter, gradient) = (&inputs[0], &inputs[inputs.len() - 1]);
        self.check_parameter(op, parameter.dtype)?;
        let shape = parameter.shape();
        dense(op, 0, parameter, shape)?;
        let beside = self.cells(parameter.dtype, shape, &vec![""; moments]);
        for (i, (spec, cell)) in (1..).zip(inputs[1..].iter().zip(beside)) {
            OpError::check_dtype(op, spec, cell.dtype)?;
            dense(op, i, spec, &cell.shape)?;
        }
        // Gradients in half precision that were scaled are scaled back in `F32`.
        if gradient.dtype != parameter.dtype && gradient.dtype != DType::F32 {
            return Err(OpError::DType {
                op,
                expected: format!("{} or {} for the gradient", parameter.dtype, DType::F32),
                got: gradient.dtype,
            });
        }
        if gradient.shape() != shape {
            let expected = format!("the cell's shape {shape} for the gradient");
            return Err(OpError::shape(op, expected, gradient.shape().to_string()));
        }
        Ok(())
    }

    /// Whether there are such forms of a parameter of a dtype.
    fn check_parameter(&self, op: &'static str, dtype: DType) -> Result<(), OpError> {
        let takes: &[DType] = match self.master {
            Master::None => &[DType::F32],
            Master::F32 => &[DType::BF16, DType::F16],
            Master::Split | Master::Stochastic(_) => &[DType::BF16],
        };
        if takes.contains(&dtype) {
            return Ok(());
        }
        let names: Vec<&str> = takes.iter().map(|dtype| dtype.name()).collect();
        let form = match (self.master, self.moments) {
            (Master::None, _) => "moments in int8 without a master",
            (Master::F32, _) => "a master in float32",
            (Master::Split, _) => "a split master",
            (Master::Stochastic(_), _) => "stochastic rounding",
        };
        Err(OpError::DType {
            op,
            expected: format!("{} for a parameter with {form}", names.join(" or ")),
            got: dtype,
        })
    }
}

fn dense(op: &'static str, i: usize, spec: &Spec, shape: &Shape) -> Result<(), OpError> {
    if spec.shape() != shape {
        let expected = format!("the shape {shape} for input {i}");
        return Err(OpError::shape(op, expected, spec.shape().to_string()));
    }
    if !spec.layout.is_contiguous() {
        let expected = format!("a dense cell, or whole rows of one, for input {i}");
        return Err(OpError::shape(op, expected, format!("{:?}", spec.layout)));
    }
    Ok(())
}
