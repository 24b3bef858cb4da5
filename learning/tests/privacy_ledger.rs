//! The ledger: it only grows, enforces its budget, charges the executed mechanism, and detects every change by hand.

use learning::privacy::accountant::{CloseCurve, Gaussians, SumMechanism, SumNoise, Textbook, zcdp};
use learning::privacy::{
    Bands, Budget, Ledger, LedgerError, LedgerRow, NoServerEpsilon, NoiseShares, Release, Sampled, SealedRow,
};
use proptest::prelude::*;
use ring::hmac;
use task_spec::{Digest, PrivacyAccounting, PrivacyMechanism, PrivacyView};

fn keyed(secret: &[u8]) -> impl Fn(&[u8]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    move |bytes| hmac::sign(&key, bytes).as_ref().try_into().unwrap()
}

const BUDGET: Budget =
    Budget { epsilon: Some(8.0), delta: 1e-5, against: PrivacyView::Published, accounting: PrivacyAccounting::General };

fn release(round: u64) -> Release {
    Release {
        round,
        attempt: 0,
        mechanism: PrivacyMechanism::CentralGaussian,
        sum: SumMechanism {
            noise: SumNoise::DiscreteGaussian { sigma: 2_000_000.0 },
            sensitivity: 1_000_000.0,
            dimension: 7850,
        },
        sampled: Sampled::Poisson { rate: 0.25 },
        participants: 48,
        tree_release: None,
        bands: None,
        participations: None,
    }
}

fn open(budget: Budget) -> Ledger {
    Ledger::open(PrivacyMechanism::CentralGaussian, budget, vec![], &keyed(b"key")).unwrap()
}

fn filled(rounds: u64) -> Ledger {
    let mut ledger = open(BUDGET);
    for round in 0..rounds {
        ledger.charge(release(round), &keyed(b"key")).unwrap();
    }
    ledger
}

fn through_json(rows: &[SealedRow]) -> Vec<SealedRow> {
    serde_json::from_str(&serde_json::to_string(rows).unwrap()).unwrap()
}

#[test]
fn comes_back_from_its_rows() {
    let ledger = filled(12);
    let rows = through_json(ledger.rows());
    let again = Ledger::open(PrivacyMechanism::CentralGaussian, BUDGET, rows, &keyed(b"key")).unwrap();
    assert_eq!(again.head(), ledger.head());
    assert_eq!(again.rows(), ledger.rows());
    assert_eq!(again.spent(), ledger.spent());
    let row = &ledger.rows()[3].row;
    assert_eq!((row.index, row.release.participants, row.rho), (3, 48, Some(0.125)));
    assert_eq!(row.total.server_reason, Some(NoServerEpsilon::ServerTrusted));
    assert!(
        row.pld.unwrap() < row.rdp && row.rdp < row.total.published && row.total.published < row.total.cohort_known
    );
    let spent = ledger.spent();
    assert!((spent.cohort_known - zcdp::epsilon(1.5, 1e-5)).abs() < 1e-9);
}

#[test]
fn stops_before_the_budget_is_exceeded() {
    let mut ledger = open(BUDGET);
    let room = ledger.room_for(&release(0), 1000);
    assert!((10..1000).contains(&room), "{room}");
    for round in 0..u64::from(room) {
        let would_be = ledger.would_exceed(&release(round)).unwrap();
        let row = ledger.charge(release(round), &keyed(b"key")).unwrap();
        assert_eq!(row.row.total, would_be);
        assert!(would_be.published <= 8.0);
    }
    assert_eq!(ledger.room_for(&release(0), 1000), 0);
    let before = ledger.rows().to_vec();
    let error = ledger.would_exceed(&release(9999)).unwrap_err();
    assert!(matches!(error, LedgerError::BudgetExceeded { budget: 8.0, .. }), "{error}");
    assert!(error.to_string().contains("the budget is 8.0000"), "{error}");
    assert_eq!(ledger.charge(release(9999), &keyed(b"key")), Err(error));
    assert_eq!(ledger.rows(), before);
}

#[test]
fn retries_are_charged_and_nothing_twice() {
    let mut ledger = filled(2);
    let retry = Release { attempt: 1, ..release(1) };
    let before = ledger.spent();
    ledger.charge(retry, &keyed(b"key")).unwrap();
    assert!(ledger.spent().published > before.published);
    assert_eq!(ledger.charge(retry, &keyed(b"key")), Err(LedgerError::Twice { round: 1, attempt: 1 }));
}

#[test]
fn charges_the_survivors_there_really_were() {
    let shares = NoiseShares::skellam(1_000_000.0, 20, 2).unwrap();
    let cost = |survivors: u32| {
        let sum = shares.mechanism(survivors, 500_000.0, 1000).unwrap();
        let mechanism = PrivacyMechanism::DistributedSkellam;
        let release = Release { mechanism, sum, participants: survivors, sampled: Sampled::Anyhow, ..release(0) };
        let mut ledger = Ledger::open(mechanism, BUDGET, vec![], &keyed(b"key")).unwrap();
        ledger.charge(release, &keyed(b"key")).unwrap().row.total
    };
    let (few, many) = (cost(20), cost(40));
    assert!(many.published < few.published);
    assert_eq!(few.server, Some(few.cohort_known));
    // 18 shares without the colluders', 38 of them: the same as that much variance.
    let rho = |shares: f64| 0.5 * 0.25 * 18.0 / shares;
    assert!((few.published / zcdp::epsilon(rho(18.0), 1e-5) - 1.0).abs() < 0.02, "{few:?}");
    assert!((many.published / zcdp::epsilon(rho(38.0), 1e-5) - 1.0).abs() < 0.02, "{many:?}");
}

#[test]
fn a_tree_is_charged_by_its_levels() {
    let mut ledger = Ledger::open(PrivacyMechanism::Tree, BUDGET, vec![], &keyed(b"key")).unwrap();
    let totals: Vec<f64> = (1..=9)
        .map(|t| {
            let release = Release {
                mechanism: PrivacyMechanism::Tree,
                sampled: Sampled::Anyhow,
                tree_release: Some(t),
                ..release(u64::from(t))
            };
            ledger.charge(release, &keyed(b"key")).unwrap().row.total.published
        })
        .collect();
    for (releases, levels) in [(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (9, 4)] {
        let expected = zcdp::epsilon(0.125 * f64::from(levels), 1e-5);
        assert!((totals[releases - 1] - expected).abs() < 1e-9, "{releases}");
    }
    // A new tree starts over, and adds up.
    let release =
        Release { mechanism: PrivacyMechanism::Tree, sampled: Sampled::Anyhow, tree_release: Some(1), ..release(99) };
    assert!(ledger.charge(release, &keyed(b"key")).unwrap().row.total.published > totals[8]);
}

#[test]
fn a_banded_matrix_is_charged_by_its_columns_wherever_releases_stand() {
    let bands = Bands { bands: 3, participations: 2, after: 0, place: 1 };
    let planned = |round: u64| Release {
        mechanism: PrivacyMechanism::BandedMatrix,
        sampled: Sampled::Anyhow,
        bands: Some(bands),
        ..release(round)
    };
    let mut ledger = Ledger::open(PrivacyMechanism::BandedMatrix, BUDGET, vec![], &keyed(b"key")).unwrap();
    // Round 2 was given up without a charge, round 4 was charged twice.
    let rounds = [(1, 0, 1), (3, 0, 3), (4, 0, 4), (4, 1, 5), (5, 0, 6), (9, 0, 10)];
    // 1, 1/4 and 9/64 of what one release costs, over and over, for two participations.
    let squares = [1.0, 1.390_625, 2.390_625, 2.640_625, 2.781_25, 2.781_25];
    for ((round, attempt, place), square) in rounds.into_iter().zip(squares) {
        let next = ledger.placed(Release { attempt, ..planned(round) });
        assert_eq!(next.bands.unwrap().place, place);
        let row = ledger.charge(next, &keyed(b"key")).unwrap();
        let expected = zcdp::epsilon(0.125 * square, 1e-5);
        assert!((row.row.total.published - expected).abs() < 1e-9, "{round} {}", row.row.total.published);
        assert_eq!(row.row.total.server_reason, Some(NoServerEpsilon::ServerTrusted));
    }
    let rows = ledger.rows().to_vec();
    let again = Ledger::open(PrivacyMechanism::BandedMatrix, BUDGET, rows.clone(), &keyed(b"key")).unwrap();
    assert_eq!((again.head(), again.spent()), (ledger.head(), ledger.spent()));
    // An attacker with the key still needs figures consistent with the positions.
    let mut moved = rows[1].row.clone();
    moved.release.bands.as_mut().unwrap().after = 2;
    let unsaid = |row: LedgerRow| LedgerRow { accounting: None, ..row };
    let rows = sealed(vec![unsaid(rows[0].row.clone()), unsaid(moved)]);
    let refused = Ledger::open(PrivacyMechanism::BandedMatrix, BUDGET, rows, &keyed(b"key")).map(|_| ());
    assert_eq!(refused, Err(LedgerError::Figures(1)));
    // Budgets have room for a series, not for so many first releases.
    let budget = Budget { epsilon: Some(zcdp::epsilon(0.125 * 2.5, 1e-5)), ..BUDGET };
    let ledger = Ledger::open(PrivacyMechanism::BandedMatrix, budget, vec![], &keyed(b"key")).unwrap();
    assert_eq!(ledger.room_for(&ledger.placed(planned(1)), 100), 4);
    let budget = Budget { epsilon: Some(zcdp::epsilon(0.125 * 2.8, 1e-5)), ..BUDGET };
    let ledger = Ledger::open(PrivacyMechanism::BandedMatrix, budget, vec![], &keyed(b"key")).unwrap();
    assert_eq!(ledger.room_for(&ledger.placed(planned(1)), 100), 100, "nobody takes part a third time");
    for (change, says) in [
        (Release { bands: None, ..planned(1) }, "has bands"),
        (Release { mechanism: PrivacyMechanism::CentralGaussian, ..planned(1) }, "has bands"),
        (Release { bands: Some(Bands { after: 1, ..bands }), ..planned(1) }, "has bands"),
        (Release { tree_release: Some(1), ..planned(1) }, "a tree"),
    ] {
        assert!(change.check().unwrap_err().to_string().contains(says), "{change:?}");
    }
}

#[test]
fn every_change_by_hand_is_found() {
    let rows = filled(5).rows().to_vec();
    let refuse = |rows: Vec<SealedRow>| {
        Ledger::open(PrivacyMechanism::CentralGaussian, BUDGET, rows, &keyed(b"key")).map(|_| ()).unwrap_err()
    };
    let edit = |index: usize, change: &dyn Fn(&mut LedgerRow)| {
        let mut rows = rows.clone();
        change(&mut rows[index].row);
        refuse(rows)
    };
    assert_eq!(edit(2, &|row| row.release.participants += 1), LedgerError::Tampered(2));
    assert_eq!(edit(0, &|row| row.total.published *= 0.5), LedgerError::Tampered(0));
    assert_eq!(edit(4, &|row| row.rdp = 0.0), LedgerError::Tampered(4));
    let noise = SumNoise::DiscreteGaussian { sigma: 2_000_000.000_000_000_5 };
    assert_eq!(edit(3, &|row| row.release.sum.noise = noise), LedgerError::Tampered(3));
    // Dropped in the middle, swapped.
    let mut dropped = rows.clone();
    dropped.remove(1);
    assert_eq!(refuse(dropped), LedgerError::Tampered(1));
    let mut swapped = rows.clone();
    swapped.swap(1, 2);
    assert_eq!(refuse(swapped), LedgerError::Tampered(1));
    let cut = rows[..4].to_vec();
    // A truncated ledger is valid, but has another head, which a stored head reveals.
    let head = |rows| Ledger::open(PrivacyMechanism::CentralGaussian, BUDGET, rows, &keyed(b"key")).unwrap().head();
    assert_eq!(head(cut), rows[3].seal);
    assert_eq!(head(rows.clone()), rows[4].seal);
    // Another key, and another mechanism's ledger.
    let other = Ledger::open(PrivacyMechanism::CentralGaussian, BUDGET, rows.clone(), &keyed(b"other")).map(|_| ());
    assert_eq!(other, Err(LedgerError::Tampered(0)));
    let other = Ledger::open(PrivacyMechanism::Tree, BUDGET, rows, &keyed(b"key")).map(|_| ());
    assert!(matches!(other, Err(LedgerError::Mechanism { .. })));
}

/// An attacker able to compute matching seals still needs figures consistent with the rows.
#[test]
fn figures_must_follow_from_the_parameters() {
    let mut wrong = filled(3).rows().to_vec();
    let mut halved = open(Budget { delta: 1e-3, ..BUDGET });
    halved.charge(release(0), &keyed(b"key")).unwrap();
    wrong[0] = halved.rows()[0].clone();
    let error = Ledger::open(PrivacyMechanism::CentralGaussian, BUDGET, wrong, &keyed(b"key")).map(|_| ());
    assert_eq!(error, Err(LedgerError::Figures(0)));
}

/// Rows as written by versions without a named accounting.
fn sealed(rows: Vec<LedgerRow>) -> Vec<SealedRow> {
    let (seal, mut before) = (keyed(b"key"), [0; 32]);
    rows.into_iter()
        .map(|row| {
            let json = serde_json::to_vec(&row).unwrap();
            assert!(!String::from_utf8_lossy(&json).contains("accounting"));
            before = seal(&[&b"tributary privacy ledger 1\0"[..], &before, &json].concat());
            SealedRow { row, seal: Digest(before) }
        })
        .collect()
}

/// Rows charged by Rényi divergences open unchanged under any accounting of the task; later rows name their accounting.
#[test]
fn rows_from_before_loss_distributions_open_as_they_were() {
    let charged = Budget { accounting: PrivacyAccounting::Pld, epsilon: None, ..BUDGET };
    let mut general: Vec<LedgerRow> = filled(3).rows().iter().map(|sealed| sealed.row.clone()).collect();
    general.iter_mut().for_each(|row| row.accounting = None);
    // By way of continuous noise, in the same terms: only the published figure was.
    let mut by_continuous = general.clone();
    for (count, row) in (1..).zip(&mut by_continuous) {
        let curve = CloseCurve::new(Gaussians::new(0.25, 2.0, 1), 7850, 2_000_000.0, 0.0).unwrap();
        let (epsilon, closeness) = curve.times(count).epsilon(1e-5, Textbook::Renyi).unwrap();
        row.total.published = epsilon;
        row.total.closeness = Some(closeness);
    }
    for rows in [general, by_continuous] {
        let last = rows[2].total.published;
        let before = sealed(rows);
        let mut ledger =
            Ledger::open(PrivacyMechanism::CentralGaussian, charged, before.clone(), &keyed(b"key")).unwrap();
        assert_eq!(ledger.rows(), before);
        let row = ledger.charge(release(3), &keyed(b"key")).unwrap().row.clone();
        assert_eq!(row.accounting, Some(PrivacyAccounting::Pld));
        // Of all four, by the tighter account.
        assert!(row.total.published < 1.4 * last, "{} {last}", row.total.published);
        let again = through_json(ledger.rows());
        assert!(Ledger::open(PrivacyMechanism::CentralGaussian, charged, again, &keyed(b"key")).is_ok());
    }
}

#[test]
fn each_row_says_what_it_rests_on() {
    let charged = Budget { accounting: PrivacyAccounting::Pld, ..BUDGET };
    let row = |mechanism, noise, budget| {
        let mut ledger = Ledger::open(mechanism, budget, vec![], &keyed(b"key")).unwrap();
        let sum = SumMechanism { noise, ..release(0).sum };
        ledger.charge(Release { mechanism, sum, ..release(0) }, &keyed(b"key")).unwrap().row.clone()
    };
    let gaussian = SumNoise::DiscreteGaussian { sigma: 2_000_000.0 };
    let by_pld = row(PrivacyMechanism::CentralGaussian, gaussian, charged);
    assert_eq!(by_pld.accounting, Some(PrivacyAccounting::Pld));
    assert!(by_pld.total.published >= by_pld.pld.unwrap(), "closeness is on top of it");
    let general = row(PrivacyMechanism::CentralGaussian, gaussian, BUDGET);
    assert_eq!(general.accounting, Some(PrivacyAccounting::General));
    assert!(by_pld.total.published < general.total.published && by_pld.total.cohort_known < general.total.cohort_known);
    let skellam = row(PrivacyMechanism::DistributedSkellam, SumNoise::Skellam { variance: 4e12 }, charged);
    assert_eq!(skellam.accounting, Some(PrivacyAccounting::General));
    // An attacker with the key who claims the other accounting.
    let mut claimed = by_pld.clone();
    claimed.accounting = Some(PrivacyAccounting::General);
    let json = serde_json::to_vec(&claimed).unwrap();
    let seal = Digest(keyed(b"key")(&[&b"tributary privacy ledger 1\0"[..], &[0; 32], &json].concat()));
    let rows = vec![SealedRow { row: claimed, seal }];
    let error = Ledger::open(PrivacyMechanism::CentralGaussian, charged, rows, &keyed(b"key")).map(|_| ()).unwrap_err();
    assert_eq!(error, LedgerError::Figures(0));
}

/// The planned releases fit with any dropouts: releases of more survivors cost less, and all are accepted up to the last.
#[test]
fn the_rounds_that_were_planned_fit_into_the_budget() {
    let charged = Budget { accounting: PrivacyAccounting::Pld, ..BUDGET };
    let shares = NoiseShares::discrete_gaussian(1_420_000.0, 30, 2).unwrap();
    let mechanism = PrivacyMechanism::DistributedDiscreteGaussian;
    let of = |round: u64, survivors: u32| {
        let sum = shares.mechanism(survivors, 1_000_000.0, 7850).unwrap();
        Release { mechanism, sum, participants: survivors, ..release(round) }
    };
    let mut ledger = Ledger::open(mechanism, charged, vec![], &keyed(b"key")).unwrap();
    let room = ledger.room_for(&of(0, 30), 1000);
    assert!((55..65).contains(&room), "{room}");
    let mut before = 0.0;
    for round in 0..u64::from(room) {
        let survivors = 30 + u32::try_from(round * 7 % 11).unwrap();
        let total = ledger.charge(of(round, survivors), &keyed(b"key")).unwrap().row.total;
        assert!(total.published >= before, "{round}: {} {before}", total.published);
        before = total.published;
    }
    assert!(before < 8.0 && before > 5.0, "{before}");
}

#[test]
fn refuses_what_cannot_be_charged() {
    let mut ledger = open(BUDGET);
    let mut refused = |change: &dyn Fn(&mut Release)| {
        let mut release = release(0);
        change(&mut release);
        ledger.charge(release, &keyed(b"key")).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(&|r| r.sum.noise = SumNoise::DiscreteGaussian { sigma: 0.0 }).contains("no noise"));
    assert!(refused(&|r| r.sum.noise = SumNoise::DiscreteGaussian { sigma: f64::NAN }).contains("no noise"));
    assert!(
        refused(&|r| r.sum.noise = SumNoise::DiscreteGaussianShares { sigma: 3.0, shares: 0 }).contains("no noise")
    );
    assert!(refused(&|r| r.sum.sensitivity = f64::NAN).contains("sensitivity"));
    assert!(refused(&|r| r.sum.sensitivity = 0.0).contains("sensitivity"));
    assert!(
        refused(&|r| (r.participants, r.mechanism) = (0, PrivacyMechanism::DistributedSkellam))
            .contains("participants"),
        "of nobody there may be noise of the coordinator's alone"
    );
    assert!(refused(&|r| r.sampled = Sampled::Poisson { rate: 1.5 }).contains("drawn"));
    assert!(refused(&|r| r.sampled = Sampled::FixedSize { cohort: 5, population: 4 }).contains("drawn"));
    assert!(refused(&|r| r.mechanism = PrivacyMechanism::None).contains("without a mechanism"));
    assert!(refused(&|r| r.tree_release = Some(1)).contains("tree"));
    assert!(refused(&|r| r.mechanism = PrivacyMechanism::DistributedSkellam).contains("cannot charge"));
    let budget = |epsilon, delta| {
        let budget = Budget { epsilon, delta, against: PrivacyView::Published, accounting: PrivacyAccounting::General };
        Ledger::open(PrivacyMechanism::CentralGaussian, budget, vec![], &keyed(b"key")).map(|_| ())
    };
    for (epsilon, delta) in [(Some(0.0), 1e-5), (Some(-1.0), 1e-5), (Some(1.0), 0.0), (Some(1.0), 1.0), (None, 2.0)] {
        assert_eq!(budget(epsilon, delta), Err(LedgerError::Budget { epsilon, delta }));
    }
    assert!(budget(Some(f64::NAN), 1e-5).is_err() && budget(None, f64::NAN).is_err());
}

#[test]
fn seals_are_text() {
    let seal = Digest([0xa5; 32]);
    let json = serde_json::to_string(&seal).unwrap();
    assert_eq!(json, format!("\"{}\"", "a5".repeat(32)));
    assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), seal);
    for bad in ["\"\"", "\"a5\"", &format!("\"{}\"", "g5".repeat(32)), &format!("\"{}0\"", "a5".repeat(32))] {
        assert!(serde_json::from_str::<Digest>(bad).is_err(), "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any charges in any order, the totals only grow, a better informed observer has the larger epsilon, and stored rows are restored
    /// unchanged.
    #[test]
    fn only_grows(charges in proptest::collection::vec((0.5_f64..50.0, 0.001_f64..=1.0, 1_u32..100), 1..12)) {
        let mut ledger = open(Budget { epsilon: None, ..BUDGET });
        let mut before = 0.0;
        for (round, &(z, rate, participants)) in (0..).zip(&charges) {
            let noise = SumNoise::DiscreteGaussian { sigma: 1000.0 * z };
            let sum = SumMechanism { noise, sensitivity: 1000.0, dimension: 10 };
            let release = Release { sum, sampled: Sampled::Poisson { rate }, participants, ..release(round) };
            let total = ledger.charge(release, &keyed(b"key")).unwrap().row.total;
            prop_assert!(total.published >= before && total.published <= total.cohort_known);
            before = total.published;
        }
        let rows = through_json(ledger.rows());
        let again = Ledger::open(PrivacyMechanism::CentralGaussian, *ledger.budget(), rows, &keyed(b"key")).unwrap();
        prop_assert_eq!(again.spent(), ledger.spent());
    }
}
