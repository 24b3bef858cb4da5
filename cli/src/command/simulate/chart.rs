//! A chart of accuracy against virtual time and bytes.

use simulation::{Point, Report};

use crate::output::svg::{Curve, Svg};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 400.0;
const TOP: f64 = 88.0;
const BOTTOM: f64 = 340.0;
/// Left and right end of both plots.
const PANELS: [(f64, f64); 2] = [(64.0, 456.0), (544.0, 936.0)];

const CURVE: Curve = Curve { class: "accuracy", light: "#0b62c4", dark: "#6cb2ff", is_dashed: false };

/// A whole SVG document.
pub(super) fn draw(report: &Report, subject: &str) -> String {
    let title = format!("Accuracy over virtual time and bytes: {subject}");
    let mut svg = Svg::new(WIDTH, HEIGHT, &title, &[CURVE]);
    let rounds = report.rounds_completed;
    let words = format!("{} devices, {rounds} rounds, {subject}", report.population);
    svg.heading("Accuracy of the published models", &words);
    let most = |of: fn(&Point) -> f64| report.curve.iter().map(of).fold(0.0, f64::max);
    let (unit, name) = time_unit(most(|point| point.seconds));
    let hours = Panel::new(PANELS[0], most(|point| point.seconds) / unit, format!("virtual time, {name}"));
    hours.draw(&mut svg, report.curve.iter().map(|point| (point.seconds / unit, point.accuracy)));
    #[expect(clippy::cast_precision_loss, reason = "a picture has fewer pixels")]
    let bytes = |point: &Point| point.bytes as f64;
    let (unit, name) = byte_unit(most(bytes));
    let carried = Panel::new(PANELS[1], most(bytes) / unit, format!("sent and received, {name}"));
    carried.draw(&mut svg, report.curve.iter().map(|point| (bytes(point) / unit, point.accuracy)));
    svg.finish()
}

struct Panel {
    left: f64,
    right: f64,
    step: f64,
    most: f64,
    label: String,
}

impl Panel {
    fn new((left, right): (f64, f64), most: f64, label: String) -> Self {
        let step = step(most);
        let most = if most > 0.0 { most } else { step };
        Self { left, right, step, most, label }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * (value / self.most).clamp(0.0, 1.0)
    }

    fn draw(&self, svg: &mut Svg, points: impl Iterator<Item = (f64, f64)>) {
        let Self { left, right, .. } = *self;
        for tick in 0..=5 {
            let accuracy = f64::from(tick) / 5.0;
            let y = y(accuracy);
            svg.path("grid", &format!("M{left} {y:.1}H{right}"));
            svg.ending((left - 8.0, y + 4.5), &format!("{:.0} %", 100.0 * accuracy));
        }
        let ticks = (0..=10).map(|tick| f64::from(tick) * self.step).take_while(|tick| *tick <= self.most * 1.000_001);
        for tick in ticks {
            let x = self.x(tick);
            svg.path("axis", &format!("M{x:.1} {BOTTOM}v5"));
            svg.centred((x, BOTTOM + 20.0), &format!("{}", (tick * 1e6).round() / 1e6));
        }
        svg.path("axis", &format!("M{left} {TOP}V{BOTTOM}H{right}"));
        svg.centred(((left + right) / 2.0, HEIGHT - 16.0), &self.label);
        svg.curve("curve accuracy", points.map(|(value, accuracy)| (self.x(value), y(accuracy))));
    }
}

fn y(accuracy: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * accuracy.clamp(0.0, 1.0)
}

/// 1, 2 or 5 times a power of ten, so that there are at most ten steps.
fn step(most: f64) -> f64 {
    if most.is_nan() || most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf((most / 10.0).log10().floor());
    [1.0, 2.0, 5.0].map(|digit| digit * power).into_iter().find(|step| most / step <= 10.0).unwrap_or(10.0 * power)
}

fn time_unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s >= 2.0 * 86_400.0 => (86_400.0, "days"),
        s if s >= 2.0 * 3600.0 => (3600.0, "hours"),
        s if s >= 120.0 => (60.0, "minutes"),
        _ => (1.0, "seconds"),
    }
}

fn byte_unit(bytes: f64) -> (f64, &'static str) {
    match bytes {
        b if b >= 2e9 => (1e9, "GB"),
        b if b >= 2e6 => (1e6, "MB"),
        _ => (1e3, "kB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for most in [0.3, 1.0, 7.0, 9.99, 23.0, 170.0, 4.2e9] {
            let step = step(most);
            assert!((2.0..=10.0).contains(&(most / step)), "{most}: {step}");
        }
        assert_eq!((step(0.0), step(f64::NAN)), (1.0, 1.0));
    }

    #[test]
    fn a_curve_without_length_is_on_the_paper() {
        let panel = Panel::new(PANELS[0], 0.0, "x".to_owned());
        let mut svg = Svg::new(WIDTH, HEIGHT, "nothing", &[CURVE]);
        panel.draw(&mut svg, [(0.0, 0.1)].into_iter());
        let svg = svg.finish();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
