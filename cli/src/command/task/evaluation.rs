//! The result of an evaluation as tables.

use learning::analytics::{
    BinnedQuantile, CalibrationGroup, ClassFigures, ClassesFigures, EvaluationFigures, EvaluationState, NumberFigures,
};
use task_spec::TableColumn;

use crate::output::{Cells, Table, figure, number};

/// The figures of all rows, of each class, and of the sites. `label` has the words of classes.
pub(super) fn words(label: Option<&TableColumn>, state: &EvaluationState, width: Option<usize>) -> String {
    let mut parts = vec![match state.round {
        0 => "The model is not measured yet.".to_owned(),
        _ => format!("{} rows of {} participants.", number(state.rows), state.participants),
    }];
    parts.extend(state.problem.as_ref().map(|problem| format!("Problem: {problem}.")));
    let classes = Classes { label, width };
    let figure_of_site = match &state.figures {
        Some(EvaluationFigures::Classes(figures)) => {
            classes.add(figures, &mut parts);
            Some("accuracy")
        }
        Some(EvaluationFigures::Number(figures)) => {
            add_number(figures, width, &mut parts);
            Some("root mean squared error")
        }
        None => None,
    };
    if let (Some(name), [lower, middle, upper]) = (figure_of_site, &*state.sites) {
        parts.push(format!(
            "The {name} of a single site: median {}, quartiles {} and {}.",
            between(middle),
            between(lower),
            between(upper)
        ));
    }
    if let Some(noise) = state.count_noise {
        parts.push(format!("Noise: of 100 numbers of confused rows, 95 are at most {} off; other figures have noise, too, quantiles among them.", figure((1.96 * noise).ceil())));
    }
    let parts = parts.iter().map(|part| part.trim_end_matches('\n')).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n")
}

/// The interval of a quantile.
fn between(quantile: &BinnedQuantile) -> String {
    format!("{} to {}", figure(quantile.low), figure(quantile.high))
}

struct Classes<'a> {
    label: Option<&'a TableColumn>,
    width: Option<usize>,
}

impl Classes<'_> {
    fn word(&self, class: usize) -> String {
        let word = self.label.and_then(|label| label.one_of.get(class));
        word.cloned().unwrap_or_else(|| class.to_string())
    }

    fn add(&self, figures: &ClassesFigures, parts: &mut Vec<String>) {
        let ClassesFigures { accuracy, loss, brier, confusion, classes } = figures;
        parts.push(format!(
            "Accuracy {:.2} %; loss {} nats; Brier score {}.",
            100.0 * accuracy,
            figure(*loss),
            figure(*brier)
        ));
        if classes.is_empty() {
            return;
        }
        parts.push(self.by_class(classes));
        if confusion.len() <= 10 {
            parts.push(self.confusion(confusion));
        }
        // The second of two classes tells all.
        let first = usize::from(classes.len() == 2);
        let shown = classes.iter().enumerate().skip(first).filter(|(_, class)| !class.calibration.is_empty());
        for (at, class) in shown {
            let title = format!("PREDICTED {}", self.word(at));
            parts.push(calibration(&class.calibration, &title, "OBSERVED", self.width));
        }
    }

    fn by_class(&self, classes: &[ClassFigures]) -> String {
        let headings =
            ["ROWS", "SENSITIVITY", "SPECIFICITY", "PRECISION", "AUC", "CALIBRATION ERROR", "ITS PROBABILITY"];
        let headings = headings.map(|heading| (heading, Cells::Number));
        let columns: Vec<_> = std::iter::once(("CLASS", Cells::Text)).chain(headings).collect();
        let mut table = Table::new(&columns).dispensable(&["PRECISION", "CALIBRATION ERROR"]);
        for (at, class) in classes.iter().enumerate() {
            let share = |share: Option<f64>| share.map_or(String::new(), figure);
            let error = class.auc_error.map_or(String::new(), |error| format!(" ± {}", figure(error)));
            let auc = class.auc.map(|auc| figure(auc) + &error);
            let median = class.probability.iter().find(|quantile| quantile.of == 0.5);
            table.row(vec![
                self.word(at),
                number(class.rows),
                share(class.recall),
                share(class.specificity),
                share(class.precision),
                auc.unwrap_or_default(),
                figure(class.calibration_error),
                median.map_or(String::new(), between),
            ]);
        }
        table.render(self.width, "")
    }

    fn confusion(&self, confusion: &[Vec<u64>]) -> String {
        let headings: Vec<String> = (0..confusion.len()).map(|class| format!("AS {}", self.word(class))).collect();
        let headings = headings.iter().map(|heading| (heading.as_str(), Cells::Number));
        let mut table = Table::new(&std::iter::once(("CLASS", Cells::Text)).chain(headings).collect::<Vec<_>>());
        for (class, row) in confusion.iter().enumerate() {
            table.row(std::iter::once(self.word(class)).chain(row.iter().map(|&count| number(count))).collect());
        }
        table.render(self.width, "")
    }
}

fn calibration(groups: &[CalibrationGroup], predicted: &str, observed: &str, width: Option<usize>) -> String {
    let columns = ["FROM", "TO", "ROWS", predicted, observed].map(|heading| (heading, Cells::Number));
    let mut table = Table::new(&columns);
    for CalibrationGroup { low, high, rows, predicted, observed } in groups {
        let [low, high, predicted, observed] = [low, high, predicted, observed].map(|value| figure(*value));
        table.row(vec![low, high, number(*rows), predicted, observed]);
    }
    table.render(width, "")
}

fn add_number(figures: &NumberFigures, width: Option<usize>, parts: &mut Vec<String>) {
    let NumberFigures { rmse, mae, bias, r2, clipped, errors, calibration: groups } = figures;
    let explained = r2.map_or(String::new(), |r2| format!("; R² {}", figure(r2)));
    parts.push(format!(
        "Root mean squared error {}; mean absolute error {}; bias {}{explained}.",
        figure(*rmse),
        figure(*mae),
        figure(*bias)
    ));
    if *clipped > 0 {
        parts.push(format!("{} rows lie outside the task's range and count as its ends.", number(*clipped)));
    }
    let errors: Vec<_> = errors.iter().map(|error| format!("{}: {}", error.of, between(error))).collect();
    parts.push(format!("Quantiles of the absolute error: {}.", errors.join(", ")));
    parts.push(calibration(groups, "PREDICTED", "OBSERVED", width));
}
