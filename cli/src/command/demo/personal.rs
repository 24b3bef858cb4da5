//! Compares models per participant: accuracy on its own held-out data of its personalized model, of FedAvg's shared
//! model, and of a model it trains alone.
//!
//! All runs use the same data, initial model, rounds and passes. Personalized models are read from the participants'
//! journals after the last round, as an app would read them.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use client_sdk::Model;
use client_sdk::journal::JournalFiles;
use client_sdk::learning::{Layout, Parameters, checkpoint};
use client_sdk::models::Architecture;
use client_sdk::train::{self, Device, Sgd};
use datasets::Dataset;
use task_spec::TrainingPlan;
use wire::TaskId;

use super::scene::{Scene, blocking};
use crate::command::model::{Score, examples};
use crate::command::participant::default_name;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Table};

/// Fraction of a participant's shard held out of training where personalized models are compared: enough to
/// distinguish them.
pub(super) const HELD_OUT: f64 = 0.25;

/// Training and held-out data of every participant.
pub(super) type Shards = Arc<Vec<(Dataset, Dataset)>>;

/// Accuracy over participants of one method.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct MethodAccuracy {
    /// `fed_avg`, `local_only`, or the method as given.
    #[serde(rename = "way")]
    method: String,
    /// Number of participants with a model of this kind.
    participants: usize,
    mean: f64,
    /// 10th percentile over participants, interpolated between neighbours.
    p10: f64,
    median: f64,
    lowest: f64,
    /// Accuracy of each of them, in the order of their numbers.
    accuracies: Vec<f64>,
}

impl MethodAccuracy {
    /// Sorts the baselines first, then the methods in the given order.
    pub(super) fn rank(&self) -> usize {
        ["fed_avg", "local_only"].iter().position(|method| *method == self.method).unwrap_or(2)
    }

    fn new(method: impl Into<String>, accuracies: Vec<f64>) -> Self {
        let mut sorted = accuracies.clone();
        sorted.sort_by(f64::total_cmp);
        let mean = accuracies.iter().sum::<f64>() / accuracies.len().max(1) as f64;
        Self {
            method: method.into(),
            participants: accuracies.len(),
            mean,
            p10: quantile(&sorted, 0.1),
            median: quantile(&sorted, 0.5),
            lowest: quantile(&sorted, 0.0),
            accuracies,
        }
    }
}

/// Quantile of sorted values, interpolated linearly; 0 without values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * sorted.len().saturating_sub(1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
    let below = place.floor() as usize;
    let at = |index: usize| sorted.get(index).or(sorted.last()).copied().unwrap_or_default();
    at(below) + (at(below + 1) - at(below)) * (place - below as f64)
}

/// Accuracy of the model published without personalization.
pub(super) async fn globally(scene: &Scene, shards: &Shards, published: &[u8]) -> Outcome<MethodAccuracy> {
    let layout = scene.architecture.layout().map_err(Failure::because(Exit::Internal, "the model's sizes"))?;
    let model = read(published, layout)?;
    let architecture = scene.architecture.clone();
    let accuracies =
        each(scene, shards, move |_, (_, held_out)| accuracy(&architecture, &model, held_out).map(Some)).await?;
    Ok(MethodAccuracy::new("fed_avg", accuracies))
}

/// Accuracy of models that each participant trains alone, for as many passes as all rounds.
pub(super) async fn alone(scene: &Scene, shards: &Shards, rounds: u32) -> Outcome<MethodAccuracy> {
    let (architecture, plan, seed) = (scene.architecture.clone(), scene.training.clone(), scene.seed);
    let accuracies = each(scene, shards, move |_, (train, held_out)| {
        if held_out.is_empty() {
            return Ok(None);
        }
        let model = train_alone(&architecture, train, &plan, rounds, seed)?;
        accuracy(&architecture, &model, held_out).map(Some)
    });
    Ok(MethodAccuracy::new("local_only", accuracies.await?))
}

/// As in a federation of one: schedules count rounds, and momentum restarts in each.
fn train_alone(
    architecture: &Architecture,
    data: &Dataset,
    plan: &TrainingPlan,
    rounds: u32,
    seed: u64,
) -> Outcome<Parameters> {
    let mut model = architecture.initial(seed).map_err(Failure::because(Exit::Training, "the model's sizes"))?;
    for round in 1..=rounds {
        // A proximal term would need a received model.
        let plan = TrainingPlan { proximal_mu: 0.0, ..plan.in_round(round) };
        let sgd = Sgd { plan: &plan, seed: seed.wrapping_add(round.into()) };
        let trained = train::train(architecture, &model, examples(data), sgd, &Device::Cpu)
            .map_err(Failure::because(Exit::Training, "training alone"))?;
        model.values_mut().iter_mut().zip(&trained.delta).for_each(|(value, delta)| *value += delta);
    }
    Ok(model)
}

/// Accuracy of the personalized models in the participants' journals, which are closed by now.
pub(super) async fn personally(
    scene: &Scene,
    shards: &Shards,
    method: &str,
    journals: &Path,
    task: TaskId,
) -> Outcome<MethodAccuracy> {
    let (architecture, journals) = (scene.architecture.clone(), journals.to_owned());
    let accuracies = each(scene, shards, move |index, (_, held_out)| {
        let cannot = || Failure::because(Exit::Data, "a participant's journal");
        let name = default_name(u32::try_from(index).unwrap_or(u32::MAX));
        let journal = JournalFiles::beside(journals.join(name)).open().map_err(cannot())?;
        match Model::load_personalized(&journal, task).map_err(cannot())? {
            Some(own) => accuracy(&architecture, own.parameters(), held_out).map(Some),
            None => Ok(None),
        }
    });
    Ok(MethodAccuracy::new(method, accuracies.await?))
}

fn read(safetensors: &[u8], layout: Layout) -> Outcome<Parameters> {
    checkpoint::read(safetensors, &Arc::new(layout)).map_err(Failure::because(Exit::Data, "the published model"))
}

fn accuracy(architecture: &Architecture, model: &Parameters, held_out: &Dataset) -> Outcome<f64> {
    Ok(Score::of_parameters(architecture, model, held_out)?.accuracy)
}

/// Computes every participant's accuracy, a few at a time, in order; omits participants without a model.
async fn each(
    scene: &Scene,
    shards: &Shards,
    ask: impl Fn(usize, &(Dataset, Dataset)) -> Outcome<Option<f64>> + Send + Sync + 'static,
) -> Outcome<Vec<f64>> {
    let (shards, threads) = (Arc::clone(shards), scene.threads);
    blocking(move || {
        let next = AtomicUsize::new(0);
        let answers = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(shard) = shards.get(index) else { break };
                        let answer = if shard.1.is_empty() { Ok(None) } else { ask(index, shard) };
                        answers.lock().unwrap_or_else(PoisonError::into_inner).push((index, answer));
                    }
                });
            }
        });
        let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
        answers.sort_by_key(|(index, _)| *index);
        answers.into_iter().filter_map(|(_, answer)| answer.transpose()).collect()
    })
    .await
}

pub(super) fn table(served: &[MethodAccuracy], terminal: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("METHOD", Cells::Text),
        ("PARTICIPANTS", Cells::Number),
        ("MEAN", Cells::Number),
        ("10TH PERCENTILE", Cells::Number),
        ("MEDIAN", Cells::Number),
        ("LOWEST", Cells::Number),
    ])
    .dispensable(&["PARTICIPANTS"]);
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    for MethodAccuracy { method, participants, mean, p10, median, lowest, .. } in served {
        let figures = [mean, p10, median, lowest].map(|&part| percent(part));
        let name = match method.as_str() {
            "fed_avg" => "one model for all (FedAvg)",
            "local_only" => "each alone",
            method => method,
        };
        table.row([name.to_owned(), participants.to_string()].into_iter().chain(figures).collect());
    }
    table.render(terminal, "Nobody has a model.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated_between_neighbours() {
        let served = MethodAccuracy::new("x", vec![0.5, 0.1, 0.4, 0.3, 0.2]);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(served.mean, 0.3) && close(served.median, 0.3) && close(served.lowest, 0.1));
        assert!(close(served.p10, 0.14), "{}", served.p10);
        assert!(close(quantile(&[0.7], 0.1), 0.7));
        assert!(close(quantile(&[], 0.1), 0.0));
        assert!(close(quantile(&[0.0, 1.0], 1.0), 1.0));
    }
}
