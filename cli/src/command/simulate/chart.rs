//! Accuracy against virtual time and against bytes, as a picture: SVG written by hand, in the colours of whoever looks at it,
//! light or dark.

use std::fmt::Write as _;

use simulation::{Point, Report};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 400.0;
const TOP: f64 = 88.0;
const BOTTOM: f64 = 340.0;
/// Left and right end of both plots.
const PANELS: [(f64, f64); 2] = [(64.0, 456.0), (544.0, 936.0)];

/// Without variables, which not every program that shows SVG knows; one without media queries shows the light colours.
const STYLE: &str = "\
text { fill: #1f2328; font: 13px system-ui, sans-serif; }
.heading { font-size: 15px; font-weight: 600; }
.paper { fill: #ffffff; }
.axis { fill: none; stroke: #1f2328; }
.grid { stroke: #d5d9de; }
.curve { fill: none; stroke: #0b62c4; stroke-width: 2.5; stroke-linecap: round; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb; }
  .paper { fill: #15191e; }
  .axis { stroke: #e4e7eb; }
  .grid { stroke: #39414a; }
  .curve { stroke: #6cb2ff; }
}
";

/// A whole SVG document.
pub(super) fn draw(report: &Report, subject: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\">\n<title>Accuracy over virtual time and bytes: {subject}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"
    );
    text(&mut svg, 16.0, 26.0, " class=\"heading\"", "Accuracy of the published models");
    let rounds = report.rounds_completed;
    let words = format!("{} devices, {rounds} rounds, {subject}", report.population);
    text(&mut svg, 16.0, 46.0, "", &words);
    let most = |of: fn(&Point) -> f64| report.curve.iter().map(of).fold(0.0, f64::max);
    let (unit, name) = time_unit(most(|point| point.seconds));
    let hours = Panel::new(PANELS[0], most(|point| point.seconds) / unit, format!("virtual time, {name}"));
    hours.draw(&mut svg, report.curve.iter().map(|point| (point.seconds / unit, point.accuracy)));
    #[expect(clippy::cast_precision_loss, reason = "a picture has fewer pixels")]
    let bytes = |point: &Point| point.bytes as f64;
    let (unit, name) = byte_unit(most(bytes));
    let carried = Panel::new(PANELS[1], most(bytes) / unit, format!("sent and received, {name}"));
    carried.draw(&mut svg, report.curve.iter().map(|point| (bytes(point) / unit, point.accuracy)));
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, x: f64, y: f64, more: &str, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\"{more}>{words}</text>");
}

/// One plot.
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

    fn draw(&self, svg: &mut String, points: impl Iterator<Item = (f64, f64)>) {
        let Self { left, right, .. } = *self;
        for tick in 0..=5 {
            let accuracy = f64::from(tick) / 5.0;
            let y = y(accuracy);
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>");
            let words = format!("{:.0} %", 100.0 * accuracy);
            text(svg, left - 8.0, y + 4.5, " text-anchor=\"end\"", &words);
        }
        let ticks = (0..=10).map(|tick| f64::from(tick) * self.step).take_while(|tick| *tick <= self.most * 1.000_001);
        for tick in ticks {
            let x = self.x(tick);
            let _ = writeln!(svg, "<path class=\"axis\" d=\"M{x:.1} {BOTTOM}v5\"/>");
            text(svg, x, BOTTOM + 20.0, " text-anchor=\"middle\"", &format!("{}", (tick * 1e6).round() / 1e6));
        }
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{left} {TOP}V{BOTTOM}H{right}\"/>");
        text(svg, (left + right) / 2.0, HEIGHT - 16.0, " text-anchor=\"middle\"", &self.label);
        let mut line = String::new();
        for (index, (value, accuracy)) in points.enumerate() {
            let (x, y) = (self.x(value), y(accuracy));
            if index == 0 {
                let _ = write!(line, "M{x:.1} {y:.1}");
            }
            let _ = write!(line, "L{x:.1} {y:.1}");
        }
        let _ = writeln!(svg, "<path class=\"curve\" d=\"{line}\"/>");
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
        let mut svg = String::new();
        panel.draw(&mut svg, [(0.0, 0.1)].into_iter());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
