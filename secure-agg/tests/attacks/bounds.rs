//! Tries every claim of a coordinator in a small cohort with a complete mask graph: the dealers, with a separate claim for a victim; the
//! included inputs; the participants asked to sign. The search is exhaustive (specification §6).

/// Sets of participants as bits; participant 0 is the victim, the last `corrupt` collude with the coordinator.
type Set = u32;

/// A claim that opens a sum in which the victim shares no mask with an honest participant that agreed to the sum.
#[derive(Debug)]
#[expect(dead_code, reason = "printed by a test that fails")]
struct Isolation {
    told_to_the_victim: Set,
    survivors: Set,
    asked_to_sign: Set,
}

fn isolation(n: u32, corrupt: u32, threshold: u32) -> Option<Isolation> {
    let everybody: Set = (1 << n) - 1;
    let colluders = everybody & !((1 << (n - corrupt)) - 1);
    let with_victim = |set: &Set| set & 1 == 1;
    for survivors in (0..=everybody).filter(with_victim).filter(|set| set.count_ones() >= threshold) {
        let others = survivors & !colluders & !1;
        for told_to_the_victim in (0..=everybody).filter(with_victim).filter(|set| set.count_ones() >= threshold) {
            // Participants whose masks are on the victim's input, in the sum, and unknown to the coordinator.
            let ties = told_to_the_victim & others;
            // The victim received other dealers or no request, so it does not sign. Each signer is honest or colludes.
            for asked_to_sign in (0..=others).filter(|set| set & !others == 0) {
                let signed = asked_to_sign.count_ones() + (survivors & colluders).count_ones();
                if signed >= threshold && ties & asked_to_sign == 0 {
                    return Some(Isolation { told_to_the_victim, survivors, asked_to_sign });
                }
            }
        }
    }
    None
}

#[test]
fn no_claim_whatever_isolates_a_victim_in_a_complete_graph() {
    for n in 3..=7u32 {
        // Up to half of the cohort, the maximum of a configuration.
        for corrupt in 0..=n / 2 {
            let threshold = (n + corrupt) / 2 + 1;
            assert!(isolation(n, corrupt, threshold).is_none(), "n = {n}, {corrupt} colluders");
        }
    }
    // With a threshold lower by one, the search finds an isolation.
    assert!((3..=7).any(|n: u32| isolation(n, 1, n.div_ceil(2)).is_some()));
    assert!(isolation(6, 0, 3).is_some());
}

#[test]
fn no_two_pairs_of_sets_are_opened_and_of_nobody_both_seeds() {
    // Every honest participant is in one of two groups that receive different claims, or in none.
    for n in 3..=12u32 {
        for corrupt in 0..=n / 2 {
            let threshold = (n + corrupt) / 2 + 1;
            let honest = n - corrupt;
            let opened = |group: u32| group + corrupt >= threshold;
            for one in 0..=honest {
                for other in 0..=honest - one {
                    assert!(!(opened(one) && opened(other)), "n = {n}, {corrupt} colluders, {one} and {other}");
                }
            }
        }
    }
}
