//! A chart of Kaplan-Meier curves.

use learning::analytics::SurvivalCurve;

use crate::output::svg::{Curve, Svg};
use crate::output::{figure, markup};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 332.0;
/// Spaces between the lines of an axis.
const STEPS: u8 = 4;

/// Colours of groups, which repeat dashed: safe for colour-blind readers (Okabe and Ito 2008).
const COLOURS: [(&str, &str); 5] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8a3d"),
    ("#009e73", "#2fd0a5"),
    ("#aa4499", "#e08ad0"),
    ("#7a5c00", "#e6c34a"),
];
const CLASSES: [&str; 10] = ["km0", "km1", "km2", "km3", "km4", "km5", "km6", "km7", "km8", "km9"];

/// A whole SVG document: the shares that survive, as steps; at most ten groups. Empty without points.
pub(super) fn draw(groups: &[SurvivalCurve], names: &[String]) -> String {
    let last = groups.iter().flat_map(|group| &group.points).map(|point| point.time).fold(0.0, f64::max);
    if last <= 0.0 {
        return String::new();
    }
    let styles: Vec<Curve> = CLASSES
        .iter()
        .enumerate()
        .map(|(at, &class)| {
            let (light, dark) = COLOURS[at % COLOURS.len()];
            Curve { class, light, dark, is_dashed: at >= COLOURS.len() }
        })
        .collect();
    let x = |time: f64| LEFT + (RIGHT - LEFT) * time / last;
    let y = |share: f64| BOTTOM - (BOTTOM - TOP) * share.clamp(0.0, 1.0);
    let mut svg = Svg::new(WIDTH, HEIGHT, "Kaplan-Meier curves", &styles);
    svg.heading("Share that survives", "");
    for step in 0..=STEPS {
        let share = f64::from(step) / f64::from(STEPS);
        svg.path("grid", &format!("M{LEFT} {:.1}H{RIGHT}", y(share)));
        svg.ending((LEFT - 8.0, y(share) + 4.5), &figure(share));
    }
    let step = round_step(last / f64::from(STEPS + 1));
    for tick in (0..=2 * STEPS).map(|tick| f64::from(tick) * step).take_while(|time| *time <= last) {
        svg.centred((x(tick), BOTTOM + 20.0), &figure(tick));
    }
    svg.path("axis", &format!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"));
    svg.centred((f64::midpoint(LEFT, RIGHT), HEIGHT - 10.0), "time");
    for (at, (group, class)) in groups.iter().zip(CLASSES).enumerate() {
        let mut corners = vec![(x(0.0), y(1.0))];
        let mut height = 1.0;
        for point in &group.points {
            corners.extend([(x(point.time), y(height)), (x(point.time), y(point.survival))]);
            height = point.survival;
        }
        svg.curve(&format!("curve {class}"), corners.into_iter());
        if let Some(name) = names.get(at).filter(|name| !name.is_empty()) {
            let line = TOP + 8.0 + 24.0 * at as f64;
            svg.curve(&format!("curve {class}"), [(RIGHT + 16.0, line), (RIGHT + 40.0, line)].into_iter());
            svg.text((RIGHT + 48.0, line + 4.5), &markup(name));
        }
    }
    svg.finish()
}

/// The least of 1, 2 and 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use learning::analytics::SurvivalPoint;

    use super::*;

    fn group(shares: &[(f64, f64)]) -> SurvivalCurve {
        let point = |&(time, survival): &(f64, f64)| SurvivalPoint {
            time,
            at_risk: 10,
            events: 1,
            survival,
            standard_error: 0.1,
            low: 0.0,
            high: 1.0,
        };
        SurvivalCurve { rows: 10, events: 3, median: None, points: shares.iter().map(point).collect() }
    }

    #[test]
    fn curves_are_steps_from_one() {
        let svg =
            draw(&[group(&[(5.0, 0.5), (10.0, 0.25)]), group(&[(2.5, 0.0)])], &["<a>".to_owned(), "b".to_owned()]);
        assert!(svg.contains("d=\"M64.0 44.0L64.0 44.0L312.0 44.0L312.0 188.0L560.0 188.0L560.0 260.0\""), "{svg}");
        assert!(svg.contains("&lt;a&gt;") && svg.contains("class=\"curve km1\""), "{svg}");
        assert_eq!(draw(&[group(&[])], &[]), "");
        assert_eq!([0.3, 71.0, 100.0, 2e-5].map(round_step), [0.5, 100.0, 100.0, 2e-5]);
    }
}
