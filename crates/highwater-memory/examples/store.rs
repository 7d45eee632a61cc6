//! Spills and fetches extents one after the other, from and to memory as the engine has it, and prints
//! MB/s: `benches/store.sh` compares them with `fio`.
//!
//!   store DIR [EXTENT (64 MiB)] [TOTAL (4 GiB)] [auto | uring | threads] [direct | cached]

#![expect(unsafe_code, reason = "arenas give addresses, transfers take slices")]
#![expect(
    clippy::print_stdout,
    reason = "the result of a program for benchmarks"
)]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use highwater_memory::spill::{Backend, Extent, Tag, open_with};
use highwater_memory::{Arena, Bytes};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize| args.get(i).map(String::as_str);
    let folder = arg(0).ok_or("which folder?")?;
    let size = |i, default: u64| arg(i).map_or(Ok(default), |text| text.parse().map(|Bytes(n)| n));
    let (bytes, total) = (size(1, 64 << 20)?, size(2, 4 << 30)?);
    let backend = match arg(3) {
        Some("uring") => Backend::Uring,
        Some("threads") => Backend::Threads,
        _ => Backend::Auto,
    };
    let extents = total / bytes;
    let footprint = Extent::footprint(bytes);
    let direct = arg(4) != Some("cached");
    let store = open_with(Path::new(folder), extents * footprint, 1, backend, direct)?;
    let arena = Arena::reserve(bytes)?;
    arena.set_height(bytes)?;
    // SAFETY: below the height, which stays, an arena is memory like any other, filled with zeros at
    // first; nobody else has this one.
    let memory = unsafe { std::slice::from_raw_parts_mut(arena.base().as_ptr(), bytes as usize) };
    let mut state = 1u64;
    for word in memory.chunks_exact_mut(8) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        word.copy_from_slice(&state.to_le_bytes());
    }
    let place = |cell: u64| {
        let (offset, capacity) = (cell * footprint, bytes);
        (Extent { offset, capacity }, Tag { cell, version: 0 })
    };
    let rate = |start: Instant| (extents * bytes) as f64 / 1e6 / start.elapsed().as_secs_f64();
    // The first time, the file system notes for each block that it was written.
    let mut rates = [0.0; 3];
    for rate_of_round in &mut rates[..2] {
        let start = Instant::now();
        for (extent, tag) in (0..extents).map(place) {
            store.write(extent, tag, memory)?;
        }
        *rate_of_round = rate(start);
    }
    let start = Instant::now();
    for (extent, tag) in (0..extents).map(place) {
        store.read(extent, tag, memory)?;
    }
    rates[2] = rate(start);
    let [first, again, read] = rates;
    println!(
        "{}: spill {again:.0} MB/s (first time {first:.0}), fetch {read:.0} MB/s",
        store.backend()
    );
    Ok(())
}
