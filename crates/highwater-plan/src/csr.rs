//! Lists of lists in two flat vectors.

/// Row `i` is `items[starts[i]..starts[i + 1]]`.
#[derive(Debug, Clone)]
pub(crate) struct Csr<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T> Csr<T> {
    pub(crate) fn row(&self, i: u32) -> &[T] {
        &self.items[self.range(i)]
    }

    /// Where row `i` stands in the flat list of all rows.
    pub(crate) fn range(&self, i: u32) -> std::ops::Range<usize> {
        self.starts[i as usize] as usize..self.starts[i as usize + 1] as usize
    }

    /// The items of all rows.
    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }
}

impl<T> FromIterator<Vec<T>> for Csr<T> {
    fn from_iter<I: IntoIterator<Item = Vec<T>>>(rows: I) -> Csr<T> {
        let (mut starts, mut items) = (vec![0], Vec::new());
        for row in rows {
            items.extend(row);
            starts.push(items.len() as u32);
        }
        Csr { starts, items }
    }
}
