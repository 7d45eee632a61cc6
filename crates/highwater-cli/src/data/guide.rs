//! The text that is trained on when nobody names data.

/// What is trained on when nobody names data: this project's own documentation.
pub const GUIDE: &str = concat!(
    include_str!("guide.md"),
    include_str!("../../../../CONTRIBUTING.md"),
    include_str!("../../../../ARCHITECTURE.md"),
    include_str!("../../../../README.md"),
);
