//! Cells and values that wait in host memory, apart from the memory that kernels work in: the same bits as
//! in one memory, whatever the budgets, and no tier ever beyond its own.

use crate::models::{Layers, Model, SKIPS, SMALL_GPT, UNET};
use crate::share::some;
use crate::train::{PAGE, PLAIN, Recipe, Trace, assert_same_bits, assert_within, run, train};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use highwater::plan::{Plan, Problem, Tier, ValueId};
use highwater::{Builder, Engine, Error, Forecast, Parameter, Result, TierUses};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

const PLENTY: u64 = 64 << 20;
const WIDTH: usize = 160;
/// Weights of 100 KiB each, the second 100 bytes short of whole pages.
const WIDTHS: [usize; 5] = [WIDTH, WIDTH, WIDTH - 5, WIDTH, WIDTH];

type Make<'a> = &'a dyn Fn(&Engine) -> Result<Box<dyn Model>>;

fn layers(engine: &Engine) -> Result<Box<dyn Model>> {
    Ok(Box::new(Layers::new(engine, &WIDTHS)?))
}

/// Room of each tier; no disk without bytes for it.
#[derive(Debug, Clone, Copy)]
struct Rooms {
    device: u64,
    host: u64,
    disk: u64,
}

impl Rooms {
    fn builder(self, folder: &std::path::Path) -> Builder {
        let builder = Engine::builder()
            .device_memory(self.device)
            .host_memory(self.host);
        match self.disk {
            0 => builder,
            bytes => builder.disk(folder, bytes),
        }
    }
}

thread_local! {
    /// What plans of this thread have to keep to.
    static LOOKING: RefCell<Option<(Engine, Rooms)>> = const { RefCell::new(None) };
}

/// Holds a plan's own figures, which are verified, and the pages that are there against the rooms.
fn look(problem: &Problem, plan: &Plan) {
    LOOKING.with_borrow(|looking| {
        let Some((engine, rooms)) = looking else {
            return;
        };
        assert!(plan.memory_bytes() <= rooms.device);
        for (tier, room) in [(Tier::Host, rooms.host), (Tier::Disk, rooms.disk)] {
            let traffic = plan.traffic(tier);
            let taken = traffic.home_bytes + traffic.spill_bytes;
            assert!(taken <= room, "{tier:?}: {taken} of {room}");
        }
        assert!(problem.tiers.host.is_some());
        check_pages(engine, *rooms);
    });
}

/// What the system counts of the arenas.
fn check_pages(engine: &Engine, rooms: Rooms) {
    if cfg!(target_os = "linux") {
        let (device, host) = engine.resident_bytes().unwrap();
        assert!(device <= rooms.device, "{device} of {rooms:?}");
        assert!(host <= rooms.host, "{host} of {rooms:?}");
    }
}

/// What the engine counts itself.
fn check_counters(uses: &TierUses, rooms: Rooms) {
    assert!(uses.device.most_bytes <= rooms.device, "{uses:?}");
    assert_eq!(uses.device.room_bytes, rooms.device);
    let host = uses.host.unwrap();
    assert!(host.most_bytes <= rooms.host, "{uses:?}");
    assert!(host.bytes <= host.most_bytes && uses.device.bytes <= uses.device.most_bytes);
    if let Some(disk) = uses.disk {
        assert!(disk.most_bytes <= rooms.disk, "{uses:?}");
    }
}

/// Trains in some rooms, while another thread looks at pages all the time.
fn train_in(rooms: Rooms, make: Make<'_>, recipe: Recipe) -> Result<(Trace, Engine)> {
    let folder = tempfile::tempdir().unwrap();
    let engine = rooms
        .builder(folder.path())
        .on_plan(look)
        .seed(11)
        .build()?;
    LOOKING.set(Some((engine.clone(), rooms)));
    let over = AtomicBool::new(false);
    let trace = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                check_pages(&engine, rooms);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let trace = make(&engine).and_then(|model| train(&*model, &engine, recipe));
        over.store(true, Ordering::Release);
        trace
    });
    LOOKING.set(None);
    check_counters(&engine.tiers(), rooms);
    Ok((trace?, engine))
}

/// The least device memory in which a recipe goes through with these rooms below.
fn floor(mut rooms: Rooms, make: Make<'_>, recipe: Recipe) -> Rooms {
    rooms.device = 96 * PAGE;
    for _ in 0..200 {
        match train_in(rooms, make, recipe) {
            Ok(_) => return rooms,
            Err(Error::OverBudget {
                tier, floor_bytes, ..
            }) => {
                assert_eq!(tier, "device memory");
                assert!(floor_bytes > rooms.device, "{floor_bytes} of {rooms:?}");
                rooms.device = floor_bytes;
            }
            Err(Error::State { .. } | Error::HostFull { .. }) => {
                rooms.device += 16 * PAGE;
            }
            Err(other) => panic!("{rooms:?}: {other}"),
        }
    }
    panic!("the floor rises again and again");
}

fn check(make: Make<'_>, recipe: Recipe, below: Rooms) -> Rooms {
    let plenty = run(Engine::builder(), make, recipe).unwrap();
    let least = floor(below, make, recipe);
    let most = plenty.peak_bytes() + (1 << 20);
    for part in some(0..3) {
        let rooms = Rooms {
            device: least.device + (most - least.device) / PAGE * part / 2 * PAGE,
            ..least
        };
        let what = format!("{recipe:?}, {rooms:?}");
        let (trace, engine) =
            train_in(rooms, make, recipe).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_same_bits(&what, &trace, &plenty);
        assert_within(&what, rooms.device, &trace);
        let (host, disk) = (engine.totals().host_io, engine.totals().io);
        assert!(part > 0 || host.bytes_read > 0, "{what}: nothing was moved");
        assert!(below.disk > 0 || disk.bytes_read + disk.bytes_written == 0);
        for io in [host, disk] {
            assert!((0.0..=1.0).contains(&io.overlap()));
        }
    }
    least
}

const LARGE_HOST: Rooms = Rooms {
    device: 0,
    host: PLENTY,
    disk: 0,
};

/// Parameters and moments take 1.2 MB.
const ALL_SMALL: Rooms = Rooms {
    device: 0,
    host: 600 << 10,
    disk: 3 << 20,
};

#[test]
fn the_budget_law_with_host_memory() {
    let plenty = run(Engine::builder(), &layers, PLAIN).unwrap();
    let least = check(&layers, PLAIN, LARGE_HOST);
    assert!(least.device < plenty.peak_bytes() / 2, "{least:?}");
}

#[test]
fn the_budget_law_with_host_memory_clipping() {
    let recipe = Recipe {
        clip: true,
        ..PLAIN
    };
    check(&layers, recipe, LARGE_HOST);
}

#[test]
fn the_budget_law_with_host_memory_accumulating() {
    let recipe = Recipe {
        accumulate: 3,
        keep_grads: true,
        ..PLAIN
    };
    check(&layers, recipe, LARGE_HOST);
}

#[test]
fn the_budget_law_with_host_memory_read_early() {
    let recipe = Recipe {
        read_early: true,
        rows: 5,
        ..PLAIN
    };
    check(&layers, recipe, LARGE_HOST);
}

#[test]
fn the_budget_law_with_three_small_tiers() {
    check(&layers, PLAIN, ALL_SMALL);
    let recipe = Recipe {
        clip: true,
        accumulate: 2,
        read_early: true,
        ..PLAIN
    };
    check(&layers, recipe, ALL_SMALL);
}

#[test]
fn all_three_tiers_are_used_where_none_is_enough() {
    let rooms = floor(ALL_SMALL, &layers, PLAIN);
    let (_, engine) = train_in(rooms, &layers, PLAIN).unwrap();
    let totals = engine.totals();
    assert!(totals.host_io.bytes_read > 0 && totals.io.bytes_read > 0);
    let uses = engine.tiers();
    assert!(uses.host.unwrap().most_bytes > ALL_SMALL.host / 2);
    assert!(uses.disk.unwrap().most_bytes > 0);
}

/// A step of two batches, eight times, dry: whether it ran the plans of the one before, and its forecast.
fn steps(builder: Builder) -> Vec<(bool, Forecast)> {
    let engine = builder.dry_run().seed(11).build().unwrap();
    let model = layers(&engine).unwrap();
    let mut adamw = AdamW::new(model.sets().concat(), AdamWOptions::default()).unwrap();
    let step = |_| {
        for batch in 0..2 {
            let loss = model.losses(batch, 4).unwrap().remove(0);
            loss.backward().unwrap();
        }
        adamw.step().unwrap();
        (engine.is_settled(), engine.forecast().unwrap())
    };
    (0..8).map(step).collect()
}

#[test]
fn steps_are_settled_once_cells_have_their_places() {
    let plain = steps(Engine::builder());
    let moving = steps(
        Engine::builder()
            .device_memory(600 << 10)
            .host_memory(PLENTY),
    );
    for (steps, moves) in [(plain, false), (moving, true)] {
        // One that repeats another is the second at least.
        let unsettled = steps.iter().take_while(|(settled, _)| !settled).count();
        assert_eq!(unsettled > 1, moves, "{unsettled} steps");
        let (first, later) = steps[unsettled..].split_first().unwrap();
        assert!(later.iter().all(|step| step == first) && !later.is_empty());
    }
}

/// Their cells are too small to move; values of the step are not.
#[test]
fn samples_keep_their_bits_beside_host_memory() {
    for sample in some([SMALL_GPT, SKIPS, UNET]) {
        let recipe = Recipe {
            clip: true,
            accumulate: 2,
            ..PLAIN
        };
        let plenty = run(Engine::builder(), &sample.make, recipe).unwrap();
        let least = crate::train::floor(&sample.make, recipe, &plenty);
        let most = plenty.peak_bytes() + (64 << 10);
        for device in [least + 16 * PAGE, u64::midpoint(least, most), most] {
            for host in [16 << 10, PLENTY] {
                let rooms = Rooms {
                    device,
                    host,
                    disk: 0,
                };
                let what = format!("{}, {rooms:?}", sample.name);
                let (trace, _) = train_in(rooms, &sample.make, recipe)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_same_bits(&what, &trace, &plenty);
                assert_within(&what, device, &trace);
            }
        }
    }
}

/// A loop that evaluates in between, at other lengths, and whose state goes out and comes back in, less
/// the first bytes.
fn lively(engine: &Engine) -> Result<Vec<f32>> {
    let model = Layers::new(engine, &WIDTHS)?;
    let parameters = model.sets().remove(0);
    let mut adamw = AdamW::new(parameters.clone(), AdamWOptions::default())?;
    let mut seen = Vec::new();
    for step in 0..6 {
        for micro in 0..2 {
            let rows = if step % 3 == 2 { 7 } else { 2 };
            model.loss(10 * step + micro, rows)?.backward()?;
        }
        seen.push(clip_grad_norm_(&parameters, 0.05)?.item()?);
        adamw.step()?;
        let held_out = highwater::no_grad(|| model.loss(100, 3))?;
        seen.push(held_out.item()?);
        seen.extend(model.linear[1].weight.to_vec::<f32>()?);
    }
    let cells = adamw.state_dict();
    let saved: Vec<Vec<u8>> = (cells.iter())
        .map(|(_, moment)| moment.with_bytes(<[u8]>::to_vec))
        .collect::<Result<_>>()?;
    for (_, moment) in &cells {
        moment.with_bytes_mut(|own| own.fill(0))?;
    }
    for ((_, moment), bytes) in cells.iter().zip(&saved) {
        moment.with_bytes_mut(|own| own[16..].copy_from_slice(&bytes[16..]))?;
    }
    model.loss(7, 2)?.backward()?;
    adamw.step()?;
    for parameter in &parameters {
        seen.extend(parameter.to_vec::<f32>()?);
    }
    Ok(seen)
}

#[test]
fn evaluations_other_lengths_and_loading() {
    let plenty = lively(&Engine::builder().seed(3).build().unwrap()).unwrap();
    for device in [700 << 10, 2 << 20] {
        for (host, disk) in [(PLENTY, 0), (700 << 10, 4 << 20)] {
            let rooms = Rooms { device, host, disk };
            let folder = tempfile::tempdir().unwrap();
            let engine = rooms.builder(folder.path()).seed(3).build().unwrap();
            let seen = lively(&engine).unwrap_or_else(|error| panic!("{rooms:?}: {error}"));
            assert!(seen == plenty, "{rooms:?}");
            check_counters(&engine.tiers(), rooms);
            check_pages(&engine, rooms);
        }
    }
}

/// Parameters of 256 KiB, ten times what device memory holds.
fn many(engine: &Engine) -> Result<Vec<Parameter>> {
    let fill = |i: usize| {
        Parameter::new(engine, [1 << 16], |to| {
            for (j, x) in to.iter_mut().enumerate() {
                *x = (i * 70_000 + j) as f32;
            }
        })
    };
    (0..40).map(fill).collect()
}

#[test]
fn more_cells_than_device_memory_are_read_back() {
    let engine = Engine::builder().device_memory(1 << 20).host_memory(PLENTY);
    let engine = engine.build().unwrap();
    let cells = many(&engine).unwrap();
    for (i, cell) in cells.iter().enumerate() {
        let values = cell.to_vec::<f32>().unwrap();
        let right = |(j, &x): (usize, &f32)| x == (i * 70_000 + j) as f32;
        assert!(values.iter().enumerate().all(right), "{i}");
    }
    cells[35].with_values_mut(|own| own[5] = -1.0).unwrap();
    assert_eq!(cells[35].to_vec::<f32>().unwrap()[5], -1.0);
    let uses = engine.tiers();
    assert!(uses.device.most_bytes <= 1 << 20 && uses.host.unwrap().bytes >= 36 << 18);
    drop(cells);
    // What nobody holds any more goes when the engine is next looked at.
    engine.totals();
    assert_eq!(engine.tiers().host.unwrap().bytes, 0);
}

#[test]
fn fresh_zeros_touch_no_page() {
    let builder = Engine::builder().device_memory(500 << 10);
    let engine = builder.host_memory(PLENTY).build().unwrap();
    let model = Layers::new(&engine, &WIDTHS).unwrap();
    let before = engine.resident_bytes().unwrap().1;
    let adamw = AdamW::new(model.sets().remove(0), AdamWOptions::default()).unwrap();
    assert!(engine.tiers().host.unwrap().bytes > before + 6 * (90 << 10));
    for (_, moment) in adamw.state_dict() {
        assert!(moment.to_vec::<f32>().unwrap().iter().all(|&x| x == 0.0));
    }
    assert_eq!(engine.resident_bytes().unwrap().1, before);
}

#[test]
fn a_refusal_names_the_tier_that_is_short() {
    // Neither holds the cells.
    let engine = Engine::builder().device_memory(1 << 20);
    let error = many(&engine.host_memory(2 << 20).build().unwrap()).unwrap_err();
    assert!(matches!(error, Error::HostFull { .. }), "{error}");
    assert!(error.to_string().contains("host memory"), "{error}");
    // Device memory is too small, however much waits in host memory.
    let least = floor(LARGE_HOST, &layers, PLAIN);
    let short = Rooms {
        device: least.device - PAGE,
        ..least
    };
    let error = train_in(short, &layers, PLAIN).unwrap_err().to_string();
    assert!(
        error.contains("device memory") && !error.contains("more host memory"),
        "{error}"
    );
    // It would do with more host memory.
    let short = Rooms {
        host: 300 << 10,
        ..least
    };
    let error = train_in(short, &layers, PLAIN).unwrap_err();
    assert!(error.to_string().contains("host memory"), "{error}");
}

#[test]
fn bounds_that_make_no_sense_together_are_refused() {
    let refused = |builder: Builder, named: &str| {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, Error::Build(_)), "{error}");
        assert!(error.to_string().contains(named), "{error}");
    };
    let builder = Engine::builder;
    refused(builder().host_memory(PLENTY), "device_memory");
    refused(builder().device_memory(PLENTY).arena(PLENTY), "arena");
    refused(builder().device_memory(PLENTY).host_memory(0), "0 bytes");
    refused(
        builder().memory(PLENTY).host_memory(PLENTY),
        "host memory 64 MiB",
    );
    let (all, part) = (8 << 30, 6 << 30);
    refused(
        builder().memory(all).device_memory(part).host_memory(part),
        "device memory",
    );
    refused(
        builder().device_memory(PLENTY).host_rates(0.0, 1.0),
        "host_rates",
    );
    // Device memory is what the others leave, and the tables of all pages.
    let tables = all / (highwater::memory::page_bytes() / 8);
    let reserve = 1 << 30;
    let engine = builder().memory(all).reserve(reserve).host_memory(part);
    let uses = engine.build().unwrap().tiers();
    assert_eq!(uses.device.room_bytes, all - tables - part - reserve);
    assert_eq!(uses.host.unwrap().room_bytes, part);
}

#[test]
fn a_forecast_tells_of_host_memory() {
    let rooms = floor(LARGE_HOST, &layers, PLAIN);
    let plan = |builder: Builder| {
        let engine = builder.seed(11).prices(0).build().unwrap();
        let model = Layers::new(&engine, &WIDTHS).unwrap();
        let mut adamw = AdamW::new(model.sets().remove(0), AdamWOptions::default()).unwrap();
        for step in 0..2 {
            model.loss(step, 2).unwrap().backward().unwrap();
            adamw.step().unwrap();
        }
        engine.forecast().unwrap()
    };
    let builder = || rooms.builder(std::path::Path::new("unused"));
    let (ran, dry) = (plan(builder()), plan(builder().dry_run()));
    assert_eq!(ran.plan, dry.plan);
    assert!(ran.peak_bytes <= rooms.device && ran.budget_bytes == rooms.device);
    assert!(ran.host_bytes > 0 && ran.host_bytes_read > 0 && ran.host_bytes_written > 0);
    assert_eq!((ran.disk_bytes, ran.bytes_read), (0, 0));
    let on_host = |home: &&(ValueId, Option<Tier>)| home.1 == Some(Tier::Host);
    assert!(ran.plan.homes.iter().any(|home| on_host(&home)));
}
