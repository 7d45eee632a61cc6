//! Types and rates that do not go together: errors, never panics or endless loops.

use highwater::{DType, DiskRates, Engine, Parameter};

fn frozen(engine: &Engine, count: usize) -> Parameter {
    Parameter::frozen(engine, DType::BF16, [count], |own| own.fill(0)).unwrap()
}

#[test]
fn odd_values_of_another_type_are_refused() {
    let engine = Engine::builder().build().unwrap();
    let p = frozen(&engine, 3);
    assert!(p.with_values_mut(|_| ()).is_err());
}

#[test]
fn even_values_of_another_type_are_refused() {
    let engine = Engine::builder().build().unwrap();
    let p = frozen(&engine, 4);
    assert!(p.with_values_mut(|own| assert_eq!(own.len(), 4)).is_err());
}

#[test]
fn copies_are_rounded_to_other_floats_and_refused_by_whole_numbers() {
    let engine = Engine::builder().build().unwrap();
    let p = frozen(&engine, 4);
    p.copy_from_slice(&[1.0 + 1.0 / 512.0; 4]).unwrap();
    let ones = [half::bf16::ONE; 4];
    assert_eq!(p.to_vec::<half::bf16>().unwrap(), ones);
    let p = Parameter::frozen(&engine, DType::U32, [4], |own| own.fill(0)).unwrap();
    assert!(p.copy_from_slice(&[1.0; 4]).is_err());
}

#[test]
fn rates_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let rates = DiskRates {
            read: bad,
            ..DiskRates::default()
        };
        let builder = Engine::builder()
            .arena(4 << 20)
            .disk(folder.path(), 64 << 20);
        assert!(builder.disk_rates(rates).build().is_err(), "{bad}");
    }
}
