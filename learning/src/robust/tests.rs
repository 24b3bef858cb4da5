//! Small cases by hand, breakdown points, and independence of the order.

use proptest::prelude::*;

use super::*;

const ALL: [RobustRule; 6] = [
    RobustRule::Median,
    RobustRule::TrimmedMean,
    RobustRule::Krum,
    RobustRule::MultiKrum,
    RobustRule::GeometricMedian,
    RobustRule::NormFilter,
];

const fn spec(rule: RobustRule) -> RobustSpec {
    RobustSpec { rule, attackers: 0.2, norm_factor: None, group_size: None }
}

fn combine(rule: RobustRule, rows: &[Vec<f32>], attackers: u32) -> Combined {
    let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    super::combine(&spec(rule), &rows, attackers).unwrap()
}

fn column(values: &[f32]) -> Vec<Vec<f32>> {
    values.iter().map(|&value| vec![value]).collect()
}

#[test]
fn every_rule_says_how_many_it_needs() {
    for (rule, needed) in ALL.into_iter().zip([7, 7, 9, 9, 7, 7]) {
        assert_eq!(needs(rule, 3), needed);
        let participants = u32::try_from(needed).unwrap();
        assert_eq!(check(rule, participants, 3), Ok(()));
        let error = check(rule, participants - 1, 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{} needs at least {needed} participants against 3 attackers, there are {}",
                rule.as_str(),
                needed - 1
            )
        );
        let rows = column(&[0.0; 6]);
        let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
        let is_refused = match method(rule) {
            Method::Coordinates(_) => true,
            Method::Distances(weigh) => judge(&spec(rule), weigh, &Gram::zero(6), 3).is_err(),
        };
        assert!(is_refused && super::combine(&spec(rule), &rows, 3).is_err(), "{}", rule.as_str());
    }
    assert_eq!(needs(RobustRule::Krum, u32::MAX), 2 * u64::from(u32::MAX) + 3);
}

#[test]
fn coordinates_by_hand() {
    let rows = [vec![1.0, 9.0], vec![5.0, -7.0], vec![2.0, 0.0], vec![100.0, 1.0], vec![3.0, 2.0]];
    assert_eq!(combine(RobustRule::Median, &rows, 1).values, [3.0, 1.0]);
    assert_eq!(combine(RobustRule::Median, &rows[..4], 1).values, [3.5, 0.5]);
    assert_eq!(combine(RobustRule::TrimmedMean, &rows, 1).values, [10.0 / 3.0, 1.0]);
    assert_eq!(combine(RobustRule::TrimmedMean, &rows, 0).values, [111.0 / 5.0, 1.0]);
    assert_eq!(combine(RobustRule::TrimmedMean, &rows, 2).values, [3.0, 1.0], "all but the middle");
}

#[test]
fn krum_by_hand() {
    // n = 7, f = 1: four nearest others. Sums of squares: 30 at 0, 15 at 1, 10 at 2 and so on.
    let rows = column(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0]);
    let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    let gram = Gram::of(&rows);
    assert_eq!(krum::scores(&gram, 1)[..6], [30.0, 15.0, 10.0, 10.0, 15.0, 30.0]);
    assert_eq!(super::combine(&spec(RobustRule::Krum), &rows, 1).unwrap().values, [2.0], "of 2 and 3 the shorter");
    assert_eq!(super::combine(&spec(RobustRule::MultiKrum), &rows, 1).unwrap().values, [2.5], "1, 2, 3 and 4");
    let Method::Distances(weigh) = method(RobustRule::MultiKrum) else { panic!("by coordinates") };
    let judged = judge(&spec(RobustRule::MultiKrum), weigh, &gram, 1).unwrap();
    assert_eq!(judged.weights, [0.0, 0.25, 0.25, 0.25, 0.25, 0.0, 0.0]);
    assert_eq!(judged.distances, [2.5, 1.5, 0.5, 0.5, 1.5, 2.5, 97.5]);
    let scores = anomaly_scores(&judged.distances);
    assert!((scores[6] - 65.0).abs() < 1e-12 && scores[0] < 2.0, "{scores:?}");
}

#[test]
fn geometric_medians_by_hand() {
    let close = |rows: &[Vec<f32>], expected: [f32; 2]| {
        let values = combine(RobustRule::GeometricMedian, rows, 0).values;
        assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{values:?} is not {expected:?}");
    };
    // Fermat's point of a square with a far corner: where its diagonals cross.
    close(&[vec![0.0, 0.0], vec![1.0, 0.0], vec![0.0, 1.0], vec![5.0, 5.0]], [0.5, 0.5]);
    // Of an equilateral triangle, its centre.
    close(&[vec![0.0, 0.0], vec![2.0, 0.0], vec![1.0, 3.0_f32.sqrt()]], [1.0, 1.0 / 3.0_f32.sqrt()]);
    // A majority at one point is the median.
    close(&[vec![7.0, 7.0], vec![7.0, 7.0], vec![7.0, 7.0], vec![-900.0, 3.0], vec![0.0, 80.0]], [7.0, 7.0]);
    // Without the farthest, of the others.
    let three = [vec![0.0, 0.0], vec![2.0, 0.0], vec![1.0, 3.0_f32.sqrt()], vec![9.0, -40.0]];
    let values = combine(RobustRule::GeometricMedian, &three, 1).values;
    assert!((values[0] - 1.0).abs() < 1e-3 && (values[1] - 1.0 / 3.0_f32.sqrt()).abs() < 1e-3, "{values:?}");
    assert_eq!(combine(RobustRule::GeometricMedian, &column(&[3.0, 3.0, 3.0]), 1).values, [3.0]);
}

#[test]
fn the_norm_filter_drops_what_is_too_long() {
    let rows = [vec![3.0, 4.0], vec![0.0, 5.0], vec![10.0, 0.0], vec![10.1, 0.0], vec![1.0, 0.0]];
    let combined = combine(RobustRule::NormFilter, &rows, 2);
    assert_eq!(combined.values, [3.5, 2.25], "median norm 5: 10 stays, 10.1 goes");
    assert_eq!(combine(RobustRule::NormFilter, &column(&[0.0; 3]), 1).values, [0.0]);
}

#[test]
fn scores_are_relative_to_the_usual_distance() {
    assert_eq!(anomaly_scores(&[1.0, 2.0, 4.0, 20.0, 2.0]), [0.5, 1.0, 2.0, 10.0, 1.0]);
    assert_eq!(anomaly_scores(&[0.0, 0.0, 0.0, 3.0]), [0.0, 0.0, 0.0, MAX_SCORE]);
    assert_eq!(anomaly_scores(&[]), [] as [f64; 0]);
}

/// 21 updates around (1, …, 1), with the last f replaced.
fn attacked(attackers: usize, attack: impl Fn(usize) -> f32) -> Vec<Vec<f32>> {
    let honest = |row: usize| (0..8).map(|i| 1.0 + 0.1 * ((row * 7 + i * 3) % 11) as f32 / 11.0 - 0.05).collect();
    let mut rows: Vec<Vec<f32>> = (0..21).map(honest).collect();
    for (number, row) in rows.iter_mut().rev().take(attackers).enumerate() {
        row.fill(attack(number));
    }
    rows
}

fn error(rule: RobustRule, rows: &[Vec<f32>], attackers: u32) -> f32 {
    combine(rule, rows, attackers).values.iter().map(|value| (value - 1.0).abs()).fold(0.0, f32::max)
}

#[test]
fn nothing_moves_a_rule_far_up_to_its_breakdown_point_and_everything_beyond() {
    for rule in ALL {
        // The maximum number of attackers among 21 for the rule.
        let most = (0..21).rev().find(|&f| needs(rule, f) <= 21).unwrap();
        assert_eq!(most, if matches!(rule, RobustRule::Krum | RobustRule::MultiKrum) { 9 } else { 10 });
        for attack in [1e6, -1e6, 1e3] {
            let within = error(rule, &attacked(most as usize, |_| attack), most);
            assert!(within < 0.6, "{} moved by {within} under {most} attackers at {attack}", rule.as_str());
        }
        // A colluding majority controls the result.
        let beyond = error(rule, &attacked(12, |_| -1e3), most);
        assert!(beyond > 500.0, "{} stands 12 of 21 at {beyond}?", rule.as_str());
    }
    let mean = error(RobustRule::TrimmedMean, &attacked(1, |_| 1e6), 0);
    assert!(mean > 1e4, "one attacker moves a mean");
}

#[test]
fn attackers_that_do_not_agree_are_stood_too() {
    for rule in ALL {
        let most = (0..21).rev().find(|&f| needs(rule, f) <= 21).unwrap();
        let spread = attacked(most as usize, |n| if n % 2 == 0 { 1e3 * (n + 1) as f32 } else { -1e5 });
        assert!(error(rule, &spread, most) < 0.1, "{}", rule.as_str());
    }
}

#[test]
fn scores_tell_attackers_from_others() {
    for rule in ALL {
        let scores = combine(rule, &attacked(4, |_| -10.0), 4).scores;
        assert!(scores[..17].iter().all(|&score| score < 3.0), "{}: {scores:?}", rule.as_str());
        assert!(scores[17..].iter().all(|&score| score > 20.0), "{}: {scores:?}", rule.as_str());
    }
}

#[test]
#[expect(clippy::cast_possible_truncation, reason = "one rounding of a unit")]
fn sixteen_bits_keep_what_matters_whatever_outliers_do() {
    let rows: Vec<Vec<f32>> = attacked(4, |n| if n == 0 { 1e9 } else { -3e7 });
    let slices: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    let mut words = vec![vec![0_i16; 8]; 21];
    let unit = centre(&slices, 4, 1.0, &mut words);
    assert!((unit * 32767.0 - 1.05).abs() < 0.01, "the largest honest value fills the range, not the attackers'");
    let restored: Vec<Vec<f32>> =
        words.iter().map(|row| row.iter().map(|&word| f32::from(word) * unit as f32).collect()).collect();
    for rule in [RobustRule::Median, RobustRule::TrimmedMean] {
        let (exact, rounded) = (combine(rule, &rows, 4).values, combine(rule, &restored, 4).values);
        assert!(exact.iter().zip(&rounded).all(|(a, b)| f64::from((a - b).abs()) <= unit), "{}", rule.as_str());
    }
    // With headroom an outlier still shows, and without outliers headroom costs nothing.
    assert!((centre(&slices, 4, 8.0, &mut words) * 32767.0 - 8.0 * 1.05).abs() < 0.1);
    let honest = &slices[..17];
    assert!((centre(honest, 4, 8.0, &mut words[..17]) * 32767.0 - 1.05).abs() < 0.01);
    assert_eq!(centre(&[&[0.0]], 1, 1.0, &mut [vec![7]]), 1.0);
}

#[test]
fn products_of_slices_add_up() {
    let rows = attacked(2, |_| 3.0);
    let whole: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    let mut sum = Gram::zero(21);
    for slice in [0..5, 5..8] {
        let part: Vec<_> = rows.iter().map(|row| &row[slice.clone()]).collect();
        let mut words = vec![vec![0; slice.len()]; 21];
        let unit = centre(&part, 2, 8.0, &mut words);
        let product = |i: usize, j: usize| -> i64 {
            words[i].iter().zip(&words[j]).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum()
        };
        let products: Vec<_> = (0..21).flat_map(|i| (0..21).map(move |j| (i, j))).map(|(i, j)| product(i, j)).collect();
        sum.add(&products, unit).unwrap();
    }
    let exact = Gram::of(&whole);
    for i in 0..21 {
        for j in 0..21 {
            assert!((sum.product(i, j) / exact.product(i, j) - 1.0).abs() < 1e-3);
        }
    }
    assert_eq!(sum.add(&[1], 1.0), Err(BadGram { size: 21, got: 1 }));
    assert!(sum.add(&[1; 441], f64::NAN).is_err());
}

proptest! {
    #[test]
    fn order_does_not_matter(
        rows in proptest::collection::vec(proptest::collection::vec(-10.0_f32..10.0, 3), 7..15),
        rotation in 1_usize..7,
    ) {
        let mut turned = rows.clone();
        turned.rotate_left(rotation);
        turned.swap(0, 1);
        for rule in ALL {
            let (before, after) = (combine(rule, &rows, 2), combine(rule, &turned, 2));
            for (a, b) in before.values.iter().zip(&after.values) {
                prop_assert!((a - b).abs() < 1e-4, "{}: {:?} {:?}", rule.as_str(), before.values, after.values);
            }
            let mut scores = before.scores.clone();
            scores.rotate_left(rotation);
            scores.swap(0, 1);
            for (a, b) in scores.iter().zip(&after.scores) {
                prop_assert!((a - b).abs() <= 1e-3 * a.abs().max(1.0), "{}: {} {}", rule.as_str(), a, b);
            }
        }
    }

    #[test]
    fn a_result_is_among_the_honest_whatever_the_others_send(
        honest in proptest::collection::vec(-1.0_f32..1.0, 5),
        others in proptest::collection::vec(-1e6_f32..1e6, 2),
    ) {
        let (low, high) = honest.iter().fold((f32::MAX, f32::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        let rows = column(&[honest.clone(), others].concat());
        for rule in [RobustRule::Median, RobustRule::TrimmedMean] {
            let value = combine(rule, &rows, 2).values[0];
            prop_assert!((low..=high).contains(&value), "{}: {}", rule.as_str(), value);
        }
    }
}
