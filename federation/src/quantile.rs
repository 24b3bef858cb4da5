//! Quantiles by nearest rank: always a value of the list.

/// The smallest value v of a sorted list such that at least `part` (0 to 1) of the list is at most v. `None` for an empty list.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a position in a list, clamped"
)]
pub fn quantile<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let list = [10, 20, 30, 40];
        let found = [-1.0, 0.0, 0.25, 0.26, 0.5, 0.95, 1.0, 7.0, f64::NAN].map(|part| quantile(&list, part));
        assert_eq!(found.map(Option::unwrap_or_default), [10, 10, 10, 20, 20, 40, 40, 40, 10]);
        assert_eq!(quantile::<u32>(&[], 0.5), None);
    }
}
