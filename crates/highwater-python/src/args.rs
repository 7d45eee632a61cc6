//! What Python hands in, as numbers of the planner's, or an error that says what is wrong and where.

use highwater_plan::{Effect, Home, Lane, Pin, Policy};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Sizes, and their sum, stay below this: what is added to them still fits 64 bits.
pub(crate) const LIMIT: u64 = 1 << 62;

/// A whole number from 0 to a largest one. `what` says where it stands as well.
pub(crate) fn whole(number: &Bound<'_, PyAny>, most: u64, what: &str) -> PyResult<u64> {
    let wrong = || PyValueError::new_err(format!("{what} must be from 0 to {most}, not {number}"));
    match number.extract::<u64>() {
        Ok(number) if number <= most => Ok(number),
        Ok(_) => Err(wrong()),
        Err(e) if e.is_instance_of::<PyOverflowError>(number.py()) => Err(wrong()),
        Err(e) if e.is_instance_of::<PyTypeError>(number.py()) => {
            let kind = number.get_type().name()?;
            let text = format!("{what} must be an int, not {kind}");
            Err(PyTypeError::new_err(text))
        }
        Err(e) => Err(e),
    }
}

/// Seconds: a number that is not negative.
pub(crate) fn seconds(number: f64, what: &str) -> PyResult<f64> {
    if number.is_finite() && number >= 0.0 {
        return Ok(number);
    }
    let text = format!("{what} must be a number that is not negative, not {number}");
    Err(PyValueError::new_err(text))
}

/// What is listed.
pub(crate) fn each<'py>(list: &Bound<'py, PyAny>, what: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let wrong = |e: PyErr| {
        if e.is_instance_of::<PyTypeError>(list.py()) {
            return PyTypeError::new_err(format!("{what} must be a list or a tuple"));
        }
        e
    };
    list.try_iter().map_err(wrong)?.collect()
}

/// A pair, as it came from Python.
pub(crate) type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// What is listed in pairs; none where nothing is said.
pub(crate) fn pairs<'py>(list: Option<&Bound<'py, PyAny>>, what: &str) -> PyResult<Vec<Pair<'py>>> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let pair = |item: Bound<'py, PyAny>| {
        let wrong = |_| PyTypeError::new_err(format!("{what} must be pairs, not {item}"));
        item.extract().map_err(wrong)
    };
    each(list, what)?.into_iter().map(pair).collect()
}

/// Something that Python calls by one of a few names.
pub(crate) trait Named: Copy + 'static {
    /// All, with their names.
    const NAMES: &'static [(&'static str, Self)];

    /// The one of a name.
    fn of(name: &str, what: &str) -> PyResult<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, one)| one).ok_or_else(|| {
            let names = Self::NAMES.iter().map(|(name, _)| format!("{name:?}"));
            let names = names.collect::<Vec<_>>().join(", ");
            PyValueError::new_err(format!("{what} must be one of {names}, not {name:?}"))
        })
    }
}

impl Named for Policy {
    const NAMES: &'static [(&'static str, Policy)] = &[
        ("auto", Policy::Auto),
        ("keep", Policy::Keep),
        ("recompute", Policy::Recompute),
    ];
}

impl Named for Home {
    const NAMES: &'static [(&'static str, Home)] = &[
        ("arena", Home::Arena),
        ("external", Home::External),
        ("cell", Home::Cell(None)),
    ];
}

impl Named for Pin {
    const NAMES: &'static [(&'static str, Pin)] = &[
        ("free", Pin::Free),
        ("keep", Pin::Keep),
        ("recompute", Pin::Recompute),
        ("prefer_keep", Pin::PreferKeep),
        ("prefer_recompute", Pin::PreferRecompute),
    ];
}

impl Named for Effect {
    const NAMES: &'static [(&'static str, Effect)] = &[
        ("repeatable", Effect::Repeatable),
        ("once", Effect::Once),
        ("guard", Effect::Guard),
    ];
}

/// The lanes that a node may name.
impl Named for Lane {
    const NAMES: &'static [(&'static str, Lane)] = &[
        ("compute", Lane::Compute),
        ("communicate", Lane::Communicate),
    ];
}
