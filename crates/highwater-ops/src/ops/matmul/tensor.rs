//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::error::usage_error;
use crate::{Error, Location, Result, Tensor};
use highwater_ops::MatMul;

impl Tensor {
    /// Matrix product of the last two dimensions, leading dimensions broadcast, as `torch.matmul`: a
    /// vector on the left is a row, one on the right a column, and the result has no dimension for it.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit, or for a scalar.
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        let (row, column) = (self.shape().rank() == 1, other.shape().rank() == 1);
        let left = if row {
            self.unsqueeze(0)?
        } else {
            self.clone()
        };
        let right = if column {
            other.unsqueeze(1)?
        } else {
            other.clone()
        };
        let product = Self::apply_one(MatMul::default(), &[&left, &right])?;
        let product = if column {
            product.squeeze(-1)?
        } else {
            product
        };
        match (row, column) {
            (true, true) => product.squeeze(-1),
            (true, false) => product.squeeze(-2),
            _ => Ok(product),
        }
    }

    /// Products of matrices one by one, `[B, m, k]` by `[B, k, n]`, as `torch.bmm`: nothing broadcasts.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] if the shapes do not fit.
    #[track_caller]
    pub fn bmm(&self, other: &Self) -> Result<Self> {
        self.check_ranks("bmm", other, [3, 3])?;
        if self.dims()[0] != other.dims()[0] {
            return Err(self.misfit("bmm", "as many matrices in both", other));
        }
        self.matmul(other)
    }

    /// Product of two matrices, `[m, k]` by `[k, n]`, as `torch.mm`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] if the shapes do not fit.
    #[track_caller]
    pub fn mm(&self, other: &Self) -> Result<Self> {
        self.check_ranks("mm", other, [2, 2])?;
        self.matmul(other)
    }

    /// Product of a matrix and a vector, `[m, k]` by `[k]`, as `torch.mv`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] if the shapes do not fit.
    #[track_caller]
    pub fn mv(&self, vector: &Self) -> Result<Self> {
        self.check_ranks("mv", vector, [2, 1])?;
        self.matmul(vector)
    }

    /// The sum of the products of two vectors' elements, as `torch.dot`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] unless both are vectors of one length.
    #[track_caller]
    pub fn dot(&self, other: &Self) -> Result<Self> {
        self.check_ranks("dot", other, [1, 1])?;
        self.matmul(other)
    }

    /// The product of each element of one vector with each of another, `[m]` by `[n]` to `[m, n]`, as
    /// `torch.outer`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] unless both are vectors.
    #[track_caller]
    pub fn outer(&self, other: &Self) -> Result<Self> {
        self.check_ranks("outer", other, [1, 1])?;
        self.unsqueeze(1)?.mul(other)
    }

    /// `beta self + alpha (a · b)` of matrices, as `torch.addmm`; what `self` holds does not count where
    /// `beta` is 0.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] if the shapes do not fit.
    #[track_caller]
    pub fn addmm(&self, a: &Self, b: &Self, beta: f64, alpha: f64) -> Result<Self> {
        self.plus_product(&a.mm(b)?, beta, alpha)
    }

    /// `beta self + alpha (a · b)` of stacks of matrices, as `torch.baddbmm`; what `self` holds does not
    /// count where `beta` is 0.
    ///
    /// # Errors
    /// [`crate::Error::Op`] or [`crate::Error::Usage`] if the shapes do not fit.
    #[track_caller]
    pub fn baddbmm(&self, a: &Self, b: &Self, beta: f64, alpha: f64) -> Result<Self> {
        self.plus_product(&a.bmm(b)?, beta, alpha)
    }

    #[track_caller]
    fn plus_product(&self, product: &Self, beta: f64, alpha: f64) -> Result<Self> {
        let own = self.expand(product.shape().clone())?;
        let product = product.times(alpha)?;
        if beta == 0.0 {
            return Ok(product);
        }
        own.times(beta)?.add(&product)
    }

    #[track_caller]
    fn times(&self, factor: f64) -> Result<Self> {
        if factor.to_bits() == 1.0_f64.to_bits() {
            return Ok(self.clone());
        }
        self.mul_scalar(factor)
    }

    #[track_caller]
    fn check_ranks(&self, what: &str, other: &Self, ranks: [usize; 2]) -> Result<()> {
        if [self, other].map(|tensor| tensor.shape().rank()) == ranks {
            return Ok(());
        }
        let [a, b] = ranks;
        Err(self.misfit(what, &format!("tensors of {a} and {b} dimensions"), other))
    }

    #[track_caller]
    fn misfit(&self, what: &str, expected: &str, other: &Self) -> Error {
        let (a, b) = (self.shape(), other.shape());
        let message = format!("{what}: takes {expected}, got the shapes {a} and {b}");
        usage_error(message, Location::caller())
    }
}
