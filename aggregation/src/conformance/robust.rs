//! Robust statistics against sorting and plain sums.

use std::thread;

use super::cases::Numbers;
use crate::robust::Inputs;
use crate::{AggregationError, Aggregator};

/// Vectors of arbitrary values, of few values (many ties), of small ones, of the extremes only, of the minimum only.
const KINDS: usize = 5;

fn vectors(numbers: &mut Numbers, count: usize, words: usize, kind: usize) -> Vec<Vec<i16>> {
    let mut word = || {
        let bytes = numbers.word().to_le_bytes();
        i16::from_le_bytes([bytes[0], bytes[1]])
    };
    let mut value = || match kind {
        0 => word(),
        1 => word() % 3,
        2 => word() % 2000,
        3 => [i16::MIN, i16::MAX][usize::from(word() < 0)],
        _ => i16::MIN,
    };
    (0..count).map(|_| (0..words).map(|_| value()).collect()).collect()
}

fn columns(vectors: &[&[i16]]) -> Vec<Vec<i64>> {
    let column = |at: usize| {
        let mut values: Vec<i64> = vectors.iter().map(|vector| vector[at].into()).collect();
        values.sort_unstable();
        values
    };
    (0..vectors[0].len()).map(column).collect()
}

fn gram(vectors: &[&[i16]]) -> Vec<i64> {
    let product =
        |left: &[i16], right: &[i16]| left.iter().zip(right).map(|(l, r)| i64::from(*l) * i64::from(*r)).sum();
    vectors.iter().flat_map(|left| vectors.iter().map(|right| product(left, right))).collect()
}

fn compare(device: &dyn Aggregator, vectors: &[Vec<i16>], case: &str) {
    let vectors: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
    let (inputs, n) = (Inputs::new(&vectors).expect("the case is in range"), vectors.len());
    let (columns, name) = (columns(&vectors), device.name());
    let same = |words: Vec<i32>, expected: Vec<i64>| words.into_iter().map(i64::from).eq(expected);
    let medians = columns.iter().map(|column| column[(n - 1) / 2] + column[n / 2]).collect();
    assert!(same(device.median(inputs).expect("a median"), medians), "{name}: median of {case}");
    for trim in [0, 1, n / 4, (n - 1) / 2].into_iter().filter(|trim| *trim < n.div_ceil(2)) {
        let sums = columns.iter().map(|column| column[trim..n - trim].iter().sum()).collect();
        let got = device.trimmed_mean(inputs, trim).expect("a trimmed mean");
        assert!(same(got, sums), "{name}: mean without {trim} at either end of {case}");
    }
    assert!(device.gram(inputs).expect("products") == gram(&vectors), "{name}: products of {case}");
}

/// Lengths around the sizes at which implementations split: a pair, a tile, a panel.
pub(super) fn random_vectors(device: &dyn Aggregator) {
    let mut numbers = Numbers::new(11);
    let lengths = [1, 2, 63, 64, 65, 1023, 2047, 2048, 2049, 4100];
    let kinds = (0..KINDS).cycle();
    let cases = [1, 2, 3, 4, 5, 8, 17, 40].into_iter().cycle().zip(lengths.repeat(3)).zip(kinds);
    for ((count, words), kind) in cases {
        let vectors = vectors(&mut numbers, count, words, kind);
        compare(device, &vectors, &format!("{count} vectors of {words} words, kind {kind}"));
    }
}

/// More vectors than a device can multiply in one piece of memory or one launch.
pub(super) fn many_vectors(device: &dyn Aggregator) {
    let vectors = vectors(&mut Numbers::new(12), 803, 5, 0);
    compare(device, &vectors, "803 vectors of 5 words");
    let most = vec![&[i16::MIN, i16::MAX][..]; Inputs::MAX_VECTORS];
    let inputs = Inputs::new(&most).expect("as many as there may be");
    let largest = 4096 * 32768;
    assert_eq!(device.trimmed_mean(inputs, 0).expect("a sum"), [-largest, largest - 4096], "{}", device.name());
    assert_eq!(device.median(inputs).expect("a median"), [-65536, 65534], "{}", device.name());
}

/// More columns than a device takes at a time.
pub(super) fn many_columns(device: &dyn Aggregator) {
    for (count, words) in [(6, 150_001), (1, 400_003)] {
        let vectors = vectors(&mut Numbers::new(13), count, words, 0);
        compare(device, &vectors, &format!("{count} vectors of {words} words"));
    }
}

pub(super) fn refusals(device: &dyn Aggregator) {
    let three: [&[i16]; 3] = [&[1], &[2], &[9]];
    let inputs = Inputs::new(&three).expect("three vectors are enough");
    assert_eq!(device.trimmed_mean(inputs, 1).expect("one is left"), [2]);
    for trim in [2, 3, usize::MAX] {
        let outcome = device.trimmed_mean(inputs, trim);
        assert!(matches!(outcome, Err(AggregationError::Trim { .. })), "{trim}: {outcome:?}");
    }
}

/// Two rules on one device do not interfere.
pub(super) fn two_at_once(device: &dyn Aggregator) {
    let rule = |seed: u64| {
        let vectors = vectors(&mut Numbers::new(seed), 9, 30_000, 0);
        compare(device, &vectors, &format!("one of two at once, seed {seed}"));
    };
    thread::scope(|scope| {
        scope.spawn(|| rule(14));
        rule(15);
    });
}
