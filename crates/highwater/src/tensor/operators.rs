//! `+`, `-`, `*`, `/` of tensors and numbers, and `-x`; `&`, `|`, `^` and `!x` of tensors of `Bool`: what the
//! methods of the same meaning do. A reference to a [`Parameter`] is the operand that its tensor is.
//!
//! An operator answers a `Result`, as its method does: shapes that do not broadcast are an error to be handled
//! and never a panic. What an operator answered can be the operand of the next one, so that a `?` is wanted
//! only at the end: `(&x * &w + &b)?`, `(&a - &b * &c)?`. Where nothing else is a tensor it is wanted earlier:
//! `((&a * &b)? + (&c * &d)?)?`, `((&a + &b)? * 0.5)?`.

use super::Tensor;
use super::parameter::Parameter;
use crate::Result;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

macro_rules! operator {
    ($($trait:ident $name:ident $method:ident $($scalar:ident)?;)*) => {$(
        operator!(@pair $trait $name, &Tensor, &Tensor, |a, b| Tensor::$method(a, b));
        operator!(@pair $trait $name, &Tensor, Tensor, |a, b| Tensor::$method(a, &b));
        operator!(@pair $trait $name, Tensor, &Tensor, |a, b| Tensor::$method(&a, b));
        operator!(@pair $trait $name, Tensor, Tensor, |a, b| Tensor::$method(&a, &b));
        operator!(@pair $trait $name, &Tensor, Result<Tensor>, |a, b| Tensor::$method(a, &b?));
        operator!(@pair $trait $name, Tensor, Result<Tensor>, |a, b| Tensor::$method(&a, &b?));
        operator!(@pair $trait $name, Result<Tensor>, &Tensor, |a, b| Tensor::$method(&a?, b));
        operator!(@pair $trait $name, Result<Tensor>, Tensor, |a, b| Tensor::$method(&a?, &b));
        operator!(@pair $trait $name, &Parameter, &Parameter, |a, b| Tensor::$method(a, b));
        operator!(@pair $trait $name, &Parameter, &Tensor, |a, b| Tensor::$method(a, b));
        operator!(@pair $trait $name, &Parameter, Tensor, |a, b| Tensor::$method(a, &b));
        operator!(@pair $trait $name, &Parameter, Result<Tensor>, |a, b| Tensor::$method(a, &b?));
        operator!(@pair $trait $name, &Tensor, &Parameter, |a, b| Tensor::$method(a, b));
        operator!(@pair $trait $name, Tensor, &Parameter, |a, b| Tensor::$method(&a, b));
        operator!(@pair $trait $name, Result<Tensor>, &Parameter, |a, b| Tensor::$method(&a?, b));
        $(
            operator!(@pair $trait $name, &Tensor, f64, |a, b| a.$scalar(b));
            operator!(@pair $trait $name, Tensor, f64, |a, b| a.$scalar(b));
            operator!(@pair $trait $name, &Parameter, f64, |a, b| a.$scalar(b));
        )?
    )*};
    (@pair $trait:ident $name:ident, $left:ty, $right:ty, |$a:ident, $b:ident| $body:expr) => {
        impl $trait<$right> for $left {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $name(self, right: $right) -> Result<Tensor> {
                let ($a, $b) = (self, right);
                $body
            }
        }
    };
}

operator! {
    Add add add add_scalar;
    Sub sub sub sub_scalar;
    Mul mul mul mul_scalar;
    Div div div div_scalar;
    BitAnd bitand logical_and;
    BitOr bitor logical_or;
    BitXor bitxor logical_xor;
}

macro_rules! number_first {
    ($($trait:ident $name:ident, |$number:ident, $tensor:ident| $body:expr;)*) => {$(
        impl $trait<&Tensor> for f64 {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $name(self, $tensor: &Tensor) -> Result<Tensor> {
                let $number = self;
                $body
            }
        }

        impl $trait<&Parameter> for f64 {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $name(self, parameter: &Parameter) -> Result<Tensor> {
                let tensor: &Tensor = parameter;
                self.$name(tensor)
            }
        }

        impl $trait<Tensor> for f64 {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $name(self, tensor: Tensor) -> Result<Tensor> {
                self.$name(&tensor)
            }
        }
    )*};
}

number_first! {
    Add add, |number, tensor| tensor.add_scalar(number);
    // Exactly `number - tensor`: negation rounds nothing.
    Sub sub, |number, tensor| Tensor::neg(tensor)?.add_scalar(number);
    Mul mul, |number, tensor| tensor.mul_scalar(number);
    Div div, |number, tensor| {
        Tensor::div(&tensor.number_beside(number)?, tensor)
    };
}

macro_rules! of_one {
    ($($trait:ident $name:ident $method:ident;)*) => {$(
        impl $trait for &Tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $name(self) -> Result<Tensor> {
                Tensor::$method(self)
            }
        }

        impl $trait for &Parameter {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $name(self) -> Result<Tensor> {
                Tensor::$method(self)
            }
        }

        impl $trait for Tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $name(self) -> Result<Tensor> {
                Tensor::$method(&self)
            }
        }
    )*};
}

of_one! {
    Neg neg neg;
    Not not logical_not;
}
