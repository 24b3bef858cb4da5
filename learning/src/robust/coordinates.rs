//! Coordinate-wise rules over rows of finite values in memory.
//!
//! For the updates of many participants a device computes them in bulk, slice by slice (see [`centre`](super::centre)). These functions
//! serve few rows and define the device's expected result.

/// The median of each column; for an even number of rows, the mean of the two middle values.
///
/// # Panics
/// Unless there are rows, each as long as `out`.
pub fn median(rows: &[&[f32]], out: &mut [f32]) {
    let upper = rows.len() / 2;
    by_column(rows, out, |column| {
        let (below, &mut high, _) = column.select_nth_unstable_by(upper, f32::total_cmp);
        if rows.len() % 2 == 1 {
            return f64::from(high);
        }
        let low = below.iter().copied().max_by(f32::total_cmp).unwrap_or(high);
        f64::midpoint(f64::from(low), f64::from(high))
    });
}

/// The mean of each column without its `trim` smallest and `trim` largest values.
///
/// # Panics
/// Unless there are more than twice `trim` rows, each as long as `out`.
pub fn trimmed_mean(rows: &[&[f32]], trim: usize, out: &mut [f32]) {
    let kept = rows.len().checked_sub(2 * trim).filter(|&kept| kept > 0).expect("more rows than are trimmed");
    let divisor = f64::from(super::counted::count(kept));
    by_column(rows, out, |column| {
        column.sort_unstable_by(f32::total_cmp);
        column[trim..trim + kept].iter().copied().map(f64::from).sum::<f64>() / divisor
    });
}

/// The weighted sum of each column.
///
/// # Panics
/// Unless there are as many weights as rows, each as long as `out`.
pub fn weighted_sum(rows: &[&[f32]], weights: &[f64], out: &mut [f32]) {
    assert_eq!(rows.len(), weights.len(), "a weight for each row");
    by_column(rows, out, |column| {
        column
            .iter()
            .zip(weights)
            .filter(|(_, weight)| **weight > 0.0)
            .map(|(value, weight)| f64::from(*value) * weight)
            .sum()
    });
}

/// The Euclidean distance of each row from `centre`.
#[must_use]
pub fn distances(rows: &[&[f32]], centre: &[f32]) -> Vec<f64> {
    let squared =
        |row: &[f32]| row.iter().zip(centre).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>();
    rows.iter().map(|row| squared(row).sqrt()).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
fn by_column(rows: &[&[f32]], out: &mut [f32], mut rule: impl FnMut(&mut [f32]) -> f64) {
    assert!(rows.iter().all(|row| row.len() == out.len()), "rows of one length");
    let mut column = vec![0.0; rows.len()];
    for (index, out) in out.iter_mut().enumerate() {
        for (value, row) in column.iter_mut().zip(rows) {
            *value = row[index];
        }
        *out = rule(&mut column) as f32;
    }
}
