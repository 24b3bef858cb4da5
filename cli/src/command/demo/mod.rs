//! `tributary demo`: a whole federation on this machine, and what it learns.
//!
//! Coordinator, operator and participants talk over HTTPS on a loopback port, exactly as they would across a continent. The
//! demo plays the operator: it creates the task, watches the rounds and evaluates each published model on held-out data.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client_sdk::train::DeviceChoice;
use datasets::Dataset;
use task_spec::MIN_SECURE_COHORT;
use task_spec::{Deployment, PrivacySpec, TaskSpec};
use wire::admin::CreateTask;
use wire::inspect::{PrivacyReport, TaskView};
use wire::route;

use crate::command::model::Score;
use crate::command::privacy::ledger;
use crate::command::schedule::ScheduleArgs;
use crate::data::{self, DataArgs, Model};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::trainer::cores;
use crate::{signal, task_file};

mod centralized;
pub(crate) mod codec;
mod events;
pub(crate) mod local;
mod pairs;
mod personal;
mod plan;
mod privacy;
mod robust;
mod rounds;
mod scene;
mod server;
mod table;
mod tell;
mod vanish;
mod world;

use codec::CodecArg;
use events::{Finished, ModelFile, Personalized, Spent};
use personal::{Served, Shards, Way};
use plan::{DropPlan, TaskInput};
pub(crate) use plan::{TrainingArgs, clip_range, max_weight};
use privacy::PrivacyArg;
use robust::RobustArg;
use rounds::{Last, Rounds};
use scene::{Scene, blocking};
use server::ServerArgs;
use table::LiveTable;
use world::{Settings, World};

/// How long one training may take.
const TRAINING: Duration = Duration::from_secs(3600);
/// Folder of the participants' journals.
const PARTICIPANTS: &str = "participants";

/// What to play.
#[derive(clap::Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    data: DataArgs,
    /// Model to train [default: linear for synthetic, mlp for mnist, gru for text]
    #[arg(long, value_enum)]
    model: Option<Model>,
    /// Rounds to run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Participants drawn for a round [default: all; a third of them where they train ahead of rounds]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    cohort: Option<u32>,
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// Probability that a participant drops out of a round, at a random point of it
    #[arg(long, default_value_t = 0.0, value_name = "PROBABILITY")]
    drop: f64,
    /// Let the coordinator read every update: no secure aggregation
    #[arg(long)]
    insecure_aggregation: bool,
    /// Differential privacy: epsilon=E or noise=Z, and delta=D, mechanism=M, clip=S or clip=adaptive, sampling=poisson or fixed,
    /// rounds=T, accounting=general; for example epsilon=8,delta=1e-5
    #[arg(long, value_name = "KEY=VALUE,…")]
    privacy: Option<PrivacyArg>,
    /// Smaller uploads: rotated, random_k, low_rank, top_k or int8, with k=COUNT or k=PERCENT%, bits=B, keep=PART, rank=R,
    /// norm=S, feedback=yes or no; for example top_k,k=1% or rotated,bits=2,keep=0.75,norm=2
    #[arg(long, value_name = "NAME,KEY=VALUE,…")]
    codec: Option<CodecArg>,
    /// A robust rule instead of the mean: median, trimmed_mean, krum, multi_krum, geometric_median or norm_filter, with
    /// attackers=PART, group_size=S (needed under secure aggregation), norm_factor=X; for example
    /// median,attackers=0.05,group_size=5
    #[arg(long, value_name = "RULE,KEY=VALUE,…")]
    robust: Option<RobustArg>,
    /// Fraction of the participants that are hostile: each sends its update times -10
    #[arg(long, default_value_t = 0.0, value_name = "PART")]
    attack: f64,
    #[command(flatten)]
    training: TrainingArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// Participants that train at once [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Where to train: auto, cpu, cuda or metal
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Train the same model on the pooled data as well, for comparison
    #[arg(long)]
    centralized: bool,
    /// Personalize the model for each participant: fedper, fedrep, fedbn, ditto, pfedme, apfl, fine_tune, lora or elastic, with the numbers of
    /// [personalization], and personal=PATTERN+… for tensors that stay local or layers=PATTERN+… for those with adapters; for example ditto:lambda=0.1. Shows accuracy
    /// on each participant's held-out data beside that of FedAvg and of training alone. Several: one after the other
    #[arg(long, value_name = "METHOD[:KEY=VALUE,…]", conflicts_with = "centralized")]
    personalize: Vec<Way>,
    /// Keep the coordinator running after the last round
    #[arg(long)]
    inspect: bool,
    /// Where to write the final model [default: a file in the system's temporary folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the task here: `tributary task create` makes the same one on a coordinator of your own
    #[arg(long, value_name = "FILE")]
    task_file: Option<PathBuf>,
    /// Keep the coordinator's data and the participants' journals in this (empty) folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A federation whose rounds are over.
struct Played {
    world: World,
    task: TaskView,
    last: Last,
    /// What the privacy ledger says, if something was promised.
    privacy: Option<PrivacyReport>,
}

impl Demo {
    pub(super) async fn run(self, output: Output) -> Outcome {
        self.check()?;
        let temporary;
        let folder = match &self.dir {
            Some(folder) => {
                empty(folder)?;
                folder.clone()
            }
            None => {
                temporary = tempfile::Builder::new()
                    .prefix("tributary-demo-")
                    .tempdir()
                    .map_err(Failure::because(Exit::Io, "cannot make a temporary folder"))?;
                temporary.path().to_owned()
            }
        };
        let mut stop = std::pin::pin!(signal::shutdown());
        let world = tokio::select! {
            played = self.play_all(&folder, output) => played?,
            () = &mut stop => return Err(Failure::new(Exit::Round, "the demo was interrupted")),
        };
        if self.inspect {
            tell_how_to_look(&world, output);
            stop.await;
        }
        world.shutdown().await;
        Ok(())
    }

    /// How many participants are hostile.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a checked part of them")]
    fn hostile(&self) -> u32 {
        (f64::from(self.data.participants) * self.attack).round() as u32
    }

    /// What participants are promised, if anything.
    fn promise(&self) -> Outcome<Option<PrivacySpec>> {
        let participants = self.data.participants;
        let cohort = self.drawn();
        let spec = |arg: &PrivacyArg| {
            let arg = if self.schedule.trains_ahead() { arg.clone().ahead() } else { arg.clone() };
            arg.spec(cohort, participants, self.rounds, !self.insecure_aggregation)
        };
        self.privacy.as_ref().map(spec).transpose()
    }

    /// Participants drawn for a round.
    fn drawn(&self) -> u32 {
        let participants = self.data.participants;
        let usual = if self.schedule.trains_ahead() {
            (participants / 3).max(MIN_SECURE_COHORT).min(participants)
        } else {
            participants
        };
        self.cohort.unwrap_or(usual)
    }

    fn check(&self) -> Outcome {
        if !(0.0..1.0).contains(&self.drop) {
            return Err(Failure::new(Exit::Usage, "--drop is a probability, at least 0 and below 1"));
        }
        if !(0.0..=1.0).contains(&self.attack) {
            return Err(Failure::new(Exit::Usage, "--attack is a part of the participants, between 0 and 1"));
        }
        if self.drop > 0.0 && self.schedule.trains_ahead() {
            let detail =
                "--drop plans who drops out of which round; with this --mode participants train outside of rounds";
            return Err(Failure::new(Exit::Usage, detail));
        }
        let drawn = self.drawn();
        if !self.insecure_aggregation && drawn < MIN_SECURE_COHORT {
            let detail = format!(
                "secure aggregation takes at least {MIN_SECURE_COHORT} participants a round, this demo draws {drawn}: draw more, or \
                 let the coordinator read updates (--insecure-aggregation)"
            );
            return Err(Failure::new(Exit::Usage, detail));
        }
        match self.cohort {
            Some(cohort) if cohort > self.data.participants => {
                let detail = format!("--cohort {cohort} is above --participants {}", self.data.participants);
                Err(Failure::new(Exit::Usage, detail))
            }
            _ if self.personalize.len() > 1 && self.task_file.is_some() => {
                Err(Failure::new(Exit::Usage, "--task-file takes one task: personalize in one way at a time"))
            }
            _ => self.promise().map(|_| ()),
        }
    }

    async fn play_all(&self, folder: &Path, output: Output) -> Outcome<World> {
        let mut scene = self.scene()?;
        let table = LiveTable::new(output, self.privacy.is_some());
        if !self.personalize.is_empty() {
            return self.compare(folder, &mut scene, &table, output).await;
        }
        let pooled = self.centralized.then(|| scene.shards.iter().map(|(train, _)| train.clone()).collect());
        let shards = std::mem::take(&mut scene.shards);
        let played = self.play(folder, &scene, shards, None, &table, output).await?;
        let centralized = match pooled {
            Some(shards) => {
                table.message("training on the pooled data");
                Some(central(&scene, shards, self.rounds).await?)
            }
            None => None,
        };
        table.finish();
        let finished = self.finished(folder, &played, centralized, None)?;
        self.conclude(&finished, output);
        Ok(played.world)
    }

    /// Plays a federation for each way to a model of one's own, and one without unless one of them makes the same model.
    async fn compare(&self, folder: &Path, scene: &mut Scene, table: &LiveTable, output: Output) -> Outcome<World> {
        let shards = Shards::new(std::mem::take(&mut scene.shards));
        self.check_ways(scene, &shards)?;
        let plain = (!self.personalize.iter().any(Way::makes_fed_avg)).then_some(None);
        let ways = plain.into_iter().chain(self.personalize.iter().map(Some));
        let (mut served, mut fed_avg, mut world) = (Vec::new(), None, None::<World>);
        for (number, way) in ways.enumerate() {
            if let Some(earlier) = world.take() {
                earlier.shutdown().await;
                output.line("");
            }
            let folder = folder.join(number.to_string());
            let played = self.play(&folder, scene, shards.to_vec(), way, table, output).await?;
            table.message("evaluating the personalized models");
            if let Some(way) = way {
                let (journals, task) = (folder.join(PARTICIPANTS), played.task.summary.id);
                served.push(personal::personally(scene, &shards, way, &journals, task).await?);
            }
            if fed_avg.is_none() && way.is_none_or(Way::makes_fed_avg) {
                served.push(personal::globally(scene, &shards, &played.last.bytes).await?);
                fed_avg = Some(self.finished(&folder, &played, None, None)?);
            }
            world = Some(played.world);
        }
        table.message("training each alone");
        served.push(personal::alone(scene, &shards, self.rounds).await?);
        table.finish();
        // The yardsticks first.
        served.sort_by_key(Served::rank);
        let nothing = || Failure::new(Exit::Internal, "nothing was played");
        let finished = fed_avg.ok_or_else(nothing)?;
        self.conclude(&Finished { personalization: Some(Personalized { served }), ..finished }, output);
        world.ok_or_else(nothing)
    }

    /// What all participants of a federation are told to do.
    fn task(&self, scene: &Scene, most_examples: usize, way: Option<&Way>) -> Outcome<TaskSpec> {
        let input = TaskInput {
            data: &self.data,
            architecture: &scene.architecture,
            training: scene.training.clone(),
            optimizer: self.server.optimizer()?,
            description: scene.description.clone(),
            rounds: self.rounds,
            cohort: self.drawn(),
            most_examples,
            secure: !self.insecure_aggregation,
            privacy: self.promise()?,
            codec: self.codec.as_ref(),
            robust: self.robust,
            way,
        };
        let mut spec = input.spec()?;
        self.schedule.apply(&mut spec, self.drawn(), TRAINING)?;
        Ok(spec)
    }

    /// Nobody waits for some ways to be played and then hears that another cannot be.
    fn check_ways(&self, scene: &Scene, shards: &Shards) -> Outcome {
        // What a coordinator imposes beyond the task itself it says itself.
        let deployment = Deployment { poll_interval_ms: 1 };
        for way in &self.personalize {
            let spec = self.task(scene, largest(shards), Some(way))?;
            spec.check(&deployment).map_err(|errors| {
                let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
                Failure::new(Exit::Usage, format!("--personalize {}: {}", way.label(), errors.join("; ")))
            })?;
        }
        Ok(())
    }

    /// One federation, from its start to the end of its last round.
    async fn play(
        &self,
        folder: &Path,
        scene: &Scene,
        shards: Vec<(Dataset, Dataset)>,
        way: Option<&Way>,
        table: &LiveTable,
        output: Output,
    ) -> Outcome<Played> {
        let device = self.device.open().map_err(Failure::because(Exit::Device, format!("{:?}", self.device)))?;
        let most_examples = largest(&shards);
        let spec = self.task(scene, most_examples, way)?;
        let mut world = World::start(folder).await?;
        let drops = DropPlan { probability: self.drop, seed: scene.seed, secure: !self.insecure_aggregation };
        let private = self.privacy.is_some();
        let hostile = self.hostile();
        let settings = Settings { device, threads: scene.threads, drops, seed: scene.seed, private, hostile };
        world.enroll(shards, &folder.join(PARTICIPANTS), &settings, output).await?;
        if let Some(file) = &self.task_file {
            task_file::write(file, &spec)?;
        }
        let task: TaskView = world.server.post(route::TASKS, &CreateTask { spec }, None).await?;
        let report = match task.spec.privacy.is_private() {
            true => Some(ledger::get(&world.server, task.summary.id).await?),
            false => None,
        };
        self.announce(&world, scene, &task, report.as_ref(), way, output);
        table.headings();
        world.open();
        let id = task.summary.id;
        let is_whole = way.is_none_or(|way| way.publishes_the_whole_model());
        let rounds = Rounds { task: id, count: self.rounds, scene, table, output, is_whole };
        let last = rounds.run(&mut world).await?;
        world.dismiss().await;
        let privacy = match report {
            Some(_) => Some(ledger::get(&world.server, id).await?),
            None => None,
        };
        Ok(Played { world, task, last, privacy })
    }

    fn finished(
        &self,
        folder: &Path,
        played: &Played,
        centralized: Option<Score>,
        personalization: Option<Personalized>,
    ) -> Outcome<Finished> {
        let last = &played.last;
        let score = last.score.ok_or_else(|| Failure::new(Exit::Internal, "the final model was not evaluated"))?;
        Ok(Finished {
            rounds: last.rounds,
            accuracy: score.accuracy,
            loss: score.loss,
            compression: last.compression.clone(),
            model: ModelFile { path: self.save(folder, last)?, sha256: last.model.sha256 },
            seconds: last.seconds,
            privacy: played.privacy.as_ref().map(Spent::of),
            centralized,
            personalization,
        })
    }

    fn scene(&self) -> Outcome<Scene> {
        let federated = self.data.load()?;
        let architecture = data::architecture(self.data.data, self.model, &federated.test)?;
        let seed = self.data.seed();
        let held_out = if self.personalize.is_empty() { data::OWN_HELD_OUT } else { personal::HELD_OUT };
        Ok(Scene {
            threads: self.threads.map_or_else(cores, |threads| threads as usize),
            shards: plan::shards(federated.shards, held_out, seed),
            test: Arc::new(federated.test),
            training: self.training.plan(&architecture),
            architecture,
            description: federated.description,
            seed,
        })
    }

    /// Writes the final model to where it outlives the demo.
    fn save(&self, folder: &Path, last: &Last) -> Outcome<PathBuf> {
        let path = match (&self.out, &self.dir) {
            (Some(out), _) => out.clone(),
            (None, Some(_)) => folder.join("model.safetensors"),
            (None, None) => {
                let name = format!("{}.safetensors", &last.model.sha256.to_string()[..16]);
                std::env::temp_dir().join("tributary-demo").join(name)
            }
        };
        let cannot = || Failure::because(Exit::Io, format!("cannot write {}", path.display()));
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(cannot())?;
        }
        std::fs::write(&path, &last.bytes).map_err(cannot())?;
        Ok(path.canonicalize().unwrap_or(path))
    }
}

/// Training examples of the participant that has most.
fn largest(shards: &[(Dataset, Dataset)]) -> usize {
    shards.iter().map(|(train, _)| train.len()).max().unwrap_or(1)
}

async fn central(scene: &Scene, shards: Vec<Dataset>, rounds: u32) -> Outcome<Score> {
    let (architecture, test) = (scene.architecture.clone(), Arc::clone(&scene.test));
    let (training, seed) = (scene.training.clone(), scene.seed);
    blocking(move || centralized::train(&architecture, &shards, &test, &training, rounds, seed)).await
}

/// Makes a folder, or takes one that has nothing in it: two demos in one folder would be neither.
fn empty(folder: &Path) -> Outcome {
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::read_dir(folder))
        .map_err(Failure::because(Exit::Io, format!("cannot use the folder {}", folder.display())))
        .and_then(|mut entries| match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::new(Exit::Io, format!("the folder {} is not empty", folder.display()))),
        })
}

fn tell_how_to_look(world: &World, output: Output) {
    let ca = world.ca.display();
    output.event("inspecting", &serde_json::json!({ "url": world.url, "ca": world.ca, "token": world.token }));
    output.line("");
    output.line("The coordinator stays until ctrl-c. In another terminal:");
    output.line("");
    output.line(format!("  export TRIBUTARY_SERVER={} TRIBUTARY_CA={ca}", world.url));
    output.line(format!("  export TRIBUTARY_TOKEN={}", world.token));
    output.line("  tributary round list demo");
    output.line("  tributary round show demo 1");
    output.line("  tributary model fetch demo");
    output.line(format!("  curl --cacert {ca} -H \"Authorization: Bearer $TRIBUTARY_TOKEN\" {}/v1/tasks", world.url));
}
