//! Builds assignments.

use federation::id::{Attempt, ParticipantId};
use federation::round::{AssignmentState, Round, RoundState};
use federation::time::Timestamp;
use store::entity::task::TaskRow;
use task_spec::{TaskSpec, TrainingPlan};
use wire::participant::{Assignment, CheckInReply, HeldUpdate, ModelRef, SessionTerms};

use super::found::{RoundOffer, TrainingOffer};
use crate::admission::Fact;
use crate::http::app::App;
use crate::http::reply::problem::Result;
use crate::rounds::base::RoundBase;

pub(super) fn assigned(app: &App, participant: ParticipantId, work: RoundOffer) -> Result<CheckInReply> {
    let RoundOffer { place, task, round, base, provenance, update, plan, counted } = work;
    // The draw removed its check-in, so the next one must be written again.
    app.check_ins.forget(participant);
    if place.state == AssignmentState::Assigned {
        app.inbox.note(Fact::Working { attempt: place.attempt, participant });
    }
    let now = app.now();
    // A round closed in between has a remaining time of zero.
    let mut deadline_at = round.round.deadline_at().unwrap_or(now);
    // Training comes after the shares.
    let collect = (round.round.state == RoundState::Sharing).then(|| round.round.limits.collect.deadline());
    deadline_at = deadline_at.plus(collect.unwrap_or_default());
    let collect_ms = collect.map(|collect| u64::try_from(collect.as_millis()).unwrap_or(u64::MAX));
    let Round { key, limits, cohort, .. } = round.round;
    let groups = limits.groups.map(|groups| groups.count);
    // The participants in the same sum.
    let cohort = limits.groups.map_or(cohort, |groups| groups.size);
    let update = update.map(|update| HeldUpdate { serial: update.serial, version: update.base_version });
    let traceparent = app.traces.update(key, participant).map(|context| context.to_string());
    let when = AssignmentTiming { key, cohort, deadline_at, now };
    let assignment = assignment(app, task, base, plan, when)?;
    let assignment = Assignment { provenance, update, groups, counted, traceparent, collect_ms, ..assignment };
    Ok(CheckInReply::Assigned(Box::new(assignment)))
}

/// The assignment of a training ahead of rounds.
pub(super) fn to_train(app: &App, participant: ParticipantId, train: TrainingOffer) -> Result<CheckInReply> {
    let TrainingOffer { training, task, number, base, provenance } = train;
    app.check_ins.forget(participant);
    let cohort = task.spec.draw(task.spec.select_min()).cohort;
    let key = Attempt { task: task.id, round: number, attempt: training.serial };
    let (deadline_at, now) = (training.expires_at, app.now());
    let when = AssignmentTiming { key, cohort, deadline_at, now };
    let plan = task.spec.training.clone();
    let assignment = Assignment { provenance, ..assignment(app, task, base, plan, when)? };
    Ok(CheckInReply::Train(Box::new(assignment)))
}

/// Round, attempt and deadline of an assignment.
struct AssignmentTiming {
    key: Attempt,
    cohort: u32,
    deadline_at: Timestamp,
    now: Timestamp,
}

fn assignment(
    app: &App,
    task: TaskRow,
    base: RoundBase,
    training: TrainingPlan,
    when: AssignmentTiming,
) -> Result<Assignment> {
    let AssignmentTiming { key, cohort, deadline_at, now } = when;
    let terms = app.models.of(&task)?;
    let session = terms.session_in(&task.spec, base.terms(), &training);
    let session = session.map(|config| SessionTerms::new(&config, task.spec.batch_size()));
    let RoundBase { version: base, earlier } = base;
    let privacy = terms.privacy_from(base.clip);
    let encoding = terms.encoding.clone();
    let report_loss = task.spec.reports_utility();
    let metrics = task.spec.travelling_metrics();
    let TaskSpec { name, model, .. } = task.spec;
    Ok(Assignment {
        task: key.task,
        task_name: name,
        round: key.round,
        attempt: key.attempt,
        model,
        base: ModelRef { version: base.version, sha256: base.sha256, bytes: base.bytes },
        provenance: None,
        earlier,
        training,
        encoding,
        metrics,
        privacy,
        secure_aggregation: session,
        report_loss,
        update: None,
        counted: None,
        cohort: terms.private.as_ref().map_or(cohort, |private| private.stated_cohort(cohort)),
        groups: None,
        traceparent: None,
        deadline_at,
        remaining_ms: u64::try_from(deadline_at.since(now).as_millis()).unwrap_or(u64::MAX),
        collect_ms: None,
    })
}
