//! `--robust` and `--attack`: a rule in the place of the mean, and participants that give it something to do.

use std::borrow::Cow;
use std::str::FromStr;

use client_sdk::learning::{Adapters, MetricValue, Parameters, Table};
use client_sdk::train::Constraints;
use client_sdk::{Trained, Trainer, TrainerError, TrainingJob};
use task_spec::{RobustRule, RobustSpec};

use super::pairs::{named, number};
use crate::trainer::SlottedTrainer;

/// What a hostile participant's update is multiplied with.
const FLIP: f32 = -10.0;

/// `RULE[,KEY=VALUE…]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RobustArg(pub(super) RobustSpec);

impl FromStr for RobustArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rule, pairs) = named(text, "attackers=0.1");
        let Some(rule) = RobustRule::ALL.into_iter().find(|known| known.as_str() == rule) else {
            return Err(format!(
                "there is no rule `{rule}`; there are {}",
                RobustRule::ALL.map(RobustRule::as_str).join(", ")
            ));
        };
        let mut spec = RobustSpec { rule, attackers: 0.2, norm_factor: None, group_size: None };
        for pair in pairs {
            let (key, value) = pair?;
            match key {
                "attackers" => spec.attackers = number(key, value)?,
                "group_size" => spec.group_size = Some(number(key, value)?),
                "norm_factor" => spec.norm_factor = Some(number(key, value)?),
                _ => return Err(format!("there is no `{key}`; there are attackers, group_size and norm_factor")),
            }
        }
        Ok(Self(spec))
    }
}

impl RobustArg {
    /// In a line of the demo.
    pub(super) fn words(&self) -> String {
        let RobustSpec { rule, attackers, group_size, .. } = self.0;
        let rule = rule.as_str().replace('_', " ");
        let of = group_size.map_or_else(|| "updates".to_owned(), |size| format!("means of groups of {size}"));
        format!("{rule} of the {of}, against {} % of the participants", 100.0 * attackers)
    }

    /// Inputs without which a round fails: so many that the rule has enough of them whenever it can have.
    pub(super) fn collect_min(&self, cohort: u32) -> u32 {
        cohort - cohort / 4
    }
}

/// A trainer whose owner may be hostile: then what it learned is sent tenfold, and the other way.
pub(super) struct Suspect {
    pub(super) trainer: SlottedTrainer,
    pub(super) is_hostile: bool,
}

impl Suspect {
    fn bend(&self, model: &Parameters, trained: Trained) -> Result<Trained, TrainerError> {
        if self.is_hostile { flipped(model, trained) } else { Ok(trained) }
    }
}

/// Ten times what was learned, the other way.
fn flipped(model: &Parameters, trained: Trained) -> Result<Trained, TrainerError> {
    let pairs = model.values().iter().zip(trained.parameters.values());
    let values = pairs.map(|(before, after)| before + FLIP * (after - before)).collect();
    let layout = trained.parameters.layout().clone();
    let parameters = Parameters::new(layout, values).map_err(|error| TrainerError::Failed(Box::new(error)))?;
    Ok(Trained { parameters, ..trained })
}

impl Trainer for Suspect {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let trained = self.trainer.train(model, job)?;
        self.bend(model, trained)
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        let trained = self.trainer.train_within(model, job, constraints)?;
        self.bend(model, trained)
    }

    fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        adapters: &Adapters,
    ) -> Result<Trained, TrainerError> {
        let trained = self.trainer.train_adapters(base, start, job, adapters)?;
        self.bend(start, trained)
    }

    fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        self.trainer.base_model(job)
    }

    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        self.trainer.evaluate(model, job)
    }

    fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        self.trainer.table(job)
    }

    fn examples(&self) -> u64 {
        self.trainer.examples()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use client_sdk::learning::{Layout, TensorSpec};

    use super::*;

    #[test]
    fn a_hostile_participant_sends_ten_times_the_opposite_of_what_it_learned() {
        let tensor = TensorSpec { name: "w".to_owned(), shape: vec![2] };
        let layout = Arc::new(Layout::new(vec![tensor]).unwrap());
        let with = |values: [f32; 2]| Parameters::new(Arc::clone(&layout), values.to_vec()).unwrap();
        let trained = Trained { parameters: with([1.5, 1.0]), examples: 7, metrics: vec![] };
        let bent = flipped(&with([1.0, 2.0]), trained).unwrap();
        assert_eq!((bent.parameters.values(), bent.examples), (&[-4.0, 12.0][..], 7));
    }

    #[test]
    fn rules_are_read_with_their_numbers() {
        let arg: RobustArg = "trimmed_mean,attackers=0.05,group_size=5".parse().unwrap();
        assert_eq!((arg.0.rule, arg.0.attackers, arg.0.group_size), (RobustRule::TrimmedMean, 0.05, Some(5)));
        assert_eq!(arg.words(), "trimmed mean of the means of groups of 5, against 5 % of the participants");
        assert_eq!(
            "krum".parse::<RobustArg>().unwrap().words(),
            "krum of the updates, against 20 % of the participants"
        );
        for (text, reason) in [
            ("mode", "there is no rule `mode`"),
            ("median,f=1", "there is no `f`"),
            ("median,attackers=many", "a number is expected"),
            ("median,5", "no KEY=VALUE"),
        ] {
            assert!(text.parse::<RobustArg>().unwrap_err().contains(reason), "{text}");
        }
    }
}
