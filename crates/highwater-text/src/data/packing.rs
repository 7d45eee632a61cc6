//! Documents packed into rows of one length: several in a row, none in two, so that every batch has the same shape
//! and little of it is padding.

/// The most documents in a row.
pub const DOCUMENTS_MAX: usize = 64;
/// Bytes of the rows that are being filled, about.
const OPEN_BYTES: usize = 4 << 20;
/// The most rows that are being filled at once.
const OPEN_MAX: usize = 256;

/// A token with what is known of it, in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub u32);

impl Entry {
    const LEARNED: u32 = 1 << 31;
    const FIRST: u32 = 1 << 30;
    /// What a row is filled up with, behind its documents.
    pub(super) const PADDING: Self = Self(0);

    /// A token, below 2 to the 30.
    pub fn new(token: u32, is_learned: bool, is_first: bool) -> Self {
        let learned = if is_learned { Self::LEARNED } else { 0 };
        let first = if is_first { Self::FIRST } else { 0 };
        Self(token & !(Self::LEARNED | Self::FIRST) | learned | first)
    }

    /// The token.
    pub fn token(self) -> u32 {
        self.0 & !(Self::LEARNED | Self::FIRST)
    }

    /// Whether the token is learnt as what follows the one before.
    pub fn is_learned(self) -> bool {
        self.0 & Self::LEARNED != 0
    }

    /// Whether a document begins with it.
    pub fn is_first(self) -> bool {
        self.0 & Self::FIRST != 0
    }
}

/// How much was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedCounts {
    /// Rows.
    pub rows: u64,
    /// Documents in them.
    pub documents: u64,
    /// Tokens of documents in them.
    pub tokens: u64,
    /// Tokens that are learnt.
    pub learned: u64,
    /// Documents that were longer than a row, and end where the row does.
    pub cut: u64,
    /// Tokens that this left out.
    pub cut_tokens: u64,
    /// Documents that were left out, since nothing of them would be learnt.
    pub left_out: u64,
}

/// A row that has room left.
#[derive(Debug)]
struct Open {
    entries: Vec<Entry>,
    documents: usize,
}

/// Fills rows with documents: each goes to the fullest of the rows at hand that has room for it, and the fullest of
/// all is given out when there are too many.
#[derive(Debug)]
pub struct Packer {
    length: usize,
    /// Whether a row may have several documents.
    shares: bool,
    open_max: usize,
    open: Vec<Open>,
    packed: PackedCounts,
}

impl Packer {
    /// A packer for rows of `length` tokens; unless they are shared, each has one document.
    pub fn new(length: usize, shares: bool) -> Self {
        let open_max = OPEN_BYTES / (4 * length.max(1));
        Self {
            length,
            shares,
            open_max: open_max.clamp(1, OPEN_MAX),
            open: Vec::new(),
            packed: PackedCounts::default(),
        }
    }

    /// Adds a document and hands on the rows that are full.
    ///
    /// One that is too long is cut; a text is divided, each part from the last token of the one before on, so that
    /// every token is learnt. A document from which nothing would be learnt is left out.
    ///
    /// # Errors
    /// What `take` returns.
    pub fn add<E>(
        &mut self,
        tokens: &[u32],
        learned: &[bool],
        is_text: bool,
        mut take: impl FnMut(&[Entry]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, mut is_used) = (0, false);
        loop {
            let end = tokens.len().min(at + self.length);
            let part = at..end;
            // The first token follows nothing.
            let learns = learned[part.clone()].iter().skip(1).any(|&learned| learned);
            if learns {
                is_used = true;
                let entries = part.clone().map(|i| {
                    let is_first = i == part.start;
                    Entry::new(tokens[i], learned[i] && !is_first, is_first)
                });
                let document = entries.collect::<Vec<_>>();
                self.place(&document, &mut take)?;
            }
            if end == tokens.len() {
                break;
            }
            if !is_text || self.length < 2 {
                if learns {
                    self.packed.cut += 1;
                    self.packed.cut_tokens += (tokens.len() - end) as u64;
                }
                break;
            }
            at = end - 1;
        }
        self.packed.left_out += u64::from(!is_used);
        Ok(())
    }

    /// Adds two answers as a row each, one after the other: both are cut if they are too long, and both are left out
    /// if nothing would be learnt of one.
    ///
    /// # Errors
    /// What `take` returns.
    pub fn add_pair<E>(
        &mut self,
        answers: [(&[u32], &[bool]); 2],
        mut take: impl FnMut(&[Entry]) -> Result<(), E>,
    ) -> Result<(), E> {
        let kept = answers.map(|(tokens, _)| tokens.len().min(self.length));
        let learns = |i: usize| {
            answers[i].1[..kept[i]]
                .iter()
                .skip(1)
                .any(|&learned| learned)
        };
        if !(learns(0) && learns(1)) {
            self.packed.left_out += 1;
            return Ok(());
        }
        for ((tokens, learned), kept) in answers.into_iter().zip(kept) {
            let entries = (0..kept).map(|i| Entry::new(tokens[i], learned[i] && i > 0, i == 0));
            let answer: Vec<_> = entries.collect();
            if kept < tokens.len() {
                self.packed.cut += 1;
                self.packed.cut_tokens += (tokens.len() - kept) as u64;
            }
            self.count(&answer);
            self.open.push(Open {
                entries: answer,
                documents: 1,
            });
            self.give(0, &mut take)?;
        }
        Ok(())
    }

    fn count(&mut self, document: &[Entry]) {
        let learned = document.iter().filter(|entry| entry.is_learned()).count();
        self.packed.documents += 1;
        self.packed.tokens += document.len() as u64;
        self.packed.learned += learned as u64;
    }

    fn place<E>(
        &mut self,
        document: &[Entry],
        take: &mut impl FnMut(&[Entry]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.count(document);
        let has_room = |row: &&mut Open| {
            let fits = row.entries.len() + document.len() <= self.length;
            self.shares && fits && row.documents < DOCUMENTS_MAX
        };
        // The first of those that are equally full.
        let rows = self.open.iter_mut().rev().filter(has_room);
        let fullest = rows.max_by_key(|row| row.entries.len());
        match fullest {
            Some(row) => {
                row.entries.extend_from_slice(document);
                row.documents += 1;
            }
            None => self.open.push(Open {
                entries: document.to_vec(),
                documents: 1,
            }),
        }
        let is_full = |row: &Open| row.entries.len() == self.length || !self.shares;
        if let Some(full) = self.open.iter().position(is_full) {
            self.give(full, take)?;
        }
        if self.open.len() > self.open_max {
            let lengths = self.open.iter().enumerate();
            let fullest = lengths.rev().max_by_key(|(_, row)| row.entries.len());
            let fullest = fullest.map_or(0, |(at, _)| at);
            self.give(fullest, take)?;
        }
        Ok(())
    }

    fn give<E>(
        &mut self,
        at: usize,
        take: &mut impl FnMut(&[Entry]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut row = self.open.remove(at).entries;
        row.resize(self.length, Entry::PADDING);
        self.packed.rows += 1;
        take(&row)
    }

    /// Hands on the rows that are left, and says how much was packed.
    ///
    /// # Errors
    /// What `take` returns.
    pub fn finish<E>(
        mut self,
        mut take: impl FnMut(&[Entry]) -> Result<(), E>,
    ) -> Result<PackedCounts, E> {
        while !self.open.is_empty() {
            self.give(0, &mut take)?;
        }
        Ok(self.packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(length: usize, documents: &[(Vec<bool>, bool)]) -> (Vec<Vec<Entry>>, PackedCounts) {
        let mut rows = Vec::new();
        let mut take = |row: &[Entry]| {
            rows.push(row.to_vec());
            Ok::<_, ()>(())
        };
        let mut packer = Packer::new(length, true);
        let mut token = 1;
        for (learned, is_text) in documents {
            let tokens: Vec<_> = learned
                .iter()
                .map(|_| {
                    token += 1;
                    token
                })
                .collect();
            packer.add(&tokens, learned, *is_text, &mut take).unwrap();
        }
        let packed = packer.finish(&mut take).unwrap();
        (rows, packed)
    }

    proptest! {
        #[test]
        fn every_token_is_learnt_once_or_told_of(
            length in 2_usize..40,
            documents in prop::collection::vec((prop::collection::vec(any::<bool>(), 0..90), any::<bool>()), 0..40),
        ) {
            let (rows, packed) = pack(length, &documents);
            prop_assert_eq!(packed.rows, rows.len() as u64);
            let (mut found, mut lengths) = (Vec::new(), 0);
            for row in &rows {
                prop_assert_eq!(row.len(), length);
                let used = row.iter().rposition(|entry| *entry != Entry::PADDING).map_or(0, |at| at + 1);
                lengths += used;
                prop_assert!(row[0].is_first());
                prop_assert!(row.iter().filter(|entry| entry.is_first()).count() <= DOCUMENTS_MAX);
                prop_assert!(row.iter().all(|entry| !(entry.is_first() && entry.is_learned())));
                // Documents are whole: what follows in a row is what followed in the data.
                for pair in row[..used].windows(2) {
                    prop_assert!(pair[1].is_first() || pair[1].token() == pair[0].token() + 1);
                }
                found.extend(row.iter().filter(|entry| entry.is_learned()).map(|entry| entry.token()));
            }
            prop_assert_eq!(packed.tokens, lengths as u64);
            prop_assert_eq!(packed.learned, found.len() as u64);
            found.sort_unstable();
            let (mut token, mut expected) = (1, Vec::new());
            let (mut cut, mut left_out) = (0, 0);
            for (learned, is_text) in &documents {
                let end = if *is_text { learned.len() } else { learned.len().min(length) };
                let used: Vec<_> = (1..end).filter(|&i| learned[i]).collect();
                expected.extend(used.iter().map(|i| token + 1 + *i as u32));
                if used.is_empty() {
                    left_out += 1;
                } else if end < learned.len() {
                    cut += 1;
                }
                token += learned.len() as u32;
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!([packed.cut, packed.left_out], [cut, left_out]);
        }
    }

    #[test]
    fn little_of_rows_is_padding() {
        let lengths = (0..3000_usize).map(|i| 20 + (i * 7919) % 300);
        let documents: Vec<_> = lengths.map(|length| (vec![true; length], false)).collect();
        let (rows, packed) = pack(512, &documents);
        let share = packed.tokens as f64 / (rows.len() * 512) as f64;
        assert!(share > 0.98, "{share}");
    }
}
