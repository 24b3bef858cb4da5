//! The training of a region: a world of its own, with a regional task that starts from the received model.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client_sdk::participant::{Contribution, RoundWork, WorkError};
use client_sdk::{Dataset, MetricValue, Parameters, Trained, Trainer, TrainerError, TrainingJob};
use federation::time::Timestamp;
use learning::checkpoint;
use rand::Rng as _;
use wire::inspect::{MetricView, RegionFigures, RoundView};

use crate::chance::{Purpose, stream};
use crate::clock::Moment;
use crate::{Data, Experiment, Regions, Report, SimulationError};

/// Time in which a region creates its task.
pub(crate) const HANDOVER: Duration = Duration::from_secs(1);
/// A region answers this long before the upper round's deadline, with the rounds that it has.
const RESERVE: Duration = Duration::from_secs(15);

/// Where and with what a world begins.
pub(crate) struct Origin {
    pub(crate) start: Moment,
    /// File of the first model, for a regional task; without one, the task has its own.
    pub(crate) model: Option<Vec<u8>>,
    /// Seed of the devices' profiles, and the number of the first device.
    pub(crate) profiles: u64,
    pub(crate) first: u32,
}

impl Origin {
    /// The origin of a whole experiment.
    pub(crate) fn of(experiment: &Experiment) -> Self {
        Self { start: Moment::default(), model: None, profiles: experiment.seed, first: 0 }
    }
}

/// Runs a regional task on the calling thread; the answer is `None` if no round was completed.
pub(crate) type RunRegion = fn(&Experiment, Origin) -> Result<(Report, Option<Answer>), SimulationError>;

/// The regions of an experiment, and what they do in a round of the upper task.
pub(crate) struct RegionalWork {
    /// The devices of all regions, and the regional task.
    experiment: Experiment,
    regions: Regions,
    run: RunRegion,
}

/// The training of one region in one round.
pub(crate) struct RegionalTraining {
    pub(crate) result: Result<Contribution, WorkError>,
    /// When the region answers.
    pub(crate) ends: Moment,
    /// The regional task; `None` if there was nothing to train.
    pub(crate) report: Option<Report>,
}

impl RegionalWork {
    /// The regions of this experiment; `None` if its devices take part themselves.
    pub(crate) fn of(experiment: &Experiment, run: RunRegion) -> Option<Self> {
        let regions = experiment.regions.clone()?;
        Some(Self { experiment: Experiment { regions: None, ..experiment.clone() }, regions, run })
    }

    /// The first device of a region, and its number of devices.
    fn devices(&self, region: u32) -> (u32, u32) {
        self.regions.devices(region, self.experiment.population)
    }

    /// Number of training examples of a region.
    pub(crate) fn examples(&self, region: u32) -> u64 {
        let (first, count) = self.devices(region);
        (first..first + count).map(|device| self.experiment.data.examples(device)).sum()
    }

    /// Trains in a region that received the model at `start`.
    ///
    /// # Errors
    /// The regional task cannot be simulated.
    pub(crate) fn train(
        &self,
        work: &RoundWork,
        region: u32,
        start: Moment,
    ) -> Result<RegionalTraining, SimulationError> {
        let mut trainer = RegionTrainer { work: self, region, start, report: None, failed: None };
        let result = work.run(&mut trainer);
        if let Some(error) = trainer.failed {
            return Err(error);
        }
        let took = trainer.report.as_ref().map_or(0.0, |report| report.seconds);
        let ends = start.plus(HANDOVER).plus(Duration::try_from_secs_f64(took).unwrap_or_default());
        Ok(RegionalTraining { result, ends, report: trainer.report })
    }

    /// The experiment of one round in one region.
    fn round(&self, region: u32, start: Moment, deadline: Option<Timestamp>) -> Experiment {
        let (first, population) = self.devices(region);
        let mut experiment = self.experiment.clone();
        experiment.population = population;
        experiment.data = Arc::new(Slice { data: Arc::clone(&self.experiment.data), first });
        experiment.seed = stream(self.experiment.seed, Purpose::Region, region.into(), start.0).next_u64();
        if experiment.task.selection.seed.is_some() {
            // In every round other devices.
            experiment.task.selection.seed = Some(experiment.seed);
        }
        if let Some(deadline) = deadline {
            let left = Moment::of(deadline).since(start.plus(HANDOVER));
            experiment.limit = experiment.limit.min(left.saturating_sub(RESERVE));
        }
        experiment
    }
}

/// The last published model of a regional task, with the views of its completed rounds.
pub(crate) struct Answer {
    pub(crate) model: Bytes,
    pub(crate) rounds: Vec<RoundView>,
}

struct RegionTrainer<'a> {
    work: &'a RegionalWork,
    region: u32,
    start: Moment,
    report: Option<Report>,
    /// Why the regional task could not be simulated.
    failed: Option<SimulationError>,
}

impl Trainer for RegionTrainer<'_> {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let experiment = self.work.round(self.region, self.start, job.deadline);
        let origin = Origin {
            start: self.start.plus(HANDOVER),
            model: Some(checkpoint::write(model).map_err(TrainerError::failed)?),
            profiles: self.work.experiment.seed,
            first: self.work.devices(self.region).0,
        };
        let (report, answer) = (self.work.run)(&experiment, origin).map_err(|error| {
            let told = TrainerError::failed(error.to_string());
            self.failed = Some(error);
            told
        })?;
        self.report = Some(report);
        let nothing = || TrainerError::failed("the regional task has completed no round");
        let Answer { model: file, rounds } = answer.ok_or_else(nothing)?;
        let parameters = checkpoint::read(&file, model.layout()).map_err(TrainerError::failed)?;
        let RegionFigures { examples, metrics, .. } =
            RegionFigures::of(&experiment.task, &rounds).ok_or_else(nothing)?;
        let metric =
            |(name, metric): (String, MetricView)| (name, MetricValue { value: metric.value, count: metric.count });
        Ok(Trained { parameters, examples, metrics: metrics.into_iter().map(metric).collect() })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        self.work.examples(self.region)
    }

    fn measures_as_it_trains(&self) -> bool {
        true
    }
}

/// The data of one region's devices.
struct Slice {
    data: Arc<dyn Data>,
    /// Number of the first device.
    first: u32,
}

impl Data for Slice {
    fn examples(&self, device: u32) -> u64 {
        self.data.examples(self.first + device)
    }

    fn shard(&self, device: u32) -> Arc<Dataset> {
        self.data.shard(self.first + device)
    }

    fn test(&self) -> Arc<Dataset> {
        self.data.test()
    }
}
