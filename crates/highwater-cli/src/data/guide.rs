//! The text that is trained on when nobody names data.

/// What is trained on when nobody names data: this project's own documentation. The folder `pages` of this crate has
/// links to it, so that a package of the crate has its text.
pub const GUIDE: &str = concat!(
    include_str!("guide.md"),
    include_str!("../../pages/CONTRIBUTING.md"),
    include_str!("../../pages/ARCHITECTURE.md"),
    include_str!("../../pages/README.md"),
    include_str!("../../pages/docs/guide/overview.md"),
    include_str!("../../pages/docs/guide/1-tensors.md"),
    include_str!("../../pages/docs/guide/2-gradients.md"),
    include_str!("../../pages/docs/guide/3-modules.md"),
    include_str!("../../pages/docs/guide/4-training.md"),
    include_str!("../../pages/docs/guide/5-budget.md"),
    include_str!("../../pages/docs/guide/6-operations.md"),
    include_str!("../../pages/docs/guide/7-pitfalls.md"),
    include_str!("../../pages/docs/guide/checkpoint.md"),
    include_str!("../../pages/docs/guide/from-pytorch.md"),
    include_str!("../../pages/docs/explanation/step.md"),
    include_str!("../../pages/docs/explanation/memory.md"),
    include_str!("../../pages/docs/explanation/planner.md"),
    include_str!("../../pages/docs/explanation/tiers.md"),
    include_str!("../../pages/docs/explanation/exactness.md"),
    include_str!("../../pages/docs/design/planner.md"),
    include_str!("../../pages/docs/design/execution.md"),
    include_str!("../../pages/docs/design/offload.md"),
    include_str!("../../pages/docs/design/saved-state.md"),
    include_str!("../../pages/docs/design/decisions.md"),
);
