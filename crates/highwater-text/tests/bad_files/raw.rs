//! Parquet files byte by byte, so that they can say what no library would write.

/// A struct of Thrift's compact protocol, without the byte that ends it.
#[derive(Clone, Default)]
pub(crate) struct Struct(Vec<u8>);

pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(out: &mut Vec<u8>, value: i64) {
    varint(out, (value << 1 ^ value >> 63) as u64);
}

impl Struct {
    fn field(mut self, id: i64, kind: u8) -> Self {
        self.0.push(kind);
        zigzag(&mut self.0, id);
        self
    }

    pub(crate) fn int(self, id: i64, value: i64) -> Self {
        let mut all = self.field(id, 5);
        zigzag(&mut all.0, value);
        all
    }

    pub(crate) fn long(self, id: i64, value: i64) -> Self {
        let mut all = self.field(id, 6);
        zigzag(&mut all.0, value);
        all
    }

    pub(crate) fn bytes(self, id: i64, bytes: &[u8]) -> Self {
        let mut all = self.field(id, 8);
        varint(&mut all.0, bytes.len() as u64);
        all.0.extend_from_slice(bytes);
        all
    }

    pub(crate) fn inner(self, id: i64, inner: Self) -> Self {
        let mut all = self.field(id, 12);
        all.0.extend(inner.end());
        all
    }

    /// A list of structs that is said to have so many.
    pub(crate) fn list_of(self, id: i64, count: u64, structs: &[Self]) -> Self {
        let mut all = self.field(id, 9);
        all.0.push(0xfc);
        varint(&mut all.0, count);
        for each in structs {
            all.0.extend(each.clone().end());
        }
        all
    }

    pub(crate) fn list(self, id: i64, structs: &[Self]) -> Self {
        self.list_of(id, structs.len() as u64, structs)
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.push(0);
        self.0
    }
}

/// A page: what its header says, and its bytes.
pub(crate) struct Page {
    pub(crate) kind: i64,
    /// Said to be so many bytes, before and after unpacking.
    pub(crate) packed: i64,
    pub(crate) unpacked: i64,
    pub(crate) values: i64,
    pub(crate) encoding: i64,
    pub(crate) body: Vec<u8>,
}

impl Page {
    pub(crate) fn data(values: i64, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self {
            kind: 0,
            packed: body.len() as i64,
            unpacked: body.len() as i64,
            values,
            encoding: 0,
            body,
        }
    }

    pub(crate) fn dictionary(values: i64, body: impl Into<Vec<u8>>) -> Self {
        Self {
            kind: 2,
            ..Self::data(values, body)
        }
    }

    pub(crate) fn encoded(self, encoding: i64) -> Self {
        Self { encoding, ..self }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let header = Struct::default()
            .int(1, self.kind)
            .int(2, self.unpacked)
            .int(3, self.packed);
        let part = Struct::default().int(1, self.values).int(2, self.encoding);
        let header = match self.kind {
            2 => header.inner(7, part),
            // Levels as runs.
            _ => header.inner(5, part.int(3, 3).int(4, 3)),
        };
        [header.end(), self.body.clone()].concat()
    }
}

/// A column of text that is always there.
pub(crate) fn text(name: &str) -> Struct {
    element(name, 0).int(1, 6).int(6, 0)
}

/// Something that is always there (0), may be missing (1) or come many times (2).
pub(crate) fn element(name: &str, repetition: i64) -> Struct {
    Struct::default()
        .int(3, repetition)
        .bytes(4, name.as_bytes())
}

pub(crate) fn root(children: i64) -> Struct {
    Struct::default().bytes(4, b"schema").int(5, children)
}

/// Where a column's values are, and how they are packed.
pub(crate) fn chunk(physical: i64, codec: i64, start: i64, bytes: i64) -> Struct {
    let values = Struct::default()
        .int(1, physical)
        .int(4, codec)
        .long(5, 1)
        .long(6, bytes)
        .long(7, bytes)
        .long(9, start);
    Struct::default().long(2, start).inner(3, values)
}

pub(crate) fn group(rows: i64, chunks: &[Struct]) -> Struct {
    Struct::default().list(1, chunks).long(2, 0).long(3, rows)
}

pub(crate) fn footer(schema: &[Struct], groups: &[Struct]) -> Struct {
    let footer = Struct::default().int(1, 1).list(2, schema).long(3, 0);
    footer.list(4, groups)
}

/// A file of what comes before its footer, and of that.
pub(crate) fn file(before: &[u8], footer: Struct) -> Vec<u8> {
    let footer = footer.end();
    let length = (footer.len() as u32).to_le_bytes();
    [b"PAR1", before, &footer, &length, b"PAR1"].concat()
}

/// A file with one column of so many rows.
pub(crate) fn column(
    schema: &[Struct],
    physical: i64,
    codec: i64,
    rows: i64,
    pages: &[Page],
) -> Vec<u8> {
    let pages: Vec<u8> = pages.iter().flat_map(Page::bytes).collect();
    let chunk = chunk(physical, codec, 4, pages.len() as i64);
    file(&pages, footer(schema, &[group(rows, &[chunk])]))
}

/// The same with one column of text.
pub(crate) fn texts(codec: i64, rows: i64, pages: &[Page]) -> Vec<u8> {
    column(&[root(1), text("text")], 6, codec, rows, pages)
}

/// A text as it stands in a page.
pub(crate) fn plain(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text].concat()
}

/// Levels that are all the same.
pub(crate) fn run(level: u8, count: u64) -> Vec<u8> {
    let mut levels = Vec::new();
    varint(&mut levels, count << 1);
    levels.push(level);
    [&(levels.len() as u32).to_le_bytes()[..], &levels].concat()
}
