//! The bar below `round watch`: how far the present phase of a round has come.

use indicatif::{ProgressBar, ProgressStyle};
use wire::inspect::{PhaseView, RoundView};

use crate::output::when;

/// The same bar, drawn as this command draws it.
pub(super) fn styled(bar: ProgressBar) -> ProgressBar {
    match ProgressStyle::with_template("{msg} {bar:30} {pos} of {len}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Shows how far the present phase has come: how many participants it counts, of the number at which it closes.
pub(super) fn show(bar: &ProgressBar, round: &RoundView) {
    let Some(PhaseView { state, count, min, max, deadline_at, .. }) = round.phases.last() else { return };
    let until = deadline_at.map(|at| format!(", until {} at the latest", when(at))).unwrap_or_default();
    bar.set_length(max.or(*min).unwrap_or(round.cohort).into());
    bar.set_position(count.unwrap_or(0).into());
    bar.set_message(format!("round {} {state}{until}", round.number));
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressDrawTarget, TermLike};
    use serde_json::{Value, json};

    use super::*;

    /// The line of a terminal on which the bar is.
    #[derive(Clone, Debug, Default)]
    struct Line(Arc<Mutex<String>>);

    impl TermLike for Line {
        fn width(&self) -> u16 {
            120
        }

        fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
            assert_eq!(lines, 0, "the bar is one line");
            Ok(())
        }

        fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
            self.move_cursor_up(lines)
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn round(phases: &Value) -> RoundView {
        serde_json::from_value(json!({
            "task": "01934c2e-7d3a-7b1c-9f00-0123456789ab", "number": 3, "attempt": 1, "state": "COLLECTING", "phases": phases,
            "cohort": 10, "reported": 3, "dropped": 0, "dropped_why": {}, "bytes_up": 0, "bytes_down": 0, "metrics": {},
            "base": { "version": 2, "sha256": "0".repeat(64) }, "opened_at": 0, "seconds": 1.0,
        }))
        .unwrap()
    }

    #[test]
    fn the_bar_says_which_phase_it_is_and_how_far_that_has_come() {
        let line = Line::default();
        let target = ProgressDrawTarget::term_like(Box::new(line.clone()));
        let bar = styled(ProgressBar::with_draw_target(Some(0), target));
        let shown = |phases: Value| {
            show(&bar, &round(&phases));
            line.0.lock().unwrap().trim_end().to_owned()
        };
        let filled = |cells: usize| "█".repeat(cells) + &"░".repeat(30 - cells);
        let dealing = json!({ "state": "SHARING", "started_at": 0, "ended_at": 5, "min": 4, "count": 1 });
        assert_eq!(shown(json!([dealing])), format!("round 3 SHARING {} 1 of 4", filled(7)));
        let collecting = json!({
            "state": "COLLECTING", "started_at": 5, "deadline_at": 1_700_000_000_000_i64, "min": 2, "max": 6, "count": 3,
        });
        let until = "until 2023-11-14 22:13:20Z at the latest";
        let expected = format!("round 3 COLLECTING, {until} {} 3 of 6", filled(15));
        assert_eq!(shown(json!([dealing, collecting])), expected);
        let summing = json!({ "state": "AGGREGATING", "started_at": 9, "count": 10 });
        assert_eq!(shown(json!([collecting, summing])), format!("round 3 AGGREGATING {} 10 of 10", filled(30)));
        let waiting = json!({ "state": "SELECTING", "started_at": 0, "min": 3 });
        assert_eq!(shown(json!([waiting])), format!("round 3 SELECTING {} 0 of 3", filled(0)));
        assert!(shown(json!([])).starts_with("round 3 SELECTING"), "of no phase there is nothing to show");
        bar.finish_and_clear();
        assert_eq!(*line.0.lock().unwrap(), "", "nothing stays behind");
    }
}
