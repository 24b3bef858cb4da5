//! A chart of one metric over rounds.

use crate::output::svg::{Curve, Svg};
use crate::output::{figure, number};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 444.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 216.0;
/// Spaces between the lines of an axis.
const STEPS: u8 = 4;

const CURVE: Curve = Curve { class: "metric", light: "#0b62c4", dark: "#6cb2ff", is_dashed: false };

/// A whole SVG document; `points` are round numbers, rising, and finite values; at least one. `name` is markup.
pub(super) fn draw(name: &str, points: &[(u32, f64)]) -> String {
    let values = || points.iter().map(|&(_, value)| value);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    // A flat line is in the middle.
    let (low, high) = if high > low { (low, high) } else { (low - 0.5, high + 0.5) };
    let (first, last) = (points.first().map_or(1, |point| point.0), points.last().map_or(1, |point| point.0));
    let span = f64::from(last - first).max(1.0);
    let x = |round: u32| LEFT + (RIGHT - LEFT) * f64::from(round - first) / span;
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * ((value - low) / (high - low)).clamp(0.0, 1.0);
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("{name} over rounds"), &[CURVE]);
    svg.heading(name, "");
    for step in 0..=STEPS {
        let value = low + (high - low) * f64::from(step) / f64::from(STEPS);
        svg.path("grid", &format!("M{LEFT} {:.1}H{RIGHT}", y(value)));
        svg.ending((LEFT - 8.0, y(value) + 4.5), &figure(value));
    }
    svg.path("axis", &format!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"));
    svg.centred((x(first), BOTTOM + 20.0), &number(first.into()));
    if last > first {
        svg.centred((x(last), BOTTOM + 20.0), &number(last.into()));
    }
    svg.centred(((LEFT + RIGHT) / 2.0, HEIGHT - 10.0), "round");
    svg.curve("curve metric", points.iter().map(|&(round, value)| (x(round), y(value))));
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_on_the_paper() {
        for points in [&[(1, 0.5)][..], &[(3, 0.2), (9, 0.2)], &[(1, -1e300), (2, 1e300)], &[(1, 0.0), (900, 1.0)]] {
            let svg = draw("loss", points);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
