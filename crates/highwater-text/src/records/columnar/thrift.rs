//! Thrift's compact protocol, as far as Parquet needs it.
//! Source: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.

/// Structs and lists within each other.
const DEPTH_MAX: usize = 64;

pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const BYTE: u8 = 3;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// Why bytes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// They end too early.
    Short,
    /// They are not what they should be.
    Wrong,
}

pub(super) type Result<T> = std::result::Result<T, Broken>;

/// Reads from the first byte on.
#[derive(Clone, Debug)]
pub(super) struct Thrift<'a> {
    rest: &'a [u8],
}

impl<'a> Thrift<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn byte(&mut self) -> Result<u8> {
        let (&first, rest) = self.rest.split_first().ok_or(Broken::Short)?;
        self.rest = rest;
        Ok(first)
    }

    /// A number of variable length, without a sign.
    pub(super) fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Broken::Wrong)
    }

    /// A number that should have a type.
    pub(super) fn int(&mut self, kind: u8) -> Result<i64> {
        match kind {
            BYTE => Ok(i64::from(self.byte()? as i8)),
            I32 | I64 | 4 => {
                let value = self.varint()?;
                Ok((value >> 1) as i64 ^ -((value & 1) as i64))
            }
            _ => Err(Broken::Wrong),
        }
    }

    pub(super) fn bytes(&mut self, kind: u8) -> Result<&'a [u8]> {
        if kind != BINARY {
            return Err(Broken::Wrong);
        }
        let length = usize::try_from(self.varint()?).map_err(|_| Broken::Wrong)?;
        self.take(length)
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Broken::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The fields of a struct: `each` reads one, by its number and type, or says that it has not.
    pub(super) fn fields(
        &mut self,
        kind: u8,
        mut each: impl FnMut(&mut Self, i64, u8) -> Result<bool>,
    ) -> Result<()> {
        if kind != STRUCT {
            return Err(Broken::Wrong);
        }
        let mut number = 0_i64;
        loop {
            let head = self.byte()?;
            let kind = head & 0x0f;
            if kind == 0 {
                return Ok(());
            }
            number = match head >> 4 {
                0 => self.int(I32)?,
                step => number.checked_add(step.into()).ok_or(Broken::Wrong)?,
            };
            if !each(self, number, kind)? {
                self.skip(kind, 0)?;
            }
        }
    }

    /// The elements of a list: their type and number. Each has a byte at least.
    pub(super) fn list(&mut self, kind: u8) -> Result<(u8, usize)> {
        if kind != LIST && kind != LIST + 1 {
            return Err(Broken::Wrong);
        }
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Broken::Wrong)?,
            count => count.into(),
        };
        if count > self.rest.len() {
            return Err(Broken::Short);
        }
        Ok((head & 0x0f, count))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<()> {
        if depth == DEPTH_MAX {
            return Err(Broken::Wrong);
        }
        match kind {
            TRUE | FALSE => {}
            BYTE => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => drop(self.take(8)?),
            BINARY => drop(self.bytes(kind)?),
            9 | 10 => {
                let (element, count) = self.list(kind)?;
                for _ in 0..count {
                    self.skip(of_many(element), depth + 1)?;
                }
            }
            11 => {
                let count = usize::try_from(self.varint()?).map_err(|_| Broken::Wrong)?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                if count > self.rest.len() {
                    return Err(Broken::Short);
                }
                for _ in 0..count {
                    self.skip(of_many(kinds >> 4), depth + 1)?;
                    self.skip(of_many(kinds & 0x0f), depth + 1)?;
                }
            }
            STRUCT => {
                // As `fields`, which would call itself without end.
                loop {
                    let head = self.byte()?;
                    let kind = head & 0x0f;
                    if kind == 0 {
                        break;
                    }
                    if head >> 4 == 0 {
                        self.int(I32)?;
                    }
                    self.skip(kind, depth + 1)?;
                }
            }
            _ => return Err(Broken::Wrong),
        }
        Ok(())
    }
}

/// In lists and maps, unlike in structs, truth values take a byte.
const fn of_many(kind: u8) -> u8 {
    match kind {
        TRUE | FALSE => BYTE,
        kind => kind,
    }
}
