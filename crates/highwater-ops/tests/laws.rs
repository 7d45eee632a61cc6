//! The laws, for every operation of the table.

use highwater_ops::OPS;
use highwater_ops::laws::Laws;

#[test]
fn every_operation_keeps_the_laws() {
    let laws = Laws::new(&[]);
    let broken: Vec<String> = (OPS.iter())
        .flat_map(|entry| laws.check(entry))
        .map(|broken| broken.to_string())
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_table_is_sorted_and_names_are_unique() {
    assert!(OPS.is_sorted_by(|a, b| a.name < b.name));
}
