//! An app can name every type of the SDK's interface by the SDK alone: this file uses only the SDK among our crates.

use std::borrow::Cow;
use std::collections::BTreeMap;

use client_sdk::learning::Adapters;
use client_sdk::participant::{Event, Span};
use client_sdk::transport::{Download, Request, Response, Transport, TransportError};
use client_sdk::wire::participant::ModelRef;
use client_sdk::{
    AbandonReason, Analytics, Attempt, Attribute, AuditKey, Cancel, Clipping, Constraints, Digest, DiscardReason,
    Layout, MetricValue, Parameters, ParticipantId, Problem, RefusalCode, SignedProvenance, Table, TableColumn,
    TableSpec, TaskId, Timestamp, TraceContext, Trained, Trainer, TrainerError, TrainingJob, TrainingPlan, WaitingFor,
};

/// An app's trainer that looks at all it is given.
struct Looks;

impl Trainer for Looks {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let plan: &TrainingPlan = &job.plan;
        let (_, _): (&Option<Analytics>, &Cancel) = (&job.analytics, &job.cancel);
        let table: Option<&TableSpec> = job.table.as_ref();
        let columns: Vec<&TableColumn> = table.into_iter().flat_map(|table| &table.features).collect();
        let metrics = vec![("columns".to_owned(), MetricValue { value: columns.len() as f64, count: 1 })];
        let layout: &Layout = model.layout();
        let parameters = Parameters::zeros(layout.clone().into());
        Ok(Trained { parameters, examples: u64::from(plan.epochs), metrics })
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        _: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        self.train(model, job)
    }

    fn train_adapters(
        &mut self,
        _: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        _: &Adapters,
    ) -> Result<Trained, TrainerError> {
        self.train(start, job)
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn table(&mut self, _: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        Table::new(1, vec![1.0]).map(Cow::Owned).map_err(TrainerError::failed)
    }

    fn examples(&self) -> u64 {
        1
    }
}

/// An app's transport without a connection.
struct Nobody;

#[async_trait::async_trait]
impl Transport for Nobody {
    fn identify(&self, _: &client_sdk::identity::Identity) -> Result<(), TransportError> {
        Ok(())
    }

    fn follow(&self, _: Attempt, _: TraceContext) {}

    async fn send(&self, _: &Request) -> Response {
        Response::Answered(Err(TransportError::unreachable("nobody is there")))
    }

    async fn fetch_model(&self, _: TaskId, _: &ModelRef, _: &mut Download) -> Result<(), TransportError> {
        Err(TransportError::unreachable("nobody is there"))
    }
}

/// An app's observer that destructures events.
fn told(event: &Event) -> BTreeMap<&'static str, String> {
    let place = |place: &Attempt| {
        let (task, round): (TaskId, u32) = (place.task, place.round);
        format!("{task} {round}")
    };
    let text = match event {
        Event::Enrolled { participant, .. } => {
            let id: &ParticipantId = participant;
            id.to_string()
        }
        Event::CheckedIn { waiting_for, .. } => {
            waiting_for.iter().map(|reason: &WaitingFor| reason.to_string()).collect()
        }
        Event::Abandoned { reason, refusal, .. } => {
            let (reason, refusal): (&AbandonReason, &Option<RefusalCode>) = (reason, refusal);
            format!("{} {}", reason.as_str(), refusal.map(RefusalCode::as_str).unwrap_or_default())
        }
        Event::Discarded { reason, .. } => {
            let reason: &DiscardReason = reason;
            reason.as_str().to_owned()
        }
        Event::Uploaded { sha256, .. } => {
            let digest: &Digest = sha256;
            digest.to_string()
        }
        Event::KeyPinned { key } => {
            let key: &AuditKey = key;
            key.to_string()
        }
        Event::Equivocation { taken, .. } => {
            let taken: &SignedProvenance = taken;
            taken.record.clone()
        }
        Event::Clipped { place: at, clipping } => {
            let clipping: &Clipping = clipping;
            format!("{} {clipping}", place(at))
        }
        Event::Span(Span { began, parent, .. }) => {
            let (began, _): (&Timestamp, &TraceContext) = (began, parent);
            began.0.to_string()
        }
        other => other.name().to_owned(),
    };
    BTreeMap::from([(event.name(), text)])
}

fn refused(problem: &Problem) -> u16 {
    problem.status
}

#[tokio::test]
async fn an_app_names_all_of_the_interface_by_the_sdk_alone() {
    let own = include_str!("names.rs");
    for other in ["wire", "learning", "task_spec", "recipe", "secure_agg", "federation"] {
        let named = own.lines().filter(|line| !line.contains("\"wire\"")).any(|line| {
            line.match_indices(other)
                .any(|(at, _)| line[at + other.len()..].starts_with("::") && !line[..at].ends_with("client_sdk::"))
        });
        assert!(!named, "{other} is named here");
    }
    assert_eq!(Looks.examples(), 1);
    let task = "00000000-0000-0000-0000-000000000007".parse::<TaskId>().unwrap();
    let attempt = Attempt { task, round: 3, attempt: 1 };
    let clipping = Clipping { norm: 2.0, bound: Some(1.0), outside: 0, range: None };
    let said = told(&Event::Clipped { place: attempt, clipping });
    assert!(said["clipped"].ends_with(" 3 its norm of 2.000 was scaled to the task's 1"), "{said:?}");
    let problem = Problem::new(client_sdk::wire::problem::ProblemType::NotFound, "no such task");
    assert_eq!(refused(&problem), 404);
    assert!(matches!(Attribute::from(4.0), Attribute::Number(_)));
    let _: &dyn Transport = &Nobody;
}
