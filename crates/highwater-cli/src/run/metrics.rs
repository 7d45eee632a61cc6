//! `metrics.jsonl`: one line of JSON for each step.

use std::io::{BufRead, BufReader};
use std::path::Path;

use highwater_memory::files::{Draft, Operation, Sequential};
use highwater_memory::{FileWrite, Files, FilesError};
use serde::{Deserialize, Serialize};

/// What is recorded of a step. Later versions may add fields, but not change or remove one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Record {
    /// The step, counted from 1.
    pub step: u64,
    /// Tokens that were trained on so far, this step's included.
    pub tokens: u64,
    /// How often they went through the data.
    pub epoch: f64,
    /// Mean loss over the batch, before this step's update.
    pub loss: f32,
    /// The learning rate of the update.
    pub lr: f64,
    /// Norm of all gradients, before clipping; none where nobody asked for it.
    pub grad_norm: Option<f32>,
    /// What the loss of the next step is multiplied by for its gradients; none where it is not scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// How many steps were skipped so far because scaled gradients were not finite; none likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_steps: Option<u64>,
    /// Mean loss on what is held out, after this step; none where it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_loss: Option<f32>,
    /// How long the step took.
    pub seconds: f64,
    /// Tokens of the batch by the time that the step took.
    pub tokens_per_second: f64,
    /// How long the plan said that it would take.
    pub predicted_seconds: f64,
    /// Bytes of the arena that the plan needs.
    pub planned_arena_bytes: u64,
    /// Bytes of the arena that were in use at most.
    pub peak_arena_bytes: u64,
    /// Bytes that the process was planned to need.
    pub planned_process_bytes: u64,
    /// Bytes that the process had in memory at most.
    pub peak_rss_bytes: u64,
    /// How many nodes were computed again to save memory.
    pub recomputed_nodes: u64,
    /// How long that took.
    pub recompute_seconds: f64,
    /// Bytes read from the disk of `--disk`.
    pub bytes_read: u64,
    /// Bytes written to it.
    pub bytes_written: u64,
    /// How long the computation waited for it.
    pub io_wait_seconds: f64,
    /// The share of the transfers' time that was hidden behind the computation and each other, from 0
    /// to 1; 1 where nothing was moved.
    pub overlap: f64,
    /// How long reads took, one after the other.
    pub read_seconds: f64,
    /// How long writes took, one after the other.
    pub write_seconds: f64,
    /// Bytes copied from host memory, where that is apart.
    pub host_bytes_read: u64,
    /// Bytes copied to it.
    pub host_bytes_written: u64,
    /// How long the computation waited for such copies.
    pub host_wait_seconds: f64,
}

/// As much of a record as resuming needs.
#[derive(Deserialize)]
struct Step {
    step: u64,
}

/// The file, open at its end.
#[derive(Debug)]
pub struct Metrics {
    file: Box<dyn FileWrite>,
}

impl Metrics {
    /// Opens the file for the step after `step`: what is there of later ones, or of a line that was
    /// not finished, is removed.
    ///
    /// # Errors
    /// When a file operation fails.
    pub fn open(files: &dyn Files, path: &Path, step: u64) -> Result<Self, FilesError> {
        if files.metadata(path)?.is_some() {
            truncate(files, path, step)?;
        }
        Ok(Self {
            file: files.append(path)?,
        })
    }

    /// Adds a line. It is with the system when this returns, and on disk with the next state saved or
    /// soon after.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&mut self, record: &Record) -> Result<(), FilesError> {
        // Numbers alone always have a JSON form; one that is not finite becomes null.
        let mut line = serde_json::to_vec(record).unwrap_or_default();
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Makes all lines durable.
    ///
    /// # Errors
    /// When writing fails.
    pub fn sync(&mut self) -> Result<(), FilesError> {
        self.file.sync_all()
    }
}

/// Keeps the lines up to `step`. The file is replaced at once.
fn truncate(files: &dyn Files, path: &Path, step: u64) -> Result<(), FilesError> {
    let (draft, mut kept) = Draft::file(files, path)?;
    let mut lines = BufReader::new(Sequential::new(files.open(path)?));
    let mut line = Vec::new();
    let failed = |source| FilesError {
        operation: Operation::Read,
        path: path.to_owned(),
        source,
    };
    while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        let parsed = serde_json::from_slice::<Step>(&line);
        if !line.ends_with(b"\n") || parsed.is_ok_and(|record| record.step > step) {
            break;
        }
        kept.write_all(&line)?;
        line.clear();
    }
    kept.sync_all()?;
    draft.persist()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_memory::files::MemoryFiles;
    use std::io::Read;

    const PATH: &str = "/metrics.jsonl";

    fn text(files: &MemoryFiles) -> String {
        let mut text = String::new();
        let mut file = Sequential::new(files.open(Path::new(PATH)).unwrap());
        file.read_to_string(&mut text).unwrap();
        text
    }

    fn steps(files: &MemoryFiles) -> Vec<u64> {
        let text = text(files);
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str::<Step>(line).unwrap().step)
            .collect()
    }

    fn write(metrics: &mut Metrics, steps: std::ops::RangeInclusive<u64>) {
        for step in steps {
            let record = Record {
                step,
                ..Record::default()
            };
            metrics.write(&record).unwrap();
        }
    }

    #[test]
    fn each_step_is_a_line_with_all_fields() {
        let files = MemoryFiles::new();
        let mut metrics = Metrics::open(&files, Path::new(PATH), 0).unwrap();
        let record = Record {
            step: 1,
            loss: 5.545_177,
            lr: 1e-3,
            ..Record::default()
        };
        metrics.write(&record).unwrap();
        metrics.sync().unwrap();
        assert_eq!(
            text(&files),
            "{\"step\":1,\"tokens\":0,\"epoch\":0.0,\"loss\":5.545177,\"lr\":0.001,\"grad_norm\":null,\"seconds\":0.0,\
             \"tokens_per_second\":0.0,\"predicted_seconds\":0.0,\"planned_arena_bytes\":0,\
             \"peak_arena_bytes\":0,\"planned_process_bytes\":0,\"peak_rss_bytes\":0,\
             \"recomputed_nodes\":0,\"recompute_seconds\":0.0,\"bytes_read\":0,\
             \"bytes_written\":0,\"io_wait_seconds\":0.0,\"overlap\":0.0,\"read_seconds\":0.0,\
             \"write_seconds\":0.0,\"host_bytes_read\":0,\"host_bytes_written\":0,\
             \"host_wait_seconds\":0.0}\n"
        );
    }

    #[test]
    fn resuming_removes_later_steps_and_unfinished_lines() {
        let files = MemoryFiles::new();
        let path = Path::new(PATH);
        write(&mut Metrics::open(&files, path, 0).unwrap(), 1..=9);
        files
            .append(path)
            .unwrap()
            .write_all(b"{\"step\":10,\"lo")
            .unwrap();
        let mut metrics = Metrics::open(&files, path, 9).unwrap();
        write(&mut metrics, 10..=12);
        assert!(steps(&files).into_iter().eq(1..=12));
        let mut metrics = Metrics::open(&files, path, 4).unwrap();
        write(&mut metrics, 5..=6);
        assert!(steps(&files).into_iter().eq(1..=6));
    }
}
