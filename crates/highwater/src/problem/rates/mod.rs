//! What the machine does in a second, for the planner's clock.
//!
//! The seconds of a node are a roofline of stated constants, which knows sizes but not machines. Where
//! rates were measured, each operation has a [`Curve`] from the roofline's seconds to those that it
//! took here: small products that are slower, passes that no longer fit a cache and the time that it
//! takes to start a kernel are all in it.

mod curve;

pub use curve::{Curve, Point};

use highwater_graph::{Cost, DType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rates of a machine with the threads that the engine has. They decide what is predicted and which
/// of several plans is taken, never a number that is computed.
///
/// The default is constants, the same on every machine, so that plans are too;
/// [`Rates::measure`] makes those of this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Floating-point operations a second in matrix products.
    pub matmul_flops: f64,
    /// Floating-point operations a second elsewhere.
    pub vector_flops: f64,
    /// Bytes a second read and written together by one pass over memory.
    pub memory_bytes: f64,
    /// Seconds that starting a kernel takes.
    pub launch_seconds: f64,
    /// Seconds that a node takes beside its kernel: to build the graph and to find the plan.
    #[serde(default)]
    pub node_seconds: f64,
    /// What the roofline of these comes to where it was measured, by operation.
    #[serde(default)]
    pub operations: BTreeMap<String, Curve>,
    /// The same of operations on `BF16`: some processors multiply pairs of these at once.
    #[serde(default)]
    pub bf16: BTreeMap<String, Curve>,
    /// The same for operations that were not measured; empty if none was.
    #[serde(default)]
    pub others: Curve,
}

impl Default for Rates {
    /// A server's two cores with AVX-512, nothing measured.
    fn default() -> Self {
        Self {
            matmul_flops: 3.9e11,
            vector_flops: 4.0e10,
            memory_bytes: 1.5e10,
            launch_seconds: 3e-6,
            node_seconds: 0.0,
            operations: BTreeMap::new(),
            bf16: BTreeMap::new(),
            others: Curve::default(),
        }
    }
}

impl Rates {
    /// Predicted seconds of one run of an operation on numbers of a dtype, [`Rates::node_seconds`] not
    /// included.
    pub fn seconds(&self, op: &str, dtype: DType, cost: &Cost) -> f64 {
        let known = |op| self.measured(op, dtype).or_else(|| self.operations.get(op));
        // Convolutions and products by weights in few bits are products in the end.
        let like = if cost.matmul_flops > 0.0 {
            known("matmul")
        } else {
            None
        };
        let curve = known(op).or(like).unwrap_or(&self.others);
        curve.at(self.roofline(cost))
    }

    /// What was measured of an operation on numbers of a dtype.
    pub fn measured(&self, op: &str, dtype: DType) -> Option<&Curve> {
        match dtype {
            DType::BF16 => self.bf16.get(op),
            _ => self.operations.get(op),
        }
    }

    /// The lesser seconds of two measurements: what else a machine does only adds to them.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        let curves = |own: &BTreeMap<String, Curve>, others: &BTreeMap<String, Curve>| {
            let least = |(name, curve): (&String, &Curve)| {
                let least = others
                    .get(name)
                    .map_or_else(|| curve.clone(), |it| curve.least(it));
                (name.clone(), least)
            };
            own.iter().map(least).collect()
        };
        Self {
            node_seconds: self.node_seconds.min(other.node_seconds),
            operations: curves(&self.operations, &other.operations),
            bf16: curves(&self.bf16, &other.bf16),
            others: self.others.least(&other.others),
            ..self.clone()
        }
    }

    /// By which factor the seconds of two measurements differ, in the geometric mean of all points: 1 where they
    /// agree.
    pub fn apart(&self, other: &Self) -> f64 {
        let pairs = [
            (&self.operations, &other.operations),
            (&self.bf16, &other.bf16),
        ];
        let curves = pairs.into_iter().flat_map(|(own, others)| {
            own.iter()
                .filter_map(|(name, curve)| Some((curve, others.get(name)?)))
        });
        let all: Vec<f64> = curves.flat_map(|(own, other)| own.apart(other)).collect();
        (all.iter().sum::<f64>() / all.len().max(1) as f64).exp()
    }

    /// Whether any operation was measured.
    pub fn is_measured(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Seconds by the constants: arithmetic at its rate, or memory if that is slower.
    fn roofline(&self, cost: &Cost) -> f64 {
        let bytes = (cost.read_bytes + cost.written_bytes) as f64;
        let products = cost.matmul_flops / self.matmul_flops;
        let arithmetic = products + cost.vector_flops / self.vector_flops;
        self.launch_seconds + arithmetic.max(bytes / self.memory_bytes)
    }

    /// The constants with the curves through what was measured.
    pub(crate) fn fit(measured: &[Timing], node_seconds: f64) -> Self {
        let constants = Self::default();
        let (mut operations, mut bf16) = (Points::new(), Points::new());
        for timing in measured {
            let point = Point {
                roofline_seconds: constants.roofline(&timing.cost),
                seconds: timing.least_seconds,
            };
            let of_dtype = match timing.dtype {
                DType::BF16 => &mut bf16,
                _ => &mut operations,
            };
            let points = of_dtype.entry(timing.op.to_owned()).or_default();
            points.push(point);
        }
        let passes = measured.iter().filter(|t| t.cost.matmul_flops == 0.0);
        let names: std::collections::BTreeSet<_> = passes.map(|t| t.op).collect();
        let passes = names.iter().filter_map(|&name| operations.get(name));
        let others = Curve::through(passes.flatten().copied().collect());
        let curves = |points: Points| {
            let curves = points.into_iter();
            curves.map(|(op, p)| (op, Curve::through(p))).collect()
        };
        Self {
            operations: curves(operations),
            bf16: curves(bf16),
            others,
            node_seconds,
            ..constants
        }
    }
}

/// What was measured, by operation.
type Points = BTreeMap<String, Vec<Point>>;

/// What nodes of one kind took.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    pub(crate) op: &'static str,
    pub(crate) dtype: DType,
    pub(crate) cost: Cost,
    /// Of one run, in the evaluation where they were fastest.
    pub(crate) least_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(flops: f64) -> Cost {
        Cost {
            matmul_flops: flops,
            ..Cost::default()
        }
    }

    #[test]
    fn constants_are_a_roofline() {
        let rates = Rates::default();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} and {b}");
        close(
            rates.seconds("linear", DType::F32, &product(3.9e11)),
            1.0 + 3e-6,
        );
        let pass = Cost {
            read_bytes: 20_000_000_000,
            written_bytes: 10_000_000_000,
            vector_flops: 4e10,
            ..Cost::default()
        };
        close(rates.seconds("add", DType::F32, &pass), 2.0 + 3e-6);
    }

    #[test]
    fn what_was_measured_is_predicted_and_others_follow_the_passes() {
        let pass = Cost {
            read_bytes: 15_000_000,
            ..Cost::default()
        };
        let timing = |op, cost, least_seconds| Timing {
            op,
            dtype: DType::F32,
            cost,
            least_seconds,
        };
        let rates = Rates::fit(
            &[
                timing("linear", product(3.9e9), 0.02),
                timing("linear", product(3.9e7), 0.0004),
                timing("matmul", product(3.9e9), 0.04),
                timing("gelu", pass, 0.003),
                Timing {
                    dtype: DType::BF16,
                    ..timing("linear", product(3.9e9), 0.01)
                },
            ],
            2e-6,
        );
        let ratio = |op, cost: &Cost, seconds: f64| rates.seconds(op, DType::F32, cost) / seconds;
        assert!((ratio("linear", &product(3.9e9), 0.02) - 1.0).abs() < 1e-9);
        assert!((ratio("linear", &product(3.9e7), 0.0004) - 1.0).abs() < 1e-9);
        assert!((ratio("linear", &product(3.9e11), 2.0) - 1.0).abs() < 1e-3);
        assert!((ratio("tanh", &pass, 0.003) - 1.0).abs() < 1e-9);
        // What multiplies follows products.
        assert!((ratio("conv2d", &product(3.9e9), 0.04) - 1.0).abs() < 1e-9);
        // Halves are as fast as was seen, or as whole numbers.
        let half = |op, cost: &Cost| rates.seconds(op, DType::BF16, cost);
        assert!((half("linear", &product(3.9e9)) / 0.01 - 1.0).abs() < 1e-9);
        assert!((half("gelu", &pass) / 0.003 - 1.0).abs() < 1e-9);
        assert!(rates.is_measured() && !Rates::default().is_measured());
        let text = serde_json::to_string(&rates).unwrap();
        let read: Rates = serde_json::from_str(&text).unwrap();
        assert_eq!(read.operations.len(), 3);
        let again = read.seconds("linear", DType::F32, &product(1e9))
            / rates.seconds("linear", DType::F32, &product(1e9));
        assert!((again - 1.0).abs() < 1e-9 && (read.node_seconds - 2e-6).abs() < 1e-15);
    }
}
