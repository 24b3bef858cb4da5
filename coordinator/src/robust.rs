//! A task's robust rule in numbers, and whether its cohorts are large enough for it.

use federation::task::{RobustRule, RobustSpec, SpecError, TaskSpec};
use learning::robust::Rule;

/// A rule, and what it is to stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Robust {
    /// As the operator wrote it.
    pub spec: RobustSpec,
    /// What computes it.
    pub rule: Rule,
}

impl Robust {
    /// Derives it; none for a task that takes the mean.
    ///
    /// # Errors
    /// A rule that some cohort of the task would be too small for, or that this coordinator cannot run.
    pub(crate) fn new(task: &TaskSpec) -> Result<Option<Self>, Vec<SpecError>> {
        let Some(spec) = task.aggregation.robust else { return Ok(None) };
        let wrong = |field: &str, problem: String| vec![SpecError { field: field.to_owned(), problem }];
        if task.secure_aggregation.enabled {
            let problem = "rules over sums of groups are not run by this coordinator: switch secure aggregation off \
                           (secure_aggregation.enabled = false), which lets the operator read every update, or leave the \
                           rule out";
            return Err(wrong("aggregation.robust", problem.to_owned()));
        }
        let robust = Self { spec, rule: rule_of(&spec) };
        let limits = task.round_limits();
        let (least, most) = (limits.collect.min, task.rounds.select_max);
        let too_few = |participants| robust.rule.check(participants, spec.attackers_among(participants)).err();
        let Some(error) = (least..=most).find_map(too_few) else { return Ok(Some(robust)) };
        let enough = (least..=most).rev().find(|&participants| too_few(participants).is_some()).map(|last| last + 1);
        let problem = match enough.filter(|&enough| enough <= most) {
            Some(enough) => format!("{error}: raise rounds.collect_min to {enough}, or lower attackers"),
            None => format!("{error}, and no cohort of at most rounds.select_max = {most} has enough: lower attackers"),
        };
        Err(wrong("aggregation.robust", problem))
    }
}

fn rule_of(spec: &RobustSpec) -> Rule {
    match spec.rule {
        RobustRule::Median => Rule::Median,
        RobustRule::TrimmedMean => Rule::TrimmedMean,
        RobustRule::Krum => Rule::Krum,
        RobustRule::MultiKrum => Rule::MultiKrum,
        RobustRule::GeometricMedian => Rule::GeometricMedian,
        RobustRule::NormFilter => Rule::NormFilter { factor: spec.norm_factor() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(rule: &str, attackers: f64, collect_min: u32) -> Option<String> {
        let spec = serde_json::json!({
            "name": "t",
            "model": { "tensors": [{ "name": "w", "shape": [3] }] },
            "aggregation": { "robust": { "rule": rule, "attackers": attackers } },
            "rounds": { "collect_min": collect_min, "select_max": 100 },
            "secure_aggregation": { "enabled": false },
        });
        let spec: TaskSpec = serde_json::from_value(spec).unwrap();
        Robust::new(&spec).err().map(|errors| errors[0].to_string())
    }

    #[test]
    fn a_rule_that_a_cohort_is_too_small_for_is_refused_with_what_would_do() {
        assert_eq!(problem("krum", 0.2, 5), None);
        assert_eq!(
            problem("krum", 0.2, 4).unwrap(),
            "aggregation.robust: krum needs at least 5 participants against 1 attackers, there are 4: raise \
             rounds.collect_min to 5, or lower attackers"
        );
        assert_eq!(problem("median", 0.2, 3), None);
        // 3 of 9 have enough, 4 of 10 want 11: from there on there are always enough.
        assert!(problem("krum", 0.4, 5).unwrap().ends_with("raise rounds.collect_min to 11, or lower attackers"));
        assert!(problem("krum", 0.49, 5).unwrap().ends_with("rounds.select_max = 100 has enough: lower attackers"));
    }

    #[test]
    fn sums_of_groups_are_refused() {
        let spec = serde_json::json!({
            "name": "t",
            "model": { "tensors": [{ "name": "w", "shape": [3] }] },
            "aggregation": { "robust": { "rule": "median", "attackers": 0.05, "group_size": 5 } },
        });
        let errors = Robust::new(&serde_json::from_value(spec).unwrap()).unwrap_err();
        assert!(errors[0].to_string().contains("not run by this coordinator"), "{errors:?}");
    }
}
