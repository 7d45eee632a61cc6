//! `run.log`: what a run says, kept beside it.

use std::path::Path;

use highwater_memory::{FileWrite, Files, FilesError};

use crate::terminal::output;

/// Says things to people, and keeps them with the step after which they were said.
#[derive(Debug)]
pub struct Log {
    file: Box<dyn FileWrite>,
    step: u64,
}

impl Log {
    /// Opens the file at its end, after step `step`.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn open(files: &dyn Files, path: &Path, step: u64) -> Result<Self, FilesError> {
        let file = files.append(path)?;
        Ok(Self { file, step })
    }

    /// Notes that a step is done.
    pub fn at(&mut self, step: u64) {
        self.step = step;
    }

    /// Says something, and keeps it.
    ///
    /// # Errors
    /// When writing fails.
    pub fn say(&mut self, text: &str) -> Result<(), FilesError> {
        output::news(text);
        self.note(text)
    }

    /// Keeps what is said elsewhere.
    ///
    /// # Errors
    /// When writing fails.
    pub fn note(&mut self, text: &str) -> Result<(), FilesError> {
        let step = self.step;
        let line = |line| format!("step {step}: {line}\n");
        let lines = text.lines().map(line).collect::<Vec<_>>().concat();
        self.file.write_all(lines.as_bytes())?;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_memory::files::MemoryFiles;

    #[test]
    fn each_line_has_its_step() {
        let (files, path) = (MemoryFiles::new(), Path::new("/run.log"));
        let mut log = Log::open(&files, path, 0).unwrap();
        log.note("begun").unwrap();
        log.at(7);
        log.note("error: no power\nhint: plug it in").unwrap();
        drop(log);
        Log::open(&files, path, 5).unwrap().note("again").unwrap();
        let mut file = files.open(path).unwrap();
        let mut text = vec![0; file.bytes() as usize];
        file.read_exact_at(0, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "step 0: begun\nstep 7: error: no power\nstep 7: hint: plug it in\nstep 5: again\n"
        );
    }
}
