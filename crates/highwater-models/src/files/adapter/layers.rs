//! The layers of a model, as adapters name them.

use std::collections::{BTreeMap, BTreeSet};

use highwater::nn::{LoraOptions, is_transposed, targeted};

use super::files::Part;
use super::low_rank::Side;
use super::settings::Settings;
use crate::CausalLm;
use crate::files::weights::HEAD;

/// The parameters of a model, and which of its layers may have adapters.
#[derive(Debug)]
pub(super) struct Layers {
    /// Names and shapes of the parameters.
    pub(super) expected: Vec<(String, Vec<usize>)>,
    /// The name of the token embedding.
    pub(super) embedding: &'static str,
    base: &'static str,
    /// The linear layers of its blocks.
    linear: BTreeSet<String>,
    /// Whether those hold their weights as `[in, out]`.
    is_transposed: bool,
}

impl Layers {
    pub(super) fn of(model: &dyn CausalLm) -> highwater::Result<Self> {
        let named = model.named_parameters().into_iter();
        let expected = named.map(|(name, parameter)| (name, parameter.dims().to_vec()));
        let linear = targeted(model, &LoraOptions::default())?.into_iter();
        Ok(Self {
            expected: expected.collect(),
            embedding: model.architecture().embedding_name(),
            base: model.architecture().base_prefix(),
            linear: linear.map(|(layer, _)| layer).collect(),
            is_transposed: is_transposed(model),
        })
    }

    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        let mut expected = self.expected.iter();
        let found = expected.find(|(own, _)| own == name);
        found.map(|(_, shape)| &shape[..])
    }

    /// Whether the head is the token embedding.
    pub(super) fn is_tied(&self) -> bool {
        self.shape(HEAD).is_none()
    }

    pub(super) fn is_linear(&self, layer: &str) -> bool {
        self.linear.contains(layer)
    }

    /// The layer of the head.
    pub(super) fn head() -> &'static str {
        HEAD.trim_end_matches(".weight")
    }

    /// The layer of the token embedding.
    pub(super) fn table(&self) -> &'static str {
        self.embedding.trim_end_matches(".weight")
    }

    /// Gives what a file has for layers the model's names, where those of its base model without the head are there.
    ///
    /// # Errors
    /// What is wrong with a layer that the model does not have.
    pub(super) fn named(
        &self,
        parts: BTreeMap<String, Part>,
    ) -> Result<BTreeMap<String, Part>, String> {
        let named = parts.into_iter().map(|(layer, part)| {
            let longer = format!("{}{layer}", self.base);
            let found = [&layer, &longer]
                .into_iter()
                .find(|layer| self.has(layer, &part));
            match found {
                Some(found) => Ok((found.clone(), part)),
                None => Err(format!("it has `{layer}`, which the model does not have")),
            }
        });
        named.collect()
    }

    fn has(&self, layer: &str, part: &Part) -> bool {
        let has = |end: &str| self.shape(&format!("{layer}.{end}")).is_some();
        let is_head = layer == Self::head();
        (has("weight") || is_head) && (part.whole[1].is_none() || has("bias"))
    }

    /// The side of the product that the rows of a layer's weight are.
    pub(super) fn side(&self, layer: &str, part: &Part) -> Result<Side, String> {
        let is_table = self.is_table(layer);
        if !(is_table || self.is_linear(layer) || layer == Self::head()) {
            return Err(format!("{layer} is not a layer that can have adapters"));
        }
        if is_table != part.is_embedding {
            let (found, kind) = if is_table {
                ("of a linear layer", "an embedding")
            } else {
                ("of an embedding", "a linear layer")
            };
            return Err(format!(
                "the adapter of {layer} is one {found}, and it is {kind}"
            ));
        }
        let is_transposed = self.is_transposed && self.is_linear(layer);
        Ok(if is_table || is_transposed {
            Side::Inputs
        } else {
            Side::Outputs
        })
    }

    /// Whether a layer is a table of embeddings: of tokens, or of positions.
    fn is_table(&self, layer: &str) -> bool {
        layer == self.table() || layer == "transformer.wpe"
    }

    /// Checks that each layer for which the settings say so has an adapter.
    ///
    /// # Errors
    /// Which has none.
    pub(super) fn check_complete(
        &self,
        settings: &Settings,
        parts: &BTreeMap<String, Part>,
    ) -> Result<(), String> {
        let has = |layer: &str| parts.get(layer).is_some_and(Part::has_low);
        if !parts.values().any(Part::has_low) && settings.whole.is_empty() {
            return Err("it has no adapters".to_owned());
        }
        if settings.pattern.is_some() {
            return Ok(());
        }
        let others = [Self::head(), self.table()];
        let all = self.linear.iter().map(String::as_str).chain(others);
        for layer in all {
            if settings.is_targeted(layer, self.is_linear(layer)) && !has(layer) {
                return Err(format!(
                    "{layer} has no adapter in it, though target_modules names it"
                ));
            }
        }
        Ok(())
    }
}
