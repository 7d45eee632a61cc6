//! Pools of images: `max_pool2d` and `avg_pool2d`, over windows of one size or so many of them.
//!
//! Images are `[N, C, H, W]`. A maximum remembers where in its window it was found, in a byte for windows
//! of up to 256 elements, so that backward needs nothing else.

mod average;
mod cpu;
mod maximum;
mod reference;
mod row;
mod samples;
mod windows;

pub use average::{AvgPool2d, AvgPool2dBackward};
pub use maximum::{MaxPool2d, MaxPool2dBackward, MaxPool2dSelect};
pub use windows::{PoolSettings, Windows};

use crate::Entry;
use crate::kernels::rows::{Precise, rows_of_floats};
use highwater_graph::DType::{I64, U8};
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    MAXIMUM,
    MAXIMUM_BACKWARD,
    MAXIMUM_SELECT,
    AVERAGE,
    AVERAGE_BACKWARD,
];

const MAXIMUM: Entry = Entry {
    name: maximum::NAME,
    rows: rows_of_floats! {
        T: [T] -> [T, U8], [T] -> [T, I64];
        cpu::MaxKernel::<T>(PhantomData); Precise::new(reference::maximum)
    },
    reference: reference::maximum,
    samples: samples::maximum,
    rejects: samples::maximum_rejects,
};

const MAXIMUM_BACKWARD: Entry = Entry {
    name: maximum::BACKWARD,
    rows: rows_of_floats! {
        T: [T, U8] -> [T], [T, I64] -> [T];
        cpu::MaxBackwardKernel::<T>(PhantomData); Precise::checked(reference::scatter, cpu::check_places)
    },
    reference: reference::scatter,
    samples: samples::maximum_backward,
    rejects: samples::maximum_backward_rejects,
};

const MAXIMUM_SELECT: Entry = Entry {
    name: maximum::SELECT,
    rows: rows_of_floats! {
        T: [T, U8] -> [T], [T, I64] -> [T];
        cpu::SelectKernel::<T>(PhantomData); Precise::checked(reference::select, cpu::check_places)
    },
    reference: reference::select,
    samples: samples::select,
    rejects: samples::select_rejects,
};

const AVERAGE: Entry = Entry {
    name: average::NAME,
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::AvgKernel::<T>(PhantomData); Precise::new(reference::average)
    },
    reference: reference::average,
    samples: samples::average,
    rejects: samples::average_rejects,
};

const AVERAGE_BACKWARD: Entry = Entry {
    name: average::BACKWARD,
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::AvgBackwardKernel::<T>(PhantomData); Precise::new(reference::share)
    },
    reference: reference::share,
    samples: samples::average_backward,
    rejects: samples::average_backward_rejects,
};
