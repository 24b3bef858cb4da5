//! Stratified: each value of a label has a quota of the cohort.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::SliceRandom as _;
use task_spec::{Quotas, Stratified};

use super::{Candidate, History, Selector};
use crate::id::ParticipantId;

impl Selector for Stratified {
    fn select(&self, candidates: &[Candidate], _: &History, count: usize, mut rng: &mut dyn Rng) -> Vec<ParticipantId> {
        let count = count.min(candidates.len());
        let mut strata: BTreeMap<Option<&str>, Vec<ParticipantId>> = BTreeMap::new();
        for candidate in candidates {
            let value = candidate.labels.get(&self.label).map(String::as_str);
            strata.entry(value).or_default().push(candidate.participant);
        }
        // Random order decides which stratum gets an indivisible place.
        let mut strata: Vec<_> = strata.into_values().collect();
        strata.shuffle(&mut rng);
        let sizes: Vec<_> = strata.iter().map(Vec::len).collect();
        let quotas = match self.quotas {
            Quotas::Proportional => proportional(&sizes, count),
            Quotas::Equal => equal(&sizes, count),
        };
        strata.iter_mut().zip(quotas).flat_map(|(ids, quota)| ids.partial_shuffle(&mut rng, quota).0.to_vec()).collect()
    }
}

/// Hamilton's method: the integer part of each share, then one more for the largest remainders. `count` is at most the sum of `sizes`, so
/// each quota is at most its size.
fn proportional(sizes: &[usize], count: usize) -> Vec<usize> {
    let all: usize = sizes.iter().sum::<usize>().max(1);
    let mut quotas: Vec<_> = sizes.iter().map(|size| size * count / all).collect();
    let mut by_remainder: Vec<_> = (0..sizes.len()).collect();
    by_remainder.sort_by_key(|&stratum| std::cmp::Reverse(sizes[stratum] * count % all));
    let left = count - quotas.iter().sum::<usize>();
    for stratum in by_remainder.into_iter().take(left) {
        quotas[stratum] += 1;
    }
    quotas
}

/// One place for each stratum in turn while it has candidates. `count` is at most the sum of `sizes`.
fn equal(sizes: &[usize], count: usize) -> Vec<usize> {
    let mut quotas = vec![0; sizes.len()];
    let mut left = count;
    while left > 0 {
        for (quota, size) in quotas.iter_mut().zip(sizes) {
            if left > 0 && *quota < *size {
                *quota += 1;
                left -= 1;
            }
        }
    }
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_follow_the_sizes_or_are_equal() {
        assert_eq!(proportional(&[60, 30, 10], 10), [6, 3, 1]);
        assert_eq!(
            proportional(&[5, 3, 1], 4),
            [2, 1, 1],
            "shares 2.2, 1.3, 0.4: the largest remainder takes the last"
        );
        assert_eq!(proportional(&[2, 1], 3), [2, 1]);
        assert_eq!(equal(&[60, 30, 10], 9), [3, 3, 3]);
        assert_eq!(equal(&[60, 30, 1], 9), [4, 4, 1]);
        assert_eq!(equal(&[1, 1, 1], 3), [1, 1, 1]);
        assert_eq!(equal(&[5, 5, 5], 4), [2, 1, 1]);
        assert_eq!((proportional(&[], 0), equal(&[], 0)), (vec![], vec![]));
    }
}
