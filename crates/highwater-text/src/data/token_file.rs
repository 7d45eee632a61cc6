//! The tokens of files, one file after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_memory::{FileRead, Files};

use super::DataError;
use super::progress::Progress;
use super::splits::Found;
use super::token_format::{Layout, TokenWidth};

/// Bytes of a file that are in memory at once.
const WINDOW_BYTES: usize = 64 << 10;
/// Columns of an array that are in memory at once, where it is stored column after column.
const COLUMNS: u64 = 2048;

/// Files of tokens, of which one is open at a time; each token is checked as it is read.
#[derive(Debug)]
pub(super) struct TokenFiles {
    files: Arc<dyn Files>,
    parts: Vec<Part>,
    open: Option<(usize, Box<dyn FileRead>)>,
    vocab_size: u32,
    window: Vec<u8>,
    /// The part of an array by columns that the window has.
    tile: Option<Tile>,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    layout: Layout,
    /// Where its tokens end among all.
    end: u64,
}

/// Some rows of some columns of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    part: usize,
    row: u64,
    rows: u64,
    column: u64,
    columns: u64,
}

impl TokenFiles {
    /// Opens `.npy` and `.bin`, by their endings.
    pub(super) fn open(
        files: &Arc<dyn Files>,
        found: &[Found],
        (width, vocab_size): (Option<TokenWidth>, u32),
    ) -> Result<Self, DataError> {
        let mut all = Self::new(files, vocab_size);
        for (path, _) in found {
            let mut file = files.open(path)?;
            let layout = Layout::of(&**files, file.as_mut(), path, (width, vocab_size))?;
            all.add(path, layout);
            // One file alone stays open: it is the same whatever becomes of its name.
            all.open = (found.len() == 1).then_some((0, file));
        }
        Ok(all)
    }

    /// Opens a `.bin` known to have no header, of which so many bytes are tokens.
    pub(super) fn open_raw(
        files: &Arc<dyn Files>,
        path: &Path,
        bytes: u64,
        (width, vocab_size): (TokenWidth, u32),
    ) -> Result<Self, DataError> {
        let mut all = Self::new(files, vocab_size);
        all.add(path, Layout::raw(bytes, width, path)?);
        // It may lose its name, as the tokens of `eval` do, or get another, as those of a run that begins.
        all.open = Some((0, files.open(path)?));
        Ok(all)
    }

    fn new(files: &Arc<dyn Files>, vocab_size: u32) -> Self {
        Self {
            files: Arc::clone(files),
            parts: Vec::new(),
            open: None,
            vocab_size,
            window: vec![0; WINDOW_BYTES],
            tile: None,
        }
    }

    fn add(&mut self, path: &Path, layout: Layout) {
        let end = self.tokens() + layout.tokens;
        let path = path.to_owned();
        self.parts.push(Part { path, layout, end });
    }

    pub(super) fn tokens(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.end)
    }

    /// How many tokens the first files have together.
    pub(super) fn tokens_of(&self, files: usize) -> u64 {
        let last = files.checked_sub(1).and_then(|last| self.parts.get(last));
        last.map_or(0, |part| part.end)
    }

    /// What each file holds, and what told so.
    pub(super) fn describe(&self) -> impl Iterator<Item = (&Path, String)> {
        let parts = self.parts.iter();
        parts.map(|part| (part.path.as_path(), part.layout.describe()))
    }

    /// Fills the buffer from token `at` on, which must be there.
    pub(super) fn read(&mut self, mut at: u64, mut out: &mut [u32]) -> Result<(), DataError> {
        while !out.is_empty() {
            let part = self.parts.partition_point(|part| part.end <= at);
            let within = at - self.start(part);
            let left = self.parts[part].layout.tokens - within;
            let (now, later) = out.split_at_mut(out.len().min(left as usize));
            if self.parts[part].layout.by_columns.is_some() {
                self.read_by_columns(part, within, now)?;
            } else {
                let range = within..within + now.len() as u64;
                let mut out = now.iter_mut();
                self.windows(part, range, |token| {
                    if let Some(out) = out.next() {
                        *out = token;
                    }
                })?;
            }
            at += now.len() as u64;
            out = later;
        }
        Ok(())
    }

    /// Reads all of it once, so that a token that the model does not have is found before training
    /// and not in the midst of it.
    pub(super) fn check(&mut self, progress: Progress<'_>) -> Result<(), DataError> {
        let bytes = |part: &Part| part.layout.tokens * part.layout.element.bytes() as u64;
        let all = self.parts.iter().map(bytes).sum();
        let mut done = 0;
        for part in 0..self.parts.len() {
            let (tokens, size) = (self.parts[part].layout.tokens, bytes(&self.parts[part]));
            let mut at = 0;
            while at < tokens {
                // Between such pieces somebody is told how far it is.
                let end = tokens.min(at + (4 << 20));
                self.windows(part, at..end, |_| {})?;
                at = end;
                progress.tell(done + size / tokens.max(1) * at, all);
            }
            done += size;
        }
        Ok(())
    }

    fn start(&self, part: usize) -> u64 {
        part.checked_sub(1)
            .map_or(0, |before| self.parts[before].end)
    }

    fn file(&mut self, part: usize) -> Result<&mut Box<dyn FileRead>, DataError> {
        let file = match self.open.take() {
            Some((open, file)) if open == part => file,
            _ => self.files.open(&self.parts[part].path)?,
        };
        Ok(&mut self.open.insert((part, file)).1)
    }

    /// Hands on tokens of a part in the order in which they are stored.
    fn windows(
        &mut self,
        part: usize,
        range: std::ops::Range<u64>,
        mut take: impl FnMut(u32),
    ) -> Result<(), DataError> {
        let (element, data_at) = {
            let layout = &self.parts[part].layout;
            (layout.element, layout.data_at)
        };
        self.tile = None;
        let width = element.bytes();
        let mut at = range.start;
        while at < range.end {
            let now = (range.end - at).min((WINDOW_BYTES / width) as u64);
            let mut window = std::mem::take(&mut self.window);
            let bytes = &mut window[..now as usize * width];
            let read = self
                .file(part)
                .and_then(|file| Ok(file.read_exact_at(data_at + at * width as u64, bytes)?));
            let (mut index, mut wrong) = (at, None);
            if read.is_ok() {
                element.each(bytes, |token| {
                    if !(0..i128::from(self.vocab_size)).contains(&token) {
                        wrong.get_or_insert((index, token));
                    }
                    take(token as u32);
                    index += 1;
                });
            }
            self.window = window;
            read?;
            if let Some((index, token)) = wrong {
                return Err(self.wrong(part, index, token));
            }
            at += now;
        }
        Ok(())
    }

    fn wrong(&self, part: usize, index: u64, token: i128) -> DataError {
        DataError::Token {
            path: self.parts[part].path.clone(),
            index,
            token,
            vocab_size: self.vocab_size,
        }
    }

    /// Fills the buffer with tokens row after row, of an array that is stored column after column.
    fn read_by_columns(&mut self, part: usize, at: u64, out: &mut [u32]) -> Result<(), DataError> {
        let layout = &self.parts[part].layout;
        let (element, [_, width]) = (layout.element, layout.by_columns.unwrap_or([1, 1]));
        for (index, out) in (at..).zip(out) {
            let (row, column) = (index / width, index % width);
            let tile = self.load(part, row, column)?;
            let place = (column - tile.column) * tile.rows + (row - tile.row);
            let size = element.bytes();
            let bytes = &self.window[place as usize * size..][..size];
            let mut found = 0;
            element.each(bytes, |token| found = token);
            if !(0..i128::from(self.vocab_size)).contains(&found) {
                return Err(self.wrong(part, index, found));
            }
            *out = found as u32;
        }
        Ok(())
    }

    /// Has the window hold a place of an array: a stretch of each of some columns.
    fn load(&mut self, part: usize, row: u64, column: u64) -> Result<Tile, DataError> {
        let holds = |tile: &Tile| {
            tile.part == part
                && (tile.row..tile.row + tile.rows).contains(&row)
                && (tile.column..tile.column + tile.columns).contains(&column)
        };
        if let Some(tile) = self.tile.filter(holds) {
            return Ok(tile);
        }
        let layout = &self.parts[part].layout;
        let [height, width] = layout.by_columns.unwrap_or([1, 1]);
        let (size, data_at) = (layout.element.bytes() as u64, layout.data_at);
        let first = column / COLUMNS * COLUMNS;
        let columns = COLUMNS.min(width - first);
        let rows = (WINDOW_BYTES as u64 / (size * columns)).clamp(1, height - row);
        let tile = Tile {
            part,
            row,
            rows,
            column: first,
            columns,
        };
        self.tile = None;
        let mut window = std::mem::take(&mut self.window);
        let stretch = (rows * size) as usize;
        let read = self.file(part).and_then(|file| {
            let places = window.chunks_exact_mut(stretch).zip(first..first + columns);
            for (bytes, column) in places {
                file.read_exact_at(data_at + (column * height + row) * size, bytes)?;
            }
            Ok(())
        });
        self.window = window;
        read?;
        self.tile = Some(tile);
        Ok(tile)
    }
}
