//! `tributary simulate`: thousands of devices under virtual time, with the real coordinator and participants.
//!
//! The output on stdout follows from the flags alone, so that runs can be compared. The speed of this machine goes to
//! stderr.

use std::time::Duration;

use serde::Serialize;
use simulation::{Experiment, Progress, Report};

use self::machine::{Stopwatch, cpu_seconds, peak_memory};
use self::refused::failure;
use crate::data;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{LiveTable, Output, check_writable, duration, number};
use crate::privacy_notes::weak_promise;
use crate::task_input::TaskInput;
use crate::trainer::cores;

mod chart;
mod devices;
mod flags;
mod machine;
mod plan;
mod pool;
mod refused;
mod table;

pub(crate) use flags::Simulate;

/// Output for programs.
#[derive(Serialize)]
struct SimulationOutput<'a> {
    seed: u64,
    cohort: u32,
    data: &'a str,
    model: &'a str,
    secure_aggregation: bool,
    selection: &'a task_spec::SelectionSpec,
    schedule: &'a task_spec::ScheduleSpec,
    devices: &'a simulation::DeviceModel,
    #[serde(flatten)]
    report: &'a Report,
}

impl Simulate {
    pub(super) async fn run(self, output: Output) -> Outcome {
        if self.until_accuracy.is_some_and(|accuracy| !(0.0..=1.0).contains(&accuracy)) {
            return Err(Failure::new(Exit::Usage, "--until-accuracy is a part of the test data, between 0 and 1"));
        }
        // It has a runtime of its own, whose threads must not be this one's.
        let done = tokio::task::spawn_blocking(move || self.simulate(output));
        tokio::select! {
            done = done => done.map_err(Failure::because(Exit::Internal, "the simulation ended badly"))?,
            () = crate::signal::shutdown() => Err(Failure::new(Exit::Round, "the simulation was interrupted")),
        }
    }

    fn simulate(self, output: Output) -> Outcome {
        self.svg.as_deref().map_or(Ok(()), check_writable)?;
        let (experiment, description, cohort) = self.experiment()?;
        let kind = experiment.architecture.kind();
        output.line(format!("Devices      {}, {}", number(self.population.into()), self.devices));
        output.line(format!("Data         {description}"));
        output.line(format!("Model        {kind}, seed {}", self.seed));
        weak_promise(&experiment.task).iter().for_each(|warning| output.note(format!("warning: {warning}")));
        output.line("");
        let participants = self.regions.map_or((self.population, "devices"), |regions| (regions, "regions"));
        let live = ProgressDisplay::new(output, participants, experiment.task.privacy.is_private());
        let stopwatch = Stopwatch::start();
        let (mut enrolled, mut enrolled_cpu) = (Duration::ZERO, None);
        let report = simulation::run(&experiment, &mut |progress| {
            if let Progress::Enrolled(_) = progress {
                (enrolled, enrolled_cpu) = (stopwatch.elapsed(), cpu_seconds());
            }
            live.show(&progress);
        })
        .map_err(failure)?;
        live.finish();
        let (took, cpu) = (stopwatch.elapsed(), cpu_seconds());
        if let Some(path) = &self.svg {
            let svg = chart::draw(&report, &description);
            std::fs::write(path, svg)
                .map_err(Failure::because(Exit::Io, format!("cannot write {}", path.display())))?;
        }
        let task = &experiment.task;
        let answer = SimulationOutput {
            seed: self.seed,
            cohort,
            data: &description,
            model: kind,
            secure_aggregation: task.secure_aggregation.enabled,
            selection: &task.selection,
            schedule: &task.schedule,
            devices: &experiment.devices,
            report: &report,
        };
        output.answer(&answer, || table::summary(&report));
        let worked = took.saturating_sub(enrolled);
        let (began, trainings) = totals(&report);
        let rate = |seconds: f64| trainings as f64 / seconds.max(1e-9);
        let of_cpu = cpu.zip(enrolled_cpu).map(|(all, before)| rate(all - before));
        output.note(format!(
            "This machine: {} in {}, then {} trainings in {} on {} threads: {:.0} a second{}{}.",
            began,
            duration(enrolled),
            number(trainings),
            duration(worked),
            experiment.threads,
            rate(worked.as_secs_f64()),
            of_cpu.map_or_else(String::new, |rate| format!(", {rate:.0} a second of its processors' time")),
            peak_memory()
                .map_or_else(String::new, |bytes| format!("; {} of memory at most", crate::output::bytes(bytes))),
        ));
        Ok(())
    }

    fn experiment(&self) -> Outcome<(Experiment, String, u32)> {
        let dealt = self.data.deal(self.population, self.seed)?;
        let input = TaskInput::new(&self.task, &self.short)?.below_cohort(self.cohort);
        let (architecture, input) = data::model(dealt.source, input, &dealt.sample)?;
        let (mut task, cohort) = plan::task(self, &input, &architecture, &dealt)?;
        let regions = self.regions.map(|count| plan::regions(self, count, &mut task, &dealt)).transpose()?;
        let threads = self.threads.map_or_else(cores, |threads| threads as usize);
        let experiment = Experiment {
            population: self.population,
            devices: self.devices.model(),
            data: dealt.data,
            architecture,
            task,
            seed: self.seed,
            threads,
            evaluate_every: self.evaluate_every,
            until_accuracy: self.until_accuracy,
            limit: Duration::from_secs(self.hours * 3600),
            regions,
        };
        Ok((experiment, dealt.description, cohort))
    }
}

/// What was enrolled before time began, and the number of trainings on devices.
fn totals(report: &Report) -> (String, u64) {
    match report.regions.len() {
        0 => (format!("{} enrolments", number(report.population.into())), report.trainings),
        1 => ("1 region".to_owned(), report.regions[0].trainings),
        regions => (format!("{regions} regions"), report.regions.iter().map(|region| region.trainings).sum()),
    }
}

/// Progress display for people.
struct ProgressDisplay {
    live: LiveTable,
    /// Number and kind of participants.
    participants: (u32, &'static str),
}

impl ProgressDisplay {
    fn new(output: Output, participants: (u32, &'static str), is_private: bool) -> Self {
        let live = LiveTable::new(output, table::table(output.width()));
        live.row(&table::headings(is_private));
        Self { live, participants }
    }

    fn show(&self, progress: &Progress<'_>) {
        match progress {
            Progress::Enrolled(count) => {
                let (all, kind) = self.participants;
                self.live.message(format!("{count} of {all} {kind} enrolled"));
            }
            Progress::Running { round, elapsed, updates } => self.live.message(format!(
                "round {round}  {} of virtual time  {} updates",
                duration(*elapsed),
                number(*updates)
            )),
            Progress::Region { region, seconds } => self.live.message(format!(
                "region {} has trained for {} of virtual time",
                region + 1,
                duration(Duration::try_from_secs_f64(*seconds).unwrap_or_default())
            )),
            Progress::Round(round) => self.live.row(&table::row(round)),
        }
    }

    fn finish(&self) {
        self.live.finish();
    }
}
