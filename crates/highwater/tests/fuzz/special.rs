//! Functions that the standard library lacks, and their derivatives.

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function: its series where that converges fast, else the continued fraction of its
/// complement.
pub(crate) fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for n in 1..80 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    let mut fraction = 0.0;
    for n in (1..80).rev() {
        fraction = f64::from(n) / 2.0 / (a + fraction);
    }
    let complement = (-a * a).exp() / (a + fraction) / std::f64::consts::PI.sqrt();
    (1.0 - complement).copysign(x)
}

/// `x Phi(x)` and its derivative.
pub(crate) fn gelu(x: f64) -> (f64, f64) {
    let phi = 0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (x * phi, phi + x * density)
}

/// The form with a hyperbolic tangent, and its derivative.
pub(crate) fn gelu_tanh(x: f64) -> (f64, f64) {
    let k = (2.0 / std::f64::consts::PI).sqrt();
    let t = (k * (x + 0.044_715 * x * x * x)).tanh();
    let inner = k * (1.0 + 3.0 * 0.044_715 * x * x);
    (
        0.5 * x * (1.0 + t),
        0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner,
    )
}

#[test]
fn the_error_function_is_that_of_the_tables() {
    let table = [
        (0.5, 0.520_499_877_813_046_5),
        (2.0, 0.995_322_265_018_952_7),
        (3.0, 0.999_977_909_503_001_4),
    ];
    for (x, y) in table {
        assert!(
            (erf(x) - y).abs() < 1e-13 && (erf(-x) + y).abs() < 1e-13,
            "{x}: {}",
            erf(x)
        );
    }
}
