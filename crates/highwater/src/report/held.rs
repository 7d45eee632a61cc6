//! Who holds the bytes of the process at one moment of a plan.

use super::names;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Who holds the bytes at one moment, three ways.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// By category, largest first; together all bytes of the process. `rounding` is what lies
    /// unused between buffers and at the end of pages.
    pub kinds: Vec<Holder>,
    /// By layer, largest first: what belongs to a module, in the arena or as state.
    pub layers: Vec<Layer>,
    /// By the operation that made the value, largest first: what is in the arena.
    pub operations: Vec<Holder>,
}

/// Values of one kind that are held together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Category, or category and operation, such as `activation of gelu`.
    pub what: String,
    /// Bytes together.
    pub bytes: u64,
    /// How many values.
    pub values: u32,
}

/// What belongs to a layer, or to layers that differ by their number alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Path of the module, such as `transformer.h.[0-11]`; empty outside any.
    pub module: String,
    /// How many layers.
    pub layers: u32,
    /// Bytes together.
    pub bytes: u64,
    /// Of those: parameters, moments and gradients that outlive the plan.
    pub state_bytes: u64,
    /// Bytes of the layer that has least.
    pub least_bytes: u64,
    /// Bytes of the layer that has most.
    pub most_bytes: u64,
    /// The layer that has most.
    pub most_in: String,
}

/// Sums bytes under names.
#[derive(Default)]
pub(super) struct Sums(BTreeMap<String, (u64, u32)>);

impl Sums {
    pub(super) fn add(&mut self, what: String, bytes: u64) {
        let sum = self.0.entry(what).or_default();
        *sum = (sum.0 + bytes, sum.1 + 1);
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().map(|sum| sum.0).sum()
    }

    pub(super) fn list(self) -> Vec<Holder> {
        let holder = |(what, (bytes, values))| Holder {
            what,
            bytes,
            values,
        };
        let sums = self.0.into_iter().filter(|(_, sum)| sum.0 > 0);
        let mut list: Vec<Holder> = sums.map(holder).collect();
        list.sort_by_key(|holder| Reverse(holder.bytes));
        list
    }
}

/// Bytes of each layer: all, and of those the state.
pub(super) type Layers = BTreeMap<String, (u64, u64)>;

/// Brings layers together that differ by their number alone.
pub(super) fn grouped(layers: &Layers) -> Vec<Layer> {
    let mut groups: BTreeMap<String, Vec<(Option<u32>, &String)>> = BTreeMap::new();
    for name in layers.keys() {
        let (pattern, number) = names::pattern(name);
        groups.entry(pattern).or_default().push((number, name));
    }
    let mut list = Vec::new();
    for (pattern, mut members) in groups {
        members.sort_unstable();
        let bytes = |member: &(Option<u32>, &String)| layers[member.1].0;
        let Some(most) = members.iter().max_by_key(|member| bytes(member)) else {
            continue;
        };
        list.push(Layer {
            module: names::join(&pattern, members.iter().filter_map(|member| member.0)),
            layers: members.len() as u32,
            bytes: members.iter().map(bytes).sum(),
            state_bytes: members.iter().map(|member| layers[member.1].1).sum(),
            least_bytes: members.iter().map(bytes).min().unwrap_or(0),
            most_bytes: bytes(most),
            most_in: most.1.clone(),
        });
    }
    list.sort_by_key(|layer| Reverse(layer.bytes));
    list
}
