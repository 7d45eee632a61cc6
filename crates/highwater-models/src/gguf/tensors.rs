//! The tensors of a model, by Hugging Face's names and by llama.cpp's.

use crate::Gpt2Config;
use crate::language::config::decoder::DecoderShape;

/// One tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// Its name in the model's folder.
    pub(super) from: String,
    /// Its name in the file.
    pub(super) to: String,
    /// As the folder has it.
    pub(super) shape: Vec<usize>,
    pub(super) change: Change,
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    None,
    /// Weights of norms that are what is added to 1.
    AddOne,
    /// Held as `[in, out]`.
    Transpose,
    /// Rows of queries and keys of so many heads: those that are rotated together become neighbours.
    Interleave(usize),
}

/// The row of the folder's tensor that a row of the file's is.
pub(super) fn interleaved(row: usize, rows: usize, heads: usize) -> usize {
    let width = rows / heads;
    let (head, at) = (row / width, row % width);
    head * width + at % 2 * (width / 2) + at / 2
}

struct Entries(Vec<Entry>);

impl Entries {
    fn add(&mut self, from: &str, to: &str, shape: &[usize], change: Change) {
        self.0.push(Entry {
            from: from.to_owned(),
            to: to.to_owned(),
            shape: shape.to_vec(),
            change,
        });
    }

    /// A projection and, where it has one, its bias.
    fn project(
        &mut self,
        (from, to): (&str, &str),
        [rows, width]: [usize; 2],
        bias: bool,
        change: Change,
    ) {
        let (weight, shape) = (format!("{from}.weight"), [rows, width]);
        self.add(&weight, &format!("{to}.weight"), &shape, change);
        if bias {
            let (outputs, change) = match change {
                Change::Transpose => (width, Change::None),
                change => (rows, change),
            };
            self.add(
                &format!("{from}.bias"),
                &format!("{to}.bias"),
                &[outputs],
                change,
            );
        }
    }
}

/// Those of a decoder; `interleave`: whether neighbours are rotated together, as llama.cpp has Llama.
pub(super) fn of_decoder(shape: &DecoderShape, interleave: bool) -> Vec<Entry> {
    let mut all = Entries(Vec::new());
    let width = shape.hidden_size;
    let norm = if shape.norms_add_one {
        Change::AddOne
    } else {
        Change::None
    };
    let table = [shape.vocab_size, width];
    all.add(
        "model.embed_tokens.weight",
        "token_embd.weight",
        &table,
        Change::None,
    );
    for i in 0..shape.layers.len() {
        norms(&mut all, shape, i, norm);
        attention(&mut all, shape, i, interleave);
        mlp(&mut all, shape, i);
    }
    all.add("model.norm.weight", "output_norm.weight", &[width], norm);
    if !shape.tie_word_embeddings {
        all.add("lm_head.weight", "output.weight", &table, Change::None);
    }
    all.0
}

/// The names of a part of a block: in the folder and in the file.
fn named(i: usize, from: &str, to: &str) -> (String, String) {
    (format!("model.layers.{i}.{from}"), format!("blk.{i}.{to}"))
}

fn norms(all: &mut Entries, shape: &DecoderShape, i: usize, change: Change) {
    let (width, head) = (shape.hidden_size, shape.head_dim);
    let behind = if shape.has_post_norms {
        "post_attention_norm"
    } else {
        "ffn_norm"
    };
    let mut norms = vec![
        ("input_layernorm", "attn_norm", width),
        ("post_attention_layernorm", behind, width),
    ];
    if shape.has_post_norms {
        norms.push(("pre_feedforward_layernorm", "ffn_norm", width));
        norms.push(("post_feedforward_layernorm", "post_ffw_norm", width));
    }
    if shape.has_head_norms {
        norms.push(("self_attn.q_norm", "attn_q_norm", head));
        norms.push(("self_attn.k_norm", "attn_k_norm", head));
    }
    for (from, to, width) in norms {
        let (from, to) = named(i, &format!("{from}.weight"), &format!("{to}.weight"));
        all.add(&from, &to, &[width], change);
    }
}

fn attention(all: &mut Entries, shape: &DecoderShape, i: usize, interleave: bool) {
    let (width, biases) = (shape.hidden_size, shape.biases);
    let (heads, shared) = (shape.num_attention_heads, shape.num_key_value_heads);
    let (queries, keys) = (heads * shape.head_dim, shared * shape.head_dim);
    let turned = |heads: usize| {
        if interleave {
            Change::Interleave(heads)
        } else {
            Change::None
        }
    };
    let mut add = |part: &str, to: &str, rows: usize, change: Change| {
        let (from, to) = named(i, &format!("self_attn.{part}"), to);
        all.project((&from, &to), [rows, width], biases.qkv, change);
    };
    if shape.is_fused {
        add("qkv_proj", "attn_qkv", queries + 2 * keys, Change::None);
    } else {
        add("q_proj", "attn_q", queries, turned(heads));
        add("k_proj", "attn_k", keys, turned(shared));
        add("v_proj", "attn_v", keys, Change::None);
    }
    let (from, to) = named(i, "self_attn.o_proj", "attn_output");
    let dims = [width, queries];
    all.project((&from, &to), dims, biases.output, Change::None);
}

fn mlp(all: &mut Entries, shape: &DecoderShape, i: usize) {
    let (width, inner) = (shape.hidden_size, shape.intermediate_size);
    let mut add = |part: &str, to: &str, dims: [usize; 2]| {
        let (from, to) = named(i, &format!("mlp.{part}"), to);
        all.project((&from, &to), dims, shape.biases.mlp, Change::None);
    };
    if shape.is_fused {
        add("gate_up_proj", "ffn_up", [2 * inner, width]);
    } else {
        add("gate_proj", "ffn_gate", [inner, width]);
        add("up_proj", "ffn_up", [inner, width]);
    }
    add("down_proj", "ffn_down", [width, inner]);
}

/// Those of GPT-2.
pub(super) fn of_gpt2(config: &Gpt2Config) -> Vec<Entry> {
    let mut all = Entries(Vec::new());
    let (width, inner) = (config.n_embd, config.inner());
    let plain = Change::None;
    all.add(
        "transformer.wte.weight",
        "token_embd.weight",
        &[config.vocab_size, width],
        plain,
    );
    all.add(
        "transformer.wpe.weight",
        "position_embd.weight",
        &[config.n_positions, width],
        plain,
    );
    let norm = |all: &mut Entries, from: &str, to: &str| {
        for part in ["weight", "bias"] {
            all.add(
                &format!("{from}.{part}"),
                &format!("{to}.{part}"),
                &[width],
                plain,
            );
        }
    };
    for i in 0..config.n_layer {
        let (from, to) = (format!("transformer.h.{i}"), format!("blk.{i}"));
        norm(
            &mut all,
            &format!("{from}.ln_1"),
            &format!("{to}.attn_norm"),
        );
        norm(&mut all, &format!("{from}.ln_2"), &format!("{to}.ffn_norm"));
        for (a, b, dims) in [
            ("attn.c_attn", "attn_qkv", [width, 3 * width]),
            ("attn.c_proj", "attn_output", [width, width]),
            ("mlp.c_fc", "ffn_up", [width, inner]),
            ("mlp.c_proj", "ffn_down", [inner, width]),
        ] {
            let (a, b) = (format!("{from}.{a}"), format!("{to}.{b}"));
            all.project((&a, &b), dims, true, Change::Transpose);
        }
    }
    norm(&mut all, "transformer.ln_f", "output_norm");
    all.0
}
