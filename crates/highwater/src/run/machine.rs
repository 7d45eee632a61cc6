//! What a plan runs on.

use crate::store::Store;
use crate::store::cells::CellStore;
use crate::store::memory::Storages;
use highwater_graph::Graph;
use highwater_memory::System;
use highwater_ops::{Kernels, Pool};

/// What a plan runs on.
pub(crate) struct Machine<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) system: &'a dyn System,
    pub(crate) store: &'a Store,
    pub(crate) kernels: &'a Kernels,
    pub(crate) pool: &'a Pool,
    pub(crate) storages: &'a Storages,
    pub(crate) cells: &'a CellStore,
    /// Look at every result, and name the node of the first that is not finite.
    pub(crate) check_finite: bool,
    /// What a guard that ran before found, because of which updates are left out.
    pub(crate) skip: Option<&'static str>,
    /// Go through the plan without calling a kernel or touching a buffer.
    pub(crate) dry: bool,
}
