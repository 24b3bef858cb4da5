//! Distributions of a metric over participants, transmitted as means of indicator values. Under secure aggregation single values stay
//! hidden, and the sum does not reveal a participant's rank.

use crate::{BELOW, PERSONAL_PREFIX, TaskSpec};

/// `NAME.quantiles` is the distribution of metric `NAME`, which lies in 0 to 1, such as an accuracy; `NAME.quantiles.S`
/// has steps of S hundredths. Transmitted as `NAME.below.S`, `NAME.below.2S`, …
pub const QUANTILES: &str = ".quantiles";
/// Default step, in hundredths.
pub const STEP: u8 = 5;
/// Metric whose distribution is reported by every round of a task with personalization: of the received model and of
/// the personalized one.
const ACCURACY: &str = "accuracy";

/// The metric of a distribution, and the step in hundredths; `None` if `name` is not a distribution.
pub(crate) fn distribution(name: &str) -> Option<(&str, Option<u8>)> {
    let (metric, step) = name.rsplit_once(QUANTILES)?;
    let step = match step {
        "" => Some(STEP),
        step => step.strip_prefix('.').and_then(|step| step.parse().ok()),
    };
    Some((metric, step.filter(|step| (1..=50).contains(step) && 100 % step == 0)))
}

impl TaskSpec {
    /// Names of the reported means, in order: the task's metrics, with distributions replaced by their points. With personalization,
    /// includes those of the accuracies.
    #[must_use]
    pub fn travelling_metrics(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut points = Vec::new();
        for name in &self.metrics {
            match distribution(name) {
                Some((metric, Some(step))) => points.extend(grid(metric, step)),
                _ => names.push(name.clone()),
            }
        }
        for metric in [ACCURACY.to_owned(), format!("{PERSONAL_PREFIX}{ACCURACY}")] {
            if self.brings_distributions() && self.metrics.contains(&metric) && !self.is_distributed(&metric) {
                points.extend(grid(&metric, STEP));
            }
        }
        for point in points {
            if !names.contains(&point) {
                names.push(point);
            }
        }
        names
    }

    fn brings_distributions(&self) -> bool {
        let is_personal = self.personalization.is_some() || !self.model.personal.is_empty();
        is_personal && !self.privacy.is_private() && self.analytics.is_none()
    }

    /// Whether the task declares the distribution itself.
    fn is_distributed(&self, metric: &str) -> bool {
        self.metrics.iter().any(|name| distribution(name).is_some_and(|(own, _)| own == metric))
    }
}

/// The points of a distribution, without its trivial ends.
fn grid(metric: &str, step: u8) -> impl Iterator<Item = String> {
    (1..100 / step).map(move |point| format!("{metric}{BELOW}{}", point * step))
}

#[cfg(test)]
mod tests {
    use super::super::Personalization;
    use super::*;

    fn task(metrics: &[&str], personalization: Option<Personalization>) -> TaskSpec {
        let mut task: TaskSpec = serde_json::from_str(r#"{"name":"t"}"#).unwrap();
        task.metrics = metrics.iter().map(|&name| name.to_owned()).collect();
        task.personalization = personalization;
        task
    }

    #[test]
    fn a_distribution_travels_as_its_points() {
        let names = task(&["loss", "accuracy.quantiles.25", "accuracy.below.50"], None).travelling_metrics();
        assert_eq!(names, ["loss", "accuracy.below.50", "accuracy.below.25", "accuracy.below.75"]);
        assert_eq!(task(&["accuracy.quantiles"], None).travelling_metrics().len(), 19);
        assert_eq!(task(&["accuracy.quantiles.1"], None).travelling_metrics().len(), 99);
        assert_eq!(task(&["loss", "accuracy"], None).travelling_metrics(), ["loss", "accuracy"]);
    }

    #[test]
    fn personalization_brings_both_accuracies_distributions_unless_the_task_says_how() {
        let elastic = Some(Personalization::Elastic { alpha: 0.5 });
        let both = ["accuracy", "personal_accuracy"];
        assert_eq!(task(&both, elastic.clone()).travelling_metrics().len(), 2 + 2 * 19);
        let finer = ["accuracy", "personal_accuracy", "personal_accuracy.quantiles.2"];
        assert_eq!(task(&finer, elastic.clone()).travelling_metrics().len(), 2 + 19 + 49);
        assert_eq!(task(&["personal_loss"], elastic).travelling_metrics(), ["personal_loss"]);
    }

    #[test]
    fn steps_that_do_not_part_the_whole_are_none() {
        for name in ["accuracy.quantiles.3", "accuracy.quantiles.0", "accuracy.quantiles.100", "accuracy.quantiles.x"] {
            assert!(matches!(distribution(name), Some((_, None))), "{name}");
        }
        assert_eq!(distribution("accuracy"), None);
    }
}
