//! The numbers derived from a task's robust rule, and the check that its cohorts are large enough.

use learning::robust::{check, needs};
use learning::{Codec, QuantizationParams};
use task_spec::{RobustSpec, SpecError, TaskSpec};

use super::field::wrong;

/// A robust rule, and the attackers it withstands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustAggregation {
    /// The specification, as the operator wrote it.
    pub spec: RobustSpec,
    /// The groups of the combined means; `None` if the rule combines single updates.
    pub groups: Option<GroupedMeans>,
}

/// Groups of combined means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedMeans {
    /// Participants per group (s).
    pub size: u32,
    /// Codec of the combined means, each group with the same weight. It has the maximum number of levels, since the means are never
    /// uploaded.
    pub codec: Codec,
}

impl RobustAggregation {
    /// Derives the rule for a task with this number of shared parameters; `None` for a task that takes the mean.
    ///
    /// # Errors
    /// The rule needs larger cohorts than the task may have.
    pub fn new(task: &TaskSpec, parameters: usize) -> Result<Option<Self>, Vec<SpecError>> {
        let Some(spec) = task.aggregation.robust else { return Ok(None) };
        let Some(size) = task.group_size() else {
            let robust = Self { spec, groups: None };
            robust.check_cohorts(task)?;
            return Ok(Some(robust));
        };
        let params = QuantizationParams {
            parameters,
            modulus_bits: 32,
            clip_range: task.clip_range(),
            clip_norm: None,
            max_weight: 1,
            max_cohort: (task.rounds.select_max / size).max(1),
            metrics: task.travelling_metrics().len(),
        };
        let codec = Codec::new(params).map_err(|error| wrong("aggregation", error))?;
        let robust = Self { spec, groups: Some(GroupedMeans { size, codec }) };
        robust.check_groups(task, size)?;
        Ok(Some(robust))
    }

    /// Minimum number of groups for the rule in a cohort of this size: each attacker may be in a different group.
    pub fn groups_needed(&self, cohort: u32) -> u32 {
        u32::try_from(needs(self.spec.rule, self.spec.attackers_among(cohort))).unwrap_or(u32::MAX)
    }

    fn check_cohorts(&self, task: &TaskSpec) -> Result<(), Vec<SpecError>> {
        let (least, most) = (task.collect_min(), task.rounds.select_max);
        let too_few = |participants| check(self.spec.rule, participants, self.spec.attackers_among(participants)).err();
        let Some(error) = (least..=most).find_map(too_few) else { return Ok(()) };
        let enough = (least..=most).rev().find(|&participants| too_few(participants).is_some()).map(|last| last + 1);
        let problem = match enough.filter(|&enough| enough <= most) {
            Some(enough) => format!("{error}: raise rounds.collect_min to {enough}, or lower attackers"),
            None => format!("{error}, and no cohort of at most rounds.select_max = {most} has enough: lower attackers"),
        };
        Err(wrong("aggregation.robust", problem))
    }

    fn check_groups(&self, task: &TaskSpec, size: u32) -> Result<(), Vec<SpecError>> {
        let smallest = task.draw(task.select_min()).cohort;
        let (least, most) = (smallest / size, task.rounds.select_max / size);
        let too_few = |groups: u32| groups < self.groups_needed(groups.saturating_mul(size));
        let Some(groups) = (least..=most.max(least)).find(|&groups| too_few(groups)) else { return Ok(()) };
        let enough = (least..=most).rev().find(|&groups| too_few(groups)).map_or(least, |last| last + 1);
        let error = format!(
            "{} needs at least {} groups against the {} that {} attackers can spoil, and {} participants make {groups} groups of \
             {size}",
            self.spec.rule.as_str(),
            self.groups_needed(groups * size),
            self.spec.attackers_among(groups * size),
            self.spec.attackers_among(groups * size),
            if groups == least { smallest } else { groups * size },
        );
        let problem = if enough <= most {
            format!(
                "{error}: raise rounds.select_min and the cohort to {}, make the groups smaller, or lower attackers",
                enough * size
            )
        } else {
            format!(
                "{error}, and no cohort of at most rounds.select_max = {} has enough: make the groups smaller, or lower \
                 attackers",
                task.rounds.select_max
            )
        };
        Err(wrong("aggregation.robust", problem))
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
        RobustAggregation::new(&spec, 3).err().map(|errors| errors[0].to_string())
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

    fn grouped(rule: &str, (attackers, size): (f64, u32), cohort: u32) -> Result<RobustAggregation, String> {
        let spec = serde_json::json!({
            "name": "t",
            "model": { "tensors": [{ "name": "w", "shape": [3] }] },
            "aggregation": { "robust": { "rule": rule, "attackers": attackers, "group_size": size } },
            "selection": { "cohort": { "count": cohort } },
            "rounds": { "select_max": 100 },
        });
        let spec: TaskSpec = serde_json::from_value(spec).unwrap();
        RobustAggregation::new(&spec, 3).map(Option::unwrap).map_err(|errors| errors[0].to_string())
    }

    #[test]
    fn there_are_groups_enough_for_the_rule_or_it_is_refused() {
        let robust = grouped("median", (0.05, 5), 20).unwrap();
        // One attacker among 20, five among 100: each may spoil a group.
        assert_eq!([20, 39, 40, 100].map(|cohort| robust.groups_needed(cohort)), [3, 3, 5, 11]);
        assert_eq!(grouped("krum", (0.05, 5), 25).unwrap().groups_needed(25), 5);
        assert_eq!(
            grouped("krum", (0.05, 5), 24).unwrap_err(),
            "aggregation.robust: krum needs at least 5 groups against the 1 that 1 attackers can spoil, and 20 participants \
             make 4 groups of 5: raise rounds.select_min and the cohort to 25, make the groups smaller, or lower attackers"
        );
        assert!(grouped("median", (0.05, 10), 20).unwrap_err().contains("no cohort of at most"), "half of the groups");
    }
}
