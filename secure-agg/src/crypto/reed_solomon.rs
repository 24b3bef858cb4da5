//! The polynomial of degree below t through m points, up to floor((m - t)/2) of them wrong.
//!
//! This is the key equation of Berlekamp and Welch (1986), solved as Gao (2003) does: interpolate all points, then run Euclid's algorithm
//! against the product of the x - x_i until the degrees say that error locator and numerator are found. O(m^2) field operations, so a
//! cohort of a thousand takes milliseconds. It runs only on secrets already revealed by the transcript, so it need not be constant-time.

use zeroize::Zeroize as _;

use super::field::Element;

/// A polynomial, constant term first, without leading zeros; the zero polynomial is empty.
type Polynomial = Vec<Element>;

/// The evaluation points, with everything that depends on them alone.
pub(crate) struct Points {
    at: Vec<Element>,
    /// Product of all x - x_i.
    vanishing: Polynomial,
    /// 1 / Π_{j≠i} (x_i - x_j).
    weights: Vec<Element>,
}

impl Points {
    /// Precomputes for distinct points.
    pub(crate) fn new(at: &[Element]) -> Self {
        let mut vanishing = vec![Element::ONE];
        for place in at {
            vanishing = times_linear(&vanishing, *place);
        }
        let weight = |i: usize| {
            let others = at.iter().enumerate().filter(|(j, _)| *j != i);
            others.fold(Element::ONE, |product, (_, other)| product.mul(at[i].sub(*other))).invert()
        };
        Self { at: at.to_vec(), vanishing, weights: (0..at.len()).map(weight).collect() }
    }

    /// The polynomial of degree below `threshold` agreeing with all but floor((m - threshold)/2) of the values.
    pub(crate) fn decode(&self, values: &[Element], threshold: usize) -> Option<Polynomial> {
        let points = self.at.len();
        if values.len() != points || points < threshold {
            return None;
        }
        let (mut high, mut low) = (self.vanishing.clone(), self.interpolate(values));
        let (mut high_factor, mut low_factor) = (Vec::new(), vec![Element::ONE]);
        while 2 * low.len() > points + threshold {
            let (quotient, rest) = divide(&high, &low);
            let factor = subtract(&high_factor, &multiply(&quotient, &low_factor));
            high = std::mem::replace(&mut low, rest);
            high_factor = std::mem::replace(&mut low_factor, factor);
        }
        let (found, rest) = divide(&low, &low_factor);
        high.zeroize();
        low.zeroize();
        (rest.is_empty() && found.len() <= threshold).then_some(found)
    }

    /// The polynomial of degree below m through all points.
    fn interpolate(&self, values: &[Element]) -> Polynomial {
        let mut sum = vec![Element::ZERO; self.at.len()];
        for ((place, weight), value) in self.at.iter().zip(&self.weights).zip(values) {
            let scale = weight.mul(*value);
            // Synthetic division of the vanishing polynomial by x - place, from the top, straight into the sum.
            let mut carry = Element::ZERO;
            for (slot, coefficient) in sum.iter_mut().zip(&self.vanishing[1..]).rev() {
                carry = carry.mul(*place).add(*coefficient);
                *slot = slot.add(scale.mul(carry));
            }
        }
        trimmed(sum)
    }
}

/// The value of a polynomial at a place.
pub(crate) fn evaluate(polynomial: &[Element], at: Element) -> Element {
    polynomial.iter().rev().fold(Element::ZERO, |value, coefficient| value.mul(at).add(*coefficient))
}

fn trimmed(mut polynomial: Polynomial) -> Polynomial {
    while polynomial.last().is_some_and(|top| *top == Element::ZERO) {
        polynomial.pop();
    }
    polynomial
}

fn times_linear(polynomial: &[Element], root: Element) -> Polynomial {
    let mut product = vec![Element::ZERO; polynomial.len() + 1];
    for (power, coefficient) in polynomial.iter().enumerate() {
        product[power + 1] = product[power + 1].add(*coefficient);
        product[power] = product[power].sub(root.mul(*coefficient));
    }
    product
}

fn multiply(a: &[Element], b: &[Element]) -> Polynomial {
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    let mut product = vec![Element::ZERO; a.len() + b.len() - 1];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            product[i + j] = product[i + j].add(x.mul(*y));
        }
    }
    trimmed(product)
}

fn subtract(a: &[Element], b: &[Element]) -> Polynomial {
    let mut difference = vec![Element::ZERO; a.len().max(b.len())];
    difference[..a.len()].copy_from_slice(a);
    for (slot, coefficient) in difference.iter_mut().zip(b) {
        *slot = slot.sub(*coefficient);
    }
    trimmed(difference)
}

/// Quotient and rest; dividing by the zero polynomial gives a quotient of zero.
fn divide(numerator: &[Element], denominator: &[Element]) -> (Polynomial, Polynomial) {
    let mut rest = numerator.to_vec();
    let Some(leading) = denominator.last() else { return (Vec::new(), rest) };
    let inverse = leading.invert();
    let mut quotient = vec![Element::ZERO; (numerator.len() + 1).saturating_sub(denominator.len())];
    for power in (0..quotient.len()).rev() {
        let factor = rest[power + denominator.len() - 1].mul(inverse);
        quotient[power] = factor;
        for (slot, coefficient) in rest[power..].iter_mut().zip(denominator) {
            *slot = slot.sub(factor.mul(*coefficient));
        }
    }
    (trimmed(quotient), trimmed(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(values: &[u32]) -> Vec<Element> {
        values.iter().map(|value| Element::small(*value)).collect()
    }

    fn values_of(polynomial: &[Element]) -> Vec<u64> {
        polynomial.iter().map(|element| element.value()).collect()
    }

    #[test]
    fn the_zero_polynomial_is_found_under_errors() {
        let points = Points::new(&elements(&[1, 2, 3, 4, 5]));
        let found = points.decode(&elements(&[0, 0, 9, 0, 0]), 2).unwrap();
        assert_eq!(values_of(&found), [0u64; 0]);
    }

    #[test]
    fn one_error_too_many_is_not_corrected_to_the_wrong_line() {
        // y = 7 + 2x at 1..=5, two wrong values: the bound for t = 2 is floor(3/2) = 1.
        let points = Points::new(&elements(&[1, 2, 3, 4, 5]));
        assert_eq!(values_of(&points.decode(&elements(&[9, 11, 13, 15, 100]), 2).unwrap()), [7, 2]);
        let beyond = points.decode(&elements(&[9, 11, 13, 99, 100]), 2);
        assert!(beyond.is_none_or(|found| values_of(&found) != [7, 2]));
    }

    #[test]
    fn too_few_points_decode_to_nothing() {
        let points = Points::new(&elements(&[1, 2]));
        assert!(points.decode(&elements(&[3, 4]), 3).is_none());
    }
}
