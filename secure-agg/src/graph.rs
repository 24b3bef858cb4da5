//! The mask graph. Every participant draws its own out-neighbours after it has seen the signed roster, so a server
//! cannot surround a participant with accomplices; two participants share an edge if either drew the other
//! (specification §2.3).

use crate::CryptoRng;
use crate::participants::{Index, IndexSet};

/// Draws `degree` of the others in a roster of `universe`, uniformly without replacement.
pub(crate) fn draw_out(universe: u16, me: Index, degree: u16, rng: &mut dyn CryptoRng) -> IndexSet {
    let mut others: Vec<Index> = (1..=universe).filter(|index| *index != me).collect();
    let mut out = IndexSet::empty(universe);
    for _ in 0..degree.min(universe.saturating_sub(1)) {
        let position = below(others.len(), rng);
        out.insert(others.swap_remove(position));
    }
    out
}

/// A uniform number below `bound`, which is at least 1: by rejection of random words beyond the last whole multiple.
fn below(bound: usize, rng: &mut dyn CryptoRng) -> usize {
    let bound = bound as u64;
    let last = u64::MAX - u64::MAX % bound;
    loop {
        let word = rng.next_u64();
        if word < last {
            return usize::try_from(word % bound).unwrap_or(0);
        }
    }
}

/// The members of `among` sharing a mask with `me`: those of its own list, and all members with a list that names it.
pub(crate) fn neighbours(out: &IndexSet, incoming: &IndexSet, among: &IndexSet) -> IndexSet {
    out.union(incoming).intersection(among)
}

/// All members whose out list names `me`. `outs` are the lists by position, `None` for participants without dealt shares.
pub(crate) fn incoming(outs: &[Option<IndexSet>], me: Index) -> IndexSet {
    let universe = u16::try_from(outs.len()).unwrap_or(0);
    let names_me = |list: &Option<IndexSet>| list.as_ref().is_some_and(|list| list.contains(me));
    IndexSet::of(universe, (1..=universe).zip(outs).filter(|(_, list)| names_me(list)).map(|(index, _)| index))
}

#[cfg(test)]
mod tests {
    use chacha20::ChaCha20Rng;
    use chacha20::rand_core::SeedableRng as _;

    use super::*;

    #[test]
    fn a_drawn_list_has_its_degree_and_never_its_drawer() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        for degree in 0..=9 {
            let out = draw_out(9, 4, degree, &mut rng);
            assert_eq!(out.len(), degree.min(8));
            assert!(!out.contains(4));
        }
    }

    #[test]
    fn every_other_participant_is_drawn_equally_often() {
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let mut drawn = [0u32; 10];
        for _ in 0..9000 {
            for index in draw_out(10, 1, 3, &mut rng).iter() {
                drawn[usize::from(index) - 1] += 1;
            }
        }
        // 3000 expected each, standard deviation 45.
        assert!(drawn[1..].iter().all(|count| (2700..3300).contains(count)), "{drawn:?}");
    }

    #[test]
    fn an_edge_exists_where_either_end_drew_it() {
        let outs = [Some(IndexSet::of(3, [2])), Some(IndexSet::empty(3)), None];
        assert_eq!(incoming(&outs, 2), IndexSet::of(3, [1]));
        assert_eq!(neighbours(&IndexSet::of(3, [3]), &incoming(&outs, 2), &IndexSet::full(3)), IndexSet::of(3, [1, 3]));
        assert_eq!(neighbours(&IndexSet::of(3, [3]), &incoming(&outs, 2), &IndexSet::of(3, [1])), IndexSet::of(3, [1]));
    }
}
