//! The loader: orders, cursors, workers, errors, bytes.

use highwater_data::{
    Array, BoxError, Cursor, DataError, DataLoader, Dataset, Draws, LoaderOptions, TensorDataset,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Numbers and a draw of each, loaded the slower the smaller they are.
struct Slow(usize);

impl Dataset for Slow {
    type Item = (u32, u32);

    fn len(&self) -> usize {
        self.0
    }

    fn get(&self, index: usize, draws: &mut Draws) -> Result<(u32, u32), BoxError> {
        std::thread::sleep(Duration::from_micros(
            500_u64.saturating_sub(index as u64 * 10),
        ));
        Ok((index as u32, draws.below(1_000_000) as u32))
    }
}

fn options(workers: usize) -> LoaderOptions {
    LoaderOptions {
        batch_size: 4,
        shuffle: true,
        seed: 9,
        workers,
        ..Default::default()
    }
}

/// What the batches of some epochs hold.
fn all<D: Dataset<Item = (u32, u32)> + 'static>(
    dataset: D,
    options: LoaderOptions,
) -> Vec<Vec<u32>> {
    let mut loader = DataLoader::new(dataset, options).unwrap();
    let mut batches = Vec::new();
    for _ in 0..3 {
        for batch in loader.epoch() {
            let (index, drawn) = batch.unwrap();
            let both = [index.to_vec().unwrap(), drawn.to_vec().unwrap()];
            batches.push(both.concat());
        }
    }
    batches
}

#[test]
fn batches_do_not_depend_on_workers() {
    let want = all(Slow(30), options(0));
    assert_eq!(want.len(), 24);
    let epochs: Vec<Vec<u32>> = want.chunks(8).map(<[_]>::concat).collect();
    assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
    for workers in [1, 2, 5] {
        assert_eq!(all(Slow(30), options(workers)), want, "{workers} workers");
        let ahead = LoaderOptions {
            prefetch: 50,
            prefetch_bytes: 1,
            ..options(workers)
        };
        assert_eq!(all(Slow(30), ahead), want, "{workers} workers without room");
    }
}

#[test]
fn every_sample_comes_once_in_an_epoch() {
    for (shuffle, drop_last) in [(true, false), (true, true), (false, false), (false, true)] {
        let options = LoaderOptions {
            shuffle,
            drop_last,
            ..options(2)
        };
        let mut loader = DataLoader::new(Slow(30), options).unwrap();
        assert_eq!(loader.len(), if drop_last { 7 } else { 8 });
        let batches: Vec<_> = loader.epoch().map(Result::unwrap).collect();
        let indices: Vec<u32> = batches
            .iter()
            .flat_map(|(index, _)| index.to_vec::<u32>().unwrap())
            .collect();
        assert_eq!(indices.len(), if drop_last { 28 } else { 30 });
        assert_eq!(indices.iter().collect::<BTreeSet<_>>().len(), indices.len());
        assert_eq!(indices.is_sorted(), !shuffle);
        assert_eq!(loader.cursor(), Cursor { epoch: 1, batch: 0 });
    }
}

#[test]
fn a_loader_goes_on_where_another_was() {
    let want = all(Slow(30), options(0));
    for (workers, stop) in [(0, 11), (2, 3), (3, 8), (2, 23)] {
        let mut first = DataLoader::new(Slow(30), options(2)).unwrap();
        let mut seen = 0;
        while seen < stop {
            seen += usize::from(first.next_batch().unwrap().is_some());
        }
        let cursor = first.cursor();
        drop(first);
        let mut second = DataLoader::new(Slow(30), options(workers)).unwrap();
        // What was loaded ahead from the start is forgotten.
        second.next_batch().unwrap();
        second.seek(cursor).unwrap();
        let (index, drawn) = loop {
            if let Some(batch) = second.next_batch().unwrap() {
                break batch;
            }
        };
        let both = [index.to_vec::<u32>().unwrap(), drawn.to_vec().unwrap()].concat();
        assert_eq!(both, want[stop], "{workers} workers from {stop}");
    }
    let mut loader = DataLoader::new(Slow(30), options(0)).unwrap();
    assert!(loader.seek(Cursor { epoch: 0, batch: 9 }).is_err());
}

/// Fails or panics at a sample, so often.
struct Broken {
    panics: bool,
    times: AtomicUsize,
}

impl Dataset for Broken {
    type Item = (u32, u32);

    fn len(&self) -> usize {
        20
    }

    fn get(&self, index: usize, _draws: &mut Draws) -> Result<(u32, u32), BoxError> {
        let fails = index == 13
            && (self.times)
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |times| {
                    times.checked_sub(1)
                })
                .is_ok();
        assert!(!(fails && self.panics), "no sample today");
        if fails {
            return Err("a scratched disk".into());
        }
        Ok((index as u32, 0))
    }
}

#[test]
fn errors_and_panics_come_with_the_samples_index() {
    for (workers, panics) in [(0, false), (0, true), (3, false), (3, true)] {
        let dataset = Broken {
            panics,
            times: AtomicUsize::new(1),
        };
        let options = LoaderOptions {
            shuffle: false,
            ..options(workers)
        };
        let mut loader = DataLoader::new(dataset, options).unwrap();
        let mut epoch = loader.epoch();
        for _ in 0..3 {
            epoch.next().unwrap().unwrap();
        }
        let error = epoch.next().unwrap().unwrap_err();
        match &error {
            DataError::Sample { index: 13, .. } if !panics => {}
            DataError::Panicked { index: 13, .. } if panics => {}
            other => panic!("{other}"),
        }
        let said = if panics {
            "no sample today"
        } else {
            "a scratched disk"
        };
        assert!(error.to_string().contains(said), "{error}");
        assert!(epoch.next().is_none());
        // Asked again, it is tried again.
        assert_eq!(loader.cursor(), Cursor { epoch: 0, batch: 3 });
        let (index, _) = loader.next_batch().unwrap().unwrap();
        assert_eq!(index.to_vec::<u32>().unwrap(), [12, 13, 14, 15]);
    }
}

#[test]
fn samples_that_make_no_batch_are_an_error() {
    let uneven = Slow(8).map(|(index, _), _| {
        Ok(Array::from_slice(
            &vec![0_u8; index as usize],
            [index as usize],
        )?)
    });
    let mut loader = DataLoader::new(uneven, options(1)).unwrap();
    let error = loader.next_batch().unwrap_err();
    assert!(matches!(error, DataError::Collate { .. }), "{error}");
    assert!(error.to_string().contains("differ"), "{error}");
    let none = LoaderOptions {
        batch_size: 0,
        ..options(0)
    };
    assert!(DataLoader::new(Slow(3), none).is_err());
    let mut empty = DataLoader::new(Slow(0), options(2)).unwrap();
    assert!(empty.is_empty() && empty.next_batch().unwrap().is_none());
}

struct Empty;

/// Counts how many batches are there.
struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl highwater_data::Batch for Held {
    fn bytes(&self) -> u64 {
        1000
    }
}

impl Dataset for Empty {
    type Item = ();

    fn len(&self) -> usize {
        200
    }

    fn get(&self, _index: usize, _draws: &mut Draws) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn what_is_loaded_ahead_is_bounded() {
    let alive = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let options = LoaderOptions {
        workers: 4,
        prefetch: 20,
        // Five batches; those being put together count twice.
        prefetch_bytes: 5000,
        ..LoaderOptions::default()
    };
    let (count, peak) = (Arc::clone(&alive), Arc::clone(&most));
    let collate = move |_| {
        let now = count.fetch_add(1, Ordering::SeqCst) + 1;
        peak.fetch_max(now, Ordering::SeqCst);
        Ok(Held(Arc::clone(&count)))
    };
    let mut loader = DataLoader::with_collate(Empty, options, collate).unwrap();
    for batch in loader.epoch() {
        drop(batch.unwrap());
        std::thread::sleep(Duration::from_micros(200));
    }
    let most = most.load(Ordering::SeqCst);
    // The one that the caller has is not counted.
    assert!((2..=6).contains(&most), "{most} batches at once");
    drop(loader);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// How many threads of loaders this process has.
#[cfg(target_os = "linux")]
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|thread| thread.trim() == name).count()
}

#[cfg(target_os = "linux")]
#[test]
fn no_thread_outlives_its_loader() {
    // Only this loader has so many workers.
    let name = "hw-data-11";
    let mut loader = DataLoader::new(Slow(200), options(12)).unwrap();
    loader.next_batch().unwrap();
    let wait = |count| {
        let started = Instant::now();
        while threads(name) != count {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{count} threads"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait(1);
    drop(loader);
    // The system takes a moment to forget a thread that has ended.
    wait(0);
}

#[test]
fn arrays_are_datasets() {
    let x = Array::from_slice(&[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0], [3, 2]).unwrap();
    let y = Array::from_slice(&[7_i64, 8, 9], [3]).unwrap();
    let short = Array::from_slice(&[7_i64], [1]).unwrap();
    assert!(TensorDataset::new([x.clone(), short]).is_err());
    let dataset = TensorDataset::new([x, y])
        .unwrap()
        .subset(vec![2, 0])
        .unwrap();
    assert!(TensorDataset::new([Array::from_slice(&[1_u8], []).unwrap()]).is_err());
    let whole = LoaderOptions {
        batch_size: 2,
        ..Default::default()
    };
    let mut loader = DataLoader::new(dataset, whole).unwrap();
    let [x, y] = loader.next_batch().unwrap().unwrap();
    assert_eq!((x.dims(), y.dims()), (&[2, 2][..], &[2][..]));
    assert_eq!(x.to_vec::<f32>().unwrap(), [4.0, 5.0, 0.0, 1.0]);
    assert_eq!(y.to_vec::<i64>().unwrap(), [9, 7]);
    assert!(x.to_vec::<i64>().is_err() && x.index(2).is_err());
}
