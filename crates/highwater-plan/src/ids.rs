//! What nodes, values and cells are called: types of their own, so that nobody takes one for the other,
//! or for a count, a step or an instruction.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};

/// An index of a [`Problem`](crate::Problem), as a type of its own. It is written as its number.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// The one of this index.
            ///
            /// # Panics
            /// If the index has more than 32 bits: no memory holds as many.
            #[inline]
            #[must_use]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("no memory holds so many"))
            }

            /// All those below a count.
            #[inline]
            pub fn below(count: usize) -> impl DoubleEndedIterator<Item = Self> + Clone {
                (0..count).map(Self::new)
            }

            /// What is listed for each, with its index.
            #[inline]
            pub fn numbered<T>(list: &[T]) -> impl DoubleEndedIterator<Item = (Self, &T)> {
                list.iter().enumerate().map(|(index, item)| (Self::new(index), item))
            }

            /// Where it is in a list.
            #[inline]
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl Hash for $name {
            #[inline]
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }

            /// Two at a time, as lists of numbers are hashed: problems are looked up at every step.
            #[inline]
            fn hash_slice<H: Hasher>(list: &[Self], state: &mut H) {
                let (pairs, last) = list.as_chunks::<2>();
                for &[first, second] in pairs {
                    state.write_u64(u64::from(first.0) | u64::from(second.0) << 32);
                }
                for id in last {
                    id.hash(state);
                }
            }
        }
    };
}

index! {
    /// Index of a node in [`Problem::nodes`](crate::Problem::nodes).
    NodeId
}

index! {
    /// Index of a value in [`Problem::values`](crate::Problem::values).
    ValueId
}

index! {
    /// Identity of a cell (persistent state with versions), opaque to the planner.
    CellId
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, U32Deserializer};
    use std::hash::DefaultHasher;

    fn hashed(list: &(impl Hash + ?Sized)) -> u64 {
        let mut hasher = DefaultHasher::new();
        list.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn ids_are_hashed_read_and_written_as_numbers() {
        for count in 0..6 {
            let numbers: Vec<u32> = (0..count).map(|i| i * 1_000_003 + 7).collect();
            let of = |&number: &u32| NodeId::new(number as usize);
            let ids: Vec<NodeId> = numbers.iter().map(of).collect();
            assert_eq!(hashed(&ids), hashed(&numbers));
            assert_eq!(format!("{ids:?}"), format!("{numbers:?}"));
        }
        let number: U32Deserializer<Error> = 7u32.into_deserializer();
        assert_eq!(ValueId::deserialize(number), Ok(ValueId::new(7)));
        assert_eq!(hashed(&CellId::new(7)), hashed(&7u32));
    }
}
