//! The tree of columns, structs and lists that rows are put together from.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor, ColumnPath, Type};

use super::footer::Element;
use super::values::{self, Meaning};
use super::{AGAIN, Fault};
use crate::records::RECORD_BYTES_MAX;

/// Structs and lists within each other.
const DEPTH_MAX: usize = 64;

/// What rows look like.
pub(super) struct Shape {
    pub(super) fields: Vec<(String, Node)>,
    pub(super) leaves: Vec<Arc<Leaf>>,
}

/// Something that is there for each row, or for each element of a list.
#[derive(Debug)]
pub(super) struct Node {
    /// The definition level from which on it is there; below, it is null.
    pub(super) present: i16,
    /// The columns that it is read from.
    pub(super) leaves: Range<usize>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Value,
    Object(Vec<(String, Node)>),
    List(Items),
    /// From keys to values.
    Map(Items),
}

/// What comes many times.
#[derive(Debug)]
pub(super) struct Items {
    /// The definition level from which on there is an item at all.
    pub(super) definition: i16,
    /// The repetition level of further ones.
    pub(super) repetition: i16,
    pub(super) item: Box<Node>,
}

/// A column.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Its name, and those of what it is in, with dots between.
    pub(super) name: String,
    pub(super) number: i64,
    pub(super) definition: i16,
    pub(super) repetition: i16,
    pub(super) meaning: Meaning,
    pub(super) descriptor: ColumnDescPtr,
}

/// Builds the tree of a footer's elements.
pub(super) fn build(elements: Vec<Element>) -> Result<Shape, Fault> {
    let mut builder = Builder {
        elements: elements.into_iter(),
        leaves: Vec::new(),
        path: Vec::new(),
    };
    let root = builder.next()?;
    let mut fields = Vec::new();
    for _ in 0..root.children {
        fields.push(builder.node(0, 0)?);
    }
    if builder.elements.next().is_some() {
        return Err(damaged());
    }
    if builder.leaves.is_empty() {
        return Err(Fault::new("it has no columns").hint("at least one is needed"));
    }
    check_names(&fields)?;
    Ok(Shape {
        fields,
        leaves: builder.leaves,
    })
}

fn damaged() -> Fault {
    Fault::new("its schema is damaged").hint(AGAIN)
}

fn check_names(fields: &[(String, Node)]) -> Result<(), Fault> {
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let fault = Fault::new(format!("two columns are named \"{}\"", pair[0]));
            Err(fault.hint("give each column a name of its own"))
        }
        None => Ok(()),
    }
}

struct Builder {
    elements: std::vec::IntoIter<Element>,
    leaves: Vec<Arc<Leaf>>,
    /// The names of what is being built.
    path: Vec<String>,
}

impl Builder {
    fn next(&mut self) -> Result<Element, Fault> {
        self.elements.next().ok_or_else(damaged)
    }

    /// Builds the next element, within levels.
    fn node(&mut self, definition: i16, repetition: i16) -> Result<(String, Node), Fault> {
        if self.path.len() == DEPTH_MAX {
            let fault = format!("more than {DEPTH_MAX} structs or lists within each other");
            return Err(Fault::new(fault).hint("write flatter rows"));
        }
        let element = self.next()?;
        let first = self.leaves.len();
        let (definition, repetition) = match element.repetition {
            Some(0) => (definition, repetition),
            Some(1) => (definition + 1, repetition),
            Some(2) => (definition + 1, repetition + 1),
            _ => return Err(damaged()),
        };
        self.path.push(element.name.clone());
        let kind = if element.children == 0 {
            self.leaf(&element, definition, repetition)?;
            Kind::Value
        } else {
            let mut fields = Vec::new();
            for _ in 0..element.children {
                fields.push(self.node(definition, repetition)?);
            }
            check_names(&fields)?;
            group(&element, fields)
        };
        self.path.pop();
        let node = |present, kind| Node {
            present,
            leaves: first..self.leaves.len(),
            kind,
        };
        let node = match element.repetition {
            Some(1) => node(definition, kind),
            Some(2) => {
                let item = Box::new(node(0, kind));
                let items = Items {
                    definition,
                    repetition,
                    item,
                };
                node(0, Kind::List(items))
            }
            _ => node(0, kind),
        };
        Ok((element.name, node))
    }

    fn leaf(&mut self, element: &Element, definition: i16, repetition: i16) -> Result<(), Fault> {
        let name = self.path.join(".");
        let number = element.physical.ok_or_else(damaged)?;
        let physical = physical(number).ok_or_else(damaged)?;
        let length = match physical {
            Physical::FIXED_LEN_BYTE_ARRAY => {
                let valid = 1..=RECORD_BYTES_MAX as i64;
                if !valid.contains(&element.length) {
                    return Err(damaged());
                }
                element.length as i32
            }
            _ => -1,
        };
        // The library is told of bytes alone, not of what they mean.
        let primitive = Type::primitive_type_builder(&element.name, physical)
            .with_length(length)
            .build()
            .map_err(|error| Fault::new(format!("column {name}: {error}")).hint(AGAIN))?;
        let path = ColumnPath::new(self.path.clone());
        let descriptor = ColumnDescriptor::new(Arc::new(primitive), definition, repetition, path);
        self.leaves.push(Arc::new(Leaf {
            meaning: values::meaning(element, physical),
            name,
            number,
            definition,
            repetition,
            descriptor: Arc::new(descriptor),
        }));
        Ok(())
    }
}

/// What a struct is, which may be around a list.
/// Source: <https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#nested-types>.
fn group(element: &Element, mut fields: Vec<(String, Node)>) -> Kind {
    let is = |logical: i64, converted: &[i64]| {
        element.logical.is_some_and(|found| found.kind == logical)
            || element
                .converted
                .is_some_and(|found| converted.contains(&found))
    };
    let (is_map, is_list) = (is(2, &[1, 2]), is(3, &[3]));
    match &mut fields[..] {
        [
            (
                name,
                Node {
                    kind: Kind::List(items),
                    ..
                },
            ),
        ] if is_list || is_map => {
            let mut items = Items {
                definition: items.definition,
                repetition: items.repetition,
                item: std::mem::replace(&mut items.item, Box::new(empty())),
            };
            match &mut items.item.kind {
                Kind::Object(inner) if is_map && inner.len() == 2 => return Kind::Map(items),
                // A struct around each item, unless older programs wrote lists of structs so.
                Kind::Object(inner)
                    if inner.len() == 1
                        && name != "array"
                        && *name != format!("{}_tuple", element.name) =>
                {
                    if let Some((_, only)) = inner.pop() {
                        items.item = Box::new(only);
                    }
                }
                _ => {}
            }
            Kind::List(items)
        }
        _ => Kind::Object(fields),
    }
}

/// What stands where something was taken from.
const fn empty() -> Node {
    Node {
        present: 0,
        leaves: 0..0,
        kind: Kind::Value,
    }
}

fn physical(number: i64) -> Option<Physical> {
    Some(match number {
        0 => Physical::BOOLEAN,
        1 => Physical::INT32,
        2 => Physical::INT64,
        3 => Physical::INT96,
        4 => Physical::FLOAT,
        5 => Physical::DOUBLE,
        6 => Physical::BYTE_ARRAY,
        7 => Physical::FIXED_LEN_BYTE_ARRAY,
        _ => return None,
    })
}
