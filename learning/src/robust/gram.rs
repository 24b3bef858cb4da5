//! The inner products of all pairs of updates.

/// A symmetric matrix of inner products; entry (i, j) is that of updates i and j.
#[derive(Clone, Debug, PartialEq)]
pub struct Gram {
    size: usize,
    products: Vec<f64>,
}

/// The numbers do not form a Gram matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{got} numbers are not the inner products of {size} updates: {size} times {size} finite ones are needed")]
pub struct BadGram {
    pub size: usize,
    pub got: usize,
}

impl Gram {
    /// The matrix for updates without coordinates: all products are 0.
    #[must_use]
    pub fn zero(size: usize) -> Self {
        Self { size, products: vec![0.0; size * size] }
    }

    /// The matrix for rows of equal length, in `f64`. Takes time quadratic in the number of rows; for many long rows
    /// use a device and [`Gram::add`].
    #[must_use]
    pub fn of(rows: &[&[f32]]) -> Self {
        let mut gram = Self::zero(rows.len());
        for (i, left) in rows.iter().enumerate() {
            for (j, right) in rows.iter().enumerate().skip(i) {
                let product = left.iter().zip(*right).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                gram.products[i * rows.len() + j] = product;
                gram.products[j * rows.len() + i] = product;
            }
        }
        gram
    }

    /// Adds the products of further coordinates, given as integers: `unit` squared times `products`.
    ///
    /// # Errors
    /// [`BadGram`] if the number of products differs, or `unit` makes them infinite; nothing is changed then.
    #[expect(clippy::cast_precision_loss, reason = "products need not be exact")]
    pub fn add(&mut self, products: &[i64], unit: f64) -> Result<(), BadGram> {
        let bad = BadGram { size: self.size, got: products.len() };
        if products.len() != self.products.len() || !unit.is_finite() {
            return Err(bad);
        }
        for (sum, &product) in self.products.iter_mut().zip(products) {
            *sum += product as f64 * unit * unit;
        }
        Ok(())
    }

    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks a rule about no updates")]
    pub fn len(&self) -> usize {
        self.size
    }

    /// The inner product of updates `i` and `j`.
    #[must_use]
    pub fn product(&self, i: usize, j: usize) -> f64 {
        self.products[i * self.size + j]
    }

    /// Squared distance between updates `i` and `j`.
    #[must_use]
    pub fn squared_distance(&self, i: usize, j: usize) -> f64 {
        // Rounding may push the distance of nearly equal updates below 0.
        (self.product(i, i) - 2.0 * self.product(i, j) + self.product(j, j)).max(0.0)
    }

    /// The norm of update `i`.
    #[must_use]
    pub fn norm(&self, i: usize) -> f64 {
        self.product(i, i).max(0.0).sqrt()
    }

    /// Distance of each update from the weighted mean, where `weights` sum to 1.
    #[must_use]
    pub fn distances_from(&self, weights: &[f64]) -> Vec<f64> {
        // |x_i - v|² = Σ_j w_j |x_i - x_j|² - Σ_jk w_j w_k |x_j - x_k|² / 2 loses less to rounding than products do.
        let to_all =
            |i| weights.iter().enumerate().map(|(j, weight)| weight * self.squared_distance(i, j)).sum::<f64>();
        let spread: Vec<f64> = (0..self.size).map(to_all).collect();
        let inner: f64 = spread.iter().zip(weights).map(|(spread, weight)| spread * weight).sum::<f64>() / 2.0;
        spread.iter().map(|spread| (spread - inner).max(0.0).sqrt()).collect()
    }
}
