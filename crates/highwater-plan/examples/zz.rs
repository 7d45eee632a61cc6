#[path = "../tests/common/mod.rs"]
mod common;
use common::baselines::dtr;
use common::samples::samples;
use highwater_plan::*;
use std::collections::BTreeMap;
fn main() {
    let name = std::env::args().nth(1).unwrap();
    let share: f64 = std::env::args().nth(2).unwrap().parse().unwrap();
    for s in samples().into_iter().filter(|s| s.name.contains(&name)) {
        if share < 0.0 {
            continue;
        }
        let t = std::time::Instant::now();
        let f = Family::build(&s.problem, Policy::Auto).unwrap();
        eprintln!("{} build {:?}", s.name, t.elapsed());
        let all = f.choose(&s.problem, u64::MAX).unwrap();
        let b = all.live_bytes - ((1.0 - share) * s.saved_bytes as f64) as u64;
        let Ok(p) = f.choose(&s.problem, b) else {
            println!("none; floor {}", f.floor().arena_bytes);
            continue;
        };
        println!(
            "budget {b} plan {} live {} {:.2}%",
            p.arena_bytes,
            p.live_bytes,
            100.0 * (p.seconds / all.seconds - 1.0)
        );
        let mut groups: BTreeMap<String, (u32, f64)> = BTreeMap::new();
        let mut ran = vec![false; s.problem.nodes.len()];
        for i in &p.instructions {
            if let Action::Run { node, outputs, .. } = &i.action {
                if std::mem::replace(&mut ran[*node as usize], true) {
                    let n = &s.problem.nodes[*node as usize];
                    let k = format!(
                        "in {:?} out {:?}",
                        n.inputs
                            .iter()
                            .map(|&v| s.problem.values[v as usize].bytes / 1000)
                            .collect::<Vec<_>>(),
                        n.outputs
                            .iter()
                            .map(|&v| s.problem.values[v as usize].bytes / 1000)
                            .collect::<Vec<_>>()
                    );
                    let g = groups.entry(k).or_default();
                    g.0 += 1;
                    g.1 += s.problem.run_seconds(*node, outputs);
                }
            }
        }
        for (k, (c, t)) in groups {
            println!("  {c} x {k}: {t:.5}");
        }
        let d = dtr(&s, b);
        println!(
            "dtr {:?}",
            d.map(|m| (m.peak, 100.0 * (m.seconds / all.seconds - 1.0)))
        );
    }
}
