//! What a file of adapters has for each layer.

use std::collections::BTreeMap;

use super::PREFIX;

/// The tensors of one layer, by their names in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// `lora_A` and `lora_B`.
    pub(super) low: [Option<String>; 2],
    /// Whether these are an embedding's.
    pub(super) is_embedding: bool,
    /// DoRA's lengths.
    pub(super) magnitude: Option<String>,
    /// What takes the place of the model's weight, and of its bias.
    pub(super) whole: [Option<String>; 2],
}

impl Part {
    /// Whether there is an adapter, or a half of one.
    pub(super) fn has_low(&self) -> bool {
        self.low.iter().any(Option::is_some) || self.magnitude.is_some()
    }
}

/// The layers of a file, by their names in the model.
///
/// # Errors
/// The first tensor that is none of a layer's.
pub(super) fn parts<'a>(
    names: impl IntoIterator<Item = &'a String>,
) -> Result<BTreeMap<String, Part>, &'a String> {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    for name in names {
        let inner = name.strip_prefix(PREFIX).ok_or(name)?;
        let found = ENDS.into_iter().find_map(|(end, place)| {
            let layer = inner.strip_suffix(end)?;
            Some((layer, place))
        });
        let (layer, place) = found
            .filter(|(layer, _)| !layer.contains(".lora_"))
            .ok_or(name)?;
        let part = parts.entry(layer.to_owned()).or_default();
        let tensor = match place {
            Place::Linear(i) => &mut part.low[i],
            Place::Embedding(i) => {
                part.is_embedding = true;
                &mut part.low[i]
            }
            Place::Magnitude => &mut part.magnitude,
            Place::Whole(i) => &mut part.whole[i],
        };
        *tensor = Some(name.clone());
    }
    Ok(parts)
}

/// What a tensor is to its layer.
#[derive(Clone, Copy)]
enum Place {
    Linear(usize),
    Embedding(usize),
    Magnitude,
    Whole(usize),
}

/// Ends of names, the longer ones first.
const ENDS: [(&str, Place); 11] = [
    (".lora_A.weight", Place::Linear(0)),
    (".lora_B.weight", Place::Linear(1)),
    (".lora_embedding_A", Place::Embedding(0)),
    (".lora_embedding_B", Place::Embedding(1)),
    (".lora_magnitude_vector.weight", Place::Magnitude),
    (".lora_magnitude_vector", Place::Magnitude),
    (".base_layer.weight", Place::Whole(0)),
    (".modules_to_save.weight", Place::Whole(0)),
    (".weight", Place::Whole(0)),
    (".modules_to_save.bias", Place::Whole(1)),
    (".bias", Place::Whole(1)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_of_layers() {
        let names = [
            "base_model.model.lm_head.base_layer.weight",
            "base_model.model.lm_head.lora_A.weight",
            "base_model.model.lm_head.lora_B.weight",
            "base_model.model.model.embed_tokens.lora_embedding_A",
            "base_model.model.model.embed_tokens.lora_magnitude_vector",
            "base_model.model.model.norm.weight",
        ]
        .map(str::to_owned);
        let found = parts(&names).unwrap();
        let head = &found["lm_head"];
        assert!(head.whole[0].is_some() && head.low.iter().all(Option::is_some));
        let table = &found["model.embed_tokens"];
        assert!(table.is_embedding && table.magnitude.is_some() && table.low[1].is_none());
        assert_eq!(found["model.norm"].whole[0].as_deref(), Some(&*names[5]));
        for name in [
            "model.q_proj.lora_A.weight",
            "base_model.model.q_proj.lora_B.bias",
            "base_model.model.q_proj.lora_E",
            "base_model.model.q_proj.token_adapter.trainable_tokens_delta",
        ] {
            assert_eq!(parts([&name.to_owned()]).unwrap_err(), name);
        }
    }
}
