//! Shapes, dtypes, layouts, cells, nodes and the [`Op`] trait: the vocabulary that the rest of
//! Highwater speaks. No kernel and no I/O is here, and no operation is named.

mod backend;
mod backward;
mod checkpoint;
mod dims;
mod dtype;
mod graph;
mod layout;
mod location;
mod mixer;
mod op;
mod shape;

pub use backend::Backend;
pub use backward::Backward;
pub use checkpoint::{Checkpoint, CheckpointPolicy};
pub use dtype::DType;
pub use graph::{
    Category, Cell, CellId, Cells, Graph, Joined, KernelId, Node, NodeId, Operand, Phase, Site,
    Source, Value, ValueId, Version,
};
pub use layout::Layout;
pub use location::Location;
pub use mixer::{BuildMixer, Mixer};
pub use op::{Autocast, Cost, Effect, Op, OpError, Promotion, Spec, Traits};
pub use shape::{RANK_MAX, Shape};
