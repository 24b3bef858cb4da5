//! Partitions of examples: even, skewed by label, or a few labels per participant.
//!
//! A partition is a pure function of the labels, the number of participants and a seed. Every index goes to exactly one
//! participant, and every participant gets at least one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use rand::Rng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Gamma};

use crate::DataError;
pub use crate::limits::MAX_ALPHA;
use crate::random::{Purpose, stream, whole};

/// Number of Dirichlet draws before the smallest parts are topped up instead.
const MAX_DRAWS: usize = 100;

/// A partition of labelled examples. Written `iid`, `dirichlet:ALPHA` or `shards:K`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Partition {
    /// Shuffled, then cut into equal parts (sizes differ by at most one).
    Iid,
    /// Each class is divided among the participants in proportions drawn from a symmetric Dirichlet distribution (Hsu
    /// et al. 2019; Li et al., *Federated Learning on Non-IID Data Silos*, 2022). The draw is repeated until every
    /// participant has `examples / (10 · participants)` examples (at least 1 and at most 10 are required); after a
    /// hundred draws the smallest parts are topped up from the largest.
    Dirichlet {
        /// Concentration, above 0 and at most [`MAX_ALPHA`]: small is skewed, large is even.
        alpha: f64,
    },
    /// Sorted by label, cut into `participants · per_participant` equal shards, assigned at random (McMahan et al.
    /// 2017, §3, with two each).
    Shards {
        /// At least 1.
        per_participant: usize,
    },
}

impl Partition {
    /// The indices into `labels` of each participant, ascending.
    ///
    /// # Errors
    /// [`DataError::NoParticipants`]; [`DataError::LabelOutOfRange`] if a label is not below `classes`;
    /// [`DataError::BadAlpha`]; [`DataError::NoShards`]; [`DataError::TooFewExamples`] if there are fewer examples than
    /// participants (or shards).
    pub fn partition(
        &self,
        labels: &[u32],
        classes: usize,
        participants: usize,
        seed: u64,
    ) -> Result<Vec<Vec<usize>>, DataError> {
        self.check()?;
        if participants == 0 {
            return Err(DataError::NoParticipants);
        }
        let needed = match self {
            Self::Shards { per_participant } => participants.saturating_mul(*per_participant),
            Self::Iid | Self::Dirichlet { .. } => participants,
        };
        if labels.len() < needed {
            return Err(DataError::TooFewExamples { examples: labels.len(), needed });
        }
        let by_class = group(labels, classes)?;
        let mut rng = stream(seed, Purpose::Partition, 0);
        let mut parts = match *self {
            Self::Iid => iid(labels.len(), participants, &mut rng),
            Self::Dirichlet { alpha } => dirichlet(&by_class, labels.len(), alpha, participants, &mut rng),
            Self::Shards { per_participant } => shards(&by_class.concat(), per_participant, participants, &mut rng),
        };
        parts.iter_mut().for_each(|part| part.sort_unstable());
        Ok(parts)
    }

    fn check(&self) -> Result<(), DataError> {
        match *self {
            // Negated so that NaN is rejected as well.
            Self::Dirichlet { alpha } if !(alpha > 0.0 && alpha <= MAX_ALPHA) => Err(DataError::BadAlpha(alpha)),
            Self::Shards { per_participant: 0 } => Err(DataError::NoShards),
            Self::Iid | Self::Dirichlet { .. } | Self::Shards { .. } => Ok(()),
        }
    }
}

impl FromStr for Partition {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let unknown = || DataError::UnknownPartition(text.to_owned());
        let partition = match text.split_once(':') {
            None if text == "iid" => Self::Iid,
            Some(("dirichlet", alpha)) => Self::Dirichlet { alpha: alpha.parse().map_err(|_| unknown())? },
            Some(("shards", count)) => Self::Shards { per_participant: count.parse().map_err(|_| unknown())? },
            _ => return Err(unknown()),
        };
        partition.check()?;
        Ok(partition)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iid => f.write_str("iid"),
            Self::Dirichlet { alpha } => write!(f, "dirichlet:{alpha}"),
            Self::Shards { per_participant } => write!(f, "shards:{per_participant}"),
        }
    }
}

/// The indices of each class, ascending.
fn group(labels: &[u32], classes: usize) -> Result<Vec<Vec<usize>>, DataError> {
    let mut by_class = vec![Vec::new(); classes];
    for (position, &label) in labels.iter().enumerate() {
        let class = usize::try_from(label).ok().and_then(|label| by_class.get_mut(label));
        class.ok_or(DataError::LabelOutOfRange { label, position, classes })?.push(position);
    }
    Ok(by_class)
}

fn iid(count: usize, participants: usize, rng: &mut impl Rng) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(rng);
    equal_ranges(count, participants).map(|range| order[range].to_vec()).collect()
}

fn shards(sorted: &[usize], each: usize, participants: usize, rng: &mut impl Rng) -> Vec<Vec<usize>> {
    let mut pieces: Vec<Range<usize>> = equal_ranges(sorted.len(), participants * each).collect();
    pieces.shuffle(rng);
    pieces.chunks(each).map(|own| own.iter().flat_map(|piece| &sorted[piece.clone()]).copied().collect()).collect()
}

fn dirichlet(
    by_class: &[Vec<usize>],
    count: usize,
    alpha: f64,
    participants: usize,
    rng: &mut impl Rng,
) -> Vec<Vec<usize>> {
    let minimum = (count / participants / 10).clamp(1, 10);
    let mut parts = Vec::new();
    for _ in 0..MAX_DRAWS {
        parts = draw(by_class, alpha, participants, rng);
        if parts.iter().all(|part| part.len() >= minimum) {
            return parts;
        }
    }
    top_up(&mut parts, minimum);
    parts
}

/// One draw: shuffles each class and cuts it at its own random proportions.
fn draw(by_class: &[Vec<usize>], alpha: f64, participants: usize, rng: &mut impl Rng) -> Vec<Vec<usize>> {
    let mut parts = vec![Vec::new(); participants];
    for class in by_class {
        let mut members = class.clone();
        members.shuffle(rng);
        let (mut start, mut reached) = (0, 0.0);
        for (part, share) in parts.iter_mut().zip(proportions(alpha, participants, rng)) {
            reached += share;
            let end = whole((reached * members.len() as f64).round(), members.len());
            part.extend_from_slice(&members[start..end]);
            start = end;
        }
        // Rounding may leave the sum of shares slightly below one.
        parts[participants - 1].extend_from_slice(&members[start..]);
    }
    parts
}

/// A draw from the symmetric Dirichlet distribution: independent gamma variates over their sum.
fn proportions(alpha: f64, participants: usize, rng: &mut impl Rng) -> Vec<f64> {
    let gamma = Gamma::new(alpha, 1.0).expect("alpha was checked to be positive and finite");
    let mut shares: Vec<f64> = (0..participants).map(|_| gamma.sample(rng)).collect();
    let sum: f64 = shares.iter().sum();
    if sum > 0.0 {
        shares.iter_mut().for_each(|share| *share /= sum);
    } else {
        // Every variate of a tiny alpha may underflow; in that limit one participant gets everything.
        shares[0] = 1.0;
        shares.shuffle(rng);
    }
    shares
}

/// Moves examples one by one from the largest part until every part has `minimum`, which must not exceed the mean.
fn top_up(parts: &mut [Vec<usize>], minimum: usize) {
    let mut richest: BinaryHeap<_> = parts.iter().enumerate().map(|(i, part)| (part.len(), Reverse(i))).collect();
    for poor in 0..parts.len() {
        while parts[poor].len() < minimum {
            let (_, Reverse(rich)) = richest.pop().expect("each participant is in the heap");
            let moved = parts[rich].pop().expect("the richest has more than the mean");
            parts[poor].push(moved);
            richest.push((parts[rich].len(), Reverse(rich)));
        }
    }
}

/// Cuts `0..count` into `parts` ranges whose lengths differ by at most one.
fn equal_ranges(count: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let (length, longer) = (count / parts, count % parts);
    (0..parts).map(move |index| {
        let start = index * length + index.min(longer);
        start..start + length + usize::from(index < longer)
    })
}
