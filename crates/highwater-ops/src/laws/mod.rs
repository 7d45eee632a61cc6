//! Laws that every operation keeps: checks that need nothing but its row of the table.
//!
//! ```
//! # let my_entries = &highwater_ops::OPS[..1];
//! let laws = highwater_ops::laws::Laws::new(my_entries);
//! for entry in my_entries {
//!     assert_eq!(laws.check(entry), []);
//! }
//! ```

pub(crate) mod data;
mod dtypes;
pub mod evaluate;
mod gradient;
#[cfg(test)]
mod tests;
pub(crate) mod trial;

use crate::kernels::float::half_ulp;
use crate::{Array, Entry, OPS, Pool, Registered, Row, Sample};
use data::{Numbers, decode, gather};
use highwater_graph::{DType, Effect, Layout, Op, OpError, Spec};
use std::hash::{DefaultHasher, Hasher};
use trial::{Fault, Setup};

/// One of the laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Law {
    /// The row is whole: samples and rejects of the row's own operation, written cells declared.
    Row,
    /// Wrong inputs are refused with the stated error, naming operation, expected and got.
    Rejects,
    /// The fast kernel equals the plain reference within the sample's tolerance, and reads
    /// nothing that its inputs' layouts leave out.
    Forward,
    /// The kernel writes its outputs and cells, of a cell what it is given of it, and nothing else,
    /// and makes do with the scratch memory it declares.
    Bytes,
    /// The same bits with 1 to 4 threads, at four alignments, over any garbage, and again.
    Determinism,
    /// The same bits where an output lies over an input it was offered for.
    InPlace,
    /// The same bits in the outputs that are filled where others are left out, and parts of the
    /// cost that add up to no more than the whole.
    LeftOut,
    /// Gradients equal finite differences of the reference, all in `f64`.
    Gradient,
    /// The nodes that backward emits give the same with kernels as with references.
    BackwardKernels,
    /// Costs are finite, and the bytes written at least those of the outputs and cells (more where
    /// a kernel adds to its output in several passes).
    Cost,
    /// Operations with other outputs for the same inputs hash differently.
    Attributes,
}

/// A law that does not hold.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{op}: {law:?}, {place}: {detail}")]
pub struct Broken {
    /// The operation.
    pub op: &'static str,
    /// The law.
    pub law: Law,
    /// Which sample or reject, with its operation and inputs.
    pub place: String,
    /// What was found.
    pub detail: String,
}

/// What one check finds: the law that is broken, and how.
type Finding = (Law, String);

/// Checks rows of the table.
#[derive(Debug)]
pub struct Laws {
    table: Vec<Entry>,
    pools: [Pool; 4],
    every: usize,
    first: usize,
}

/// A sample with its contents.
struct Trial<'a> {
    entry: &'a Entry,
    sample: &'a Sample,
    op: &'a dyn Op,
    kernel: Registered,
    specs: Vec<Spec>,
    storages: Vec<Vec<f64>>,
    outputs: Vec<Spec>,
}

impl Laws {
    /// Laws over this crate's operations and those of `more`, which backward passes may emit.
    ///
    /// # Panics
    /// If the system refuses threads.
    pub fn new(more: &[Entry]) -> Self {
        let mut table = OPS.to_vec();
        table.extend_from_slice(more);
        let pools = [1, 2, 3, 4].map(|threads| Pool::new(threads).expect("threads for the laws"));
        Self {
            table,
            pools,
            every: 1,
            first: 0,
        }
    }

    /// Tries one of `every` samples of each row, from the one at `first` on: all of them take minutes, and hours
    /// where a processor is emulated.
    #[must_use]
    pub fn one_of(self, every: usize, first: usize) -> Self {
        let every = every.max(1);
        Self {
            every,
            first,
            ..self
        }
    }

    /// Checks every law on a row, on all of its samples and rejects. Samples of `F32` are also tried
    /// in the other float dtypes that the row has kernels for.
    pub fn check(&self, entry: &Entry) -> Vec<Broken> {
        let mut broken = Vec::new();
        let mut add = |place: String, finding: Result<(), Finding>| {
            if let Err((law, detail)) = finding {
                let op = entry.name;
                broken.push(Broken {
                    op,
                    law,
                    place,
                    detail,
                });
            }
        };
        let mut samples = (entry.samples)();
        add("the row".to_owned(), check_row(entry, &samples));
        add("the row".to_owned(), check_attributes(&samples));
        samples.extend(dtypes::variants(entry, &samples));
        add("the row".to_owned(), check_kernels(entry, &samples));
        for (i, reject) in (entry.rejects)().iter().enumerate() {
            let place = format!("reject {i} ({:?} on {:?})", reject.op, reject.inputs);
            let answer = reject.op.infer(&reject.inputs).map(|_| ());
            add(place, check_reject(entry.name, answer, reject.error));
        }
        // Of a few samples at least one.
        let first = self.first % self.every.min(samples.len().max(1));
        for (i, sample) in samples.iter().enumerate().skip(first).step_by(self.every) {
            let specs: Vec<&Spec> = sample.inputs.iter().map(|(spec, _)| spec).collect();
            let place = format!("sample {i} ({:?} on {specs:?})", sample.op);
            let trial = match Trial::new(entry, sample, i as u64) {
                // Rounded to its dtype, an input became infinite.
                Ok(trial) if trial.overflows() => continue,
                Ok(trial) => trial,
                Err(finding) => {
                    add(place, Err(finding));
                    continue;
                }
            };
            add(place.clone(), check_cost(&trial));
            add(place.clone(), self.check_forward(&trial));
            add(place.clone(), self.check_determinism(&trial));
            add(place.clone(), self.check_in_place(&trial));
            add(place.clone(), self.check_left_out(&trial));
            for finding in gradient::check(self, &trial) {
                add(place.clone(), Err(finding));
            }
            for (what, strides) in LAYOUTS {
                let variant = with_layouts(sample, strides);
                // An operation may refuse layouts, but not misread them.
                if let Ok(trial) = Trial::new(entry, &variant, i as u64) {
                    add(format!("{place}, {what}"), self.check_forward(&trial));
                }
            }
        }
        broken
    }

    /// The kernel's results for a sample, as numbers, on two threads.
    fn check_forward(&self, trial: &Trial<'_>) -> Result<(), Finding> {
        let results = trial.run(Setup::new(&self.pools[1]))?;
        let wanted = (trial.entry.reference)(trial.op, &trial.arrays());
        let specs = trial.results();
        if wanted.len() != specs.len() {
            let detail = format!("the reference answers {} arrays", wanted.len());
            return Err((Law::Forward, detail));
        }
        for (k, ((spec, bytes), wanted)) in specs.iter().zip(&results).zip(&wanted).enumerate() {
            let got = gather(spec, &decode(spec.dtype, bytes));
            compare(&got, wanted, trial.tolerance(spec.dtype))
                .map_err(|detail| (Law::Forward, format!("result {k}: {detail}")))?;
        }
        Ok(())
    }

    fn check_determinism(&self, trial: &Trial<'_>) -> Result<(), Finding> {
        let plain = Setup::new(&self.pools[0]);
        let want = trial.run(plain)?;
        let mut setups = vec![("run again", plain)];
        setups.extend(self.pools.iter().map(|pool| ("threads", Setup::new(pool))));
        let shift = |misaligned| Setup {
            misaligned,
            ..Setup::new(&self.pools[1])
        };
        setups.extend([1, 2, 3, 4].map(|k| ("alignment", shift(k))));
        let fill = |garbage| Setup {
            garbage,
            ..Setup::new(&self.pools[2])
        };
        setups.extend([0x00, 0x3f, 0x7f].map(|byte| ("garbage", fill(byte))));
        for (what, setup) in setups {
            if trial.run(setup)? != want {
                let threads = setup.pool.threads();
                let detail = format!(
                    "other bits by {what}: {threads} threads, misaligned by {}, garbage {:#x}",
                    setup.misaligned, setup.garbage
                );
                return Err((Law::Determinism, detail));
            }
        }
        Ok(())
    }

    /// Leaves out each optional output by itself, and all of them.
    fn check_left_out(&self, trial: &Trial<'_>) -> Result<(), Finding> {
        let optional = |&o: &usize| {
            let Trial { op, specs, .. } = trial;
            trial
                .kernel
                .optional(*op, o, specs, &trial.outputs)
                .is_some()
        };
        let all: Vec<usize> = (0..trial.outputs.len()).filter(optional).collect();
        let cells = trial.op.writes().len();
        let alone = all.iter().map(std::slice::from_ref);
        for left_out in alone
            .chain([all.as_slice()])
            .filter(|list| !list.is_empty())
        {
            let want = trial.run(Setup::new(&self.pools[1]))?;
            let setup = Setup {
                left_out,
                ..Setup::new(&self.pools[1])
            };
            let got = trial.run(setup)?;
            let differs = |&k: &usize| {
                let output = k.checked_sub(cells);
                output.is_none_or(|o| !left_out.contains(&o)) && got[k] != want[k]
            };
            if let Some(k) = (0..want.len()).find(differs) {
                let detail = format!("other bits in result {k} without outputs {left_out:?}");
                return Err((Law::LeftOut, detail));
            }
        }
        let cost = trial.op.cost(&trial.specs, &trial.outputs, 2);
        let Trial {
            op, kernel, specs, ..
        } = trial;
        let parts = all
            .iter()
            .filter_map(|&o| kernel.optional(*op, o, specs, &trial.outputs));
        let flops: f64 = parts
            .map(|part| part.matmul_flops + part.vector_flops)
            .sum();
        if flops > (cost.matmul_flops + cost.vector_flops) * (1.0 + 1e-9) {
            let detail = format!("parts come to {flops} operations, the whole to {cost:?}");
            return Err((Law::LeftOut, detail));
        }
        Ok(())
    }

    fn check_in_place(&self, trial: &Trial<'_>) -> Result<(), Finding> {
        let err = |detail: String| Err((Law::InPlace, detail));
        let pairs = (trial.kernel).in_place(trial.op, &trial.specs, &trial.outputs);
        for (i, o) in pairs {
            for pool in [&self.pools[0], &self.pools[2]] {
                let want = trial.run(Setup::new(pool))?;
                let setup = Setup {
                    in_place: Some((i, o)),
                    ..Setup::new(pool)
                };
                match trial.run(setup) {
                    Ok(got) if got == want => {}
                    Ok(_) => return err(format!("other bits with output {o} over input {i}")),
                    Err((_, detail)) => {
                        return err(format!("with output {o} over input {i}: {detail}"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl<'a> Trial<'a> {
    fn new(entry: &'a Entry, sample: &'a Sample, seed: u64) -> Result<Self, Finding> {
        let op = sample.op.as_ref();
        let specs: Vec<Spec> = sample.inputs.iter().map(|(spec, _)| spec.clone()).collect();
        let outputs = op.infer(&specs);
        let outputs =
            outputs.map_err(|error| (Law::Row, format!("a sample is refused: {error}")))?;
        let kernel = entry.kernel(&specs, &outputs);
        let kernel =
            kernel.ok_or_else(|| (Law::Row, "no row is for a sample's dtypes".to_owned()))?;
        if let Some(spec) = (outputs.iter()).find(|spec| !spec.layout.covers(spec.layout.numel())) {
            let detail = format!("an output does not cover its storage: {spec:?}");
            return Err((Law::Row, detail));
        }
        let mut numbers = Numbers::new(seed);
        let storages = (sample.inputs.iter())
            .map(|(spec, fill)| data::storage(spec, *fill, &mut numbers))
            .collect();
        Ok(Self {
            entry,
            sample,
            op,
            kernel,
            specs,
            storages,
            outputs: outputs.into_vec(),
        })
    }

    /// Whether an element of an input is infinite.
    fn overflows(&self) -> bool {
        let mut elements = self.storages.iter().flatten();
        elements.any(|x| x.is_infinite())
    }

    /// How far a result of a dtype may be off, relative to `1 + |reference|`.
    fn tolerance(&self, dtype: DType) -> f64 {
        let tolerance = self.sample.tolerance;
        if dtypes::is_narrow(dtype) && tolerance > 0.0 {
            tolerance + half_ulp(dtype)
        } else {
            tolerance
        }
    }

    /// The inputs as the reference takes them.
    fn arrays(&self) -> Vec<Array> {
        let pairs = self.specs.iter().zip(&self.storages);
        pairs.map(|(spec, storage)| gather(spec, storage)).collect()
    }

    /// Of what the kernel and the reference answer: written cells, then outputs.
    fn results(&self) -> Vec<Spec> {
        let cells = self.op.writes().into_iter().map(|i| self.specs[i].clone());
        cells.chain(self.outputs.iter().cloned()).collect()
    }

    fn run(&self, setup: Setup<'_>) -> Result<Vec<Vec<u8>>, Finding> {
        let storages = self.storages.iter().map(Vec::as_slice);
        let inputs: Vec<(&Spec, &[f64])> = self.specs.iter().zip(storages).collect();
        trial::run(&self.kernel, self.op, &inputs, &self.outputs, setup).map_err(|fault| {
            let law = match fault {
                Fault::Kernel(_) => Law::Forward,
                Fault::Panic(_) | Fault::Bytes(_) => Law::Bytes,
            };
            (law, fault.to_string())
        })
    }
}

/// Strides of a shape.
type Strides = fn(&[usize]) -> Vec<usize>;

/// Layouts in which every operation is tried, whatever its samples say.
const LAYOUTS: [(&str, Strides); 2] = [
    ("column-major with gaps", |dims| {
        let mut stride = 2;
        let next = dims.iter().map(|extent| {
            let own = stride;
            stride = own * extent.max(&1) + 1;
            own
        });
        next.collect()
    }),
    ("repeated along the first dimension", |dims| {
        let inner = dims.get(1..).unwrap_or_default();
        let strides = (0..inner.len()).map(|i| inner[i + 1..].iter().product());
        let first = dims.first().map(|_| 0);
        first.into_iter().chain(strides).collect()
    }),
];

/// A sample whose inputs, but for cells, lie otherwise.
fn with_layouts(sample: &Sample, strides: Strides) -> Sample {
    let mut variant = sample.clone();
    let cells = sample.op.writes();
    for (i, (spec, _)) in variant.inputs.iter_mut().enumerate() {
        if !cells.contains(&i) {
            let shape = spec.shape().clone();
            let strides = strides(shape.dims());
            spec.layout = Layout::strided(shape, &strides, 3);
        }
    }
    variant
}

fn check_row(entry: &Entry, samples: &[Sample]) -> Result<(), Finding> {
    let err = |detail: &str| Err((Law::Row, detail.to_owned()));
    let rejects = (entry.rejects)();
    if samples.is_empty() || rejects.is_empty() {
        return err("has no samples, or no rejects");
    }
    let rejected = rejects.iter().map(|reject| &reject.op);
    let mut ops = samples.iter().map(|sample| &sample.op).chain(rejected);
    if ops.any(|op| op.name() != entry.name) {
        return err("a sample or reject is of another operation");
    }
    let mut ops = samples.iter().map(|sample| &sample.op);
    if ops.any(|op| op.writes().is_empty() == (op.effect() == Effect::WritesCell)) {
        return err("an operation has the effect of writing cells if and only if it writes any");
    }
    Ok(())
}

/// Each kernel must be tried.
fn check_kernels(entry: &Entry, samples: &[Sample]) -> Result<(), Finding> {
    let is_tried = |row: &&Row| samples.iter().any(|sample| dtypes::is_of(row, sample));
    match entry.rows.iter().find(|row| !is_tried(row)) {
        None => Ok(()),
        Some(row) => Err((Law::Row, format!("no sample is for {row:?}"))),
    }
}

fn check_reject(
    op: &'static str,
    answer: Result<(), OpError>,
    is_stated: fn(&OpError) -> bool,
) -> Result<(), Finding> {
    let err = |detail: String| Err((Law::Rejects, detail));
    let Err(error) = answer else {
        return err("is not refused".to_owned());
    };
    let message = error.to_string();
    let has = |part: &str| message.contains(part);
    if !is_stated(&error) {
        err(format!("is refused with another error: {message}"))
    } else if !(has(op) && has("got") && (has("expected") || has("must be"))) {
        err(format!(
            "does not name operation, expected and got: {message}"
        ))
    } else {
        Ok(())
    }
}

fn check_cost(trial: &Trial<'_>) -> Result<(), Finding> {
    let want: u64 = trial.results().iter().map(Spec::bytes).sum();
    for threads in 1..=4 {
        let cost = trial.op.cost(&trial.specs, &trial.outputs, threads);
        let flops = [cost.matmul_flops, cost.vector_flops];
        if !flops.iter().all(|flops| flops.is_finite() && *flops >= 0.0) {
            return Err((Law::Cost, format!("impossible operation counts: {cost:?}")));
        }
        if cost.written_bytes < want {
            let got = cost.written_bytes;
            let detail = format!("declares {got} bytes written, at least {want} are");
            return Err((Law::Cost, detail));
        }
    }
    Ok(())
}

fn check_attributes(samples: &[Sample]) -> Result<(), Finding> {
    let seen: Vec<_> = (samples.iter())
        .map(|sample| {
            let specs: Vec<Spec> = sample.inputs.iter().map(|(spec, _)| spec.clone()).collect();
            let mut hasher = DefaultHasher::new();
            sample.op.hash_attributes(&mut hasher);
            (hasher.finish(), sample.op.infer(&specs), specs)
        })
        .collect();
    for (i, (hash, outputs, specs)) in seen.iter().enumerate() {
        for (k, (other_hash, other_outputs, other_specs)) in seen.iter().enumerate().skip(i + 1) {
            if specs == other_specs && hash == other_hash && outputs != other_outputs {
                let detail = format!("samples {i} and {k} differ in outputs, not in hash");
                return Err((Law::Attributes, detail));
            }
        }
    }
    Ok(())
}

/// Whether `got` equals `want` within a tolerance relative to `1 + |want|`.
fn compare(got: &Array, want: &Array, tolerance: f64) -> Result<(), String> {
    if got.shape != want.shape {
        return Err(format!("shape {} instead of {}", got.shape, want.shape));
    }
    let dtype = got.dtype;
    let is_close = |got: f64, want: f64| {
        (got - want).abs() <= tolerance * (1.0 + want.abs())
            || got.total_cmp(&want).is_eq()
            // What is too large for the dtype is infinite.
            || got.is_infinite() && got.total_cmp(&data::round(dtype, want)).is_eq()
            || (got.is_nan() && want.is_nan())
    };
    let pairs = || got.data.iter().zip(&want.data);
    match pairs().position(|(&got, &want)| !is_close(got, want)) {
        None => Ok(()),
        Some(i) => {
            let off = pairs()
                .filter(|&(&got, &want)| !is_close(got, want))
                .count();
            let (got, want) = (got.data[i], want.data[i]);
            Err(format!(
                "{got:e} instead of {want:e} at {i} (off by {:.1e} of {tolerance:.0e}; {off} elements off)",
                (got - want).abs() / (1.0 + want.abs())
            ))
        }
    }
}
