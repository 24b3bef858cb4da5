//! The columns of a table: each named once, and of one kind.

use std::collections::BTreeSet;

use crate::problem::Checks;
use crate::{MAX_TABLE_COLUMNS, MAX_TABLE_WORDS, TableColumn, TableSpec, TaskSpec};

const MAX_WORD_BYTES: usize = 256;

impl TaskSpec {
    pub(super) fn check_table(&self, table: &TableSpec, checks: &mut Checks) {
        checks.require(
            (1..=MAX_TABLE_COLUMNS).contains(&table.features.len()),
            "model.table.features",
            "must name 1 to 4096 columns",
        );
        let is_analysis = self.analytics.is_some();
        let mut seen = BTreeSet::new();
        for (index, feature) in table.features.iter().enumerate() {
            let field = format!("model.table.features[{index}]");
            check_column(feature, &field, is_analysis, checks);
            checks.require_with(seen.insert(&feature.column), &field, || {
                format!("names `{}` again; each column must be named once", feature.column)
            });
        }
        match &table.label {
            Some(label) => {
                check_column(label, "model.table.label", is_analysis, checks);
                checks.require_with(!seen.contains(&label.column), "model.table.label", || {
                    format!("is `{}`, which is among the features: what is predicted must not be known", label.column)
                });
                checks.require(
                    is_analysis || label.one_of.len() >= 2,
                    "model.table.label.one_of",
                    "must list at least 2 classes: a model tells classes apart",
                );
            }
            None => checks.require(is_analysis, "model.table.label", "must name the column that the model predicts"),
        }
    }
}

fn check_column(column: &TableColumn, field: &str, is_analysis: bool, checks: &mut Checks) {
    let TableColumn { column: name, low, high, one_of } = column;
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
        ] {
            let found = problems(&table, "");
            let expected = format!("{field}: ");
            assert!(found.iter().any(|problem| problem.starts_with(&expected) && problem.contains(words)), "{found:?}");
        }
    }
}
