//! Planning takes no memory for the model. A program of its own, so that nothing else is measured.

use highwater_cli::args::Settings;
use highwater_cli::planning::{Assumptions, Planner};
use highwater_cli::settings::resolve;
use highwater_memory::process::Usage;
use highwater_memory::{Bytes, DiskFiles};

#[test]
fn a_plan_for_a_larger_model_is_made_in_little_memory() {
    let args = Settings {
        model: Some("gpt2".to_owned()),
        memory: Some(Bytes(3 << 30)),
        batch: Some(4),
        seq: Some(512),
        ..Settings::default()
    };
    let resolved = resolve::run(&DiskFiles, &args).unwrap();
    let assumptions = Assumptions::measure(&DiskFiles, &resolved.config, &resolved.model).unwrap();
    let plan = Planner::new(&resolved.config, &resolved.model, &assumptions).forecast();
    let plan = plan.unwrap();
    assert!(plan.fits && plan.floor_bytes < plan.peak_bytes);
    assert!(plan.state_bytes > 4 * 3 * resolved.model.text().unwrap().parameter_count());
    let peak = Usage::read().unwrap().peak;
    assert!(peak < 200 << 20, "{}", Bytes(peak));
}
