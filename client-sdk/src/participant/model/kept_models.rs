//! The published models that the journal keeps for the app. For each task, it keeps the last version with a checked record and digest.

use learning::MetricValue;
use serde::{Deserialize, Serialize};
use task_spec::PERSONAL_PREFIX;
use wire::{Digest, TaskId};

use crate::trainer::measured_of_model;

/// A published model in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeptModel {
    pub task: TaskId,
    /// Name of the task that the model belongs to.
    pub name: String,
    pub version: u32,
    /// Of the published file.
    pub sha256: Digest,
    /// Size of the published file.
    pub bytes: u64,
    /// The trainer's metrics of this model, by name, on held-out data; empty before a training that began with it. The last version of
    /// a task is measured once, after its arrival ([`Trainer::evaluate_last`](crate::Trainer::evaluate_last)), if its file is the
    /// whole model. For a trainer without evaluation, such as an app with its own jobs: the metrics of its result, without those of
    /// the training (`train_…`) and of the personalized model (`personal_…`).
    pub metrics: Vec<(String, MetricValue)>,
    /// The same of the personalized model that the same round left.
    pub personal_metrics: Vec<(String, MetricValue)>,
}

/// All of them, the one that was written last at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptModels {
    pub(crate) models: Vec<KeptModel>,
}

impl KeptModels {
    /// The kept model of this task.
    pub(in crate::participant) fn of(&self, task: TaskId) -> Option<&KeptModel> {
        self.models.iter().find(|model| model.task == task)
    }

    /// Adds a model in place of an earlier one of its task. Those that were written longest ago make room, so that all together
    /// have at most `most` bytes: their tasks.
    pub(in crate::participant) fn add(&mut self, new: KeptModel, most: u64) -> Vec<TaskId> {
        self.models.retain(|model| model.task != new.task);
        self.models.push(new);
        let mut room = most;
        let fits = |model: &&KeptModel| {
            let left = room.checked_sub(model.bytes);
            room = left.unwrap_or_default();
            left.is_some()
        };
        let staying = self.models.iter().rev().take_while(fits).count();
        self.models.drain(..self.models.len() - staying).map(|model| model.task).collect()
    }

    /// Notes the metrics. Returns whether there are any and they belong to the kept model.
    pub(in crate::participant) fn measured(
        &mut self,
        task: TaskId,
        file: Digest,
        [evaluated, trained]: [&[(String, MetricValue)]; 2],
    ) -> bool {
        let kept = self.models.iter_mut().find(|model| (model.task, model.sha256) == (task, file));
        let Some(kept) = kept else { return false };
        kept.metrics = measured_of_model(evaluated, trained);
        let personal = trained.iter().filter_map(|(name, value)| Some((name.strip_prefix(PERSONAL_PREFIX)?, *value)));
        kept.personal_metrics = personal.map(|(name, value)| (name.to_owned(), value)).collect();
        !kept.metrics.is_empty() || !kept.personal_metrics.is_empty()
    }

    /// The same for the last version of a task. The device's own model stays as it is, with its metrics.
    pub(in crate::participant) fn measured_last(
        &mut self,
        task: TaskId,
        file: Digest,
        metrics: Vec<(String, MetricValue)>,
    ) -> bool {
        let kept = self.models.iter_mut().find(|model| (model.task, model.sha256) == (task, file));
        let Some(kept) = kept else { return false };
        kept.metrics = metrics;
        !kept.metrics.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(number: u8, bytes: u64) -> KeptModel {
        KeptModel {
            task: format!("00000000-0000-0000-0000-0000000000{number:02}").parse().unwrap(),
            name: number.to_string(),
            version: 1,
            sha256: Digest([number; 32]),
            bytes,
            metrics: Vec::new(),
            personal_metrics: Vec::new(),
        }
    }

    #[test]
    fn those_written_longest_ago_make_room() {
        let mut kept = KeptModels::default();
        for (number, bytes, gone) in [(1, 40, &[][..]), (2, 50, &[]), (1, 45, &[]), (3, 10, &[2]), (4, 100, &[1, 3])] {
            let gone: Vec<_> = gone.iter().map(|number| model(*number, 0).task).collect();
            assert_eq!(kept.add(model(number, bytes), 100), gone, "{number}");
            assert!(kept.models.iter().map(|model| model.bytes).sum::<u64>() <= 100);
        }
        assert_eq!(kept.models.len(), 1);
    }

    #[test]
    fn what_was_measured_of_another_file_is_not_said_of_this_one() {
        let mut kept = KeptModels { models: vec![model(1, 4)] };
        let metrics = [("accuracy".to_owned(), MetricValue { value: 0.5, count: 4 })];
        let of_round = [("personal_accuracy".to_owned(), metrics[0].1), ("train_loss".to_owned(), metrics[0].1)];
        let KeptModel { task, sha256, .. } = model(1, 4);
        assert!(!kept.measured(task, Digest([9; 32]), [&metrics, &of_round]));
        assert!(!kept.measured(task, sha256, [&[], &of_round[1..]]), "nothing was measured");
        assert!(kept.measured(task, sha256, [&metrics, &of_round]));
        assert_eq!((&kept.models[0].metrics[..], &kept.models[0].personal_metrics[..]), (&metrics[..], &metrics[..]));
        // An app without a separate evaluation returns its measurements of the model with its result.
        let answer = [("accuracy".to_owned(), MetricValue { value: 0.25, count: 8 })];
        assert!(kept.measured(task, sha256, [&[], &[&of_round[..], &answer].concat()]));
        assert_eq!((&kept.models[0].metrics[..], &kept.models[0].personal_metrics[..]), (&answer[..], &metrics[..]));
        assert_eq!(KeptModels::restore(Some(&kept.encode().unwrap())).unwrap(), kept);
    }
}
