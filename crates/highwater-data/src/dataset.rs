//! What answers samples by their index.

use crate::{Array, BoxError, DataError, Draws};

/// Samples by index, as `torch.utils.data.Dataset` with `__len__` and `__getitem__`. Threads ask for samples at
/// the same time.
///
/// ```
/// use highwater_data::{BoxError, Dataset, Draws};
///
/// /// Numbers and whether they are odd, with some noise.
/// struct Odd;
///
/// impl Dataset for Odd {
///     type Item = (f32, i64);
///
///     fn len(&self) -> usize {
///         1000
///     }
///
///     fn get(&self, index: usize, draws: &mut Draws) -> Result<(f32, i64), BoxError> {
///         Ok((index as f32 + draws.uniform(-0.1, 0.1), (index % 2) as i64))
///     }
/// }
/// # assert_eq!(Odd.get(3, &mut Draws::new(1, 0, 3)).unwrap().1, 1);
/// ```
pub trait Dataset: Send + Sync {
    /// A sample.
    type Item: Send;

    /// How many samples there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A sample. What is random in it comes from `draws`, which the loader makes of its seed, the epoch and the
    /// index: then neither threads nor order change anything.
    ///
    /// # Errors
    /// Any: the loader answers it with the index.
    fn get(&self, index: usize, draws: &mut Draws) -> Result<Self::Item, BoxError>;

    /// The same dataset with each sample changed by a function.
    fn map<T, F>(self, f: F) -> Map<Self, F>
    where
        Self: Sized,
        T: Send,
        F: Fn(Self::Item, &mut Draws) -> Result<T, BoxError> + Send + Sync,
    {
        Map { of: self, f }
    }

    /// The samples of some indices, as `torch.utils.data.Subset`.
    ///
    /// # Errors
    /// [`DataError::Usage`] for an index that is not there.
    fn subset(self, indices: Vec<usize>) -> Result<Subset<Self>, DataError>
    where
        Self: Sized,
    {
        let len = self.len();
        match indices.iter().find(|&&index| index >= len) {
            Some(index) => Err(DataError::Usage(format!("no sample {index} of {len}"))),
            None => Ok(Subset { of: self, indices }),
        }
    }
}

impl<D: Dataset + ?Sized> Dataset for Box<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize, draws: &mut Draws) -> Result<Self::Item, BoxError> {
        (**self).get(index, draws)
    }
}

impl<D: Dataset + ?Sized> Dataset for std::sync::Arc<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize, draws: &mut Draws) -> Result<Self::Item, BoxError> {
        (**self).get(index, draws)
    }
}

/// What [`Dataset::map`] makes.
#[derive(Debug, Clone)]
pub struct Map<D, F> {
    of: D,
    f: F,
}

impl<D, T, F> Dataset for Map<D, F>
where
    D: Dataset,
    T: Send,
    F: Fn(D::Item, &mut Draws) -> Result<T, BoxError> + Send + Sync,
{
    type Item = T;

    fn len(&self) -> usize {
        self.of.len()
    }

    fn get(&self, index: usize, draws: &mut Draws) -> Result<T, BoxError> {
        let item = self.of.get(index, draws)?;
        (self.f)(item, draws)
    }
}

/// What [`Dataset::subset`] makes.
#[derive(Debug, Clone)]
pub struct Subset<D> {
    of: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get(&self, index: usize, draws: &mut Draws) -> Result<D::Item, BoxError> {
        let at = self.indices.get(index).ok_or("no such sample")?;
        self.of.get(*at, draws)
    }
}

/// Arrays of one first extent, whose samples are what they hold at an index of it, as
/// `torch.utils.data.TensorDataset`.
#[derive(Debug, Clone)]
pub struct TensorDataset<const N: usize> {
    arrays: [Array; N],
    len: usize,
}

impl<const N: usize> TensorDataset<N> {
    /// A dataset of arrays.
    ///
    /// # Errors
    /// [`DataError::Usage`] for none, and unless their first extents are the same.
    pub fn new(arrays: [Array; N]) -> Result<Self, DataError> {
        let extents: Vec<Option<usize>> = arrays
            .iter()
            .map(|array| array.dims().first().copied())
            .collect();
        match extents.first() {
            Some(&Some(len)) if extents.iter().all(|&other| other == Some(len)) => {
                Ok(Self { arrays, len })
            }
            _ => Err(DataError::Usage(format!(
                "arrays of a dataset have one first extent, not those of {arrays:?}"
            ))),
        }
    }
}

impl<const N: usize> Dataset for TensorDataset<N> {
    type Item = [Array; N];

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize, _draws: &mut Draws) -> Result<Self::Item, BoxError> {
        let fields = self.arrays.iter().map(|array| array.index(index));
        let fields: Vec<Array> = fields.collect::<Result<_, _>>()?;
        fields.try_into().map_err(|_| "fields of a sample".into())
    }
}
