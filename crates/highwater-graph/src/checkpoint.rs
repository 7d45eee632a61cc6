//! What the user decided about the results of a node: the marks that `checkpoint` leaves.

/// What is to become of what an operation inside a checkpoint makes, as PyTorch's
/// `torch.utils.checkpoint.CheckpointPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckpointPolicy {
    /// Kept from when it is made to its last use, in every plan.
    MustSave,
    /// Kept, as long as some plan that follows all preferences fits the budget.
    PreferSave,
    /// Dropped after its last use in the forward part and recomputed for later ones, in every plan
    /// in which that is possible; with memory to spare too.
    MustRecompute,
    /// As [`CheckpointPolicy::MustRecompute`], as long as some plan that follows all preferences fits
    /// the budget.
    PreferRecompute,
}

/// The checkpoint that a node was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which one; nested ones have their own.
    pub region: u32,
    /// What is to become of the node's results, where only the same region uses them.
    pub policy: CheckpointPolicy,
}
