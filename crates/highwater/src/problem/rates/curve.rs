//! A line through measurements, from a roofline's seconds to real ones.

use serde::{Deserialize, Serialize};

/// What work of one size took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds by the roofline's constants: the size.
    pub roofline_seconds: f64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Points by size, both coordinates rising. Between two of them it is straight on logarithmic axes;
/// beyond the first and the last the rate stays what it was there. Without points it changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Point>")]
pub struct Curve(Vec<Point>);

impl From<Vec<Point>> for Curve {
    /// Points of a curve that was written down; what cannot be of one is left out.
    fn from(mut points: Vec<Point>) -> Self {
        let mut before = Point {
            roofline_seconds: 0.0,
            seconds: 0.0,
        };
        points.retain(|&point| {
            let rises = point.roofline_seconds > before.roofline_seconds
                && point.seconds >= before.seconds.max(f64::MIN_POSITIVE);
            let rises = rises && point.roofline_seconds.is_finite() && point.seconds.is_finite();
            before = if rises { point } else { before };
            rises
        });
        Self(points)
    }
}

/// Points whose sizes differ by less than this factor become their mean.
const NEAR: f64 = 1.5;

impl Curve {
    /// The curve through some measurements, in any order. What cannot be right is left out.
    pub fn through(mut points: Vec<Point>) -> Self {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        points.retain(|point| positive(point.roofline_seconds) && positive(point.seconds));
        points.sort_by(|a, b| a.roofline_seconds.total_cmp(&b.roofline_seconds));
        let mut curve: Vec<Point> = Vec::new();
        let near = |a: &Point, b: &Point| b.roofline_seconds < NEAR * a.roofline_seconds;
        for group in points.chunk_by(near) {
            let count = group.len() as f64;
            let mean = |of: fn(&Point) -> f64| group.iter().map(of).sum::<f64>() / count;
            // More work never takes less time.
            let before = curve.last().map_or(0.0, |point| point.seconds);
            curve.push(Point {
                roofline_seconds: mean(|point| point.roofline_seconds),
                seconds: mean(|point| point.seconds).max(before),
            });
        }
        Self(curve)
    }

    /// The points, by size.
    pub fn points(&self) -> &[Point] {
        &self.0
    }

    /// The lesser seconds of both where they have points of one size, its own elsewhere.
    pub(super) fn least(&self, other: &Self) -> Self {
        let least = |&point: &Point| Point {
            seconds: other
                .of(point)
                .map_or(point.seconds, |seconds| seconds.min(point.seconds)),
            ..point
        };
        Self::from(self.0.iter().map(least).collect::<Vec<_>>())
    }

    /// The factors between the seconds of both where they have points of one size, as logarithms.
    pub(super) fn apart<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = f64> + 'a {
        let apart = |&point: &Point| Some((other.of(point)? / point.seconds).ln().abs());
        self.0.iter().filter_map(apart)
    }

    #[expect(clippy::float_cmp, reason = "both curves have the sizes of one table")]
    fn of(&self, point: Point) -> Option<f64> {
        let mut points = self.0.iter();
        let same = |other: &&Point| other.roofline_seconds == point.roofline_seconds;
        points.find(same).map(|other| other.seconds)
    }

    /// Seconds for work of this size.
    pub fn at(&self, roofline_seconds: f64) -> f64 {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return roofline_seconds;
        };
        let after = (self.0).partition_point(|point| point.roofline_seconds <= roofline_seconds);
        let beyond = |end: &Point| end.seconds * (roofline_seconds / end.roofline_seconds);
        match (after.checked_sub(1), self.0.get(after)) {
            (Some(before), Some(b)) => {
                let a = &self.0[before];
                let way = (roofline_seconds / a.roofline_seconds).ln()
                    / (b.roofline_seconds / a.roofline_seconds).ln();
                a.seconds * (b.seconds / a.seconds).powf(way)
            }
            (None, _) => beyond(first),
            (_, None) => beyond(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        let point = |&(roofline_seconds, seconds)| Point {
            roofline_seconds,
            seconds,
        };
        Curve::through(points.iter().map(point).collect())
    }

    fn assert_at(curve: &Curve, x: f64, expected: f64) {
        let found = curve.at(x);
        assert!((found / expected - 1.0).abs() < 1e-9, "{x}: {found}");
    }

    #[test]
    fn goes_through_its_points_and_keeps_the_rate_beyond_them() {
        let curve = curve(&[(1.0, 2.0), (100.0, 50.0)]);
        for (x, expected) in [(1.0, 2.0), (10.0, 10.0), (100.0, 50.0), (0.5, 1.0)] {
            assert_at(&curve, x, expected);
        }
        assert_at(&curve, 1000.0, 500.0);
        assert_at(&Curve::default(), 3.0, 3.0);
    }

    #[test]
    fn never_falls_and_takes_neighbours_together() {
        let curve = curve(&[(9.0, 1.0), (1.2, 4.0), (1.0, 2.0), (5.0, f64::NAN)]);
        assert_eq!(curve.points().len(), 2);
        assert_at(&curve, 1.1, 3.0);
        assert_at(&curve, 9.0, 3.0);
        let sizes = (1..200).map(|i| curve.at(f64::from(i) * 0.1));
        assert!(sizes.is_sorted());
    }
}
