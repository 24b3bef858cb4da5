//! MNIST files, sound and damaged in every way the loader names.

use std::fs;
use std::io::Write;
use std::path::Path;

use datasets::{DataError, Dataset, Federated, Labelled, Partition, idx};
use flate2::{Compression, write::GzEncoder};
use tempfile::TempDir;

const IMAGES: &str = "t10k-images-idx3-ubyte";
const LABELS: &str = "t10k-labels-idx1-ubyte";

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// `count` images of 2 × 3; pixel `p` of image `i` is `10 i + p`.
fn images(count: u8) -> Vec<u8> {
    let mut bytes = words(&[0x803, count.into(), 2, 3]);
    bytes.extend((0..count).flat_map(|i| (0..6).map(move |p| 10 * i + p)));
    bytes
}

/// Labels 0, 1, 2, …
fn labels(count: u8) -> Vec<u8> {
    let mut bytes = words(&[0x801, count.into()]);
    bytes.extend((0..count).map(|i| i % 10));
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn load(files: &[(&str, &[u8])]) -> Result<(Labelled, Labelled), DataError> {
    idx::load_mnist(folder(files).path(), 1)
}

/// The error of a pair of test files.
fn refused(images: &[u8], labels: &[u8]) -> DataError {
    load(&[(IMAGES, images), (LABELS, labels)]).unwrap_err()
}

#[test]
fn both_sets_are_read_and_pixels_normalised() {
    let (train, test) = load(&[
        ("train-images-idx3-ubyte", &images(5)),
        ("train-labels-idx1-ubyte.gz", &gzip(&labels(5))),
        ("t10k-images-idx3-ubyte.gz", &gzip(&images(2))),
        (LABELS, &labels(2)),
    ])
    .unwrap();
    assert_eq!((train.len(), train.width, train.classes), (5, 6, 10));
    assert_eq!(train.labels, [0, 1, 2, 3, 4]);
    assert_eq!(test.labels, [0, 1]);
    for (position, &feature) in test.features.iter().enumerate() {
        let pixel = (10 * (position / 6) + position % 6) as f32;
        assert!((feature - (pixel / 255.0 - 0.1307) / 0.3081).abs() < 1e-6, "pixel {position} is {feature}");
    }
}

#[test]
fn one_set_alone_is_split() {
    for set in ["train", "t10k"] {
        let (i, l) = (format!("{set}-images-idx3-ubyte"), format!("{set}-labels-idx1-ubyte"));
        let folder = folder(&[(&i, &images(20)), (&l, &labels(20))]);
        let (train, test) = idx::load_mnist(folder.path(), 1).unwrap();
        assert_eq!((train.len(), test.len()), (17, 3));
        let mut first_pixels: Vec<f32> = train.features.iter().chain(&test.features).step_by(6).copied().collect();
        first_pixels.sort_by(f32::total_cmp);
        first_pixels.dedup();
        assert_eq!(first_pixels.len(), 20, "every image is in one of the two");
        assert!((train, test) == idx::load_mnist(folder.path(), 1).unwrap());
    }
}

#[test]
fn compression_is_seen_by_content_not_by_name() {
    let (train, _) = load(&[(IMAGES, &gzip(&images(4))), ("t10k-labels-idx1-ubyte.gz", &labels(4))]).unwrap();
    assert_eq!(train.len(), 3);
}

#[test]
fn absent_folders_and_files_are_named() {
    let error = idx::load_mnist(Path::new("/no/such/folder"), 1).unwrap_err();
    assert!(matches!(error, DataError::MissingFolder { .. }));
    assert!(error.to_string().contains("/no/such/folder") && error.to_string().contains(IMAGES), "{error}");

    let error = load(&[]).unwrap_err();
    assert!(matches!(error, DataError::MissingFile { .. }));
    for name in [IMAGES, "t10k-images-idx3-ubyte.gz", "train-images-idx3-ubyte"] {
        assert!(error.to_string().contains(name), "{error}");
    }

    let error = load(&[(IMAGES, &images(3))]).unwrap_err();
    assert!(error.to_string().contains(LABELS), "{error}");
    let error = load(&[(LABELS, &labels(3))]).unwrap_err();
    assert!(error.to_string().contains(IMAGES), "{error}");
}

#[test]
fn wrong_magic_is_refused() {
    let error = refused(&labels(3), &labels(3));
    assert!(matches!(error, DataError::BadMagic { what: "images", found: 0x801, expected: 0x803, .. }));
    let error = refused(&images(3), &images(3));
    assert!(matches!(error, DataError::BadMagic { what: "labels", found: 0x803, expected: 0x801, .. }));
    assert!(error.to_string().contains("0x00000803"), "{error}");
}

#[test]
fn every_truncation_is_refused() {
    let whole = images(3);
    for length in 0..whole.len() {
        let error = refused(&whole[..length], &labels(3));
        let part = if length < 16 { "header" } else { "content" };
        assert!(matches!(&error, DataError::Truncated { part: p, .. } if *p == part), "{length}: {error}");
    }
    let error = refused(&whole[..20], &labels(3));
    assert!(matches!(error, DataError::Truncated { expected: 18, found: 4, .. }), "{error}");
}

#[test]
fn trailing_bytes_are_refused() {
    let mut long = labels(3);
    long.push(0);
    assert!(matches!(refused(&images(3), &long), DataError::TrailingBytes { expected: 3, .. }));
    assert!(matches!(refused(&images(3), &gzip(&long)), DataError::TrailingBytes { expected: 3, .. }));
}

#[test]
fn different_counts_are_refused() {
    let error = refused(&images(3), &labels(4));
    assert!(matches!(error, DataError::CountMismatch { images: 3, labels: 4, .. }), "{error}");
}

#[test]
fn implausible_headers_are_refused_before_anything_is_read() {
    for header in [
        [0x803, 0, 28, 28],
        [0x803, 1_000_001, 28, 28],
        [0x803, 1, 0, 28],
        [0x803, 1, 28, 4097],
        [0x803, 1_000_000, 4096, 4096],
        [0x803, u32::MAX, u32::MAX, u32::MAX],
        [0x803, 65, 4096, 4096],
    ] {
        let error = refused(&words(&header), &labels(3));
        assert!(matches!(error, DataError::BadHeader { .. }), "{header:?}: {error}");
    }
    // Within bounds, but the bytes are missing: no gigabyte is allocated for them.
    let error = refused(&words(&[0x803, 64, 4096, 4096]), &labels(3));
    assert!(matches!(error, DataError::Truncated { expected: 1_073_741_824, found: 0, .. }), "{error}");
}

#[test]
fn damaged_gzip_is_refused() {
    let mut garbage = vec![0x1f, 0x8b];
    garbage.extend([0xa5; 100]);
    let sound = gzip(&images(3));
    let mut flipped = sound.clone();
    let checksum = flipped.len() - 8;
    flipped[checksum] ^= 1;
    for bad in [&garbage[..], &flipped, &sound[..sound.len() / 2], &sound[..2]] {
        let error = refused(bad, &labels(3));
        assert!(matches!(error, DataError::Gzip { .. }), "{error}");
    }
}

#[test]
fn labels_beyond_the_classes_are_refused() {
    let mut bad = labels(3);
    bad[9] = 10;
    let error = refused(&images(3), &bad);
    assert!(matches!(error, DataError::LabelOutOfRange { label: 10, position: 1, classes: 10 }), "{error}");
}

#[test]
fn sets_of_different_shape_are_refused() {
    let mut small = words(&[0x803, 2, 1, 3]);
    small.extend([0; 6]);
    let error = load(&[
        ("train-images-idx3-ubyte", &small),
        ("train-labels-idx1-ubyte", &labels(2)),
        (IMAGES, &images(2)),
        (LABELS, &labels(2)),
    ]);
    assert!(matches!(error, Err(DataError::Incompatible(_))));
}

#[test]
fn an_unreadable_file_is_named() {
    let folder = folder(&[(LABELS, &labels(3))]);
    fs::create_dir(folder.path().join(IMAGES)).unwrap();
    let error = idx::load_mnist(folder.path(), 1).unwrap_err();
    assert!(matches!(error, DataError::Read { .. }) && error.to_string().contains(IMAGES), "{error}");
}

#[test]
fn real_mnist_is_read_split_and_dealt_out() {
    let (train, test) = idx::shipped_mnist(42).unwrap();
    let from_folder = idx::load_mnist(&Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist10k"), 42).unwrap();
    assert!(from_folder == (train.clone(), test.clone()), "the program has what the folder has");
    assert_eq!((train.len(), test.len()), (8500, 1500));
    assert_eq!((train.width, train.classes), (784, 10));
    let pixels = train.features.len() as f64;
    let mean = train.features.iter().map(|&x| f64::from(x)).sum::<f64>() / pixels;
    let deviation = (train.features.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / pixels).sqrt();
    assert!(mean.abs() < 0.05 && (deviation - 1.0).abs() < 0.05, "mean {mean}, deviation {deviation}");

    let partition = Partition::Dirichlet { alpha: 0.5 };
    let federated = Federated::partitioned(&train, test, partition, 20, 42, "MNIST").unwrap();
    assert_eq!(federated.description, "MNIST, 8500 examples for 20 participants, dirichlet:0.5");
    assert_eq!(Dataset::concat(&federated.shards).unwrap().len(), 8500);
    assert!(federated.shards.iter().all(|shard| shard.len() >= 10));
}
