//! `--tensorboard`: what steps came to, in files that TensorBoard reads.
//!
//! A file is a row of records as TensorFlow frames them (`tensorflow/core/lib/io/record_writer.h`): the length as
//! `u64`, its masked CRC-32C, the bytes, theirs; numbers with the lowest byte first. Each record is a message `Event`
//! of protocol buffers (`tensorflow/core/util/event.proto`), of which few fields are written. Each start of a run
//! begins another file: what earlier ones say of steps that are taken again is void from its second record on.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use highwater_memory::{FileWrite, Files, FilesError};

use super::metrics::Record;
use crate::session::HeldOut;

/// What the first record of a file says of its format.
const VERSION: &[u8] = b"brain.Event:2";
/// Kinds of fields of a message.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// A file of events, open at its end.
#[derive(Debug)]
pub struct Events {
    file: Box<dyn FileWrite>,
}

impl Events {
    /// Begins a file in a folder for the steps after `done`. Returns its path too.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn begin(files: &dyn Files, dir: &Path, done: u64) -> Result<(Self, PathBuf), FilesError> {
        files.create_dir_all(dir)?;
        let now = seconds();
        // TensorBoard reads files in the order of their names.
        let mut at = now as u64;
        let mut path = dir.join(name(at));
        while files.metadata(&path)?.is_some() {
            at += 1;
            path = dir.join(name(at));
        }
        let mut events = Self {
            file: files.create_new(&path)?,
        };
        let mut version = field(3, BYTES);
        bytes(&mut version, VERSION);
        events.write(now, 0, &version)?;
        // A session log whose status is that a session starts.
        let mut log = field(7, BYTES);
        bytes(&mut log, &[field(1, VARINT), vec![1]].concat());
        events.write(now, done + 1, &log)?;
        Ok((events, path))
    }

    /// Adds what a step came to.
    ///
    /// # Errors
    /// When writing fails.
    pub fn step(&mut self, record: &Record) -> Result<(), FilesError> {
        let norm = record.grad_norm.map(|norm| ("grad_norm", f64::from(norm)));
        let scalars = [
            ("loss", f64::from(record.loss)),
            ("lr", record.lr),
            ("tokens_per_second", record.tokens_per_second),
            ("peak_bytes", record.peak_rss_bytes as f64),
        ];
        let scalars: Vec<_> = scalars.into_iter().chain(norm).collect();
        self.scalars(record.step, &scalars)
    }

    /// Adds what the model comes to after a step on what is held out.
    ///
    /// # Errors
    /// When writing fails.
    pub fn held_out(&mut self, step: u64, found: &HeldOut) -> Result<(), FilesError> {
        let accuracy = found.accuracy.map(|share| ("held_out_accuracy", share));
        let scalars = [("held_out_loss", found.loss)].into_iter().chain(accuracy);
        let scalars: Vec<_> = scalars.map(|(tag, value)| (tag, value.into())).collect();
        self.scalars(step, &scalars)
    }

    /// Makes all records durable.
    ///
    /// # Errors
    /// When writing fails.
    pub fn sync(&mut self) -> Result<(), FilesError> {
        self.file.sync_all()
    }

    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<(), FilesError> {
        let mut summary = Vec::new();
        for &(tag, number) in scalars {
            let mut value = field(1, BYTES);
            bytes(&mut value, tag.as_bytes());
            value.extend(field(2, FIXED32));
            value.extend((number as f32).to_le_bytes());
            summary.extend(field(1, BYTES));
            bytes(&mut summary, &value);
        }
        let mut event = field(5, BYTES);
        bytes(&mut event, &summary);
        self.write(seconds(), step, &event)
    }

    /// Adds a record of an event: when it was, of which step, and the rest of it.
    fn write(&mut self, time: f64, step: u64, rest: &[u8]) -> Result<(), FilesError> {
        let mut event = field(1, FIXED64);
        event.extend(time.to_le_bytes());
        event.extend(field(2, VARINT));
        varint(&mut event, step);
        event.extend(rest);
        let length = (event.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked_crc(&length).to_le_bytes());
        record.extend(&event);
        record.extend(masked_crc(&event).to_le_bytes());
        self.file.write_all(&record)
    }
}

/// What a file is called that begins then; TensorBoard takes any name with `tfevents` in it.
fn name(seconds: u64) -> String {
    format!("events.out.tfevents.{seconds:010}.highwater")
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "TensorBoard shows when a step was; nothing depends on it"
)]
fn seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// The head of a field of a message.
fn field(number: u8, kind: u8) -> Vec<u8> {
    vec![number << 3 | kind]
}

/// A number, 7 bits in each byte, the lowest first.
fn varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

/// Bytes behind their number.
fn bytes(message: &mut Vec<u8>, bytes: &[u8]) {
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

/// The CRC-32C of bytes, turned and moved, as TensorFlow stores it.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// The CRC with Castagnoli's polynomial, from its lowest bit on (RFC 3720, appendix B.4).
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc = (crc >> 1) ^ (low * 0x82F6_3B78);
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_memory::files::MemoryFiles;

    /// An event: its step, the version or the status if it has one, and its scalars.
    #[derive(Debug, Default, PartialEq)]
    struct Event {
        step: u64,
        version: Vec<u8>,
        status: Option<u64>,
        scalars: Vec<(String, f32)>,
    }

    fn number(message: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (byte, rest) = message.split_first().unwrap();
            *message = rest;
            number |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return number;
            }
        }
    }

    /// The fields of a message: numbers, and what has bytes.
    fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
        let mut found = Vec::new();
        while !message.is_empty() {
            let head = number(&mut message);
            let length = match head & 7 {
                0 => {
                    found.push((head >> 3, number(&mut message), &[][..]));
                    continue;
                }
                1 => 8,
                2 => number(&mut message) as usize,
                5 => 4,
                kind => panic!("kind {kind}"),
            };
            let (value, rest) = message.split_at(length);
            found.push((head >> 3, 0, value));
            message = rest;
        }
        found
    }

    fn event(message: &[u8]) -> Event {
        let mut event = Event::default();
        for (field, number, bytes) in fields(message) {
            match field {
                1 => assert!(f64::from_le_bytes(bytes.try_into().unwrap()) > 1.7e9),
                2 => event.step = number,
                3 => event.version = bytes.to_vec(),
                5 => {
                    for (_, _, value) in fields(bytes) {
                        let [(1, _, tag), (2, _, scalar)] = fields(value)[..] else {
                            panic!("{value:?}")
                        };
                        let scalar = f32::from_le_bytes(scalar.try_into().unwrap());
                        let tag = String::from_utf8(tag.to_vec()).unwrap();
                        event.scalars.push((tag, scalar));
                    }
                }
                7 => event.status = Some(fields(bytes)[0].1),
                field => panic!("field {field}"),
            }
        }
        event
    }

    /// The events of a file, whose sums must be right.
    fn read(mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_at(8);
            let count = u64::from_le_bytes(length.try_into().unwrap()) as usize;
            let (crc, rest) = rest.split_at(4);
            assert_eq!(crc, masked_crc(length).to_le_bytes());
            let (message, rest) = rest.split_at(count);
            let (crc, rest) = rest.split_at(4);
            assert_eq!(crc, masked_crc(message).to_le_bytes());
            events.push(event(message));
            bytes = rest;
        }
        events
    }

    #[test]
    fn sums_are_those_of_the_standard() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<_>>()), 0x46DD_794E);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(masked_crc(b""), 0xA282_EAD8);
        assert_eq!(masked_crc(b"123456789"), 0xC78A_B0E5);
    }

    #[test]
    fn what_is_written_is_read_back_and_each_start_has_its_file() {
        let (files, dir) = (MemoryFiles::new(), Path::new("/run/tensorboard"));
        let record = Record {
            step: 300,
            loss: 2.5,
            lr: 1e-3,
            grad_norm: Some(0.75),
            tokens_per_second: 1e4,
            peak_rss_bytes: 1 << 26,
            ..Record::default()
        };
        let held_out = HeldOut {
            loss: 3.5,
            accuracy: None,
            units: 7,
        };
        for done in [0, 299] {
            let (mut events, _) = Events::begin(&files, dir, done).unwrap();
            events.step(&record).unwrap();
            events.held_out(300, &held_out).unwrap();
            events.sync().unwrap();
        }
        let names = files.list_dir(dir).unwrap().into_iter();
        let mut names: Vec<_> = names.map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names.len(), 2);
        for (name, first) in names.into_iter().zip([1, 300]) {
            assert!(name.starts_with("events.out.tfevents."));
            let mut file = files.open(&dir.join(name)).unwrap();
            let mut bytes = vec![0; file.bytes() as usize];
            file.read_exact_at(0, &mut bytes).unwrap();
            let events = read(&bytes);
            assert_eq!((events[0].step, &*events[0].version), (0, VERSION));
            assert_eq!((events[1].step, events[1].status), (first, Some(1)));
            let scalars = |scalars: &[(&str, f32)]| {
                let named = scalars.iter();
                let scalars = named.map(|&(tag, value)| (tag.to_owned(), value)).collect();
                Event {
                    step: 300,
                    scalars,
                    ..Event::default()
                }
            };
            let step = [
                ("loss", 2.5),
                ("lr", 1e-3),
                ("tokens_per_second", 1e4),
                ("peak_bytes", 67_108_864.0),
                ("grad_norm", 0.75),
            ];
            assert_eq!(
                events[2..],
                [scalars(&step), scalars(&[("held_out_loss", 3.5)])]
            );
        }
    }
}
