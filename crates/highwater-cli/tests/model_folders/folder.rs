//! Small model folders of several families, before and while something in them is made wrong.

use std::collections::BTreeMap;
use std::path::Path;

use highwater::{Engine, Module, philox};
use highwater_models::{Architecture, DecoderConfig, Gpt2Config};
use serde_json::{Map, Value, json};

use crate::byte_tokenizer;

/// What is made of each.
pub(crate) const FAMILIES: [&str; 10] = [
    "llama", "tied", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "smollm3", "gpt2",
];
pub(crate) const HEAD: &str = "lm_head.weight";

/// A tensor: dtype, shape, bytes.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    pub(crate) fn zeros(dtype: &'static str, width: usize, shape: &[usize]) -> Self {
        Self {
            dtype,
            shape: shape.to_vec(),
            bytes: vec![0; width * shape.iter().product::<usize>()],
        }
    }

    pub(crate) fn values(&self) -> Vec<f32> {
        let (words, _) = self.bytes.as_chunks();
        words.iter().map(|&word| f32::from_le_bytes(word)).collect()
    }
}

/// What is done with the folder once it is written.
type Afterwards = std::sync::Arc<dyn Fn(&Path) + Send + Sync>;

/// A folder.
#[derive(Clone)]
pub(crate) struct Folder {
    pub(crate) family: &'static str,
    /// What is drawn from.
    pub(crate) seed: u64,
    pub(crate) config: Map<String, Value>,
    /// Instead of `config`.
    pub(crate) config_text: Option<Vec<u8>>,
    pub(crate) tensors: BTreeMap<String, Tensor>,
    /// How many files of weights there are.
    pub(crate) shards: usize,
    /// What is done with the index.
    pub(crate) index: Option<fn(&mut Map<String, Value>)>,
    pub(crate) data: &'static str,
    pub(crate) afterwards: Vec<Afterwards>,
}

fn config(family: &str) -> Value {
    let mut all = json!({"model_type": family, "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "torch_dtype": "float32", "pad_token_id": null,
        "bos_token_id": 0, "eos_token_id": 1});
    let own = match family {
        "tied" => json!({"model_type": "llama", "tie_word_embeddings": true}),
        "qwen2" => json!({"tie_word_embeddings": true}),
        "qwen3" => json!({"head_dim": 16}),
        "gemma" | "gemma2" => {
            json!({"head_dim": 16, "tie_word_embeddings": true, "query_pre_attn_scalar": 16})
        }
        "smollm3" => json!({"no_rope_layers": [1, 0]}),
        "gpt2" => {
            return json!({"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 32, "n_layer": 2,
                "n_head": 4, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "float32"});
        }
        _ => json!({}),
    };
    for (name, value) in own.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

impl Folder {
    /// One that is right.
    pub(crate) fn of(family: &'static str) -> Self {
        let config = config(family);
        let text = config.to_string();
        let architecture: Box<dyn Architecture> = match family {
            "gpt2" => Box::new(Gpt2Config::from_json(&text).unwrap()),
            _ => Box::new(DecoderConfig::from_json(&text).unwrap()),
        };
        let engine = Engine::builder().threads(1).seed(3).build().unwrap();
        let model = architecture.build(&engine).unwrap();
        let named = model.named_parameters().into_iter();
        let tensors = named.map(|(name, parameter)| {
            let values: Vec<f32> = parameter.to_vec().unwrap();
            // Exact in half precision, too.
            let bytes = values.iter().flat_map(|x| {
                let bits = (x * 5.0).to_bits() & 0xffff_0000;
                bits.to_le_bytes()
            });
            let (shape, bytes) = (parameter.dims().to_vec(), bytes.collect());
            let dtype = "F32";
            (
                name,
                Tensor {
                    dtype,
                    shape,
                    bytes,
                },
            )
        });
        Self {
            family,
            seed: 0,
            tensors: tensors.collect(),
            config: config.as_object().unwrap().clone(),
            config_text: None,
            shards: 1,
            index: None,
            data: "ids.jsonl",
            afterwards: Vec::new(),
        }
    }

    /// A number below a bound, another one for each use.
    pub(crate) fn draw(&self, of: u64, below: usize) -> usize {
        let mut drawn = [0];
        philox::fill_integers(self.seed, of << 32, (0, below as i64), &mut drawn);
        drawn[0] as usize
    }

    /// The name of a tensor of a kind.
    pub(crate) fn any(&self, is: impl Fn(&str, &Tensor) -> bool) -> String {
        let all = self
            .tensors
            .iter()
            .filter(|(name, tensor)| is(name, tensor));
        let all: Vec<&String> = all.map(|(name, _)| name).collect();
        all[self.draw(1, all.len())].clone()
    }

    pub(crate) fn is_tied(&self) -> bool {
        !self.tensors.contains_key(HEAD)
    }

    pub(crate) fn is_gpt2(&self) -> bool {
        self.family == "gpt2"
    }

    pub(crate) fn base(&self) -> &'static str {
        if self.is_gpt2() {
            "transformer."
        } else {
            "model."
        }
    }

    pub(crate) fn layers(&self) -> &'static str {
        if self.is_gpt2() {
            "transformer.h."
        } else {
            "model.layers."
        }
    }

    pub(crate) fn embedding(&self) -> &'static str {
        if self.is_gpt2() {
            "transformer.wte.weight"
        } else {
            "model.embed_tokens.weight"
        }
    }

    pub(crate) fn field(&self, llama: &'static str) -> &'static str {
        match llama {
            _ if !self.is_gpt2() => llama,
            "hidden_size" => "n_embd",
            "num_hidden_layers" => "n_layer",
            "num_attention_heads" => "n_head",
            "max_position_embeddings" => "n_positions",
            "intermediate_size" => "n_inner",
            other => other,
        }
    }

    pub(crate) fn then(&mut self, what: impl Fn(&Path) + Send + Sync + 'static) {
        self.afterwards.push(std::sync::Arc::new(what));
    }

    /// Writes it and data for it: the folder is `m`.
    pub(crate) fn write(&self, dir: &Path) {
        let folder = dir.join("m");
        std::fs::create_dir(&folder).unwrap();
        let text = Value::from(self.config.clone()).to_string();
        let text = self.config_text.clone().unwrap_or(text.into_bytes());
        std::fs::write(folder.join("config.json"), text).unwrap();
        std::fs::write(
            folder.join("tokenizer.json"),
            byte_tokenizer::json(&["<s>", "</s>"]),
        )
        .unwrap();
        let template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}";
        std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
        self.write_weights(&folder);
        let ids: Vec<usize> = (0..60).map(|i| 2 + i * 7 % 290).collect();
        let chat = json!({"messages": [{"role": "user", "content": "how deep"},
            {"role": "assistant", "content": "three feet"}]});
        for (name, record) in [
            ("ids.jsonl", json!({"input_ids": ids})),
            (
                "text.jsonl",
                json!({"text": "the river runs over the stones"}),
            ),
            ("chat.jsonl", chat),
        ] {
            std::fs::write(dir.join(name), format!("{record}\n")).unwrap();
        }
        for what in &self.afterwards {
            what(&folder);
        }
    }

    fn write_weights(&self, folder: &Path) {
        let names: Vec<&String> = self.tensors.keys().collect();
        if self.shards == 1 {
            let all = self.tensors.iter().collect();
            std::fs::write(folder.join("model.safetensors"), safetensors(all)).unwrap();
            return;
        }
        let mut map = Map::new();
        for (i, part) in names.chunks(names.len().div_ceil(self.shards)).enumerate() {
            let file = shard(i, self.shards);
            let tensors = part.iter().map(|name| (*name, &self.tensors[*name]));
            std::fs::write(folder.join(&file), safetensors(tensors.collect())).unwrap();
            for name in part {
                map.insert((*name).clone(), file.clone().into());
            }
        }
        if let Some(change) = self.index {
            change(&mut map);
        }
        let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
        std::fs::write(
            folder.join("model.safetensors.index.json"),
            index.to_string(),
        )
        .unwrap();
    }
}

pub(crate) fn shard(i: usize, of: usize) -> String {
    format!("model-{:05}-of-{of:05}.safetensors", i + 1)
}

/// A file of weights.
pub(crate) fn safetensors(tensors: Vec<(&String, &Tensor)>) -> Vec<u8> {
    let (mut header, mut at) = (Map::new(), 0);
    for (name, tensor) in &tensors {
        let end = at + tensor.bytes.len();
        let entry =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end]});
        header.insert((*name).clone(), entry);
        at = end;
    }
    let mut header = Value::from(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    for (_, tensor) in tensors {
        file.extend(&tensor.bytes);
    }
    file
}
