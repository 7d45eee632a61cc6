//! Lists of lists in two flat vectors.

use crate::problem::{NodeId, ValueId};
use std::marker::PhantomData;

/// What numbers rows.
pub(crate) trait Row {
    fn at(self) -> usize;
}

impl Row for NodeId {
    fn at(self) -> usize {
        self.index()
    }
}

impl Row for ValueId {
    fn at(self) -> usize {
        self.index()
    }
}

/// Steps are numbers.
impl Row for u32 {
    fn at(self) -> usize {
        self as usize
    }
}

/// Row `i` is `items[starts[i]..starts[i + 1]]`.
#[derive(Debug, Clone)]
pub(crate) struct Csr<I, T> {
    starts: Vec<u32>,
    items: Vec<T>,
    rows: PhantomData<I>,
}

impl<I: Row, T> Csr<I, T> {
    pub(crate) fn row(&self, i: I) -> &[T] {
        &self.items[self.range(i)]
    }

    /// Where row `i` stands in the flat list of all rows.
    pub(crate) fn range(&self, i: I) -> std::ops::Range<usize> {
        let at = i.at();
        self.starts[at] as usize..self.starts[at + 1] as usize
    }

    /// The items of all rows.
    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }
}

impl<I, T> FromIterator<Vec<T>> for Csr<I, T> {
    fn from_iter<R: IntoIterator<Item = Vec<T>>>(rows: R) -> Csr<I, T> {
        let (mut starts, mut items) = (vec![0], Vec::new());
        for row in rows {
            items.extend(row);
            starts.push(items.len() as u32);
        }
        let rows = PhantomData;
        Csr {
            starts,
            items,
            rows,
        }
    }
}
