//! Reconstructs masks from shares: interpolates, compares with the dealer's commitment, and corrects errors.
//!
//! The same t responders open every seed, so their Lagrange coefficients are computed once. A seed that does not match its commitment is
//! decoded from all responders, and the t responders with the fewest faults so far open the next one. So a lying holder is soon avoided,
//! and a dealer of bad shares cannot exclude all honest holders. Colluders cost at most one decoding per dealer, 33 ms at n = 1000.

use std::collections::BTreeMap;

use subtle::ConstantTimeEq as _;

use super::facts::ServerFacts;
use crate::crypto::agreement::AgreementKey;
use crate::crypto::kdf;
use crate::crypto::shamir::{self, Basis, Seed, Share};
use crate::graph;
use crate::mask::{MaskSeed, Sign};
use crate::messages::{RosterEntry, Unmasking};
use crate::participants::{Index, IndexSet};
use crate::rejection::Abort;

/// A holder's share that is not on its dealer's polynomial. One of the two is at fault: likely a holder in conflict with many dealers, or a
/// dealer in conflict with many holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShareFault {
    /// The participant that dealt the share.
    pub dealer: Index,
    /// The participant that revealed the share.
    pub holder: Index,
}

/// The sum to open.
pub(super) struct MaskedSum<'a> {
    pub(super) facts: &'a ServerFacts,
    /// U2.
    pub(super) dealers: &'a IndexSet,
    /// The drawn out-neighbours of each participant, by position; `None` without dealt shares.
    pub(super) outs: &'a [Option<IndexSet>],
    /// U3.
    pub(super) survivors: &'a IndexSet,
}

/// The participants with revealed shares, and the subset opening the next seed.
pub(super) struct Responders<'a> {
    threshold: u16,
    all: Vec<(Index, &'a Unmasking)>,
    trusted: Vec<(Index, &'a Unmasking)>,
    basis: Basis,
    faults: Vec<ShareFault>,
}

impl<'a> Responders<'a> {
    /// Requires at least `threshold` answers.
    pub(super) fn new(threshold: u16, answers: &'a BTreeMap<Index, Unmasking>) -> Self {
        let all: Vec<(Index, &Unmasking)> = answers.iter().map(|(index, answer)| (*index, answer)).collect();
        let mut responders = Self { threshold, all, trusted: Vec::new(), basis: Basis::new(&[]), faults: Vec::new() };
        responders.choose();
        responders
    }

    pub(super) fn into_faults(self) -> Vec<ShareFault> {
        self.faults
    }

    /// Chooses the t responders with the fewest faults.
    fn choose(&mut self) {
        let faults = |index: Index| self.faults.iter().filter(|fault| fault.holder == index).count();
        let mut ranked = self.all.clone();
        ranked.sort_by_cached_key(|(index, _)| (faults(*index), *index));
        ranked.truncate(self.threshold.into());
        self.basis = Basis::new(&ranked.iter().map(|(index, _)| *index).collect::<Vec<_>>());
        self.trusted = ranked;
    }

    /// Opens a dealer's seed; `fits` checks it against the dealer's commitment. `column` is the dealer's position among
    /// the dealers.
    fn open(&mut self, dealer: Index, column: usize, fits: impl Fn(&Seed) -> bool) -> Result<Seed, Abort> {
        let broken = Abort::InconsistentShares { dealer };
        let share = |(_, answer): &(Index, &Unmasking)| answer.body.shares.get(column).and_then(Share::from_bytes);
        let shares: Option<Vec<Share>> = self.trusted.iter().map(share).collect();
        if let Some(seed) = self.basis.restore(&shares.ok_or(broken)?).filter(&fits) {
            return Ok(seed);
        }
        let shares: Option<Vec<Share>> = self.all.iter().map(share).collect();
        let shares = shares.ok_or(broken)?;
        let holders: Vec<Index> = self.all.iter().map(|(index, _)| *index).collect();
        let corrected = shamir::correct(&holders, &shares.iter().collect::<Vec<_>>(), self.threshold).ok_or(broken)?;
        if !fits(&corrected.seed) {
            return Err(broken);
        }
        self.faults.extend(corrected.disagreeing.iter().map(|holder| ShareFault { dealer, holder: *holder }));
        self.choose();
        Ok(corrected.seed)
    }
}

/// `X = Σ_{U3} y − Σ_{v∈U3} PRG(K_v) − Σ_{v∈U2\U3} Σ_{u∈N(v)∩U3} sgn(u,v)·PRG(K_uv)`, with sgn = +1 where u < v.
pub(super) fn masks(sum: &MaskedSum<'_>, responders: &mut Responders<'_>) -> Result<Vec<(MaskSeed, Sign)>, Abort> {
    let sid = &sum.facts.sid;
    // Allocated once: a growing vector leaves keys behind in the memory that it frees.
    let dropped = sum.dealers.difference(sum.survivors);
    let pairs: usize = dropped.iter().map(|dealer| usize::from(neighbours_in_sum(sum, dealer).len())).sum();
    let mut masks = Vec::with_capacity(usize::from(sum.survivors.len()) + pairs);
    for (column, (dealer, entry)) in dealers(sum).enumerate() {
        if sum.survivors.contains(dealer) {
            let id = entry.client_id.as_slice();
            let fits = |seed: &Seed| kdf::self_mask_commitment(id, seed).ct_eq(&entry.b_commit).into();
            let seed_b = responders.open(dealer, column, fits)?;
            masks.push((kdf::self_mask(sid, &seed_b, dealer), Sign::Subtract));
            continue;
        }
        let neighbours = neighbours_in_sum(sum, dealer);
        if neighbours.is_empty() {
            continue;
        }
        let fits = |seed: &Seed| AgreementKey::from_seed(seed).public() == entry.s_pk;
        let s_key = AgreementKey::from_seed(&responders.open(dealer, column, fits)?);
        for peer in neighbours.iter() {
            let broken = Abort::PairKey { first: peer, second: dealer };
            let entry = sum.facts.roster.entries.get(usize::from(peer - 1)).ok_or(broken)?;
            let shared = s_key.agree(&entry.s_pk).map_err(|_| broken)?;
            let sign = if peer < dealer { Sign::Subtract } else { Sign::Add };
            masks.push((kdf::pair_mask(sid, &shared, peer, dealer), sign));
        }
    }
    Ok(masks)
}

fn dealers<'a>(sum: &MaskedSum<'a>) -> impl Iterator<Item = (Index, &'a RosterEntry)> {
    let entries = sum.facts.roster.entries.as_slice();
    sum.dealers.iter().filter_map(|dealer| Some((dealer, entries.get(usize::from(dealer - 1))?)))
}

/// N(v) ∩ U3.
fn neighbours_in_sum(sum: &MaskedSum<'_>, dealer: Index) -> IndexSet {
    let incoming = graph::incoming(sum.outs, dealer);
    match sum.outs.get(usize::from(dealer - 1)).and_then(Option::as_ref) {
        Some(out) => graph::neighbours(out, &incoming, sum.survivors),
        None => incoming.intersection(sum.survivors),
    }
}
