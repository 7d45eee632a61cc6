//! `einsum`: sums of products whose dimensions are named by letters.
//!
//! An equation becomes views, sums and matrix products, two tensors at a time from the left: what
//! [`Tensor::matmul`] and its neighbours can do, no operation of its own.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use highwater_graph::Location;
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// The name of a dimension: a letter, or a place under the ellipsis, counted from its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(usize),
    Letter(char),
}

type Labels = SmallVec<[Label; 8]>;

/// A tensor and what its dimensions are called.
struct Named {
    tensor: Tensor,
    labels: Labels,
}

impl Tensor {
    /// Sums of products of tensors whose dimensions are named by letters, as `torch.einsum`:
    /// `einsum("bik,bkj->bij", &[&a, &b])`.
    ///
    /// A letter that the result has not is summed over. Without an arrow, the result has the letters that
    /// come up once, in alphabetical order. `...` stands for further dimensions, which broadcast; so do
    /// extents of 1. A letter twice in one tensor is its diagonal. Products are taken from the left to the
    /// right.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for an equation that is none, or that does not fit the shapes; what the
    /// operations refuse.
    #[track_caller]
    pub fn einsum<T: Borrow<Self>>(equation: &str, operands: &[T]) -> Result<Self> {
        let location = Location::caller();
        let refused = |why: String| usage_error(format!("einsum `{equation}`: {why}"), location);
        let tensors: SmallVec<[&Self; 4]> = operands.iter().map(Borrow::borrow).collect();
        let (inputs, output) = parse(equation, &tensors).map_err(refused)?;
        let extents = extents(&inputs, &tensors).map_err(refused)?;
        location.at(|| {
            let pairs = tensors.iter().zip(inputs);
            let named = pairs.map(|(tensor, labels)| Named::new(tensor, labels, &extents));
            let mut left: Vec<Named> = named.collect::<Result<_>>()?;
            left.reverse();
            let Some(mut product) = left.pop() else {
                return Err(refused("takes one tensor or more".to_owned()));
            };
            while let Some(next) = left.pop() {
                let later = left.iter().flat_map(|named| &named.labels);
                let kept: Labels = output.iter().chain(later).copied().collect();
                product = product.times(next, &kept)?;
            }
            product.without_others(&output)?.ordered(&output)
        })
    }
}

impl Named {
    /// With one dimension for each letter: diagonals of those that come up twice, and nothing of those
    /// of extent 1 that are longer elsewhere.
    fn new(tensor: &Tensor, mut labels: Labels, extents: &BTreeMap<Label, usize>) -> Result<Self> {
        let mut tensor = tensor.clone();
        let twice = |labels: &Labels| {
            let places = 0..labels.len();
            let mut pairs = places.flat_map(|b| (0..b).map(move |a| (a, b)));
            pairs.find(|&(a, b)| labels[a] == labels[b])
        };
        while let Some((a, b)) = twice(&labels) {
            tensor = tensor.diagonal(0, a, b)?;
            let label = labels.remove(b);
            labels.remove(a);
            labels.push(label);
        }
        for dim in (0..labels.len()).rev() {
            if tensor.dims()[dim] == 1 && extents.get(&labels[dim]) != Some(&1) {
                tensor = tensor.squeeze(dim)?;
                labels.remove(dim);
            }
        }
        Ok(Self { tensor, labels })
    }

    /// The product with another, summed over what both have and nobody keeps.
    fn times(self, other: Self, kept: &Labels) -> Result<Self> {
        let both = |label: &Label| self.labels.contains(label) && other.labels.contains(label);
        let shared: Labels = self.labels.iter().copied().filter(both).collect();
        let either: Labels = kept.iter().chain(&shared).copied().collect();
        let (a, b) = (
            self.without_others(&either)?,
            other.without_others(&either)?,
        );
        let (batch, summed): (Labels, Labels) = shared
            .iter()
            .copied()
            .partition(|label| kept.contains(label));
        let alone = |named: &Self| -> Labels {
            let own = named.labels.iter().copied();
            own.filter(|label| !shared.contains(label)).collect()
        };
        let (left, right) = (alone(&a), alone(&b));
        let labels: Labels = [&batch, &left, &right]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        let shape: SmallVec<[usize; 8]> = (labels.iter())
            .map(|&label| a.extent(label).or(b.extent(label)).unwrap_or(1))
            .collect();
        let a = a.grouped([&batch, &left, &summed])?;
        let b = b.grouped([&batch, &summed, &right])?;
        let product = match (summed.is_empty(), batch.is_empty()) {
            (true, _) => a.mul(&b)?,
            (false, true) => a.squeeze(0)?.matmul(&b.squeeze(0)?)?,
            (false, false) => a.matmul(&b)?,
        };
        let tensor = product.reshape(&shape[..])?;
        Ok(Self { tensor, labels })
    }

    fn extent(&self, label: Label) -> Option<usize> {
        let dim = self.labels.iter().position(|&own| own == label)?;
        Some(self.tensor.dims()[dim])
    }

    /// Summed over all dimensions but these.
    fn without_others(self, kept: &Labels) -> Result<Self> {
        let others = |&dim: &usize| !kept.contains(&self.labels[dim]);
        let summed: SmallVec<[usize; 8]> = (0..self.labels.len()).filter(others).collect();
        if summed.is_empty() {
            return Ok(self);
        }
        let tensor = self.tensor.sum_dims(&summed, false)?;
        let mut labels = self.labels;
        labels.retain(|label| kept.contains(label));
        Ok(Self { tensor, labels })
    }

    /// The dimensions in this order.
    fn ordered(&self, labels: &[Label]) -> Result<Tensor> {
        let place = |label| self.labels.iter().position(|own| own == label);
        let order: SmallVec<[usize; 8]> = labels.iter().filter_map(place).collect();
        self.tensor.permute(&order)
    }

    /// The dimensions in three groups, each as one.
    fn grouped(&self, groups: [&Labels; 3]) -> Result<Tensor> {
        let order: Labels = groups.iter().copied().flatten().copied().collect();
        let extents = groups.map(|group| {
            let extents = group.iter().filter_map(|&label| self.extent(label));
            extents.product::<usize>()
        });
        self.ordered(&order)?.reshape(extents)
    }
}

/// What the dimensions of the inputs and those of the result are called.
fn parse(equation: &str, tensors: &[&Tensor]) -> Result<(Vec<Labels>, Labels), String> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != tensors.len() {
        return Err(format!(
            "is for {} tensors, not {}",
            terms.len(),
            tensors.len()
        ));
    }
    let pairs = terms.iter().zip(tensors);
    let inputs = pairs.map(|(term, tensor)| {
        let rank = tensor.shape().rank();
        let letters = term.replace("...", "").len();
        let has_ellipsis = term.contains("...");
        match rank.checked_sub(letters) {
            Some(0) => labels(term, 0),
            Some(more) if has_ellipsis => labels(term, more),
            _ => Err(format!(
                "`{term}` does not name the dimensions of shape {}",
                tensor.shape()
            )),
        }
    });
    let inputs: Vec<Labels> = inputs.collect::<Result<_, String>>()?;
    let all = || inputs.iter().flatten().copied();
    let hidden = |label: &Label| matches!(label, Label::Ellipsis(_));
    let under_ellipsis = all().filter(hidden).collect::<BTreeSet<_>>().len();
    let output = if let Some(right) = right {
        labels(right, under_ellipsis)?
    } else {
        let mut counts = BTreeMap::<Label, usize>::new();
        for label in all() {
            *counts.entry(label).or_default() += 1;
        }
        let once = counts
            .into_iter()
            .filter(|(label, count)| !hidden(label) && *count == 1);
        let letters = once.map(|(label, _)| label);
        let ellipsis = (0..under_ellipsis).rev().map(Label::Ellipsis);
        ellipsis.chain(letters).collect()
    };
    for (i, label) in output.iter().enumerate() {
        if output[..i].contains(label) {
            return Err(format!("the result has {label} twice"));
        }
        if !all().any(|own| own == *label) {
            return Err(format!("the result has {label}, which no tensor has"));
        }
    }
    Ok((inputs, output))
}

/// The labels of a term, whose ellipsis stands for `more` dimensions.
fn labels(term: &str, more: usize) -> Result<Labels, String> {
    let (before, after) = term.split_once("...").unwrap_or((term, ""));
    let letters = |part: &str| -> Result<Labels, String> {
        let label = |c: char| match c {
            'a'..='z' | 'A'..='Z' => Ok(Label::Letter(c)),
            _ => Err(format!("`{c}` in `{term}` is no letter")),
        };
        part.chars().map(label).collect()
    };
    let hidden = (0..more).rev().map(Label::Ellipsis);
    let hidden = hidden.take(if term.contains("...") { more } else { 0 });
    Ok(letters(before)?
        .into_iter()
        .chain(hidden)
        .chain(letters(after)?)
        .collect())
}

/// The extent of each label: the one that is not 1, if any is not.
fn extents(inputs: &[Labels], tensors: &[&Tensor]) -> Result<BTreeMap<Label, usize>, String> {
    let mut extents = BTreeMap::new();
    for (labels, tensor) in inputs.iter().zip(tensors) {
        for (&label, &extent) in labels.iter().zip(tensor.dims()) {
            let known = extents.entry(label).or_insert(extent);
            if *known == 1 {
                *known = extent;
            } else if extent != 1 && extent != *known {
                return Err(format!("{label} has extents {known} and {extent}"));
            }
        }
    }
    // A diagonal is of one extent.
    for (labels, tensor) in inputs.iter().zip(tensors) {
        let own = || labels.iter().zip(tensor.dims());
        for (label, extent) in own() {
            if let Some((_, other)) = own().find(|(l, other)| *l == label && *other != extent) {
                return Err(format!(
                    "{label} has extents {other} and {extent} in one tensor"
                ));
            }
        }
    }
    Ok(extents)
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ellipsis(_) => f.write_str("a dimension under `...`"),
            Self::Letter(letter) => write!(f, "`{letter}`"),
        }
    }
}
