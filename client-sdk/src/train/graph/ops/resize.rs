//! Images in other sizes.

use graph::{Resampling, ResizeCoordinates};

/// The positions that an element of the result is made of along an axis, with their weights.
type Sources = [(usize, f32); 2];

/// Sources of each position of a result of `to` positions in an axis of `from`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are below 2^28"
)]
pub(in crate::train::graph) fn sources(
    from: usize,
    to: usize,
    by: Resampling,
    coordinates: ResizeCoordinates,
) -> Vec<Sources> {
    let scale = from as f64 / to as f64;
    let last = from - 1;
    let source = |index: usize| {
        let position = match coordinates {
            ResizeCoordinates::HalfPixel => (index as f64 + 0.5) * scale - 0.5,
            ResizeCoordinates::Asymmetric => index as f64 * scale,
            ResizeCoordinates::AlignCorners if to == 1 => 0.0,
            ResizeCoordinates::AlignCorners => index as f64 * last as f64 / (to - 1) as f64,
        };
        let position = position.clamp(0.0, last as f64);
        let low = position.floor();
        match by {
            Resampling::Nearest => [(low as usize, 1.0), (0, 0.0)],
            Resampling::Linear => {
                let part = (position - low) as f32;
                [(low as usize, 1.0 - part), ((low as usize + 1).min(last), part)]
            }
        }
    };
    (0..to).map(source).collect()
}

/// Calls `visit` for each pair of an element of the result and an element of the input that it is made of.
fn each(
    shape: &[usize],
    result: &[usize],
    by: Resampling,
    coordinates: ResizeCoordinates,
    mut visit: impl FnMut(usize, usize, f32),
) {
    let pair = |sizes: &[usize]| match *sizes {
        [height, width] => [height, width],
        [width] => [1, width],
        _ => [1, 1],
    };
    let (from, to) = (pair(&shape[2..]), pair(&result[2..]));
    let (rows, columns) = (sources(from[0], to[0], by, coordinates), sources(from[1], to[1], by, coordinates));
    for plane in 0..shape[0] * shape[1] {
        for (y, rows) in rows.iter().enumerate() {
            for (x, columns) in columns.iter().enumerate() {
                let at = (plane * to[0] + y) * to[1] + x;
                for (row, of_row) in rows.iter().filter(|(_, weight)| *weight != 0.0) {
                    for (column, of_column) in columns.iter().filter(|(_, weight)| *weight != 0.0) {
                        visit(at, (plane * from[0] + row) * from[1] + column, of_row * of_column);
                    }
                }
            }
        }
    }
}

pub(super) fn resize(
    [shape, result]: [&[usize]; 2],
    by: Resampling,
    coordinates: ResizeCoordinates,
    x: &[f32],
    y: &mut [f32],
) {
    y.fill(0.0);
    each(shape, result, by, coordinates, |to, from, weight| y[to] += weight * x[from]);
}

pub(super) fn resize_back(
    [shape, result]: [&[usize]; 2],
    by: Resampling,
    coordinates: ResizeCoordinates,
    dy: &[f32],
    dx: &mut [f32],
) {
    each(shape, result, by, coordinates, |to, from, weight| dx[from] += weight * dy[to]);
}
