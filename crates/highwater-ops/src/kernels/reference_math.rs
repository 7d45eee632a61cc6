//! Functions that the plain references need and `std` lacks, in `f64`.

/// The error function: its Taylor series, and for large arguments a continued fraction.
pub(crate) fn erf(x: f64) -> f64 {
    let z = x.abs();
    let value = if z < 2.5 {
        let (mut term, mut sum) = (z, z);
        for k in 1..100 {
            term *= -z * z / f64::from(k);
            sum += term / f64::from(2 * k + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let fraction = (1..=60).rev().fold(z, |f, k| z + f64::from(k) / 2.0 / f);
        1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}
