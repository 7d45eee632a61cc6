//! A process of its own, since the whole process is measured: memory of kernels, host memory and the rest
//! stay inside their bounds, each for itself and together.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(target_os = "linux")]

mod process;

use highwater::{Builder, Engine};
use process::high_water;

struct Seen {
    losses: Vec<f32>,
    engine: Engine,
    grown: u64,
    /// Bytes in host memory after the last step, while the model is there.
    in_host: u64,
}

fn train(builder: Builder) -> Seen {
    let engine = builder.seed(7).threads(2).build().unwrap();
    let reserve = engine.reserve_bytes();
    let mut in_host = 0;
    let losses = process::train(&engine, || {
        in_host = engine.tiers().host.map_or(0, |host| host.bytes);
    });
    let grown = engine.reserve_bytes() - reserve;
    Seen {
        losses,
        engine,
        grown,
        in_host,
    }
}

#[test]
fn the_process_stays_inside_all_its_budgets() {
    let (budget, host) = (160 << 20, 96 << 20);
    // 96 MiB of parameters and moments.
    let Seen {
        losses,
        engine,
        grown,
        in_host,
    } = train(Engine::builder().memory(budget).host_memory(host));
    let most = high_water();
    assert!(most <= budget, "{most} of {budget}");
    let tiers = engine.tiers();
    let used = tiers.host.unwrap();
    assert!(
        used.most_bytes <= host && in_host > host / 2,
        "{used:?} of {in_host}"
    );
    let left = budget - host - engine.reserve_bytes();
    assert!(tiers.device.most_bytes <= left, "{tiers:?} of {left}");
    // What lies in host memory is not taken for a process that grew.
    assert!(grown < 8 << 20, "{grown}");
    let io = engine.totals().host_io;
    assert!(io.bytes_read > 0 && io.bytes_written > 0);
    drop(engine);
    assert_eq!(losses, train(Engine::builder()).losses);
}
