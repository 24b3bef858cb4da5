//! A chart of epsilon over rounds.
//!
//! Epsilon is on a logarithmic axis, since observers that know the cohorts often learn a hundred times as much as
//! others.

use learning::privacy::Epsilons;

use crate::output::svg::{Curve, Svg};
use crate::output::{figure, number};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 696.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 388.0;
/// Maximum powers of ten on the axis; lower values are drawn on it.
const DECADES_MAX: f64 = 8.0;

const PUBLISHED: Curve = Curve { class: "published", light: "#0b62c4", dark: "#6cb2ff", is_dashed: false };
const COHORT_KNOWN: Curve = Curve { class: "cohort_known", light: "#b45309", dark: "#f5a742", is_dashed: true };

/// A whole SVG document. `points` are numbers of rounds (or of the unit `what`), rising, with the epsilons after them;
/// at least one.
pub(super) fn epsilon_over(what: &str, points: &[(u32, Epsilons)], subject: &str, delta: f64) -> String {
    let rounds = points.last().map_or(1, |&(rounds, _)| rounds);
    let scale = Scale::of(points, rounds);
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("Epsilon over {what}: {subject}"), &[PUBLISHED, COHORT_KNOWN]);
    svg.heading(&format!("ε over {what} at δ = {delta:e}"), subject);
    svg.centred(((LEFT + RIGHT) / 2.0, HEIGHT - 12.0), what);
    svg.text((16.0, TOP - 8.0), "ε");
    for tick in scale.epsilon_ticks() {
        let y = scale.y(tick);
        svg.path("grid", &format!("M{LEFT} {y:.1}H{RIGHT}"));
        svg.ending((LEFT - 8.0, y + 4.5), &figure(tick));
    }
    for tick in round_ticks(rounds) {
        let x = scale.x(tick);
        svg.path("axis", &format!("M{x:.1} {BOTTOM}v5"));
        svg.centred((x, BOTTOM + 20.0), &number(tick.into()));
    }
    svg.path("axis", &format!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"));
    // The dashes of the second show the first where they are the same.
    scale.curve(&mut svg, PUBLISHED.class, points, |epsilons| epsilons.published, LEFT + 36.0);
    scale.curve(&mut svg, COHORT_KNOWN.class, points, |epsilons| epsilons.cohort_known, LEFT + 286.0);
    svg.finish()
}

/// Maps rounds and epsilons to coordinates.
struct Scale {
    rounds: f64,
    /// Logarithms to base 10 of both ends of the axis.
    low: f64,
    high: f64,
}

impl Scale {
    fn of(points: &[(u32, Epsilons)], rounds: u32) -> Self {
        let values = || {
            let both = |(_, epsilons): &(u32, Epsilons)| [epsilons.published, epsilons.cohort_known];
            points.iter().flat_map(both).filter(|value| value.is_finite() && *value > 0.0)
        };
        let highest = values().fold(f64::NAN, f64::max);
        // All epsilons may be 0, if delta allows everything.
        let highest = if highest.is_nan() { 1.0 } else { highest };
        let lowest = values().fold(highest, f64::min).max(highest * 10_f64.powf(-DECADES_MAX));
        let low = steps(lowest).filter(|step| *step <= lowest).fold(f64::NAN, f64::max);
        let high = steps(highest).filter(|step| *step > highest).fold(f64::NAN, f64::min);
        Self { rounds: f64::from(rounds), low: low.log10(), high: high.log10() }
    }

    fn x(&self, rounds: u32) -> f64 {
        LEFT + (RIGHT - LEFT) * f64::from(rounds) / self.rounds
    }

    fn y(&self, epsilon: f64) -> f64 {
        let up = (epsilon.log10() - self.low) / (self.high - self.low);
        BOTTOM - (BOTTOM - TOP) * up.clamp(0.0, 1.0)
    }

    /// 1, 2 and 5 times powers of ten, or those powers alone where that would be too many.
    fn epsilon_ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low - 1e-9, self.high + 1e-9);
        let mut ticks: Vec<f64> = Vec::new();
        for step in (-12..=14).flat_map(|power| steps(10_f64.powi(power)).skip(3).take(3)) {
            if (low..=high).contains(&step.log10()) {
                ticks.push(step);
            }
        }
        if ticks.len() > 9 {
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
        }
        ticks
    }

    /// Draws a curve, and its label above the plot from `x` on.
    fn curve(&self, svg: &mut Svg, name: &str, points: &[(u32, Epsilons)], of: fn(&Epsilons) -> f64, x: f64) {
        let class = format!("curve {name}");
        svg.curve(&class, points.iter().map(|(rounds, epsilons)| (self.x(*rounds), self.y(of(epsilons)))));
        let last = points.last().map_or(0.0, |(_, epsilons)| of(epsilons));
        let y = TOP - 14.0;
        svg.path(&class, &format!("M{x:.1} {y:.1}h28"));
        svg.text((x + 36.0, y + 4.5), &format!("{name}: {} at the end", figure(last)));
    }
}

/// 1, 2 and 5 times the power of ten below `value`, of its own and of the one above.
fn steps(value: f64) -> impl Iterator<Item = f64> {
    let power = value.log10().floor();
    (-1..=1).flat_map(move |shift| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powf(power + f64::from(shift))))
}

/// At most nine numbers of rounds, evenly spaced, from 0.
fn round_ticks(rounds: u32) -> impl Iterator<Item = u32> {
    let steps = (0..10).flat_map(|power| [1, 2, 5].map(|digit| 10_u64.pow(power) * digit));
    let step = steps.map(|step| u32::try_from(step).unwrap_or(u32::MAX)).find(|step| rounds / step <= 8);
    (0..=8).map(move |count| count * step.unwrap_or(rounds)).take_while(move |tick| *tick <= rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epsilons(published: f64, cohort_known: f64) -> Epsilons {
        Epsilons { published, cohort_known, server: None, server_reason: None, closeness: None, cohort_closeness: None }
    }

    #[test]
    fn ticks_are_round_numbers_that_enclose_the_curves() {
        let scale = Scale::of(&[(1, epsilons(0.3, 1.2)), (60, epsilons(7.99, 70.0))], 60);
        let ticks: Vec<String> = scale.epsilon_ticks().into_iter().map(figure).collect();
        assert_eq!(ticks, ["0.2", "0.5", "1", "2", "5", "10", "20", "50", "100"]);
        assert!((scale.y(0.2) - BOTTOM).abs() < 1e-6 && (scale.y(100.0) - TOP).abs() < 1e-6);
        assert_eq!(round_ticks(60).collect::<Vec<_>>(), [0, 10, 20, 30, 40, 50, 60]);
        assert_eq!(round_ticks(1).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(round_ticks(1_000_000).last(), Some(1_000_000));
        assert!(round_ticks(14_062).count() <= 9);
    }

    #[test]
    fn every_point_is_on_the_paper() {
        for values in [[0.0, 0.0], [0.0, 3.0], [1.0, 1.0], [1e-30, 1e9], [f64::INFINITY, 2.0]] {
            let points = [(1, epsilons(values[0], values[1]))];
            let svg = epsilon_over("rounds", &points, "one round", 1e-5);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let scale = Scale::of(&points, 1);
            assert!(values.iter().all(|value| (TOP..=BOTTOM).contains(&scale.y(*value))), "{values:?}");
            assert!((2..=12).contains(&scale.epsilon_ticks().len()), "{values:?} {:?}", scale.epsilon_ticks());
        }
    }
}
