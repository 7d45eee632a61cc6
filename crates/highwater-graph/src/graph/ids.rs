//! What nodes, values, cells and their versions are called: types of their own, so that nobody takes
//! one for the other, or for a number of the planner's.

use std::fmt;

/// An index of a [`Graph`](crate::Graph), as a type of its own.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The one of this index.
            ///
            /// # Panics
            /// If the index has more than 32 bits: no memory holds as many.
            #[inline]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("no memory holds so many"))
            }

            /// All those below a count.
            #[inline]
            pub fn below(count: usize) -> impl DoubleEndedIterator<Item = Self> {
                (0..count).map(Self::new)
            }

            /// Where it is in a list.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index! {
    /// A node of a [`Graph`](crate::Graph): its place in the order in which nodes were made.
    NodeId
}

index! {
    /// A value of a [`Graph`](crate::Graph).
    ValueId
}

index! {
    /// A kernel of a [`Backend`](crate::Backend), which alone knows what it stands for.
    KernelId
}

/// Identity of a cell; never used again after the cell is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(u32);

impl CellId {
    /// The number that it is known by outside the process, such as in a spill file.
    pub fn number(self) -> u64 {
        u64::from(self.0)
    }

    /// The one for the cell made next.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Version of a cell: 0 when made, one more after each write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u32);

impl Version {
    /// How many writes there were since an earlier one; none, if that is later.
    pub fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }

    /// The one after a write.
    #[must_use]
    pub fn next(self) -> Self {
        self.after(1)
    }

    /// The one after so many writes.
    #[must_use]
    pub(super) fn after(self, writes: u32) -> Self {
        Self(self.0 + writes)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
