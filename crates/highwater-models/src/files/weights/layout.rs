//! Which tensors of a folder's files are a model's, and what else is there.

use std::collections::{BTreeMap, BTreeSet};

use super::folder::Stored;
use super::{WeightsError, WeightsFolder, WeightsProblem, float_bytes};
use crate::Architecture;

/// The head of a language model that has one of its own.
pub(crate) const HEAD: &str = "lm_head.weight";
/// Buffers that older versions of transformers saved, whatever the family; what is computed does not depend on them.
const BUFFERS: [&str; 2] = ["rotary_emb.inv_freq", "position_ids"];
/// The same of GPT-2: masks of attention.
const MASKS: [&str; 3] = [".attn.bias", ".attn.masked_bias", ".crossattention.bias"];
/// Elements of a tensor that are compared at once, about.
const PIECE: usize = 1 << 18;

/// What the tensors of a model are called in the files of its folder. Made from headers alone, before anything is
/// loaded: a folder that has less than the model needs, or more than its configuration uses, is refused.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// By the model's names, the names in files that differ from them.
    renamed: BTreeMap<String, String>,
    /// Tensors that the model has no place for.
    unread: Vec<String>,
    /// The token embedding by its name in the files, where they have the tied head too.
    tied: Option<String>,
}

/// The names of one family, and how many layers a model has.
struct Family<'a> {
    base: &'a str,
    layers: &'a str,
    embedding: &'a str,
    depth: usize,
    /// Whether names in the files begin with `base`.
    has_base: bool,
}

impl Family<'_> {
    /// The model's name of a tensor in the files.
    fn full(&self, stored: &str) -> String {
        if self.has_base || stored == HEAD {
            stored.to_owned()
        } else {
            format!("{}{stored}", self.base)
        }
    }

    /// The number of the layer that a tensor belongs to.
    fn layer(&self, name: &str) -> Option<usize> {
        let (number, _) = name.strip_prefix(self.layers)?.split_once('.')?;
        number.parse().ok()
    }

    fn is_harmless(&self, name: &str) -> bool {
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        ends(&BUFFERS) || self.layers.ends_with("h.") && ends(&MASKS)
    }
}

impl Layout {
    /// Finds the tensors of a model, given by name and shape.
    ///
    /// # Errors
    /// [`WeightsError`] for tensors that are missing, have another shape or hold no floats; for more or fewer layers
    /// than the configuration has, and for parameters of its layers that it does not describe.
    pub fn of(
        weights: &mut WeightsFolder<'_>,
        architecture: &dyn Architecture,
        expected: &[(String, Vec<usize>)],
    ) -> Result<Self, WeightsError> {
        let found = weights.look_over()?;
        let base = architecture.base_prefix();
        let family = Family {
            base,
            layers: architecture.layer_prefix(),
            embedding: architecture.embedding_name(),
            depth: architecture.depth(),
            has_base: found.keys().any(|name| name.starts_with(base)),
        };
        let place = weights.place();
        let layout =
            Self::named(&found, &family, expected).map_err(|problem| problem.at(&place))?;
        for (name, shape) in expected {
            let stored = layout.stored(name);
            // It is there: all of them are.
            let Some(Stored { info, path }) = found.get(stored) else {
                continue;
            };
            let tensor = stored.to_owned();
            let problem = if info.shape != *shape {
                let (expected, found) = (shape.clone(), info.shape.clone());
                WeightsProblem::Shape {
                    tensor,
                    expected,
                    found,
                }
            } else if float_bytes(info.dtype).is_none() {
                let dtype = info.dtype;
                WeightsProblem::NotFloat { tensor, dtype }
            } else {
                continue;
            };
            return Err(problem.at(path));
        }
        Ok(layout)
    }

    fn named(
        found: &BTreeMap<String, Stored>,
        family: &Family<'_>,
        expected: &[(String, Vec<usize>)],
    ) -> Result<Self, WeightsProblem> {
        let mut layout = Self::default();
        let is_tied = expected.iter().all(|(name, _)| name != HEAD);
        let (mut used, mut missing) = (BTreeSet::new(), Vec::new());
        for (name, _) in expected {
            let short = name.strip_prefix(family.base).filter(|_| !family.has_base);
            let stored = short.unwrap_or(name);
            let is_embedding = is_tied && name == family.embedding;
            // Of two names of one tensor, some programs keep the one that sorts first.
            let stored = match found.contains_key(stored) {
                false if is_embedding && found.contains_key(HEAD) => HEAD,
                false => {
                    missing.push(name);
                    continue;
                }
                true => stored,
            };
            if is_embedding && stored != HEAD && found.contains_key(HEAD) {
                layout.tied = Some(stored.to_owned());
                used.insert(HEAD);
            }
            used.insert(stored);
            if stored != name {
                layout.renamed.insert(name.clone(), stored.to_owned());
            }
        }
        let deepest = found
            .keys()
            .filter_map(|name| family.layer(&family.full(name)));
        let deepest = deepest.max().map_or(0, |last| last + 1);
        if let Some(first) = missing.first() {
            let beyond = |name: &&&String| family.layer(name).is_some_and(|layer| layer >= deepest);
            if deepest > 0 && missing.iter().all(|name| beyond(&name)) {
                return Err(WeightsProblem::TooFewLayers {
                    described: family.depth,
                    stored: deepest,
                });
            }
            return Err(WeightsProblem::MissingSome {
                tensor: (*first).clone(),
                others: missing.len() - 1,
            });
        }
        let (mut beyond, mut undescribed) = (Vec::new(), Vec::new());
        for stored in found.keys().filter(|name| !used.contains(&***name)) {
            let name = family.full(stored);
            let is_parameter = matches!(name.rsplit_once('.'), Some((_, "weight" | "bias")));
            match family.layer(&name) {
                _ if family.is_harmless(&name) => {}
                Some(layer) if layer >= family.depth => beyond.push(stored),
                Some(_) if is_parameter => undescribed.push(stored),
                _ => layout.unread.push(stored.clone()),
            }
        }
        if let Some(first) = beyond.first() {
            return Err(WeightsProblem::TooManyLayers {
                described: family.depth,
                stored: deepest,
                tensors: beyond.len(),
                tensor: (*first).clone(),
            });
        }
        if let Some(first) = undescribed.first() {
            return Err(WeightsProblem::Undescribed {
                tensor: (*first).clone(),
                others: undescribed.len() - 1,
            });
        }
        Ok(layout)
    }

    /// What a tensor of the model is called in the files.
    pub fn stored<'a>(&'a self, name: &'a str) -> &'a str {
        self.renamed.get(name).map_or(name, String::as_str)
    }

    /// The tensors in the files that the model has no place for: nothing reads them, as in transformers.
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    /// A note about [`Layout::unread`], if there are some.
    pub fn note(&self) -> Option<String> {
        let first = self.unread.first()?;
        let count = match self.unread.len() {
            1 => "1 tensor of the weights is not read".to_owned(),
            count => format!("{count} tensors of the weights are not read"),
        };
        Some(format!(
            "note: {count}, such as `{first}`: the model that config.json describes has no place for it"
        ))
    }

    /// Checks that a head which the configuration says is the token embedding is that in the files too, where they
    /// have both. Reads both.
    ///
    /// # Errors
    /// [`WeightsError`] where it is not, and for files that cannot be read.
    pub fn check_tied(&self, weights: &mut WeightsFolder<'_>) -> Result<(), WeightsError> {
        match &self.tied {
            Some(embedding) if !are_equal(weights, [HEAD, embedding])? => {
                Err(WeightsProblem::Untied.at(&weights.place()))
            }
            _ => Ok(()),
        }
    }
}

/// Whether two tensors are the same, number for number.
pub(crate) fn are_equal(
    weights: &mut WeightsFolder<'_>,
    names: [&str; 2],
) -> Result<bool, WeightsError> {
    let mut shape = |name: &str| {
        let info = weights.reader(name)?.tensors().get(name).cloned();
        Ok::<_, WeightsError>(info.map(|info| info.shape))
    };
    let shapes = [shape(names[0])?, shape(names[1])?];
    let [Some(one), Some(other)] = &shapes else {
        return Ok(false);
    };
    let (true, &[rows, width]) = (one == other, &one[..]) else {
        return Ok(false);
    };
    let at_once = (PIECE / width.max(1)).clamp(1, rows.max(1));
    let mut values = [(); 2].map(|()| vec![0.0; at_once * width]);
    for first in (0..rows).step_by(at_once) {
        let count = at_once.min(rows - first) * width;
        for (name, values) in names.into_iter().zip(&mut values) {
            let reader = weights.reader(name)?;
            reader.read_f32_rows(name, [rows, width], first, &mut values[..count])?;
        }
        let [one, other] = &values;
        let mut pairs = one[..count].iter().zip(&other[..count]);
        if pairs.any(|(a, b)| a.to_bits() != b.to_bits()) {
            return Ok(false);
        }
    }
    Ok(true)
}
