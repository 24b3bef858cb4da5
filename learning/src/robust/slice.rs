//! Values as 16-bit integers, for devices that compute medians and inner products.

/// Writes each row in units that map the largest value of the `outliers + 1`-st largest row to `1 / headroom` of the
/// range, and returns the unit; larger values are clamped.
///
/// So `outliers` rows, however large, cannot reduce the precision of the others. With a headroom of at least 1,
/// clamping changes neither a median nor a mean without the `outliers` smallest and largest values: clamped values lie
/// beyond all values of the other rows. Distances need a larger headroom, so that an outlier still shows.
///
/// # Panics
/// Unless `out` has the rows and lengths of `rows`.
#[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i16")]
pub fn centre(rows: &[&[f32]], outliers: usize, headroom: f64, out: &mut [Vec<i16>]) -> f64 {
    let most = f64::from(i16::MAX);
    let mut largest: Vec<f32> =
        rows.iter().map(|row| row.iter().fold(0.0, |most: f32, value| most.max(value.abs()))).collect();
    largest.sort_by(|a, b| b.total_cmp(a));
    // The headroom is for outliers; without any it would only cost precision.
    let usual = largest.get(outliers).or(largest.last()).copied().map_or(0.0, f64::from) * headroom.max(1.0);
    let range = usual.min(largest.first().copied().map_or(0.0, f64::from));
    let unit = if range > 0.0 { range / most } else { 1.0 };
    assert_eq!(rows.len(), out.len(), "as many rows");
    for (row, out) in rows.iter().zip(out) {
        assert_eq!(row.len(), out.len(), "as long a row");
        for (value, out) in row.iter().zip(out) {
            *out = (f64::from(*value) / unit).round().clamp(-most, most) as i16;
        }
    }
    unit
}
