//! Arrays in files, pictures and transforms: what NumPy, Pillow and torchvision have.

use highwater_data::{DataError, read_npz, read_safetensors};
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

#[test]
fn archives_of_numpy_are_read() {
    for name in ["stored.npz", "deflated.npz"] {
        let arrays = read_npz(fixtures().join(name)).unwrap();
        assert_eq!(arrays.keys().collect::<Vec<_>>(), ["half", "labels", "x"]);
        assert_eq!(arrays["x"].dims(), [2, 3]);
        let x: Vec<f32> = arrays["x"].to_vec().unwrap();
        assert_eq!(x, [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]);
        assert_eq!(arrays["labels"].to_vec::<i64>().unwrap(), [-1, 7]);
        assert!(arrays["half"].dims().is_empty());
    }
}

#[test]
fn damaged_archives_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    for name in ["stored.npz", "deflated.npz"] {
        let good = std::fs::read(fixtures().join(name)).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            std::fs::write(&path, &bad).unwrap();
            // Times, versions and names are nothing that is looked at.
            if let Err(error) = read_npz(&path) {
                assert!(
                    matches!(error, DataError::Format { .. }),
                    "byte {at}: {error}"
                );
                assert!(error.to_string().contains("a.npz"), "{error}");
            }
        }
        for length in (0..good.len()).step_by(7) {
            std::fs::write(&path, &good[..length]).unwrap();
            assert!(read_npz(&path).is_err(), "{length} bytes");
        }
    }
    assert!(matches!(read_npz("/nowhere.npz"), Err(DataError::Files(_))));
    assert!(matches!(
        read_safetensors(fixtures().join("stored.npz")),
        Err(DataError::Format { .. })
    ));
}

#[cfg(feature = "images")]
mod images {
    use super::fixtures;
    use highwater_data::images::{
        CenterCrop, Compose, ImageFolder, Normalize, Picture, Pixels, RandomCrop,
        RandomHorizontalFlip, RandomResizedCrop, Resize, Size, ToTensor, Transform, decode,
    };
    use highwater_data::{
        Array, DataError, DataLoader, Dataset, Draws, LoaderOptions, read_safetensors,
    };
    use std::path::Path;

    const PICTURES: [&str; 5] = ["colours", "tall", "gray", "clear", "palette"];

    fn read(name: &str) -> Pixels {
        let path = fixtures().join(name);
        decode(&path, &std::fs::read(&path).unwrap()).unwrap()
    }

    fn apply(transform: &dyn Transform, pixels: &Pixels) -> Picture {
        let picture = Picture::Pixels(pixels.clone());
        transform.apply(picture, &mut Draws::new(1, 2, 3)).unwrap()
    }

    /// Bytes are the same, or those of a resized picture next to each other.
    fn assert_pixels(got: &Pixels, want: &Array, what: &str) {
        assert_eq!([got.height(), got.width(), 3], want.dims(), "{what}");
        let most = u8::from(what.contains("resize"));
        let mut pairs = got.as_bytes().iter().zip(want.as_bytes());
        assert!(pairs.all(|(a, b)| a.abs_diff(*b) <= most), "{what}");
    }

    #[test]
    fn pictures_and_transforms_have_torchvisions_bytes() {
        let expected = read_safetensors(fixtures().join("expected.safetensors")).unwrap();
        let normalize = Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).unwrap();
        let mut compared = 0;
        for (key, want) in &expected {
            let parts: Vec<&str> = key.split('.').collect();
            if !PICTURES.contains(&parts[0]) {
                continue;
            }
            let pixels = read(&format!("{}.png", parts[0]));
            let extents: Vec<usize> = parts[2..]
                .iter()
                .map(|part| part.parse().unwrap())
                .collect();
            let got = match (parts[1], &extents[..]) {
                ("pixels", []) => Picture::Pixels(pixels),
                ("resize", &[size]) => apply(&Resize(Size::Shorter(size)), &pixels),
                ("resize", &[height, width]) => apply(&Resize(Size::Exact(height, width)), &pixels),
                ("center", &[height, width]) => apply(&CenterCrop { height, width }, &pixels),
                ("tensor", []) => apply(&ToTensor, &pixels),
                ("normalized", []) => apply(&normalize, &pixels),
                other => panic!("{other:?}"),
            };
            compared += 1;
            match got {
                Picture::Pixels(got) => assert_pixels(&got, want, key),
                Picture::Tensor(got) => assert!(got == *want, "{key}"),
            }
        }
        assert_eq!(compared, 60);
    }

    #[test]
    fn jpegs_are_about_pillows() {
        let expected = read_safetensors(fixtures().join("expected.safetensors")).unwrap();
        for name in ["smooth", "smooth_gray"] {
            let got = read(&format!("{name}.jpg"));
            let want = &expected[&format!("{name}.pixels")];
            assert_eq!([got.height(), got.width(), 3], want.dims());
            let pairs = got.as_bytes().iter().zip(want.as_bytes());
            let furthest = pairs.map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(furthest <= 6, "{name}: {furthest}");
        }
    }

    #[test]
    fn what_is_no_picture_is_refused_by_name() {
        let good = std::fs::read(fixtures().join("colours.png")).unwrap();
        let jpeg = std::fs::read(fixtures().join("smooth.jpg")).unwrap();
        for bytes in [&b"GIF89a"[..], &good[..40], &jpeg[..100], b""] {
            let error = decode(Path::new("cats/1.png"), bytes).unwrap_err();
            assert!(error.to_string().starts_with("cats/1.png: "), "{error}");
        }
    }

    #[test]
    fn random_transforms_follow_seed_epoch_and_sample() {
        let pixels = read("colours.png");
        let transforms: [(Box<dyn Transform>, usize, usize); 3] = [
            (Box::new(RandomCrop::new(12).padding(3)), 12, 12),
            (Box::new(RandomResizedCrop::new(10)), 10, 10),
            (Box::new(RandomHorizontalFlip::default()), 23, 31),
        ];
        for (transform, height, width) in transforms {
            let draw = |seed, epoch, index| {
                let picture = Picture::Pixels(pixels.clone());
                let picture = transform
                    .apply(picture, &mut Draws::new(seed, epoch, index))
                    .unwrap();
                let pixels = picture.into_pixels("a test").unwrap();
                assert_eq!((pixels.height(), pixels.width()), (height, width));
                pixels
            };
            assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
            let others = (0..20)
                .filter(|&index| draw(1, 2, index) != draw(1, 2, 3))
                .count();
            assert!(others >= 4, "{transform:?}: {others}");
        }
        let twice = |pixels| {
            apply(&RandomHorizontalFlip(1.0), pixels)
                .into_pixels("a test")
                .unwrap()
        };
        assert!(twice(&pixels) != pixels && twice(&twice(&pixels)) == pixels);
        let small = RandomCrop::new(24);
        assert!(
            small
                .apply(Picture::Pixels(pixels.clone()), &mut Draws::new(1, 1, 1))
                .is_err()
        );
        let late = Compose::new().then(ToTensor).then(Resize(Size::Shorter(4)));
        let error = late
            .apply(Picture::Pixels(pixels), &mut Draws::new(1, 1, 1))
            .unwrap_err();
        assert!(error.to_string().contains("before ToTensor"), "{error}");
    }

    #[test]
    fn a_share_of_each_class_is_held_out() {
        let root = tempfile::tempdir().unwrap();
        let folder = |counts: &[usize]| {
            for (class, &count) in counts.iter().enumerate() {
                let folder = root.path().join(format!("class{class}"));
                std::fs::create_dir_all(&folder).unwrap();
                for i in 0..count {
                    std::fs::write(folder.join(format!("{i:03}.png")), "").unwrap();
                }
            }
            ImageFolder::new(root.path(), ToTensor).unwrap()
        };
        let counts = [40, 7, 2];
        let folder_of = folder(&counts);
        for (share, expected) in [
            (0.0, [0, 0, 0]),
            (0.1, [4, 1, 1]),
            (0.5, [20, 4, 1]),
            (0.99, [39, 6, 1]),
        ] {
            let [train, held] = folder_of.split(share, 5).unwrap();
            let of = |class: i64| {
                held.iter()
                    .filter(|&&i| folder_of.samples()[i].1 == class)
                    .count()
            };
            assert_eq!([of(0), of(1), of(2)], expected, "{share}");
            let mut all: Vec<usize> = train.iter().chain(&held).copied().collect();
            assert!(train.is_sorted() && held.is_sorted());
            all.sort_unstable();
            assert_eq!(all, (0..49).collect::<Vec<_>>());
        }
        assert_eq!(
            folder_of.split(0.5, 5).unwrap(),
            folder_of.split(0.5, 5).unwrap()
        );
        assert_ne!(
            folder_of.split(0.5, 5).unwrap(),
            folder_of.split(0.5, 6).unwrap()
        );
        for share in [-0.1, 1.0, f64::NAN] {
            assert!(
                matches!(folder_of.split(share, 5), Err(DataError::Usage(_))),
                "{share}"
            );
        }
        let alone = folder(&[0, 0, 0, 1]);
        assert!(alone.split(0.0, 5).is_ok());
        let refused = alone.split(0.1, 5).unwrap_err().to_string();
        assert!(refused.contains("class3"), "{refused}");
    }

    #[test]
    fn folders_are_classes() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, from: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::copy(fixtures().join(from), path).unwrap();
        };
        put("dogs/2.PNG", "tall.png");
        put("dogs/10.jpeg", "smooth.jpg");
        put("cats/b/0.png", "gray.png");
        put("cats/z.png", "colours.png");
        put("cats/notes.txt", "stored.npz");
        let transform = Compose::new()
            .then(Resize(Size::Exact(8, 6)))
            .then(ToTensor);
        let folder = ImageFolder::new(root.path(), transform).unwrap();
        assert_eq!(folder.classes(), ["cats", "dogs"]);
        let names: Vec<String> = (folder.samples().iter())
            .map(|(path, label)| {
                let path = path.strip_prefix(root.path()).unwrap();
                format!("{} {label}", path.display())
            })
            .collect();
        assert_eq!(
            names,
            [
                "cats/z.png 0",
                "cats/b/0.png 0",
                "dogs/10.jpeg 1",
                "dogs/2.PNG 1"
            ]
        );
        assert_eq!(folder.len(), 4);
        let options = LoaderOptions {
            batch_size: 4,
            workers: 2,
            ..Default::default()
        };
        let mut loader = DataLoader::new(folder, options).unwrap();
        let (pixels, labels) = loader.next_batch().unwrap().unwrap();
        assert_eq!(pixels.dims(), [4, 3, 8, 6]);
        assert_eq!(labels.to_vec::<i64>().unwrap(), [0, 0, 1, 1]);

        put("dogs/damaged.png", "stored.npz");
        let folder = ImageFolder::new(root.path(), ToTensor).unwrap();
        let options = LoaderOptions {
            workers: 2,
            ..Default::default()
        };
        let mut loader = DataLoader::new(folder, options).unwrap();
        let error = loader.epoch().find_map(Result::err).unwrap();
        assert!(
            matches!(error, DataError::Sample { index: 4, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("dogs/damaged.png"), "{error}");

        std::fs::create_dir(root.path().join("empty")).unwrap();
        let error = ImageFolder::new(root.path(), ToTensor).unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
        assert!(ImageFolder::new(root.path().join("empty"), ToTensor).is_err());
    }
}
