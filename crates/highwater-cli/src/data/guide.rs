//! The text that is trained on when nobody names data.

/// What is trained on when nobody names data: this project's own documentation.
pub const GUIDE: &str = concat!(
    include_str!("guide.md"),
    include_str!("../../../../CONTRIBUTING.md"),
    include_str!("../../../../ARCHITECTURE.md"),
    include_str!("../../../../README.md"),
    include_str!("../../../../docs/guide/overview.md"),
    include_str!("../../../../docs/guide/1-tensors.md"),
    include_str!("../../../../docs/guide/2-gradients.md"),
    include_str!("../../../../docs/guide/3-modules.md"),
    include_str!("../../../../docs/guide/4-training.md"),
    include_str!("../../../../docs/guide/5-budget.md"),
    include_str!("../../../../docs/guide/6-operations.md"),
    include_str!("../../../../docs/guide/7-pitfalls.md"),
    include_str!("../../../../docs/guide/checkpoint.md"),
    include_str!("../../../../docs/guide/from-pytorch.md"),
    include_str!("../../../../docs/explanation/step.md"),
    include_str!("../../../../docs/explanation/memory.md"),
    include_str!("../../../../docs/explanation/planner.md"),
    include_str!("../../../../docs/explanation/tiers.md"),
    include_str!("../../../../docs/explanation/exactness.md"),
    include_str!("../../../../docs/design/planner.md"),
    include_str!("../../../../docs/design/execution.md"),
    include_str!("../../../../docs/design/offload.md"),
    include_str!("../../../../docs/design/saved-state.md"),
    include_str!("../../../../docs/design/decisions.md"),
);
