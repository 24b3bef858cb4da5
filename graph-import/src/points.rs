//! Sizes as functions of batch and length, found from their values at several points.

use graph::{Point, Size};

/// The points at which a file is evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Points(Vec<Point>);

impl Points {
    /// Points for a graph with sequences of lengths near the three given, or without sequences.
    pub(crate) fn new(lengths: Option<[u32; 3]>) -> Self {
        let at = |batch, length| Point { batch, length };
        Self(match lengths {
            Some([a, b, c]) => vec![at(2, a), at(3, a), at(2, b), at(3, b), at(5, c)],
            None => vec![at(2, 1), at(3, 1), at(5, 1)],
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Point> + '_ {
        self.0.iter().copied()
    }

    /// The size that has these values at the points; `None` if there is none of [`Size`]'s form.
    pub(crate) fn fit(&self, values: &[i64]) -> Option<Size> {
        let first = *values.first()?;
        if values.iter().all(|value| *value == first) {
            return Some(Size::fixed(first));
        }
        [(1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
            .into_iter()
            .find_map(|(batch, length)| self.fit_powers(values, batch, length))
    }

    fn fit_powers(&self, values: &[i64], batch: u8, length: u8) -> Option<Size> {
        let unit = Size { factor: 1, batch, length, offset: 0 };
        let products: Vec<i64> = self.iter().map(|point| unit.at(point)).collect::<Option<_>>()?;
        let other = products.iter().position(|product| *product != products[0])?;
        let (rise, run) = (values[other].checked_sub(values[0])?, products[other] - products[0]);
        if rise % run != 0 {
            return None;
        }
        let factor = rise / run;
        let offset = values[0].checked_sub(factor.checked_mul(products[0])?)?;
        let size = Size { factor, batch, length, offset };
        self.iter().zip(values).all(|(point, value)| size.at(point) == Some(*value)).then_some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(of: impl Fn(i64, i64) -> i64) -> Option<Size> {
        let points = Points::new(Some([7, 11, 13]));
        let values: Vec<i64> = points.iter().map(|p| of(i64::from(p.batch), i64::from(p.length))).collect();
        points.fit(&values)
    }

    #[test]
    fn fit_products_gives_powers() {
        assert_eq!(fitted(|_, _| 4), Some(Size::fixed(4)));
        assert_eq!(fitted(|b, _| b), Some(Size::BATCH));
        assert_eq!(fitted(|b, l| 8 * b * l), Some(Size { factor: 8, batch: 1, length: 1, offset: 0 }));
        assert_eq!(fitted(|_, l| 2 * l * l - 1), Some(Size { factor: 2, batch: 0, length: 2, offset: -1 }));
    }

    #[test]
    fn fit_other_forms_gives_none() {
        assert_eq!(fitted(|b, l| b + l), None);
        assert_eq!(fitted(|_, l| l / 2), None);
    }
}
