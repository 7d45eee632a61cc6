//! Makes packed files and Parquet files.

use std::io::Write;
use std::sync::Arc;

use flate2::write::GzEncoder;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray,
    FixedLenByteArrayType, FloatType, Int32Type, Int64Type, Int96, Int96Type,
};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

pub(crate) fn gz(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), flate2::Compression::default());
    writer.write_all(bytes.as_ref()).unwrap();
    writer.finish().unwrap()
}

/// With a checksum.
pub(crate) fn zst(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    zst_with(bytes.as_ref(), 3, None)
}

pub(crate) fn zst_with(bytes: &[u8], level: i32, window_log: Option<u32>) -> Vec<u8> {
    let mut writer = zstd::stream::write::Encoder::new(Vec::new(), level).unwrap();
    writer.include_checksum(true).unwrap();
    if let Some(log) = window_log {
        writer.window_log(log).unwrap();
    }
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// What a column holds, without its nulls.
pub(crate) enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I96(Vec<[u32; 3]>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes(Vec<Vec<u8>>),
    Fixed(Vec<Vec<u8>>),
}

/// A column: values, and the levels where there are some.
pub(crate) struct Data {
    values: Values,
    definition: Option<Vec<i16>>,
    repetition: Option<Vec<i16>>,
}

impl Values {
    /// None of them is null.
    pub(crate) fn all(self) -> Data {
        Data {
            values: self,
            definition: None,
            repetition: None,
        }
    }

    pub(crate) fn some(self, definition: &[i16]) -> Data {
        Data {
            values: self,
            definition: Some(definition.to_vec()),
            repetition: None,
        }
    }

    pub(crate) fn nested(self, definition: &[i16], repetition: &[i16]) -> Data {
        Data {
            values: self,
            definition: Some(definition.to_vec()),
            repetition: Some(repetition.to_vec()),
        }
    }
}

pub(crate) fn texts(texts: &[&str]) -> Values {
    Values::Bytes(texts.iter().map(|text| text.as_bytes().to_vec()).collect())
}

pub(crate) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
}

/// A Parquet file: its schema, and the columns of each group of rows.
pub(crate) fn parquet(
    schema: &str,
    with: WriterPropertiesBuilder,
    groups: &[Vec<Data>],
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message schema {{ {schema} }}")).unwrap());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(with.build())).unwrap();
    for columns in groups {
        let mut group = file.next_row_group().unwrap();
        for data in columns {
            let mut column = group.next_column().unwrap().unwrap();
            write(&mut column, data);
            column.close().unwrap();
        }
        assert!(
            group.next_column().unwrap().is_none(),
            "a column without values"
        );
        group.close().unwrap();
    }
    file.into_inner().unwrap()
}

fn write(column: &mut SerializedColumnWriter<'_>, data: &Data) {
    let bytes = |values: &[Vec<u8>]| {
        values
            .iter()
            .cloned()
            .map(ByteArray::from)
            .collect::<Vec<_>>()
    };
    match &data.values {
        Values::Bool(values) => typed::<BoolType>(column, values, data),
        Values::I32(values) => typed::<Int32Type>(column, values, data),
        Values::I64(values) => typed::<Int64Type>(column, values, data),
        Values::I96(values) => {
            let values: Vec<Int96> = values
                .iter()
                .map(|parts| Int96::from(parts.to_vec()))
                .collect();
            typed::<Int96Type>(column, &values, data);
        }
        Values::F32(values) => typed::<FloatType>(column, values, data),
        Values::F64(values) => typed::<DoubleType>(column, values, data),
        Values::Bytes(values) => typed::<ByteArrayType>(column, &bytes(values), data),
        Values::Fixed(values) => {
            let values = bytes(values).into_iter().map(FixedLenByteArray::from);
            typed::<FixedLenByteArrayType>(column, &values.collect::<Vec<_>>(), data);
        }
    }
}

fn typed<T: DataType>(column: &mut SerializedColumnWriter<'_>, values: &[T::T], data: &Data) {
    let levels = (data.definition.as_deref(), data.repetition.as_deref());
    column
        .typed::<T>()
        .write_batch(values, levels.0, levels.1)
        .unwrap();
}
