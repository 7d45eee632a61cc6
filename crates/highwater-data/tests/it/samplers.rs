//! Samplers: shares of weights, batches of similar lengths, and that a loader goes on with them.

use highwater_data::{
    Array, Cursor, DataError, DataLoader, Dataset, Draws, LengthSampler, LengthSamplerOptions,
    LoaderOptions, Sampler, TensorDataset, WeightedSampler, WeightedSamplerOptions,
};

fn weighted(weights: &[f64], options: WeightedSamplerOptions) -> WeightedSampler {
    WeightedSampler::new(weights, options).unwrap()
}

fn epoch(sampler: &dyn Sampler, epoch: u64) -> Vec<usize> {
    let batches = 0..sampler.batches();
    batches
        .flat_map(|batch| sampler.batch(epoch, batch))
        .collect()
}

fn counts(samples: &[usize], of: usize) -> Vec<usize> {
    let mut counts = vec![0; of];
    for &sample in samples {
        counts[sample] += 1;
    }
    counts
}

#[test]
fn samples_come_by_their_weights() {
    let options = WeightedSamplerOptions {
        samples: Some(40_000),
        batch_size: 7,
        seed: 3,
        ..Default::default()
    };
    let sampler = weighted(&[1.0, 0.0, 5.0, 2.0, 0.0], options);
    let found = counts(&epoch(&sampler, 0), 5);
    // Five standard deviations.
    for (count, share) in found.iter().zip([0.125_f64, 0.0, 0.625, 0.25, 0.0]) {
        let deviation = (40_000.0 * share * (1.0 - share)).sqrt();
        let off = (*count as f64 - 40_000.0 * share).abs();
        assert!(off <= 5.0 * deviation, "{found:?}");
    }
    assert_eq!(sampler.batches(), 40_000_u64.div_ceil(7));
    assert_eq!(sampler.batch(2, 5), sampler.batch(2, 5));
    assert_ne!(epoch(&sampler, 0), epoch(&sampler, 1));
}

/// Without replacement, as if one were drawn after the other: the first by its share, the second by its share of
/// what is left.
#[test]
fn no_sample_comes_twice_without_replacement() {
    let options = WeightedSamplerOptions {
        samples: Some(3),
        replacement: false,
        batch_size: 2,
        ..Default::default()
    };
    let weights = [4.0, 1.0, 0.0, 3.0];
    let sampler = weighted(&weights, options.clone());
    let mut firsts = [0; 4];
    let mut seconds = [0; 4];
    for number in 0..20_000 {
        let order = epoch(&sampler, number);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 3]);
        firsts[order[0]] += 1;
        seconds[order[1]] += 1;
    }
    for (i, weight) in weights.iter().enumerate() {
        let others = |j: usize| {
            if i == j {
                0.0
            } else {
                weights[j] / 8.0 / (8.0 - weights[j])
            }
        };
        let second: f64 = weight * (0..4).map(others).sum::<f64>();
        for (count, share) in [(firsts[i], weight / 8.0), (seconds[i], second)] {
            let off = (f64::from(count) - 20_000.0 * share).abs();
            assert!(
                off <= 5.0 * (20_000.0 * share * (1.0 - share)).sqrt(),
                "{i}"
            );
        }
    }
    // Batches in any order, and of other epochs in between.
    let second = sampler.batch(7, 1);
    sampler.batch(8, 0);
    let all = [sampler.batch(7, 0), second].concat();
    assert_eq!(all, epoch(&sampler, 7));
    let too_many = WeightedSamplerOptions {
        samples: Some(4),
        ..options
    };
    let error = WeightedSampler::new(&weights, too_many)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("4 samples without replacement, of 3"),
        "{error}"
    );
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    for weights in [
        &[][..],
        &[0.0, 0.0],
        &[1.0, -1.0],
        &[f64::NAN],
        &[f64::INFINITY],
    ] {
        assert!(
            WeightedSampler::new(weights, WeightedSamplerOptions::default()).is_err(),
            "{weights:?}"
        );
    }
    let none = WeightedSamplerOptions {
        batch_size: 0,
        ..Default::default()
    };
    assert!(WeightedSampler::new(&[1.0], none).is_err());
    for (batch_size, pool) in [(0, 1), (1, 0)] {
        let none = LengthSamplerOptions {
            batch_size,
            pool,
            ..Default::default()
        };
        assert!(LengthSampler::new(&[1], none).is_err());
    }
}

#[test]
fn batches_are_of_similar_lengths() {
    let lengths: Vec<usize> = (0..203).map(|i| i * 37 % 101).collect();
    let options = LengthSamplerOptions {
        batch_size: 8,
        pool: 10,
        seed: 5,
        ..Default::default()
    };
    let sampler = LengthSampler::new(&lengths, options.clone()).unwrap();
    assert_eq!(sampler.batches(), 26);
    let padding = |batch: &Vec<usize>| {
        let longest = batch.iter().map(|&i| lengths[i]).max().unwrap();
        batch.iter().map(|&i| longest - lengths[i]).sum::<usize>()
    };
    let mut orders = Vec::new();
    for epoch in 0..3 {
        let batches: Vec<Vec<usize>> = (0..26).map(|batch| sampler.batch(epoch, batch)).collect();
        let all = batches.concat();
        assert!(counts(&all, 203).iter().all(|&count| count == 1));
        let sizes = batches.iter().filter(|batch| batch.len() != 8);
        assert_eq!(sizes.map(Vec::len).collect::<Vec<_>>(), [3]);
        // Batches of eight at random have a padding of some 350.
        let whole: usize = batches.iter().map(padding).sum();
        assert!(whole / 26 < 60, "{whole}");
        assert!(
            batches
                .iter()
                .all(|batch| batch.is_sorted_by_key(|&i| usize::MAX - lengths[i]))
        );
        orders.push(all);
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
    // In order: pools as the data has them.
    let plain = LengthSamplerOptions {
        shuffle: false,
        drop_last: true,
        batch_size: 2,
        pool: 2,
        ..options
    };
    let sampler = LengthSampler::new(&[1, 9, 2, 8, 5, 7, 3], plain).unwrap();
    let batches: Vec<Vec<usize>> = (0..3).map(|batch| sampler.batch(0, batch)).collect();
    assert_eq!(batches, [vec![1, 3], vec![2, 0], vec![5, 4]]);
    assert_eq!(sampler.batches(), 3);
    assert!(sampler.batch(0, 9).is_empty());
}

fn numbers(count: i64) -> TensorDataset<1> {
    let numbers: Vec<i64> = (0..count).collect();
    TensorDataset::new([Array::from_slice(&numbers, [numbers.len()]).unwrap()]).unwrap()
}

/// The same batches with any number of workers, and from a cursor on.
#[test]
fn a_loader_goes_on_with_a_sampler() {
    let load = |workers: usize, start: Cursor| -> Vec<Vec<u8>> {
        let options = WeightedSamplerOptions {
            samples: Some(50),
            batch_size: 4,
            drop_last: true,
            ..Default::default()
        };
        let sampler = weighted(&(0..20).map(f64::from).collect::<Vec<_>>(), options);
        let options = LoaderOptions {
            workers,
            ..Default::default()
        };
        let mut loader = DataLoader::with_sampler(numbers(20), sampler, options).unwrap();
        assert_eq!(loader.len(), 12);
        loader.seek(start).unwrap();
        let mut batches = Vec::new();
        while loader.cursor().epoch < 2 {
            let left = loader.epoch();
            batches.extend(left.map(|batch| batch.unwrap()[0].as_bytes().to_vec()));
        }
        batches
    };
    let all = load(0, Cursor::default());
    assert_eq!(all.len(), 24);
    assert_eq!(load(3, Cursor::default()), all);
    let middle = Cursor { epoch: 1, batch: 5 };
    assert_eq!(load(2, middle), all[17..]);
}

/// What of a loader is the sampler's, and samples that are not there.
#[test]
fn a_loader_has_no_order_beside_its_sampler() {
    let sampler = || LengthSampler::new(&[1; 5], LengthSamplerOptions::default()).unwrap();
    for options in [
        LoaderOptions {
            batch_size: 2,
            ..Default::default()
        },
        LoaderOptions {
            shuffle: true,
            ..Default::default()
        },
        LoaderOptions {
            drop_last: true,
            ..Default::default()
        },
    ] {
        let error = DataLoader::with_sampler(numbers(5), sampler(), options).unwrap_err();
        assert!(matches!(error, DataError::Usage(_)), "{error}");
    }
    let options = LoaderOptions::default();
    let mut loader = DataLoader::with_sampler(numbers(3), sampler(), options).unwrap();
    let errors: Vec<String> = (loader.epoch())
        .filter_map(|batch| Some(batch.err()?.to_string()))
        .collect();
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].contains("the sampler asks for sample "),
        "{errors:?}"
    );
}

/// A dataset whose samples are random.
struct Random;

impl Dataset for Random {
    type Item = [Array; 1];

    fn len(&self) -> usize {
        2
    }

    fn get(
        &self,
        _index: usize,
        draws: &mut Draws,
    ) -> Result<Self::Item, highwater_data::BoxError> {
        Ok([Array::from_slice(&[draws.unit()], [])?])
    }
}

/// A sample that comes twice in an epoch is not drawn alike.
#[test]
fn a_sample_that_comes_again_has_other_random_numbers() {
    let options = WeightedSamplerOptions {
        samples: Some(8),
        batch_size: 4,
        ..Default::default()
    };
    let sampler = weighted(&[1.0, 1.0], options);
    let options = LoaderOptions::default();
    let mut loader = DataLoader::with_sampler(Random, sampler, options).unwrap();
    let mut drawn: Vec<Vec<u8>> = Vec::new();
    for batch in loader.epoch() {
        drawn.extend(batch.unwrap()[0].as_bytes().chunks(4).map(<[u8]>::to_vec));
    }
    assert_eq!(drawn.len(), 8);
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), 8);
}
