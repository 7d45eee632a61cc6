//! More memory is never slower, and what a budget gets fits into it: 200 budgets per sample problem.

use crate::common::chosen;
use crate::common::samples::samples;
use highwater_plan::{Family, Policy};

const BUDGETS: u64 = 200;

#[test]
fn seconds_never_rise_with_the_budget() {
    for sample in samples() {
        let family = Family::build(&sample.problem, Policy::Auto).expect("a sound problem");
        let all = chosen(&family, &sample.problem, u64::MAX).expect("no budget is too small");
        let (floor, top) = (family.floor(&sample.problem).arena_bytes, all.arena_bytes);
        let mut last = f64::INFINITY;
        let mut different = 0;
        for i in 0..=BUDGETS {
            let budget = floor + (top - floor) * i / BUDGETS;
            let plan = chosen(&family, &sample.problem, budget).expect("not below the floor");
            assert!(plan.arena_bytes <= budget, "{} in {budget}", sample.name);
            assert!(plan.seconds <= last, "{} in {budget}", sample.name);
            different += u32::from(plan.seconds < last);
            last = plan.seconds;
        }
        assert!(different >= 12, "{}: {different} plans", sample.name);
        assert!(chosen(&family, &sample.problem, floor - 1).is_none());
    }
}
