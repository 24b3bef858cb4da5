//! The degree of the mask graph drawn by the participants (specification §2.3).
//!
//! Two requirements on (k_m, t_m), with X hypergeometric: *liveness*: every honest participant loses at most k_m - t_m of its drawn
//! neighbours to dropouts, except with probability 2^-20; and *isolation*: for any dropouts claimed by a server, every honest participant
//! is in a component with at least a quarter of the cohort, except with probability 2^-41. The smallest even k_m satisfying both is used.
//!
//! Coordinator and participants must agree on the result, so only additions, multiplications and divisions of `f64` are used: IEEE 754
//! fixes them bit for bit on every platform, unlike logarithms and powers.

/// Liveness may fail with probability 2^-20.
const LIVENESS: f64 = 1.0 / 1_048_576.0;
/// Isolation may happen with probability 2^-41.
const ISOLATION: f64 = 1.0 / 2_199_023_255_552.0;

/// (k_m, t_m) for `n` participants with `corrupt` colluders and up to `dropouts` dropouts; `None` if every sparse graph fails.
pub(super) fn sparse(n: u16, corrupt: u16, dropouts: u16) -> Option<(u16, u16)> {
    // From the view of an honest participant that stays; n - dropouts - 1 others stay.
    let staying = n.checked_sub(dropouts + 1)?;
    (2..n - 1).step_by(2).find_map(|degree| {
        let needed = most_needed(n, staying, degree)?;
        (isolation(n, corrupt, degree, needed) <= ISOLATION).then_some((degree, needed))
    })
}

/// The largest t with n·Pr[X < t] ≤ 2^-20, where X of the `degree` drawn are among those `staying`; `None` if it is 0.
fn most_needed(n: u16, staying: u16, degree: u16) -> Option<u16> {
    let mass = hypergeometric((n - 1).into(), staying.into(), degree.into());
    let mut below = 0.0;
    let mut needed = 0;
    for (t, probability) in (0..=degree).zip(&mass) {
        if below * f64::from(n) > LIVENESS {
            break;
        }
        needed = t;
        below += probability;
    }
    (needed > 0).then_some(needed)
}

/// Σ_j C(n_h, j)·Pr[X ≥ t]^j over component sizes j ≤ n/4, where X of the `degree` drawn fall among the j - 1 others of
/// the component and the corrupt. Bounds the probability that a server that knows all lists can claim dropouts so as to
/// cut off an honest set of at most a quarter of the cohort while each member still counts t of its own list: the sum
/// includes every such set.
fn isolation(n: u16, corrupt: u16, degree: u16, needed: u16) -> f64 {
    let honest = n - corrupt;
    let mut total = 0.0;
    for size in 1..=n / 4 {
        let inside = (size - 1 + corrupt).min(n - 1);
        let tail: f64 =
            hypergeometric((n - 1).into(), inside.into(), degree.into()).iter().skip(needed.into()).rev().sum();
        total += (1..=size).fold(1.0, |term, i| term * (f64::from(honest + 1 - i) / f64::from(i)) * tail);
        if total >= 1.0 {
            return 1.0;
        }
    }
    total
}

/// Pr[X = x] for x in 0..=`drawn`: X of `drawn` out of `population` are among its `marked`.
///
/// Starts at the mode with weight one and multiplies outward, so the largest terms are accurate and the rest vanish.
fn hypergeometric(population: u32, marked: u32, drawn: u32) -> Vec<f64> {
    let index = |x: u32| usize::try_from(x).unwrap_or(usize::MAX);
    let mut mass = vec![0.0; index(drawn) + 1];
    let lowest = (drawn + marked).saturating_sub(population);
    let highest = drawn.min(marked);
    let mode_bound = (u64::from(drawn) + 1) * (u64::from(marked) + 1) / (u64::from(population) + 2);
    let mode = u32::try_from(mode_bound).unwrap_or(u32::MAX).clamp(lowest, highest);
    let ratio = |x: u32| {
        // Pr[x + 1] / Pr[x]; the last factor is positive because x ≥ lowest.
        let (up, down) = (f64::from(marked - x) * f64::from(drawn - x), f64::from(x + 1));
        up / (down * f64::from(population + x + 1 - marked - drawn))
    };
    mass[index(mode)] = 1.0;
    for x in mode..highest {
        mass[index(x) + 1] = mass[index(x)] * ratio(x);
    }
    for x in (lowest..mode).rev() {
        mass[index(x)] = mass[index(x) + 1] / ratio(x);
    }
    let total: f64 = mass.iter().sum();
    mass.iter_mut().for_each(|probability| *probability /= total);
    mass
}

#[cfg(test)]
mod tests {
    use chacha20::ChaCha20Rng;
    use chacha20::rand_core::SeedableRng as _;

    use super::*;
    use crate::graph::draw_out;
    use crate::participants::IndexSet;

    /// (k_m, t_m) for δ = .05, .1, .2, .3, at γ = .05, .1, .2.
    type Rows = [[(u16, u16); 4]; 3];

    /// The table of the specification, §2.3.
    const TABLE: [(u16, Rows); 5] = [
        (
            100,
            [
                [(12, 7), (18, 9), (30, 13), (42, 17)],
                [(16, 11), (22, 12), (36, 18), (50, 23)],
                [(26, 21), (32, 22), (44, 25), (64, 34)],
            ],
        ),
        (
            200,
            [
                [(20, 12), (24, 12), (36, 15), (54, 21)],
                [(26, 17), (34, 20), (44, 21), (68, 30)],
                [(38, 28), (46, 30), (62, 34), (96, 49)],
            ],
        ),
        (
            500,
            [
                [(28, 17), (32, 17), (44, 18), (66, 25)],
                [(32, 21), (42, 24), (58, 28), (84, 35)],
                [(46, 33), (60, 39), (86, 47), (136, 68)],
            ],
        ),
        (
            1000,
            [
                [(30, 18), (36, 19), (50, 21), (72, 27)],
                [(38, 25), (46, 26), (66, 32), (94, 39)],
                [(52, 37), (68, 44), (98, 54), (164, 81)],
            ],
        ),
        (
            2000,
            [
                [(30, 18), (38, 20), (52, 22), (78, 29)],
                [(40, 26), (50, 29), (72, 35), (102, 42)],
                [(56, 40), (70, 45), (108, 59), (180, 89)],
            ],
        ),
    ];

    #[test]
    fn degrees_are_those_of_the_specification() {
        for (n, rows) in TABLE {
            for (corrupt, row) in [20, 10, 5].into_iter().zip(rows) {
                for (dropouts, expected) in [n / 20, n / 10, n / 5, n * 3 / 10].into_iter().zip(row) {
                    assert_eq!(sparse(n, n / corrupt, dropouts), Some(expected), "n = {n}, 1/{corrupt}, {dropouts}");
                }
            }
        }
    }

    #[test]
    fn the_distribution_is_the_hypergeometric_one() {
        // 5 cards, 2 of them marked, 3 drawn: 1/10, 6/10, 3/10.
        let mass = hypergeometric(5, 2, 3);
        for (probability, expected) in mass.iter().zip([0.1, 0.6, 0.3, 0.0]) {
            assert!((probability - expected).abs() < 1e-15);
        }
        assert_eq!(hypergeometric(9, 0, 4), [1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(hypergeometric(4, 4, 4), [0.0, 0.0, 0.0, 0.0, 1.0]);
    }

    /// Whether a server that knows all lists can cut off a set of at most n/4 honest participants: it reports all
    /// others as dropouts, and each member still counts `needed` of its list among the set and the corrupt, which are
    /// the last `corrupt`.
    fn can_be_isolated(outs: &[IndexSet], corrupt: u16, needed: u16) -> bool {
        let n = u16::try_from(outs.len()).unwrap();
        let honest = n - corrupt;
        let colluders = IndexSet::of(n, honest + 1..=n);
        (1u32..1 << honest).filter(|set| set.count_ones() <= u32::from(n / 4)).any(|set| {
            let members = IndexSet::of(n, (1..=honest).filter(|index| set >> (index - 1) & 1 == 1));
            let left = members.union(&colluders);
            members.iter().all(|member| outs[usize::from(member) - 1].intersection(&left).len() >= needed)
        })
    }

    #[test]
    fn adaptively_claimed_dropouts_isolate_no_more_often_than_the_bound_says() {
        // Small cohorts with weak parameters, so that isolation does happen; every set is tried against every drawn graph.
        let mut rng = ChaCha20Rng::seed_from_u64(5);
        for (n, corrupt, degree, needed) in [(8, 3, 3, 3), (9, 2, 4, 3), (12, 4, 5, 4), (12, 5, 6, 5)] {
            let graphs = 1500u32;
            let isolated = (0..graphs).filter(|_| {
                let outs: Vec<IndexSet> = (1..=n).map(|me| draw_out(n, me, degree, &mut rng)).collect();
                can_be_isolated(&outs, corrupt, needed)
            });
            let observed = f64::from(u32::try_from(isolated.count()).unwrap()) / f64::from(graphs);
            let bound = isolation(n, corrupt, degree, needed);
            let noise = 4.0 * (bound / f64::from(graphs)).sqrt();
            assert!(observed > 0.0 && observed <= bound + noise, "n = {n}: {observed} against {bound}");
        }
    }

    #[test]
    fn no_sparse_graph_is_found_where_none_can_work() {
        assert_eq!(sparse(130, 43, 80), None);
    }
}
