//! Krum and multi-Krum (Blanchard, El Mhamdi, Guerraoui and Stainer, NeurIPS 2017, §4).

use super::Gram;

/// The score of each update: the sum of its squared distances to its n - f - 2 nearest others. `gram` has at least f + 3.
#[must_use]
pub fn scores(gram: &Gram, attackers: usize) -> Vec<f64> {
    let neighbours = gram.len() - attackers - 2;
    (0..gram.len())
        .map(|i| {
            let others = (0..gram.len()).filter(|&j| j != i);
            let mut distances: Vec<_> = others.map(|j| gram.squared_distance(i, j)).collect();
            distances.sort_by(f64::total_cmp);
            distances.iter().take(neighbours).sum()
        })
        .collect()
}

/// Equal weights for the `keep` updates with the lowest scores; ties go to the smaller norm.
pub(super) fn weights(gram: &Gram, attackers: usize, keep: usize) -> Vec<f64> {
    let scores = scores(gram, attackers);
    let mut order: Vec<_> = (0..gram.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]).then(gram.product(a, a).total_cmp(&gram.product(b, b))));
    let mut weights = vec![0.0; gram.len()];
    for &kept in order.iter().take(keep) {
        weights[kept] = 1.0 / f64::from(super::counted::count(keep.min(gram.len())));
    }
    weights
}
