//! The attacker's arithmetic: which updates follow from sums of known sets of members.

/// Smallest multiple of the identity that makes the normal equations solvable for any rank. The recoverable part has a
/// relative error of about this size.
const RIDGE: f64 = 1e-9;

/// The least squares estimate of each member's vector with the smallest norm, from `sums` over the members that `sets`
/// marks with 1. One row of `sets` and of `sums` for each sum; one row of the result for each member.
pub(super) fn solve(sets: &[Vec<f64>], sums: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let members = sets.first().map_or(0, Vec::len);
    let product = |member: usize, rows: &[Vec<f64>], column: usize| -> f64 {
        sets.iter().zip(rows).map(|(set, row)| set[member] * row[column]).sum()
    };
    let width = sums.first().map_or(0, Vec::len);
    let mut rows: Vec<Vec<f64>> = (0..members)
        .map(|member| {
            let left =
                (0..members).map(|other| product(member, sets, other) + if other == member { RIDGE } else { 0.0 });
            left.chain((0..width).map(|column| product(member, sums, column))).collect()
        })
        .collect();
    eliminate(&mut rows);
    rows.iter().map(|row| row[members..].to_vec()).collect()
}

/// Gauss and Jordan, with the largest pivot of each column.
fn eliminate(rows: &mut [Vec<f64>]) {
    for column in 0..rows.len() {
        let pivot = (column..rows.len()).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()));
        rows.swap(column, pivot.unwrap_or(column));
        let scale = rows[column][column];
        rows[column].iter_mut().for_each(|value| *value /= scale);
        let pivot = rows[column].clone();
        for (at, row) in rows.iter_mut().enumerate() {
            let factor = row[column];
            if at != column {
                row.iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }
}

/// How many members each linear combination of the sums is over, at least.
///
/// Members that are in the same sums have the same coefficient in every combination. So a combination that is over one of
/// them is over all of them.
pub(super) fn smallest_support(sets: &[Vec<f64>]) -> usize {
    let members = sets.first().map_or(0, Vec::len);
    let column = |member: usize| sets.iter().map(|set| set[member] > 0.5).collect::<Vec<_>>();
    let columns: Vec<_> = (0..members).map(column).collect();
    let alike = |own: &Vec<bool>| columns.iter().filter(|column| *column == own).count();
    columns.iter().filter(|column| column.contains(&true)).map(alike).min().unwrap_or(0)
}

/// Cosine of the angle between two vectors; 0 for the zero vector.
pub(super) fn cosine(one: &[f64], other: &[f64]) -> f64 {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    product(one, other) / (product(one, one) * product(other, other)).sqrt().max(f64::MIN_POSITIVE)
}

/// Distance of an estimate from the truth, relative to the truth's norm.
pub(super) fn error(estimate: &[f64], truth: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let distance = square(&mut estimate.iter().zip(truth).map(|(a, b)| a - b));
    (distance / square(&mut truth.iter().copied())).sqrt()
}

#[test]
fn solve_recovers_what_the_rank_allows() {
    let updates = [vec![1.0, -2.0], vec![0.5, 3.0], vec![-4.0, 0.25]];
    let sum = |set: &Vec<f64>| -> Vec<f64> {
        (0..2).map(|at| set.iter().zip(&updates).map(|(one, update)| one * update[at]).sum()).collect()
    };
    let full = vec![vec![1.0, 1.0, 1.0], vec![1.0, 1.0, 0.0], vec![1.0, 0.0, 1.0]];
    let solved = solve(&full, &full.iter().map(sum).collect::<Vec<_>>());
    assert!(solved.iter().zip(&updates).all(|(solved, update)| error(solved, update) < 1e-6), "{solved:?}");
    assert_eq!(smallest_support(&full), 1);
    // Of members that are always together only the mean follows.
    let paired = vec![vec![1.0, 1.0, 1.0], vec![0.0, 1.0, 1.0]];
    let solved = solve(&paired, &paired.iter().map(sum).collect::<Vec<_>>());
    assert!(error(&solved[0], &updates[0]) < 1e-6, "{solved:?}");
    for member in [1, 2] {
        assert!(error(&solved[member], &[-1.75, 1.625]) < 1e-6, "{solved:?}");
    }
    assert_eq!(smallest_support(&paired), 1);
    assert_eq!(smallest_support(&[vec![0.0, 1.0, 1.0]]), 2);
}
