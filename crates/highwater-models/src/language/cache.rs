//! Keys and values of the tokens that a model has read, so that each further one costs one position.
//!
//! They are buffers of the engine: they count to the budget, and plans know them. A write replaces all of a buffer,
//! so a layer has two pairs: one of the past, and a small one of the latest tokens, the only one that each token
//! writes. When that is full, it joins the past. Which place is written and which are seen are inputs: one plan
//! holds for all tokens of a length.

use highwater::nn::PadMode;
use highwater::{Buffer, DType, Engine, Error, Result, Tensor, eval};

/// The latest tokens, which have not joined the past.
const LATEST: usize = 32;

/// What a layer of attention keeps of each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyValueShape {
    /// Heads of keys and values.
    pub heads: usize,
    /// Elements of a head.
    pub width: usize,
    /// How many tokens each sees up to itself; all if there is none.
    pub window: Option<usize>,
}

/// Keys and values of all layers, in `F32`.
#[derive(Debug)]
pub(crate) struct KeyValueCache {
    layers: Vec<Layer>,
    /// Of which window there are, each once.
    windows: Vec<Option<usize>>,
    /// What follows the last token, `[V]`. A buffer too, so that it is computed with what layers keep: by one plan.
    logits: Buffer,
    /// Places of the past.
    length: usize,
    /// How many tokens are there, from the first place on.
    past: usize,
    /// How many came behind them.
    latest: usize,
}

/// Keys, then values, `[1, G, L, D]`.
#[derive(Debug)]
struct Layer {
    past: [Buffer; 2],
    latest: [Buffer; 2],
}

/// What one forward of a model is told of kept keys and values: of a prompt, which leaves them, or of one token
/// more, which reads them and adds its own.
#[derive(Debug)]
pub struct Cached<'a> {
    cache: &'a KeyValueCache,
    token: Option<Token>,
}

/// A layer's part of [`Cached`].
#[derive(Clone, Copy, Debug)]
pub struct CachedLayer<'a> {
    layer: &'a Layer,
    token: Option<&'a Token>,
}

/// Where a token stands.
#[derive(Debug)]
struct Token {
    /// Its position, `[1, 1]`, `U32`.
    position: Tensor,
    /// Its place among the latest, `[1, 1, R, 1]`, `Bool`.
    place: Tensor,
    /// For each window what is added to the scores of all places, `[1, 1, 1, L + R]`: 0, or -inf where nothing is
    /// to be seen.
    hidden: Vec<(Option<usize>, Tensor)>,
}

/// Zeros in two buffers.
fn pair(engine: &Engine, shape: KeyValueShape, length: usize) -> Result<[Buffer; 2]> {
    let zeros = || Buffer::new(engine, [1, shape.heads, length, shape.width], |_| {});
    Ok([zeros()?, zeros()?])
}

impl KeyValueCache {
    /// Room for so many tokens of a model.
    ///
    /// # Errors
    /// [`Error::State`] if there is none.
    pub(crate) fn new(
        engine: &Engine,
        shapes: &[KeyValueShape],
        vocab_size: usize,
        length: usize,
    ) -> Result<Self> {
        let layer = |&shape: &KeyValueShape| {
            Ok(Layer {
                past: pair(engine, shape, length)?,
                latest: pair(engine, shape, LATEST)?,
            })
        };
        let mut windows: Vec<_> = shapes.iter().map(|shape| shape.window).collect();
        windows.sort_unstable();
        windows.dedup();
        Ok(Self {
            layers: shapes.iter().map(layer).collect::<Result<_>>()?,
            windows,
            logits: Buffer::new(engine, [vocab_size], |_| {})?,
            length,
            past: 0,
            latest: 0,
        })
    }

    /// Tokens that were read.
    pub(crate) fn tokens(&self) -> usize {
        self.past + self.latest
    }

    /// For a forward of a prompt of so many tokens, filled up to the cache's length.
    pub(crate) fn prompt(&mut self, tokens: usize) -> Cached<'_> {
        (self.past, self.latest) = (tokens, 0);
        Cached {
            cache: self,
            token: None,
        }
    }

    /// For a forward of one token more. Where there is no place for it, the latest join the past, which is made
    /// as long as `length` first.
    ///
    /// # Errors
    /// [`Error::State`] if there is no room; what stops an evaluation.
    pub(crate) fn next(&mut self, engine: &Engine, length: usize) -> Result<Cached<'_>> {
        if self.latest == LATEST || self.length < length {
            self.join(engine, length)?;
        }
        let places = (0..LATEST).map(|place| place == self.latest);
        let places: Vec<bool> = places.collect();
        let hidden = self.windows.iter().map(|&window| {
            let hidden = self.hidden(window);
            let shape = [1, 1, 1, hidden.len()];
            Ok((window, engine.tensor(&hidden, shape)?))
        });
        let token = Token {
            position: engine.indices(&[self.tokens() as u32], [1, 1])?,
            place: Tensor::from_bools(engine, &places, [1, 1, LATEST, 1])?,
            hidden: hidden.collect::<Result<_>>()?,
        };
        self.latest += 1;
        Ok(Cached {
            cache: self,
            token: Some(token),
        })
    }

    /// What the next token sees, as [`Token::hidden`].
    fn hidden(&self, window: Option<usize>) -> Vec<f32> {
        let own = self.tokens();
        let past = (0..self.length).map(|place| (place < self.past).then_some(place));
        let latest = (0..LATEST).map(|place| (place <= self.latest).then_some(self.past + place));
        let is_seen = |at: usize| window.is_none_or(|window| own - at < window);
        let score = |at: Option<usize>| match at {
            Some(at) if is_seen(at) => 0.0,
            _ => f32::NEG_INFINITY,
        };
        past.chain(latest).map(score).collect()
    }

    /// The latest tokens join the past, a layer at a time: so little is there twice.
    fn join(&mut self, engine: &Engine, length: usize) -> Result<()> {
        let more = length.saturating_sub(self.length);
        let length = self.length + more;
        let joins = |place: usize| place >= self.past && place < self.past + self.latest;
        let place = |place: usize| place.saturating_sub(self.past).min(LATEST - 1) as u32;
        let from: Vec<u32> = (0..length).map(place).collect();
        let joins: Vec<bool> = (0..length).map(joins).collect();
        let from = engine.indices(&from, [length])?;
        let joins = Tensor::from_bools(engine, &joins, [1, 1, length, 1])?;
        for layer in &mut self.layers {
            for (past, latest) in layer.past.iter_mut().zip(&layer.latest) {
                let &[_, heads, _, width] = past.dims() else {
                    continue;
                };
                let latest = latest.index_select(2, &from)?;
                if more == 0 {
                    past.assign(&Tensor::where_(&joins, &latest, past)?)?;
                } else {
                    let longer = Buffer::new(engine, [1, heads, length, width], |_| {})?;
                    let old = past.pad(&[0, 0, 0, more as isize], PadMode::Constant(0.0))?;
                    longer.assign(&Tensor::where_(&joins, &latest, &old)?)?;
                    *past = longer;
                }
                let written: &Tensor = past;
                eval([written])?;
            }
        }
        self.length = length;
        self.past += self.latest;
        self.latest = 0;
        Ok(())
    }

    /// Computes logits `[V]`, and what layers keep.
    ///
    /// # Errors
    /// What stops an evaluation.
    pub(crate) fn evaluate(&self, logits: &Tensor) -> Result<Vec<f32>> {
        self.logits.assign(&in_f32(logits)?)?;
        self.logits.to_vec()
    }
}

impl Cached<'_> {
    /// The position of the token, `[1, 1]`, `U32`; none for a prompt, which begins at 0.
    pub fn position(&self) -> Option<&Tensor> {
        self.token.as_ref().map(|token| &token.position)
    }

    /// The length that tables of positions are to have: that of a prompt, filled up; above any position.
    pub fn length(&self) -> usize {
        self.cache.length
    }

    /// How many tokens there are, up to the last of a prompt, or with the token.
    pub fn tokens(&self) -> usize {
        self.cache.tokens()
    }

    /// The part of a layer, by its number from 0.
    ///
    /// # Errors
    /// [`Error::Internal`] for a layer of which [`CausalLm::key_values`](crate::CausalLm::key_values) says nothing.
    pub fn layer(&self, index: usize) -> Result<CachedLayer<'_>> {
        let layer = self.cache.layers.get(index);
        let layer =
            layer.ok_or_else(|| Error::Internal(format!("no keys of layer {index} are kept")))?;
        let token = self.token.as_ref();
        Ok(CachedLayer { layer, token })
    }
}

impl CachedLayer<'_> {
    /// Of a prompt: keeps its keys and values `[1, G, T, D]`, and answers nothing; attention is as without a
    /// cache. Of a token: what its queries `[1, H, 1, D]` find among all keys that were kept, and its own, with
    /// scores divided by the root of D, and capped (`cap tanh(score / cap)`) if there is a cap: `[1, H, 1, D]`.
    /// Sums are in `F32`.
    ///
    /// # Errors
    /// [`Error::Op`] if the shapes do not fit; [`Error::Internal`] for a window of no layer.
    pub fn attend(
        &self,
        [q, k, v]: [&Tensor; 3],
        window: Option<usize>,
        cap: Option<f64>,
    ) -> Result<Option<Tensor>> {
        let Some(token) = self.token else {
            for (past, new) in self.layer.past.iter().zip([k, v]) {
                past.assign(&in_f32(new)?)?;
            }
            return Ok(None);
        };
        let (dims, dtype) = (q.dims().to_vec(), q.dtype());
        let &[_, heads, _, width] = &dims[..] else {
            let message = format!("queries are [1, H, 1, D], not {}", q.shape());
            return Err(Error::Internal(message));
        };
        let hidden = token.hidden.iter().find(|(of, _)| *of == window);
        let (_, hidden) =
            hidden.ok_or_else(|| Error::Internal("a window of no layer".to_owned()))?;
        let latest = |new: &Tensor, latest: &Buffer| {
            let written = Tensor::where_(&token.place, &in_f32(new)?, latest)?;
            latest.assign(&written)?;
            Ok::<_, Error>(written)
        };
        let [past_keys, past_values] = &self.layer.past;
        let keys = latest(k, &self.layer.latest[0])?;
        let values = latest(v, &self.layer.latest[1])?;
        let [shared, length] = [past_keys.dims()[1], past_keys.dims()[2]];
        let q = in_f32(q)?.mul_scalar((width as f64).powf(-0.5))?;
        let q = q.reshape([1, shared, heads / shared, width])?;
        let scores = |keys: &Tensor| q.matmul(&keys.transpose(-1, -2)?);
        let mut scores = Tensor::cat(&[scores(past_keys)?, scores(&keys)?], 3)?;
        if let Some(cap) = cap {
            scores = scores.mul_scalar(1.0 / cap)?.tanh()?.mul_scalar(cap)?;
        }
        let weights = scores.add(hidden)?.softmax()?;
        let found = |start, len, values: &Tensor| weights.narrow(3, start, len)?.matmul(values);
        let y = found(0, length, past_values)?.add(&found(length, LATEST, &values)?)?;
        let y = y.reshape(dims)?;
        Ok(Some(if dtype == DType::F32 {
            y
        } else {
            y.to_dtype(dtype)?
        }))
    }
}

fn in_f32(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F32 => Ok(x.clone()),
        _ => x.to_dtype(DType::F32),
    }
}
