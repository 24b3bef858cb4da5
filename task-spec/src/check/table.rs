//! The columns of a table: each named once, and of one kind.

use std::collections::BTreeSet;

use graph::{GraphModel, Loss};

use crate::problem::Checks;
use crate::{EmptyCell, MAX_TABLE_COLUMNS, MAX_TABLE_WORDS, TableColumn, TableSpec, TaskSpec};

const MAX_WORD_BYTES: usize = 256;
const LABEL: &str = "model.table.label";
const ONE_OF: &str = "model.table.label.one_of";

impl TaskSpec {
    /// `graph`: the model, if it is one.
    pub(super) fn check_table(&self, table: &TableSpec, graph: Option<&GraphModel>, checks: &mut Checks) {
        checks.require(
            (1..=MAX_TABLE_COLUMNS).contains(&table.features.len()),
            "model.table.features",
            "must name 1 to 4096 columns",
        );
        let is_analysis = self.analyses_rows();
        let mut seen = BTreeSet::new();
        for (index, feature) in table.features.iter().enumerate() {
            let field = format!("model.table.features[{index}]");
            check_column(feature, &field, is_analysis, checks);
            check_holes(feature, &field, checks);
            checks.require_with(seen.insert(&feature.column), &field, || {
                format!("names `{}` again; each column must be named once", feature.column)
            });
        }
        match &table.label {
            Some(label) => {
                check_column(label, LABEL, is_analysis, checks);
                checks.require_with(!seen.contains(&label.column), LABEL, || {
                    format!("is `{}`, which is among the features: what is predicted must not be known", label.column)
                });
                checks.require(
                    !label.has_holes(),
                    LABEL,
                    "must not have missing, mean, median or other: a label is not made up; `skip_rows_up_to` leaves out rows \
                     without one",
                );
                if !is_analysis {
                    check_label(label, graph, checks);
                }
            }
            None => checks.require(is_analysis, LABEL, "must name the column that the model predicts"),
        }
    }
}

/// Checks that the model can predict the label.
fn check_label(label: &TableColumn, graph: Option<&GraphModel>, checks: &mut Checks) {
    let words = label.one_of.len();
    let is_number = words == 0;
    checks.require(is_number || words >= 2, ONE_OF, "must list at least 2 classes: a model tells classes apart");
    let Some(graph) = graph else {
        let detail = "must list at least 2 classes; a model that predicts a number is a graph, which `tributary` makes of \
                      `linear` and `mlp`";
        return checks.require(!is_number, ONE_OF, detail);
    };
    let loss = graph.loss().name();
    match (graph.loss(), graph.classes()) {
        (_, Some(classes)) => checks.require_with(is_number || words == classes, ONE_OF, || {
            format!("lists {words} classes, and the graph has scores for {classes}")
        }),
        (Loss::BceWithLogits { .. }, None) => {
            checks.require_with(words == 2, ONE_OF, || format!("must list 2 words, no and yes: the loss is {loss}"))
        }
        (_, None) => checks
            .require_with(is_number, ONE_OF, || format!("must be left out: the loss is {loss}, which is of numbers")),
    }
    checks.require_with(!is_number || graph.classes().is_none(), "model.architecture", || {
        format!("minimizes {loss}, and the label is a number: its loss must be mse, huber or poisson")
    });
    let is_scaled = label.range().is_some();
    checks.require(
        !(is_scaled && matches!(graph.loss(), Loss::Poisson)),
        LABEL,
        "must not have low and high: poisson is the loss of counts, which are not scaled",
    );
}

/// Checks what becomes of cells that are empty or hold other words.
fn check_holes(column: &TableColumn, field: &str, checks: &mut Checks) {
    let TableColumn { column: _, low: _, high: _, one_of, other, missing: _, mean, median } = column;
    checks.require(!other || !one_of.is_empty(), field, "must not have other: it is for words (one_of)");
    let has_figures = mean.is_some() || median.is_some();
    checks.require(one_of.is_empty() || !has_figures, field, "must not have mean or median: the column has words");
    let is_within = |number: f64| {
        number.abs() <= f64::from(f32::MAX) && column.range().is_none_or(|(low, high)| (low..=high).contains(&number))
    };
    for (name, figure) in [("mean", mean), ("median", median)] {
        let is_good = figure.is_none_or(is_within);
        checks.require_with(is_good, field, || format!("has a {name} that is not a number from low to high"));
    }
    match column.empty_cell() {
        Err(problem) => checks.require_with(false, field, || problem),
        Ok(EmptyCell::Number(number)) => {
            checks.require_with(is_within(number), field, || {
                format!("puts {number} in the place of empty cells, which is not a number from low to high")
            });
        }
        Ok(EmptyCell::Refused | EmptyCell::Word(_) | EmptyCell::Indicated(_)) => {}
    }
}

fn check_column(column: &TableColumn, field: &str, is_analysis: bool, checks: &mut Checks) {
    let TableColumn { column: name, low, high, one_of, .. } = column;
    checks.require((1..=MAX_WORD_BYTES).contains(&name.len()), field, "column must be a name of 1 to 256 bytes");
    let is_short = |word: &String| (1..=MAX_WORD_BYTES).contains(&word.len());
    checks.require(
        one_of.len() <= MAX_TABLE_WORDS && one_of.iter().all(is_short),
        field,
        "one_of must list at most 1024 words of 1 to 256 bytes each",
    );
    let different: BTreeSet<_> = one_of.iter().collect();
    checks.require(different.len() == one_of.len(), field, "one_of must list each word once");
    let has_range = low.is_some() || high.is_some();
    let is_range = matches!((low, high), (Some(low), Some(high)) if low.is_finite() && high.is_finite() && low < high);
    checks.require(
        !has_range || is_range,
        field,
        "needs both low and high, finite, low below high; or neither of them",
    );
    checks.require(!has_range || one_of.is_empty(), field, "has numbers (low, high) or words (one_of), not both");
    checks.require(!has_range || !is_analysis, field, "must not have low and high: an analysis has its own ranges");
}

#[cfg(test)]
mod tests {
    use crate::{Deployment, TaskSpec};

    fn problems(table: &str, rest: &str) -> Vec<String> {
        let text = format!(
            "name = \"t\"\n{rest}\n[model]\n{}[model.table]\n{table}\n[selection]\ncohort = {{ count = 10 }}\n",
            if rest.is_empty() { "tensors = [{ name = \"w\", shape = [2] }]\n" } else { "" }
        );
        let spec: TaskSpec = toml::from_str(&text).unwrap();
        let found = spec.check(&Deployment { poll_interval_ms: 1000 }).err().unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    }

    const LABEL: &str = "label = { column = \"sick\", one_of = [\"no\", \"yes\"] }";

    #[test]
    fn columns_of_numbers_and_words_are_taken() {
        let table = format!(
            "features = [{{ column = \"age\", low = 0, high = 120 }}, {{ column = \"ward\", one_of = [\"a\", \"b\", \"c\"] }}]\n{LABEL}"
        );
        assert_eq!(problems(&table, ""), [""; 0]);
        let spec: crate::TableSpec = toml::from_str(&table).unwrap();
        assert_eq!((spec.width(), spec.classes()), (4, Some(2)));
    }

    #[test]
    fn an_analysis_may_have_a_table_without_a_label_or_with_a_number_as_label() {
        let analytics = "[analytics]\nkind = \"k_means\"";
        let about_table = |table: &str| {
            problems(table, analytics).into_iter().filter(|problem| problem.starts_with("model")).collect::<Vec<_>>()
        };
        assert_eq!(about_table("features = [{ column = \"age\" }]"), [""; 0]);
        assert_eq!(about_table("features = [{ column = \"age\" }]\nlabel = { column = \"days\" }"), [""; 0]);
        let ranged = about_table("features = [{ column = \"age\", low = 0, high = 1 }]");
        assert!(ranged[0].contains("its own ranges"), "{ranged:?}");
    }

    #[test]
    fn rules_for_holes_are_taken() {
        let table = format!(
            "features = [{{ column = \"age\", low = 0, high = 120, missing = \"median\", median = 60 }}, \
             {{ column = \"ward\", one_of = [\"a\", \"b\"], other = true, missing = \"indicator\" }}]\n{LABEL}\n\
             skip_rows_up_to = \"1 %\""
        );
        assert_eq!(problems(&table, ""), [""; 0]);
        let spec: crate::TableSpec = toml::from_str(&table).unwrap();
        assert_eq!(spec.width(), 5);
        let written = toml::to_string(&spec).unwrap();
        assert_eq!(toml::from_str::<crate::TableSpec>(&written).unwrap(), spec, "{written}");
    }

    /// Problems of a table for a graph of one input and one output that minimizes this loss.
    fn problems_of_graph(label: &str, loss: &str, outputs: u32) -> Vec<String> {
        let input = "{ name = \"x\", element = \"f32\", shape = [{ factor = 1, batch = 1 }, { offset = 1 }] }";
        let text = format!(
            "name = \"t\"\n[model]\ntensors = [{{ name = \"w\", shape = [1, {outputs}] }}]\n[model.architecture]\nkind = \"graph\"\n\
             loss = {{ kind = \"{loss}\" }}\n[model.architecture.graph]\nversion = 1\ninputs = [{input}]\n\
             parameters = [{{ name = \"w\", shape = [1, {outputs}] }}]\nnodes = [{{ do = \"mat_mul\", of = [0, 1] }}]\n\
             outputs = [{{ name = \"y\", value = 2 }}]\n[model.table]\nfeatures = [{{ column = \"age\" }}]\n\
             label = {{ column = \"y\", {label} }}\n[selection]\ncohort = {{ count = 10 }}\n"
        );
        let spec: TaskSpec = toml::from_str(&text).unwrap();
        let found = spec.check(&Deployment { poll_interval_ms: 1000 }).err().unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn labels_fit_the_loss_of_a_graph() {
        let words = "one_of = [\"no\", \"yes\"]";
        let number = "one_of = []";
        for (label, loss, outputs, problem) in [
            (number, "mse", 1, ""),
            ("low = 0, high = 9", "huber", 1, ""),
            (number, "poisson", 1, ""),
            (words, "bce_with_logits", 1, ""),
            (words, "cross_entropy", 2, ""),
            (words, "mse", 1, "model.table.label.one_of: must be left out: the loss is mse"),
            (number, "bce_with_logits", 1, "model.table.label.one_of: must list 2 words"),
            (words, "cross_entropy", 3, "model.table.label.one_of: lists 2 classes, and the graph has scores for 3"),
            (number, "cross_entropy", 2, "model.architecture: minimizes cross_entropy, and the label is a number"),
            ("low = 0, high = 9", "poisson", 1, "model.table.label: must not have low and high: poisson"),
        ] {
            let found = problems_of_graph(label, loss, outputs);
            let is_there = found.iter().any(|found| found.starts_with(problem));
            assert!(if problem.is_empty() { found.is_empty() } else { is_there }, "{label} {loss}: {found:?}");
        }
    }

    #[test]
    fn each_mistake_is_named_at_its_column() {
        for (table, field, words) in [
            (format!("features = []\n{LABEL}"), "model.table.features", "1 to 4096"),
            ("features = [{ column = \"age\" }]".to_owned(), "model.table.label", "must name the column"),
            (
                "features = [{ column = \"age\" }]\nlabel = { column = \"sick\" }".to_owned(),
                "model.table.label.one_of",
                "at least 2",
            ),
            (
                "features = [{ column = \"age\" }]\nlabel = { column = \"age\", one_of = [\"a\", \"b\"] }".to_owned(),
                "model.table.label",
                "among the features",
            ),
            (
                format!("features = [{{ column = \"age\" }}, {{ column = \"age\" }}]\n{LABEL}"),
                "model.table.features[1]",
                "`age` again",
            ),
            (format!("features = [{{ column = \"\" }}]\n{LABEL}"), "model.table.features[0]", "1 to 256"),
            (format!("features = [{{ column = \"age\", low = 0 }}]\n{LABEL}"), "model.table.features[0]", "both"),
            (
                format!("features = [{{ column = \"age\", low = 2, high = 1 }}]\n{LABEL}"),
                "model.table.features[0]",
                "low below high",
            ),
            (
                format!("features = [{{ column = \"age\", low = 0, high = 1, one_of = [\"a\"] }}]\n{LABEL}"),
                "model.table.features[0]",
                "not both",
            ),
            (
                format!("features = [{{ column = \"age\", one_of = [\"a\", \"a\"] }}]\n{LABEL}"),
                "model.table.features[0]",
                "once",
            ),
            (format!("features = [{{ column = \"age\", other = true }}]\n{LABEL}"), "model.table.features[0]", "one_of"),
            (
                format!("features = [{{ column = \"age\", missing = \"mean\" }}]\n{LABEL}"),
                "model.table.features[0]",
                "tributary task table --from",
            ),
            (
                format!("features = [{{ column = \"age\", low = 0, high = 9, missing = 10 }}]\n{LABEL}"),
                "model.table.features[0]",
                "puts 10 in the place",
            ),
            (
                format!("features = [{{ column = \"age\", low = 0, high = 9, mean = 10 }}]\n{LABEL}"),
                "model.table.features[0]",
                "has a mean",
            ),
            (
                format!("features = [{{ column = \"age\", one_of = [\"a\"], median = 1 }}]\n{LABEL}"),
                "model.table.features[0]",
                "the column has words",
            ),
            (
                "features = [{ column = \"age\" }]\nlabel = { column = \"sick\", one_of = [\"a\", \"b\"], missing = \"a\" }"
                    .to_owned(),
                "model.table.label",
                "a label is not made up",
            ),
        ] {
            let found = problems(&table, "");
            let expected = format!("{field}: ");
            assert!(found.iter().any(|problem| problem.starts_with(&expected) && problem.contains(words)), "{found:?}");
        }
    }
}
