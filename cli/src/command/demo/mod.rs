//! `tributary demo`: a whole federation on this machine.
//!
//! Coordinator, operator and participants talk over HTTPS on a loopback port, exactly as they would across a continent. The
//! demo plays the operator: it creates the task, watches the rounds and evaluates each published model on held-out data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client_sdk::train::DeviceChoice;
use datasets::Dataset;
use serde_json::{Value, json};
use serving::Running;
use task_spec::{Personalization, TaskSpec, TrainingPlan};
use wire::admin::CreateTask;
use wire::inspect::{PrivacyReport, TaskView};
use wire::route;

use crate::command::model::Score;
use crate::command::privacy::ledger;
use crate::data::{self, DataArgs};
use crate::device;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{LiveTable, Output};
use crate::task_input::{FlagValue, ShortFlags, TaskArgs, TaskInput};
use crate::trainer::cores;
use crate::{signal, task_file};

mod attack;
mod centralized;
mod dropout;
mod events;
mod flags;
mod personal;
mod plan;
mod privacy;
mod rounds;
mod scene;
mod serve;
mod table;
mod tell;
mod world;

use events::{Finished, ModelFile, Personalized, Spent};
use flags::{DemoFlags, PERSONALIZE};
use personal::{MethodAccuracy, Shards};
use plan::{DropPlan, Plan};
use rounds::{PublishedModel, Rounds};
use scene::{Scene, blocking};
use world::{Settings, World};

/// Folder of the participants' journals.
const PARTICIPANTS: &str = "participants";

/// Arguments of `tributary demo`.
#[derive(clap::Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    short: ShortFlags<DemoFlags>,
    /// Participants drawn per round [default: all; a third in asynchronous tasks]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    cohort: Option<u32>,
    /// Probability that a participant drops out of a round, at a random point
    #[arg(long, default_value_t = 0.0, value_name = "PROBABILITY")]
    drop: f64,
    /// Fraction of malicious participants, which multiply their updates by -10
    #[arg(long, default_value_t = 0.0, value_name = "PART")]
    attack: f64,
    /// Number of participants that train in parallel [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Training device: auto, cpu, cuda or metal
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Also train the same model on the pooled data, for comparison
    #[arg(long)]
    centralized: bool,
    #[arg(long, value_name = "METHOD[:KEY=VALUE,…]", conflicts_with = "centralized", value_parser = personalize, help = PERSONALIZE.help())]
    personalize: Vec<FlagValue>,
    /// Keep the coordinator running after the last round
    #[arg(long)]
    inspect: bool,
    /// Serve the final model after the last round, and keep the coordinator running
    #[arg(long)]
    serve: bool,
    /// Output file of the final model [default: a file in the system's temporary folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the task to this file, for `tributary task create` on another coordinator
    #[arg(long, value_name = "FILE")]
    task_file: Option<PathBuf>,
    /// Store the coordinator's data and the participants' journals in this empty folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A federation whose rounds are over.
struct FinishedFederation {
    world: World,
    task: TaskView,
    last: PublishedModel,
    /// The privacy report, if the task is private.
    privacy: Option<PrivacyReport>,
}

/// A federation to run.
struct Federation {
    spec: TaskSpec,
    /// Personalization method, if any.
    personalize: Option<FlagValue>,
    /// Whether this federation is one of several to compare.
    is_compared: bool,
}

impl Federation {
    fn method(&self) -> Option<&Personalization> {
        self.spec.personalization.as_ref()
    }

    /// Whether the task's versions are complete models, which can be evaluated.
    fn publishes_the_whole_model(&self) -> bool {
        self.method().is_none_or(|method| !method.parts_the_model() && !method.shares_adapters())
    }

    /// Whether the versions of the task are those that FedAvg makes.
    fn makes_fed_avg(&self) -> bool {
        self.method().is_none_or(Personalization::leaves_the_update_alone)
    }
}

/// Parses a personalization method.
fn personalize(text: &str) -> Result<FlagValue, String> {
    PERSONALIZE.read(text)
}

impl Demo {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let input = TaskInput::new(&self.task, &self.short)?.below_cohort(self.cohort);
        self.check(&input)?;
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
            played = self.play_all(input, &folder, output) => played?,
            () = &mut stop => return Err(Failure::new(Exit::Round, "the demo was interrupted")),
        };
        let serving = match self.serve {
            true => Some(self.serve(&world, &folder, output).await?),
            false => None,
        };
        if self.inspect {
            tell_how_to_look(&world, output);
        }
        if self.inspect || self.serve {
            stop.await;
        }
        if let Some(serving) = serving {
            serving.shutdown().await;
        }
        world.shutdown().await;
        Ok(())
    }

    async fn serve(&self, world: &World, folder: &Path, output: Output) -> Outcome<Running> {
        let task = world.server.task_view(world.server.task(&world.task).await?).await?;
        serve::serve(world, &task, folder, output).await
    }

    /// Number of malicious participants.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a checked part of them")]
    fn hostile(&self) -> u32 {
        (f64::from(self.data.participants) * self.attack).round() as u32
    }

    /// Runs one federation, or one per personalization method.
    fn plan<'a>(&'a self, input: &'a TaskInput) -> Plan<'a> {
        Plan { data: &self.data, cohort: self.cohort, input }
    }

    /// Checks the arguments before any data is loaded.
    fn check(&self, input: &TaskInput) -> Outcome {
        if !(0.0..1.0).contains(&self.drop) {
            return Err(Failure::new(Exit::Usage, "--drop is a probability, at least 0 and below 1"));
        }
        if !(0.0..=1.0).contains(&self.attack) {
            return Err(Failure::new(Exit::Usage, "--attack is a part of the participants, between 0 and 1"));
        }
        let draft = self.plan(input).draft()?.spec;
        if self.drop > 0.0 && draft.ahead().is_some() {
            let detail =
                "--drop plans who drops out of which round; with this --mode participants train outside of rounds";
            return Err(Failure::new(Exit::Usage, detail));
        }
        if self.personalize.len() > 1 && self.task_file.is_some() {
            let detail = "--task-file takes one task: personalize in one way at a time";
            return Err(Failure::new(Exit::Usage, detail));
        }
        self.personalize.iter().try_for_each(|method| input.with(method.clone()).draft(&plan::base()).map(|_| ()))
    }

    async fn play_all(&self, input: TaskInput, folder: &Path, output: Output) -> Outcome<World> {
        let mut scene = self.scene(input)?;
        let plain = self.task(&scene, &scene.input)?;
        let table = table::live(output);
        scene.training = plain.training.clone();
        let methods = match &plain.personalization {
            Some(method) if self.personalize.is_empty() => vec![FlagValue::by_itself(method.as_str(), Vec::new())],
            _ => self.personalize.clone(),
        };
        if !methods.is_empty() {
            return self.compare(folder, &mut scene, methods, &table, output).await;
        }
        let pooled = self.centralized.then(|| scene.shards.iter().map(|(train, _)| train.clone()).collect());
        let shards = std::mem::take(&mut scene.shards);
        let rounds = plain.rounds.count;
        let federation = Federation { spec: plain, personalize: None, is_compared: false };
        let played = self.play(folder, &scene, shards, federation, &table, output).await?;
        let centralized = match pooled {
            Some(shards) => {
                table.message("training on the pooled data");
                Some(central(&scene, shards, rounds).await?)
            }
            None => None,
        };
        table.finish();
        let finished = self.finished(folder, &played, centralized, None)?;
        self.conclude(&finished, &played.task.summary.name, output);
        Ok(played.world)
    }

    /// Runs a federation for each personalization method, and one without unless a method publishes the same model.
    async fn compare(
        &self,
        folder: &Path,
        scene: &mut Scene,
        methods: Vec<FlagValue>,
        table: &LiveTable,
        output: Output,
    ) -> Outcome<World> {
        let shards = Shards::new(std::mem::take(&mut scene.shards));
        let federations = self.federations(scene, methods)?;
        let rounds = federations.first().map_or(0, |federation| federation.spec.rounds.count);
        let (mut served, mut fed_avg, mut last) = (Vec::new(), None, None::<FinishedFederation>);
        for (number, federation) in federations.into_iter().enumerate() {
            if let Some(earlier) = last.take() {
                earlier.world.shutdown().await;
                output.line("");
            }
            let folder = folder.join(number.to_string());
            let (method, makes_fed_avg) = (federation.personalize.clone(), federation.makes_fed_avg());
            let played = self.play(&folder, scene, shards.to_vec(), federation, table, output).await?;
            table.message("evaluating the personalized models");
            if let Some(method) = method {
                let (journals, task) = (folder.join(PARTICIPANTS), played.task.summary.id);
                served.push(personal::personally(scene, &shards, method.text(), &journals, task).await?);
            }
            if fed_avg.is_none() && makes_fed_avg {
                served.push(personal::globally(scene, &shards, &played.last.bytes).await?);
                fed_avg = Some(self.finished(&folder, &played, None, None)?);
            }
            last = Some(played);
        }
        table.message("training each alone");
        served.push(personal::alone(scene, &shards, rounds).await?);
        table.finish();
        // The baselines come first: one model for all, and training alone.
        served.sort_by_key(MethodAccuracy::rank);
        let nothing = || Failure::new(Exit::Internal, "nothing was played");
        let (finished, last) = fed_avg.zip(last).ok_or_else(nothing)?;
        let finished = Finished { personalization: Some(Personalized { served }), ..finished };
        self.conclude(&finished, &last.task.summary.name, output);
        Ok(last.world)
    }

    /// Plans a federation for each method, all valid, after one without personalization unless a method publishes the
    /// same model.
    fn federations(&self, scene: &Scene, methods: Vec<FlagValue>) -> Outcome<Vec<Federation>> {
        let federation = |method: Option<FlagValue>| {
            // Without a method personalization is off, also if the task file has one.
            let none = || {
                FlagValue::by_itself(
                    "none",
                    vec![("personalization".into(), Value::Null), ("model.personal".into(), json!([]))],
                )
            };
            let input = scene.input.with(method.clone().unwrap_or_else(none));
            Ok(Federation { spec: self.task(scene, &input)?, personalize: method, is_compared: true })
        };
        let mut federations =
            methods.into_iter().map(|method| federation(Some(method))).collect::<Outcome<Vec<_>>>()?;
        if !federations.iter().any(Federation::makes_fed_avg) {
            federations.insert(0, federation(None)?);
        }
        Ok(federations)
    }

    /// The task of a federation.
    fn task(&self, scene: &Scene, input: &TaskInput) -> Outcome<TaskSpec> {
        self.plan(input).spec(&scene.architecture, &scene.description, scene.most_examples)
    }

    /// Runs a federation from its start to the end of its last round.
    async fn play(
        &self,
        folder: &Path,
        scene: &Scene,
        shards: Vec<(Dataset, Dataset)>,
        federation: Federation,
        table: &LiveTable,
        output: Output,
    ) -> Outcome<FinishedFederation> {
        let device = device::open(self.device)?;
        let Federation { spec, .. } = &federation;
        let (name, count, private) = (spec.name.clone(), spec.rounds.count, spec.privacy.is_private());
        let mut world = World::start(folder).await?;
        let drops = DropPlan { probability: self.drop, seed: scene.seed, secure: spec.secure_aggregation.enabled };
        let hostile = self.hostile();
        let settings = Settings { device, threads: scene.threads, drops, seed: scene.seed, private, hostile, name };
        world.enroll(shards, &folder.join(PARTICIPANTS), &settings, output).await?;
        if let Some(file) = &self.task_file {
            task_file::write(file, spec)?;
        }
        let task: TaskView = world.server.post(route::TASKS, &CreateTask { spec: spec.clone() }, None).await?;
        let report = match task.spec.privacy.is_private() {
            true => Some(ledger::get(&world.server, task.summary.id).await?),
            false => None,
        };
        self.announce(&world, scene, &task, report.as_ref(), &federation, output);
        table.row(&table::headings(private));
        world.open();
        let id = task.summary.id;
        let rounds = Rounds { task: id, count, scene, table, output, is_whole: federation.publishes_the_whole_model() };
        let last = rounds.run(&mut world).await?;
        world.dismiss().await;
        let privacy = match report {
            Some(_) => Some(ledger::get(&world.server, id).await?),
            None => None,
        };
        Ok(FinishedFederation { world, task, last, privacy })
    }

    fn finished(
        &self,
        folder: &Path,
        played: &FinishedFederation,
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

    fn scene(&self, input: TaskInput) -> Outcome<Scene> {
        let federated = self.data.load()?;
        let (architecture, input) = data::model(self.data.source()?, input, &federated.test)?;
        let seed = self.data.seed();
        let is_compared = !self.personalize.is_empty() || input.value_of("personalization").is_some();
        let held_out = if is_compared { personal::HELD_OUT } else { data::OWN_HELD_OUT };
        let shards = plan::shards(federated.shards, held_out, seed);
        Ok(Scene {
            threads: self.threads.map_or_else(cores, |threads| threads as usize),
            most_examples: shards.iter().map(|(train, _)| train.len()).max().unwrap_or(1),
            shards,
            test: Arc::new(federated.test),
            training: TrainingPlan::default(),
            input,
            architecture,
            description: federated.description,
            seed,
        })
    }

    /// Writes the final model to a file that outlives the demo.
    fn save(&self, folder: &Path, last: &PublishedModel) -> Outcome<PathBuf> {
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

async fn central(scene: &Scene, shards: Vec<Dataset>, rounds: u32) -> Outcome<Score> {
    let (architecture, test) = (scene.architecture.clone(), Arc::clone(&scene.test));
    let (training, seed) = (scene.training.clone(), scene.seed);
    blocking(move || centralized::train(&architecture, &shards, &test, &training, rounds, seed)).await
}

/// Creates the folder, or uses an empty one: two demos cannot share a folder.
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
    output.event("inspecting", &json!({ "url": world.url, "ca": world.ca, "token": world.token }));
    output.line("");
    output.line("The coordinator stays until ctrl-c. In another terminal:");
    output.line("");
    output.command(format!("export TRIBUTARY_SERVER={} TRIBUTARY_CA={ca}", world.url));
    output.command(format!("export TRIBUTARY_TOKEN={}", world.token));
    for command in ["round list", "round show", "model fetch"] {
        let round = if command == "round show" { " 1" } else { "" };
        output.command(format!("tributary {command} {}{round}", world.task));
    }
    output.command(format!("curl --cacert {ca} -H \"Authorization: Bearer $TRIBUTARY_TOKEN\" {}/v1/tasks", world.url));
}
