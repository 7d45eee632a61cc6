//! What the blocks of decoders are told of rows of tokens: where each token stands, and which it must not see.

use std::sync::{Mutex, PoisonError};

use highwater::{DType, Engine, Result, Tensor};

use crate::language::cache::{Cached, CachedLayer};
use crate::language::causal::Packed;
use crate::language::rope::Rope;

/// Cosines and sines, for each way to rotate.
type Rotations = Vec<[Tensor; 2]>;

/// Cosines and sines of the positions `[T, R / 2]` of a sequence: those of the last length are kept. Where factors
/// depend on how long a sequence is (LongRoPE), there may be two kinds of them.
#[derive(Debug, Default)]
pub(super) struct Tables(Mutex<Vec<Table>>);

/// Those of one length.
#[derive(Debug)]
struct Table {
    length: usize,
    /// For each way to rotate, whether it has the factors of long sequences.
    long: Vec<bool>,
    rotations: Rotations,
}

/// Rows of one length.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    /// Those of the tokens' positions: `[T, R / 2]`, or `[B, 1, T, R / 2]` where rows differ.
    pub(super) rotations: Rotations,
    /// If there may be several in a row.
    pub(super) documents: Option<Documents>,
    /// If keys and values are kept.
    cached: Option<&'a Cached<'a>>,
}

/// Documents that lie one after the other.
#[derive(Debug)]
pub(super) struct Documents {
    /// Theirs, `[B, N]`.
    pub(super) lengths: Tensor,
    /// Whether tokens are of two documents, `[B, 1, 1, T, T]`: for attention that has its scores in memory.
    pub(super) apart: Option<Tensor>,
}

impl Tables {
    pub(super) fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Those of `length` positions, of sequences of `seen` tokens.
    pub(super) fn of(
        &self,
        engine: &Engine,
        ropes: &[Rope],
        [length, seen]: [usize; 2],
    ) -> Result<Rotations> {
        let is_long = |rope: &Rope| rope.switches_behind().is_some_and(|short| seen > short);
        let long: Vec<bool> = ropes.iter().map(is_long).collect();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Before there is room for others.
        kept.retain(|table| table.length == length);
        if let Some(table) = kept.iter().find(|table| table.long == long) {
            return Ok(table.rotations.clone());
        }
        let rotation = |rope: &Rope| {
            let [cos, sin] = rope.tables(length, seen);
            let shape = [length, rope.width / 2];
            Ok([
                Tensor::from_slice(engine, &cos, shape)?,
                Tensor::from_slice(engine, &sin, shape)?,
            ])
        };
        let rotations = ropes.iter().map(rotation).collect::<Result<Rotations>>()?;
        kept.push(Table {
            length,
            long,
            rotations: rotations.clone(),
        });
        Ok(rotations)
    }
}

/// The tables' rows of some positions `[B, T]`.
fn rotated(tables: &[[Tensor; 2]], positions: &Tensor) -> Result<Rotations> {
    let of = |table: &Tensor| table.embedding(positions)?.unsqueeze(1);
    let rotations = tables.iter().map(|[cos, sin]| Ok([of(cos)?, of(sin)?]));
    rotations.collect()
}

impl<'a> Rows<'a> {
    /// Each of them one document.
    pub(super) fn whole(rotations: Rotations) -> Self {
        Self {
            rotations,
            documents: None,
            cached: None,
        }
    }

    /// A document of which keys and values are kept, with the tables of its length.
    pub(super) fn cached(tables: Rotations, cached: &'a Cached<'a>) -> Result<Self> {
        let rotations = match cached.position() {
            Some(position) => rotated(&tables, position)?,
            None => tables,
        };
        Ok(Self {
            rotations,
            documents: None,
            cached: Some(cached),
        })
    }

    /// What a layer keeps, by its number, if anything is kept.
    pub(super) fn kept(&self, index: usize) -> Result<Option<CachedLayer<'_>>> {
        self.cached.map(|cached| cached.layer(index)).transpose()
    }

    /// Of several documents each, with the tables of a row: what all blocks read is made once.
    pub(super) fn packed(
        tables: &[[Tensor; 2]],
        packed: &Packed<'_>,
        has_scores: bool,
    ) -> Result<Self> {
        let apart = has_scores.then(|| apart(packed.positions)).transpose()?;
        let rotations = rotated(tables, packed.positions)?;
        Ok(Self {
            rotations,
            documents: Some(Documents {
                lengths: packed.lengths.clone(),
                apart,
            }),
            cached: None,
        })
    }
}

/// Of tables for short sequences and for long ones, those that a batch has: as in Hugging Face, its longest document
/// decides. It is read when the step runs: one plan holds for any.
pub(super) fn of_longest(
    ropes: &[Rope],
    [short, long]: [Rotations; 2],
    packed: &Packed<'_>,
) -> Result<Rotations> {
    let longest = packed.lengths.to_dtype(DType::I64)?.amax(&[0, 1], true)?;
    let tables = ropes.iter().zip(short.iter().zip(&long));
    let tables = tables.map(|(rope, (short, long))| {
        let Some(last) = rope.switches_behind() else {
            return Ok(long.clone());
        };
        let last = Tensor::full(packed.lengths.engine(), [1, 1], last as f64, DType::I64)?;
        let is_long = longest.gt(&last)?;
        let of = |i: usize| Tensor::where_(&is_long, &long[i], &short[i]);
        Ok([of(0)?, of(1)?])
    });
    tables.collect()
}

/// Whether tokens at these positions `[B, T]` of their documents are of two: their documents begin elsewhere.
fn apart(positions: &Tensor) -> Result<Tensor> {
    let length = positions.dims().last().copied().unwrap_or(0);
    let places = Tensor::arange(positions.engine(), 0.0, length as f64, 1.0, DType::I64)?;
    let starts = places.sub(positions)?.unsqueeze(1)?.unsqueeze(1)?;
    starts.unsqueeze(-1)?.ne(&starts.unsqueeze(-2)?)
}
