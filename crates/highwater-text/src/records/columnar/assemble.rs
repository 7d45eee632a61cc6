//! Puts rows together from the entries of columns.
//! Source: Melnik et al., *Dremel: Interactive Analysis of Web-Scale Datasets*, VLDB 2010.

use serde_json::{Map, Value};

use super::column::Column;
use super::json_weight::{BOX_BYTES, FIELD_BYTES, VALUE_BYTES};
use super::shape::{Items, Kind, Node, Shape};
use super::{AGAIN, Fault, Purse};

/// A row of columns that have been loaded.
pub(super) fn row(
    shape: &Shape,
    columns: &mut [Column],
    purse: &mut Purse,
) -> Result<Map<String, Value>, Fault> {
    let mut assembly = Assembly { columns, purse };
    let row = assembly.object(&shape.fields)?;
    for column in columns {
        column.finish()?;
    }
    Ok(row)
}

struct Assembly<'a> {
    columns: &'a mut [Column],
    purse: &'a mut Purse,
}

impl Assembly<'_> {
    fn object(&mut self, fields: &[(String, Node)]) -> Result<Map<String, Value>, Fault> {
        let mut object = Map::with_capacity(fields.len());
        for (name, node) in fields {
            self.purse.spend(VALUE_BYTES + FIELD_BYTES + name.len())?;
            object.insert(name.clone(), self.value(node)?);
        }
        Ok(object)
    }

    fn value(&mut self, node: &Node) -> Result<Value, Fault> {
        let first = &self.columns[node.leaves.start];
        let definition = first.definition()?;
        let missing = definition < node.present;
        match &node.kind {
            _ if missing => {
                self.pass(node)?;
                Ok(Value::Null)
            }
            Kind::Value => self.columns[node.leaves.start].take(),
            Kind::Object(fields) => {
                self.purse.spend(BOX_BYTES)?;
                let mut object = self.object(fields)?;
                // All objects of a column have the fields of all. One that is null here was in another row's.
                object.retain(|_, value| !value.is_null());
                Ok(Value::Object(object))
            }
            Kind::List(items) => {
                let mut list = Vec::new();
                self.items(node, items, |this| {
                    this.purse.spend(VALUE_BYTES)?;
                    list.push(this.value(&items.item)?);
                    Ok(())
                })?;
                Ok(Value::Array(list))
            }
            Kind::Map(items) => {
                let mut map = Map::new();
                self.items(node, items, |this| {
                    let (name, value) = this.pair(&items.item)?;
                    this.purse.spend(VALUE_BYTES + FIELD_BYTES + name.len())?;
                    map.insert(name, value);
                    Ok(())
                })?;
                Ok(Value::Object(map))
            }
        }
    }

    /// Goes through what comes many times.
    fn items(
        &mut self,
        node: &Node,
        items: &Items,
        mut take: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.purse.spend(BOX_BYTES)?;
        let first = node.leaves.start;
        if self.columns[first].definition()? < items.definition {
            return self.pass(node);
        }
        loop {
            take(self)?;
            let column = &self.columns[first];
            if column.is_done() || column.repetition() < items.repetition {
                return Ok(());
            }
        }
    }

    /// A key and a value.
    fn pair(&mut self, item: &Node) -> Result<(String, Value), Fault> {
        let Kind::Object(fields) = &item.kind else {
            return Err(Fault::new("a map without keys").hint(AGAIN));
        };
        let mut fields = fields.iter();
        let mut next = || {
            fields
                .next()
                .map_or(Ok(Value::Null), |(_, node)| self.value(node))
        };
        let (key, value) = (next()?, next()?);
        let name = match key {
            Value::String(name) => name,
            key => key.to_string(),
        };
        Ok((name, value))
    }

    /// Takes the entry of each column that says that something is not there.
    fn pass(&mut self, node: &Node) -> Result<(), Fault> {
        for column in &mut self.columns[node.leaves.clone()] {
            column.take()?;
        }
        Ok(())
    }
}
