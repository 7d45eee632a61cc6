//! Reads what records say.

use serde_json::{Map, Value};

use crate::chat::ChatTemplate;
use crate::error::{Place, TextError};
use crate::example::Example;
use crate::example::fields::Fields;
use crate::example::format::{FieldMap, Format, called, field, found};
use crate::example::unread::Unread;
use crate::records::Record;

/// The most bytes of an example that is no text: each is held several times while it is written and made tokens.
const BYTES_MAX: usize = 4 << 20;

/// Reads examples of records.
#[derive(Clone, Debug)]
pub struct Reader {
    format: Format,
    map: FieldMap,
    /// Whether instructions become conversations, or text as Alpaca's.
    has_template: bool,
}

impl Reader {
    /// A reader of records like the first one.
    ///
    /// # Errors
    /// [`TextError`] where its fields say nothing that is known.
    pub fn detect(first: &Record, map: FieldMap, has_template: bool) -> Result<Self, TextError> {
        let known: Vec<_> = Format::ALL.iter().flat_map(|f| f.required()).collect();
        for (name, called) in &map.0 {
            let optional = Format::ALL.iter().flat_map(|format| format.optional());
            let is_optional = optional.clone().any(|optional| optional == name);
            if !known.iter().any(|known| *known == name) && !is_optional {
                let problem = format!("--map {name}={called}: no field is called {name}");
                let names = known.iter().copied().chain(optional).copied();
                let nearest =
                    names.max_by(|a, b| strsim::jaro(a, name).total_cmp(&strsim::jaro(b, name)));
                let error = TextError::bad(first.place.clone(), problem);
                return Err(error.hinted(format!("did you mean {}?", nearest.unwrap_or("text"))));
            }
            if !first.fields.contains_key(called) && known.iter().any(|known| *known == name) {
                let problem = format!("--map {name}={called}: there is no field {called}");
                return Err(
                    TextError::bad(first.place.clone(), problem).hinted(found(&first.fields))
                );
            }
        }
        let fits = |format: &&Format| {
            let mut required = format.required().iter();
            required.all(|name| field(&first.fields, &map, name).is_some())
        };
        let format = Format::ALL.iter().find(fits).ok_or_else(|| {
            let problem = "nothing that is known: expected messages, conversations, instruction and output, prompt \
                           and completion, chosen and rejected, text, or input_ids";
            let hint = format!("{}; map the fields, for example --map text=FIELD", found(&first.fields));
            TextError::bad(first.place.clone(), problem).hinted(hint)
        })?;
        Ok(Self {
            format: *format,
            map,
            has_template,
        })
    }

    /// What records look like.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether examples need a chat template.
    pub fn needs_template(&self) -> bool {
        matches!(self.format, Format::Messages | Format::ShareGpt)
    }

    /// Counts the fields of a record that are not read.
    pub(crate) fn count_unread(
        &self,
        record: &Record,
        unread: &mut Unread,
        template: Option<&ChatTemplate>,
    ) {
        let names = self.format.required().iter().chain(self.format.optional());
        let read = names.filter_map(|name| called(&record.fields, &self.map, name));
        let read: Vec<&str> = read.collect();
        unread.count(&record.fields, |name| read.contains(&name), template);
    }

    /// What a record says.
    ///
    /// # Errors
    /// [`TextError`], naming the record and the field.
    pub fn read(&self, record: Record) -> Result<Example, TextError> {
        let Record { place, mut fields } = record;
        if self.format == Format::Text {
            return take_text(&place, &mut fields, &self.map);
        }
        let of = Fields {
            place: &place,
            values: &fields,
            map: &self.map,
        };
        of.refuse(self.format)?;
        let example = match self.format {
            Format::Messages => of.conversation("messages"),
            Format::ShareGpt => of.conversation("conversations"),
            Format::Instruction => of.instruction(self.has_template, "output"),
            Format::Completion => of.completion("completion"),
            Format::Pairs => of.pair(self.has_template),
            Format::Text => of.text("text").map(Example::Text),
            Format::Tokens => of.tokens(),
        }?;
        let bytes = example.bytes();
        if bytes > BYTES_MAX && !matches!(example, Example::Tokens { .. }) {
            let problem = format!(
                "it needs {} MiB; an example that is not text may need {}",
                bytes >> 20,
                BYTES_MAX >> 20
            );
            return Err(TextError::bad(place, problem)
                .hinted("remove or truncate it: no model reads that much"));
        }
        Ok(example)
    }
}

/// The text of a record, which is not copied, as it may be long.
fn take_text(
    place: &Place,
    fields: &mut Map<String, Value>,
    map: &FieldMap,
) -> Result<Example, TextError> {
    let name = called(fields, map, "text").map(str::to_owned);
    if let Some(Value::String(text)) = name.and_then(|name| fields.get_mut(&name)) {
        return Ok(Example::Text(std::mem::take(text)));
    }
    let values = &*fields;
    let text = Fields { place, values, map }.text("text");
    text.map(Example::Text)
}
