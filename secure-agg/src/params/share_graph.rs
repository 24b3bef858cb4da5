//! The k-regular share graph of Bell et al. 2020 (specification §2.2): how few holders each dealer would need if an honest party
//! drew the graph. For planning larger cohorts and for comparison with other implementations; **no session uses it**, since a
//! coordinator that draws the graph would surround its victim with its own.
//!
//! The graph is a Harary graph of degree k on randomly relabelled participants. Three events are bounded for each candidate k: that
//! those who stay honest and alive are not connected (2^-41), that some participant has more than t1 corrupt neighbours (2^-41), and
//! that some participant keeps fewer than t2 of its neighbours (2^-20). The smallest even k with t ≤ t2 wins.

use super::degree::hypergeometric;

/// Most participants that a graph is computed for.
pub const MAX_PARTICIPANTS: u32 = 1_000_000;

/// What the coordinator may do, apart from colluding with participants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// It follows the protocol and looks at everything.
    Curious,
    /// It is honest while keys are committed and lies afterwards.
    SemiMalicious,
}

/// Degree and threshold of a share graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShareGraph {
    /// k: holders of each participant's shares.
    pub degree: u32,
    /// t: how many of them restore a seed, at least 2.
    pub threshold: u32,
}

/// The smallest graph for `participants` of whom fractions `max_corrupt` and `max_dropout`, in millionths, collude and leave;
/// nothing where no graph but the complete one will do, or the fractions leave too few (γ + δ > 0.9, or γ + 2δ > 0.9 for a
/// semi-malicious server).
#[must_use]
pub fn smallest(participants: u32, max_corrupt: u32, max_dropout: u32, server: Server) -> Option<ShareGraph> {
    let dropped = u64::from(max_dropout) * if server == Server::Curious { 1 } else { 2 };
    if !(1..=MAX_PARTICIPANTS).contains(&participants) || u64::from(max_corrupt) + dropped > 900_000 {
        return None;
    }
    let floor = |millionths: u32| {
        let product = u64::from(millionths) * u64::from(participants) / u64::from(super::MILLION);
        u32::try_from(product).unwrap_or(u32::MAX)
    };
    let (corrupt, dropouts) = (floor(max_corrupt), floor(max_dropout));
    (2..participants.saturating_sub(1)).step_by(2).find_map(|degree| {
        let threshold = threshold(participants, corrupt, dropouts, degree, server)?;
        Some(ShareGraph { degree, threshold })
    })
}

/// 2^-41 for each of two events: together 2^-40.
const SECURITY: f64 = 1.0 / 2_199_023_255_552.0;
/// 2^-20.
const LIVENESS: f64 = 1.0 / 1_048_576.0;

/// The least threshold that is safe at this degree, if it is also live.
fn threshold(n: u32, corrupt: u32, dropouts: u32, degree: u32, server: Server) -> Option<u32> {
    if disconnected(n, corrupt + dropouts, degree) > SECURITY {
        return None;
    }
    let most_corrupt = least_exceeded(&hypergeometric(n, corrupt, degree), SECURITY / f64::from(n));
    let fewest_alive = least_reached(&hypergeometric(n, n - dropouts, degree), LIVENESS / f64::from(n));
    let threshold = match server {
        Server::Curious => most_corrupt + 1,
        // Corrupt neighbours answer for both kinds of share, so twice the threshold must exceed the degree by their number.
        Server::SemiMalicious => (degree + most_corrupt) / 2 + 1,
    };
    (threshold <= fewest_alive).then_some(threshold.max(2))
}

/// Union bound on cutting a Harary graph: two places of k/2 neighbours in a row, all among the `bad`.
fn disconnected(n: u32, bad: u32, degree: u32) -> f64 {
    if degree > bad {
        return 0.0;
    }
    let places = f64::from(n) * f64::from(n - degree - 1) / 2.0;
    (0..degree).fold(places, |bound, i| bound * (f64::from(bad - i) / f64::from(n - i)))
}

/// The least t with Pr[X > t] ≤ `limit`.
fn least_exceeded(mass: &[f64], limit: f64) -> u32 {
    let mut above = 0.0;
    let mut t = u32::try_from(mass.len() - 1).unwrap_or(u32::MAX);
    for probability in mass.iter().skip(1).rev() {
        above += probability;
        if above > limit {
            break;
        }
        t -= 1;
    }
    t
}

/// The largest t with Pr[X < t] ≤ `limit`.
fn least_reached(mass: &[f64], limit: f64) -> u32 {
    let mut below = 0.0;
    let reached = mass.iter().take_while(|probability| {
        below += **probability;
        below <= limit
    });
    u32::try_from(reached.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::Server::{Curious, SemiMalicious};
    use super::*;

    fn found(n: u32, corrupt: u32, dropout: u32, server: Server) -> Option<(u32, u32)> {
        smallest(n, corrupt, dropout, server).map(|graph| (graph.degree, graph.threshold))
    }

    /// (k, t) for δ = .05, .1, .2, .3.
    type Row = [(u32, u32); 4];

    /// The table of the specification, §2.2: rows for γ = .05, .1, .2.
    const TABLE: [(u32, Server, [Row; 3]); 8] = [
        (
            100,
            Curious,
            [
                [(12, 6), (16, 6), (20, 6), (26, 6)],
                [(16, 11), (22, 11), (28, 11), (34, 11)],
                [(26, 20), (32, 21), (40, 21), (48, 21)],
            ],
        ),
        (
            100,
            SemiMalicious,
            [
                [(16, 11), (26, 16), (44, 25), (66, 36)],
                [(22, 17), (32, 22), (52, 32), (72, 42)],
                [(32, 27), (42, 32), (62, 42), (82, 52)],
            ],
        ),
        (
            500,
            Curious,
            [
                [(28, 16), (32, 17), (44, 18), (58, 20)],
                [(32, 21), (42, 24), (58, 28), (76, 31)],
                [(48, 34), (60, 39), (88, 48), (120, 57)],
            ],
        ),
        (
            500,
            SemiMalicious,
            [
                [(44, 31), (66, 44), (122, 74), (212, 119)],
                [(56, 42), (82, 57), (152, 97), (276, 164)],
                [(76, 60), (116, 86), (220, 150), (376, 239)],
            ],
        ),
        (
            1000,
            Curious,
            [
                [(30, 17), (36, 19), (50, 21), (66, 23)],
                [(38, 24), (48, 27), (66, 31), (88, 36)],
                [(52, 37), (68, 44), (98, 54), (140, 67)],
            ],
        ),
        (
            1000,
            SemiMalicious,
            [
                [(52, 37), (78, 52), (148, 90), (314, 179)],
                [(66, 49), (96, 67), (194, 124), (414, 247)],
                [(90, 71), (140, 104), (302, 206), (642, 409)],
            ],
        ),
        (
            5000,
            Curious,
            [
                [(32, 19), (40, 21), (56, 24), (76, 27)],
                [(42, 27), (52, 30), (76, 36), (106, 43)],
                [(58, 41), (78, 50), (118, 64), (172, 82)],
            ],
        ),
        (
            5000,
            SemiMalicious,
            [
                [(58, 41), (90, 60), (192, 117), (474, 271)],
                [(76, 56), (116, 81), (260, 166), (704, 421)],
                [(110, 86), (172, 127), (442, 301), (1482, 944)],
            ],
        ),
    ];

    #[test]
    fn graphs_are_those_of_the_specification() {
        for (n, server, rows) in TABLE {
            for (corrupt, row) in [50_000, 100_000, 200_000].into_iter().zip(rows) {
                for (dropout, expected) in [50_000, 100_000, 200_000, 300_000].into_iter().zip(row) {
                    let case = format!("n = {n}, {server:?}, γ = {corrupt}, δ = {dropout}");
                    assert_eq!(found(n, corrupt, dropout, server), Some(expected), "{case}");
                }
            }
        }
    }

    type Known = (u32, u32, Server, u32, &'static [(u32, u32)]);

    /// What google/federated-compute expects of its `graph_parameter_finder` (fcp/secagg/server, Apache-2.0): percent corrupt, percent
    /// dropouts, server, then (k, t) for n = 10, 100, … as far as it goes. Its `NONE` is a curious server without colluders.
    const FCP: [Known; 14] = [
        (45, 45, Curious, 100, &[(92, 46), (822, 417), (3494, 1771), (5508, 2788), (6240, 3156)]),
        (33, 33, Curious, 10, &[(8, 4), (68, 34), (286, 150), (422, 221), (480, 251), (518, 270)]),
        (30, 30, SemiMalicious, 100, &[(92, 62), (872, 584), (4822, 3230), (9388, 6286), (11136, 7454)]),
        (5, 33, Curious, 10, &[(4, 2), (28, 6), (72, 24), (86, 29), (96, 32), (102, 34)]),
        (5, 33, SemiMalicious, 10, &[(8, 5), (72, 39), (398, 223), (746, 420), (882, 496), (970, 545)]),
        (33, 5, Curious, 10, &[(4, 4), (34, 29), (78, 60), (92, 70), (102, 77), (110, 83)]),
        (33, 5, SemiMalicious, 10, &[(4, 4), (42, 37), (132, 109), (178, 146), (196, 160), (212, 173)]),
        (5, 5, Curious, 10, &[(2, 2), (12, 6), (30, 17), (34, 20), (36, 21), (38, 22)]),
        (5, 5, SemiMalicious, 10, &[(2, 2), (16, 11), (52, 37), (62, 44), (68, 48), (74, 52)]),
        (33, 0, Curious, 10, &[(4, 4), (26, 25), (38, 36), (42, 40), (46, 44), (50, 47)]),
        (33, 0, SemiMalicious, 10, &[(4, 4), (26, 26), (38, 37), (42, 41), (46, 45), (50, 49)]),
        (0, 33, Curious, 10, &[(4, 2), (26, 2), (38, 2), (42, 2), (46, 2), (50, 2)]),
        (0, 33, SemiMalicious, 10, &[(8, 5), (68, 35), (228, 115), (326, 164), (372, 187), (410, 206)]),
        (0, 0, Curious, 10, &[(2, 2), (2, 2), (2, 2), (2, 2), (2, 2), (2, 2)]),
    ];

    #[test]
    fn graphs_are_those_of_googles_federated_compute() {
        for (corrupt, dropout, server, first, expected) in FCP {
            let sizes = std::iter::successors(Some(first), |n| Some(10 * n));
            for (n, expected) in sizes.zip(expected) {
                let case = format!("n = {n}, {server:?}, γ = {corrupt} %, δ = {dropout} %");
                assert_eq!(found(n, corrupt * 10_000, dropout * 10_000, server), Some(*expected), "{case}");
            }
        }
        for n in [10, 100, 1000, 10_000, 100_000, 1_000_000] {
            assert_eq!(found(n, 0, 0, SemiMalicious), Some((2, 2)));
        }
    }

    #[test]
    fn what_no_graph_can_withstand_is_refused() {
        for (n, corrupt, dropout, server) in [
            (0, 100_000, 100_000, Curious),
            (1000, 100_000, 1_000_000, Curious),
            (1000, 500_000, 500_000, Curious),
            (1000, 500_000, 500_000, SemiMalicious),
            (1000, 330_000, 330_000, SemiMalicious),
            (1_000_001, 0, 0, Curious),
            (3, 0, 0, Curious),
        ] {
            assert_eq!(smallest(n, corrupt, dropout, server), None, "{n} {corrupt} {dropout} {server:?}");
        }
    }
}
