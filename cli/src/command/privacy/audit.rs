//! `tributary privacy audit`: tests a task's noise and clipping with made-up participants of a copy, in this process.

use serde::Serialize;
use serde_json::json;
use simulation::{AuditDesign, AuditReport, AuditStage, Finding, PrivacyAudit, SimulationError};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, figure, number};
use crate::task_input::{self, SetArgs};

/// Arguments of `tributary privacy audit`.
#[derive(clap::Args)]
pub(crate) struct Audit {
    /// Task file, or preset
    #[arg(value_name = "FILE|PRESET")]
    task: String,
    #[command(flatten)]
    set: SetArgs,
    /// Number of made-up participants, all of them in each of the three rounds
    #[arg(long, value_name = "N", default_value_t = 100)]
    participants: u32,
    /// Probability that an honest task passes
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.99)]
    confidence: f64,
    /// Draw everything from this seed, to repeat an audit [default: from the system's randomness]
    #[arg(long)]
    seed: Option<u64>,
}

/// Output of the command.
#[derive(Serialize)]
struct Audited<'a> {
    task: &'a str,
    confidence: f64,
    design: AuditDesign,
    #[serde(flatten)]
    report: AuditReport,
}

impl Audit {
    pub(super) async fn run(self, output: Output) -> Outcome {
        // It has a runtime of its own, whose threads must not be this one's.
        let done = tokio::task::spawn_blocking(move || self.audit(output));
        tokio::select! {
            done = done => done.map_err(Failure::because(Exit::Internal, "the audit ended badly"))?,
            () = crate::signal::shutdown() => Err(Failure::new(Exit::Round, "the audit was interrupted")),
        }
    }

    fn audit(self, output: Output) -> Outcome {
        let task = task_input::create(&self.task, &self.set)?;
        let name = task.name.clone();
        let (participants, confidence, seed) = (self.participants, self.confidence, self.seed);
        let audit = PrivacyAudit { task, participants, confidence, seed, participant: |settings| settings };
        let design = audit.design().map_err(failure)?;
        output.event("planned", &design);
        planned(&design, confidence).into_iter().for_each(|line| output.line(line));
        let report = audit.run(&mut |stage| match stage {
            AuditStage::Enrolled(count) => {
                output.event("enrolled", &json!({ "participants": count }));
                output.line(format!("{count} of {participants} participants are enrolled"));
            }
            AuditStage::Round(round) => {
                output.event("round", &json!({ "round": round }));
                output.line(format!("round {round} of 3 is complete"));
            }
        });
        let audited = Audited { task: &name, confidence, design, report: report.map_err(failure)? };
        output.event("audited", &audited);
        output.line(words(&audited));
        let findings = audited.report.findings.iter().map(|finding| finding_text(*finding)).collect::<Vec<_>>();
        match findings.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(Exit::Promise, format!("the task breaks its promise: {}", findings.join("; ")))),
        }
    }
}

/// What the audit can find.
fn planned(design: &AuditDesign, confidence: f64) -> Vec<String> {
    let cut = if design.is_cut { ", fewer than the task has" } else { "" };
    vec![
        format!(
            "An honest task passes with a probability of at least {} %; noise multiplier {}, {} values{cut}.",
            figure(100.0 * confidence),
            figure(design.noise_multiplier),
            number(design.parameters as u64)
        ),
        format!(
            "Finds noise of half the width with a probability of {}. {} guesses about {} canaries show an epsilon of about {}, and of \
             {} without noise.",
            likely(design.power_of_half_noise),
            design.guesses,
            design.canaries,
            figure(design.expected_bound),
            figure(design.highest_bound)
        ),
    ]
}

/// A probability in words.
fn likely(probability: f64) -> String {
    if probability > 0.9999 { "more than 99.99 %".to_owned() } else { format!("{:.2} %", 100.0 * probability) }
}

fn words(Audited { task, design, report, .. }: &Audited<'_>) -> String {
    let correlation = report.correlation.map_or("there is none".to_owned(), |found| {
        format!("correlation {:.4}, at least that by chance: {:.4}", found.coefficient, found.p_value)
    });
    let verdict = match report.findings.is_empty() {
        true => "Nothing contradicts the ledger.".to_owned(),
        false => report
            .findings
            .iter()
            .map(|finding| format!("FOUND: {}", finding_text(*finding)))
            .collect::<Vec<_>>()
            .join("\n"),
    };
    format!(
        "Task           {task}\n\
         Noise          variance {:.4} of the ledger's, between {:.4} and {:.4}\n\
         Two rounds     {correlation}\n\
         Canaries       {} of {} guesses are right: epsilon is at least {}\n\
         Ledger         epsilon {} at delta {:e}, for this one release\n\
         {verdict}",
        report.noise.ratio,
        report.noise.low,
        report.noise.high,
        report.correct,
        design.guesses,
        figure(report.epsilon_at_least),
        figure(report.epsilon),
        report.delta
    )
}

fn finding_text(finding: Finding) -> &'static str {
    match finding {
        Finding::NarrowNoise => "its noise is narrower than the ledger charges for",
        Finding::RepeatedNoise => "two rounds have the same noise in part",
        Finding::Canaries => "updates can be guessed better than the ledger's epsilon allows",
    }
}

fn failure(error: SimulationError) -> Failure {
    match error {
        SimulationError::Invalid(_) | SimulationError::Refused(_) => Failure::new(Exit::Configuration, error),
        SimulationError::Data(_)
        | SimulationError::Coordinator(_)
        | SimulationError::Participant { .. }
        | SimulationError::Threads(_) => Failure::new(Exit::Internal, error),
    }
}
