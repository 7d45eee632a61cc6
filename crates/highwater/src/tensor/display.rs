//! What tensors print as with `{}`: their elements, as PyTorch prints them.
//!
//! Up to 1,000 elements are printed whole; of more, the first and last three along each dimension. Floats have four
//! digits behind the point, or none where all are whole, or an exponent where they are far apart, all in columns of
//! one width. Lines have at most 80 characters.

use super::Tensor;
use super::buffer::Buffer;
use super::parameter::Parameter;
use crate::Result;
use crate::pending::context::no_grad;
use half::{bf16, f16};
use highwater_graph::DType;
use highwater_ops::Engaged;
use std::fmt::{self, Display, Formatter, Write};

/// Elements from which on not all are printed.
const THRESHOLD: usize = 1000;
/// Of a dimension that is longer than two of these, so many are printed at each end.
const EDGE: usize = 3;
/// Characters of a line, at most.
const LINE: usize = 80;
/// What stands before the elements.
const PREFIX: &str = "tensor(";

/// Computes the tensor and prints its elements, in PyTorch's form: `tensor([1., 2.])`, with the dtype unless it is
/// `float32`, `int64` or `bool`, and whether it requires a gradient (in the place of PyTorch's `grad_fn` too).
///
/// Printing a tensor reads it, as [`Tensor::to_vec`] does. Where it cannot be read it prints why, and does not panic.
///
/// ```
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().arena(1 << 20).build()?;
/// let x = engine.tensor(&[1.0, 2.5, -3.0, 4.0], [2, 2])?;
/// let text = "tensor([[ 1.0000,  2.5000],\n        [-3.0000,  4.0000]])";
/// assert_eq!(x.to_string(), text);
/// # Ok(())
/// # }
/// ```
impl Display for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if Engaged::is() {
            // It would wait for itself.
            let size = size(self.dims());
            return write!(
                f,
                "{PREFIX}<not available: the engine is in use>, size={size})"
            );
        }
        let shown = no_grad(|| shown(self));
        let is_empty = self.shape().numel() == 0;
        let mut text = match &shown {
            Ok(shown) => format!("{PREFIX}{}", shown.text()),
            Err(error) => format!("{PREFIX}<not available: {error}>"),
        };
        let mut suffixes = Vec::new();
        if shown.is_err() || is_empty && self.dims().len() != 1 {
            suffixes.push(format!("size={}", size(self.dims())));
        }
        let is_usual = match self.dtype() {
            DType::F32 => true,
            DType::I64 | DType::Bool => !is_empty,
            _ => false,
        };
        if !is_usual {
            suffixes.push(format!("dtype={}", self.dtype()));
        }
        if self.requires_grad().is_ok_and(|requires| requires) {
            suffixes.push("requires_grad=True".to_owned());
        }
        // PyTorch counts two characters more than the line has.
        let mut line = text.len() - text.rfind('\n').map_or(0, |at| at + 1) + 2;
        for suffix in suffixes {
            if line + suffix.len() + 2 > LINE {
                write!(text, ",\n{:1$}{suffix}", "", PREFIX.len())?;
                line = PREFIX.len() + suffix.len();
            } else {
                write!(text, ", {suffix}")?;
                line += suffix.len() + 2;
            }
        }
        write!(f, "{text})")
    }
}

/// As a tensor, behind a line that says that it is a parameter, as in PyTorch.
impl Display for Parameter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tensor: &Tensor = self;
        write!(f, "Parameter containing:\n{tensor}")
    }
}

impl Display for Buffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tensor: &Tensor = self;
        tensor.fmt(f)
    }
}

/// Extents as Python prints a tuple.
fn size(dims: &[usize]) -> String {
    if let [one] = dims {
        return format!("({one},)");
    }
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("({})", dims.join(", "))
}

/// Elements as they are printed, each of one width.
struct Shown {
    /// Of the tensor.
    dims: Vec<usize>,
    is_summary: bool,
    elements: Vec<String>,
    width: usize,
}

/// Which elements along a dimension are printed, in one or two ranges: where each starts, and its length.
fn ranges(extent: usize, is_summary: bool) -> Vec<(usize, usize)> {
    if is_summary && extent > 2 * EDGE {
        vec![(0, EDGE), (extent - EDGE, EDGE)]
    } else {
        vec![(0, extent)]
    }
}

fn shown(tensor: &Tensor) -> Result<Shown> {
    let is_summary = tensor.shape().numel() > THRESHOLD;
    let dims = tensor.dims().to_vec();
    let (elements, width) = match tensor.dtype() {
        DType::F32 | DType::F64 | DType::BF16 | DType::F16 => {
            let numbers = gather(tensor, 0, is_summary, &floats)?;
            in_columns(&numbers)
        }
        _ => {
            let words = gather(tensor, 0, is_summary, &words)?;
            let width = words.iter().map(String::len).max().unwrap_or(1);
            (words, width)
        }
    };
    Ok(Shown {
        dims,
        is_summary,
        elements,
        width,
    })
}

/// The elements that are printed, row-major, of a view that is cut already before a dimension. Nothing else is copied
/// out of the tensor.
fn gather<T: Clone>(
    view: &Tensor,
    dim: usize,
    is_summary: bool,
    read: &impl Fn(&Tensor) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let Some(&extent) = view.dims().get(dim) else {
        return read(view);
    };
    let parts = ranges(extent, is_summary);
    let [first, last] = parts[..] else {
        return gather(view, dim + 1, is_summary, read);
    };
    let part = |(start, len): (usize, usize)| {
        gather(&view.narrow(dim, start, len)?, dim + 1, is_summary, read)
    };
    let (first, last) = (part(first)?, part(last)?);
    let blocks: usize = view.dims()[..dim].iter().product();
    let block = first.len() / blocks.max(1);
    let both = first.chunks(block.max(1)).zip(last.chunks(block.max(1)));
    Ok(both
        .flat_map(|(first, last)| [first, last].concat())
        .collect())
}

fn floats(view: &Tensor) -> Result<Vec<f64>> {
    Ok(match view.dtype() {
        DType::F64 => view.to_vec::<f64>()?,
        DType::BF16 => view.to_vec::<bf16>()?.iter().map(|x| x.to_f64()).collect(),
        DType::F16 => view.to_vec::<f16>()?.iter().map(|x| x.to_f64()).collect(),
        _ => view.to_vec::<f32>()?.iter().map(|&x| x.into()).collect(),
    })
}

fn words(view: &Tensor) -> Result<Vec<String>> {
    fn all<T: ToString>(elements: &[T]) -> Vec<String> {
        elements.iter().map(T::to_string).collect()
    }
    Ok(match view.dtype() {
        DType::I64 => all(&view.to_vec::<i64>()?),
        DType::I16 => all(&view.to_vec::<i16>()?),
        DType::U32 => all(&view.to_vec::<u32>()?),
        DType::U8 => all(&view.to_vec::<u8>()?),
        DType::Bool => {
            let truths = view.to_vec::<u8>()?;
            let word = |&truth: &u8| if truth == 0 { "False" } else { "True" };
            truths.iter().map(|truth| word(truth).to_owned()).collect()
        }
        // Blocks, whose elements cannot be read.
        _ => return view.to_vec::<f32>().map(|_| Vec::new()),
    })
}

/// Floats as they are printed, and the width of the widest that is neither zero, nor infinite, nor NaN.
fn in_columns(numbers: &[f64]) -> (Vec<String>, usize) {
    let magnitudes = || {
        let finite = numbers.iter().filter(|x| x.is_finite() && **x != 0.0);
        finite.map(|x| x.abs())
    };
    let (least, most) = magnitudes().fold((f64::INFINITY, 0.0_f64), |(least, most), x| {
        (least.min(x), most.max(x))
    });
    let is_any = most > 0.0;
    let are_whole = magnitudes().all(|x| x.fract() == 0.0);
    let is_far = is_any && (most / least > 1000.0 || most > 1e8 || least < 1e-4);
    let text = |x: f64| {
        if x.is_nan() {
            "nan".to_owned()
        } else if x.is_infinite() {
            if x > 0.0 { "inf" } else { "-inf" }.to_owned()
        } else if is_far {
            scientific(x)
        } else if are_whole {
            format!("{x:.0}.")
        } else {
            format!("{x:.4}")
        }
    };
    let texts: Vec<String> = numbers.iter().map(|&x| text(x)).collect();
    let counts = |x: &f64| x.is_finite() && *x != 0.0;
    let widths = numbers.iter().zip(&texts).filter(|(x, _)| counts(x));
    let width = widths.map(|(_, text)| text.len()).max().unwrap_or(1);
    (texts, width)
}

/// With an exponent of a sign and two digits at least, as Python has it.
fn scientific(x: f64) -> String {
    let text = format!("{x:.4e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

impl Shown {
    fn text(&self) -> String {
        if self.dims.contains(&0) {
            return "[]".to_owned();
        }
        let mut elements = self.elements.iter();
        self.part(0, PREFIX.len(), &mut elements)
    }

    /// What stands between a pair of brackets, from a dimension on.
    fn part<'a>(
        &self,
        dim: usize,
        indent: usize,
        elements: &mut impl Iterator<Item = &'a String>,
    ) -> String {
        let Some(&extent) = self.dims.get(dim) else {
            return self.next(elements);
        };
        let is_last = dim + 1 == self.dims.len();
        let mut items = Vec::new();
        for (i, (_, len)) in ranges(extent, self.is_summary).into_iter().enumerate() {
            if i > 0 {
                items.push(if is_last { " ..." } else { "..." }.to_owned());
            }
            for _ in 0..len {
                items.push(if is_last {
                    self.next(elements)
                } else {
                    self.part(dim + 1, indent + 1, elements)
                });
            }
        }
        let margin = " ".repeat(indent + 1);
        if is_last {
            let per_line = ((LINE - indent) / (self.width + 2)).max(1);
            let lines: Vec<String> = items.chunks(per_line).map(|line| line.join(", ")).collect();
            return format!("[{}]", lines.join(&format!(",\n{margin}")));
        }
        let breaks = "\n".repeat(self.dims.len() - dim - 1);
        format!("[{}]", items.join(&format!(",{breaks}{margin}")))
    }

    fn next<'a>(&self, elements: &mut impl Iterator<Item = &'a String>) -> String {
        let element = elements.next().map_or("", String::as_str);
        format!("{element:>0$}", self.width)
    }
}
