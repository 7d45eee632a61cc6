//! Disks that fail: at every call, for files of every kind.

use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_memory::files::{Fault, FaultKind, ScriptedFiles};
use highwater_text::TextError;
use highwater_text::records::Records;

use super::files;
use super::fuzz::seeds;

/// The number of records, or the error.
fn count(files: &Arc<dyn Files>, name: &str) -> Result<usize, TextError> {
    let records = Records::open(Arc::clone(files), Path::new(name))?;
    records.map(|record| record.map(|_| 1)).sum()
}

#[test]
fn a_fault_at_every_call() {
    let mut tried = 0;
    for (name, bytes) in seeds() {
        let whole = files(name, &bytes);
        let expected = count(&whole, name).unwrap();
        let counted = ScriptedFiles::new(Arc::clone(&whole), None);
        let counting: Arc<dyn Files> = Arc::new(counted.clone());
        count(&counting, name).unwrap();
        for at in 0..counted.calls().len() as u64 {
            let with = |kind| {
                let fault = Fault {
                    at,
                    persistent: false,
                    kind,
                };
                let scripted: Arc<dyn Files> =
                    Arc::new(ScriptedFiles::new(Arc::clone(&whole), Some(fault)));
                count(&scripted, name)
            };
            let failed = with(FaultKind::InputOutput);
            assert!(
                matches!(failed, Err(TextError::Files(_))),
                "{name}, call {at}"
            );
            for kind in [FaultKind::Short, FaultKind::Interruption] {
                let read = with(kind).unwrap_or_else(|error| panic!("{name}, call {at}: {error}"));
                assert_eq!(read, expected, "{name}, call {at}, {kind:?}");
            }
            tried += 3;
        }
    }
    assert!(tried > 100, "{tried} faults");
}
