//! Robust statistics of every kernel against sorting and plain sums: equality, since all of it is integers.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use aggregation::AggregationError;
use aggregation::cpu::{CpuAggregator, Kernel};
use aggregation::robust::{Inputs, RobustStatistics};

/// SplitMix64: reproducible test data.
struct Numbers(u64);

impl Numbers {
    fn word(&mut self) -> i16 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).to_le_bytes();
        i16::from_le_bytes([mixed[6], mixed[7]])
    }

    /// Vectors of all values, of few values (many ties), of small ones, of the extremes alone.
    fn vectors(&mut self, count: usize, words: usize, kind: usize) -> Vec<Vec<i16>> {
        let mut value = || match kind {
            0 => self.word(),
            1 => self.word() % 3,
            2 => self.word() % 2000,
            3 => [i16::MIN, i16::MAX][usize::from(self.word() < 0)],
            _ => i16::MIN,
        };
        (0..count).map(|_| (0..words).map(|_| value()).collect()).collect()
    }
}

/// Each column, sorted.
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

fn compare(device: &CpuAggregator, vectors: &[&[i16]], case: &str) {
    let inputs = Inputs::new(vectors).unwrap();
    let (columns, n) = (columns(vectors), vectors.len());
    let wide = |words: Vec<i32>| words.into_iter().map(i64::from).collect::<Vec<_>>();
    let medians: Vec<i64> = columns.iter().map(|column| column[(n - 1) / 2] + column[n / 2]).collect();
    assert!(wide(device.median(inputs).unwrap()) == medians, "median: {case}");
    for trim in [0, 1, n / 4, (n - 1) / 2].into_iter().filter(|trim| *trim < n.div_ceil(2)) {
        let sums: Vec<i64> = columns.iter().map(|column| column[trim..n - trim].iter().sum()).collect();
        assert!(wide(device.trimmed_mean(inputs, trim).unwrap()) == sums, "trimmed mean, {trim}: {case}");
    }
    assert!(device.gram(inputs).unwrap() == gram(vectors), "gram: {case}");
}

#[test]
fn every_kernel_gives_what_sorting_and_adding_give() {
    let mut numbers = Numbers(1);
    let lengths = [1, 63, 64, 65, 1023, 2047, 2048, 2049, 4100];
    for (count, words) in [1, 2, 3, 4, 5, 8, 17, 40].into_iter().cycle().zip(lengths.repeat(2)) {
        for kind in 0..5 {
            let vectors = numbers.vectors(count, words, kind);
            let vectors: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
            for kernel in Kernel::available() {
                let device = CpuAggregator::with_kernel(kernel, 1).unwrap();
                compare(&device, &vectors, &format!("{kernel}, {count} vectors of {words} words, kind {kind}"));
            }
        }
    }
}

#[test]
fn threads_change_nothing() {
    let vectors = Numbers(2).vectors(9, 50_000, 0);
    let vectors: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
    compare(&CpuAggregator::new(3).unwrap(), &vectors, "three threads");
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert!(matches!(Inputs::new(&[]), Err(AggregationError::Vectors { vectors: 0 })));
    assert!(matches!(Inputs::new(&[&[], &[]]), Err(AggregationError::Words { words: 0 })));
    let unequal = Inputs::new(&[&[1, 2], &[1]]);
    assert!(matches!(unequal, Err(AggregationError::Length { expected: 2, got: 1 })));
    let many = vec![&[0i16][..]; Inputs::MAX_VECTORS + 1];
    assert!(matches!(Inputs::new(&many), Err(AggregationError::Vectors { .. })));
    let device = CpuAggregator::new(1).unwrap();
    let three: [&[i16]; 3] = [&[1], &[2], &[9]];
    let inputs = Inputs::new(&three).unwrap();
    assert_eq!(device.trimmed_mean(inputs, 1).unwrap(), [2]);
    for trim in [2, 3, usize::MAX] {
        assert!(matches!(device.trimmed_mean(inputs, trim), Err(AggregationError::Trim { .. })), "{trim}");
    }
}

#[test]
fn the_most_vectors_fit() {
    let vectors = vec![&[i16::MIN, i16::MAX][..]; Inputs::MAX_VECTORS];
    let inputs = Inputs::new(&vectors).unwrap();
    let device = CpuAggregator::new(1).unwrap();
    let largest = 4096 * 32768;
    assert_eq!(device.trimmed_mean(inputs, 0).unwrap(), [-largest, largest - 4096]);
    assert_eq!(device.median(inputs).unwrap(), [-65536, 65534]);
}
