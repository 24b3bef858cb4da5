//! `GET /v1/tasks/{task}/privacy`: the ledger, verified row by row first, and `…/export`: the same with a signature; `GET /v1/privacy`: the
//! total over all ledgers.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use federation::id::TaskId;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use learning::privacy::{Epsilons, Ledger, LedgerError, LedgerRow, NoServerEpsilon, SealedRow};
use serde::Deserialize;
use store::StoreError;
use store::entity::privacy_ledger::PrivacyRow;
use store::entity::task::{TaskFilter, TaskRow};
use store::entity::token::TaskScope;
use utoipa::IntoParams;
use wire::inspect::{EpsilonView, PrivacyReport, PrivacyTotal, ReleaseView, TaskPrivacy};
use wire::ledger::{ExportedRow, FORMAT, LedgerExport, SignedLedger};
use wire::route;

use super::{List, PageQuery};
use crate::http::app::App;
use crate::http::auth::operators::{InScope, OfTask, Viewer};
use crate::http::extract::{Json, Query};
use crate::http::reply::problem::{Error, Result};
use crate::privacy::ledger::{self, LedgerFault};
use crate::privacy::ledger_end::StoredEnd;
use recipe::server::PrivateTask;

/// Maximum number of future rounds to compute.
const AHEAD_MAX: u32 = 1_000_000;
/// Number of tasks read at once.
const TASKS_AT_ONCE: u32 = 100;
/// Number of rows of a ledger read at once.
const ROWS_AT_ONCE: u32 = 1000;
/// Number of stored ends of ledgers read at once.
const ENDS_AT_ONCE: usize = 8;

/// Get a task's privacy ledger.
#[utoipa::path(
    get, path = route::TASK_PRIVACY, params(PageQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = PrivacyReport), (status = 409)),
)]
pub(in crate::http) async fn show(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<PrivacyReport>> {
    let (limit, from) = (query.limit()?, query.place::<u64>(List::Releases)?.unwrap_or(0));
    let private = private_of(&app, &task)?;
    let (sealer, row, of) = (&app.sealer, &task, &private);
    let end = &ledger::stored_end(sealer, row.id).await?;
    let (ledger, rows, base) = app
        .store
        .read("show_privacy", |tx| {
            Box::pin(async move {
                let ledger = ledger::read(tx, row, of, sealer, end).await?;
                let rows = tx.privacy_rows(row.id, from, limit).await?;
                Ok::<_, LedgerFault>((ledger, rows, tx.latest_model_version(row.id).await?))
            })
        })
        .await
        .map_err(untrusted)?;
    let clip = base.and_then(|base| base.clip).unwrap_or(private.initial_clip());
    let terms = private.terms(clip);
    let next = from + rows.len() as u64;
    let last_round = ledger.rows().last().map_or(0, |sealed| sealed.row.release.round);
    let next_round = u32::try_from(last_round).unwrap_or(u32::MAX).saturating_add(1);
    let planned = private.planned(&ledger, next_round, 1).map_err(Error::fault)?;
    Ok(Json(PrivacyReport {
        spec: task.spec.privacy.clone(),
        cohort: terms.cohort,
        smallest_cohort: terms.smallest_cohort,
        colluders: terms.colluders,
        clip,
        spent: epsilon(&ledger.spent()),
        rounds_left: ledger.budget().epsilon.map(|_| ledger.room_for(&planned, AHEAD_MAX)),
        releases: rows.iter().filter_map(|row| release(row, &ledger)).collect(),
        next_cursor: (next < ledger.rows().len() as u64).then(|| List::Releases.cursor(next)),
    }))
}

/// Get a task's whole privacy ledger, signed by the key of the audit log.
#[utoipa::path(
    get, path = route::TASK_PRIVACY_EXPORT, security(("token" = ["viewer"])),
    responses((status = 200, body = SignedLedger), (status = 409)),
)]
pub(in crate::http) async fn export(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
) -> Result<Json<SignedLedger>> {
    let private = private_of(&app, &task)?;
    let (sealer, row, of) = (&app.sealer, &task, &private);
    let end = &ledger::stored_end(sealer, row.id).await?;
    let (ledger, rows) = app
        .store
        .read("export_privacy", |tx| {
            Box::pin(async move {
                let ledger = ledger::read(tx, row, of, sealer, end).await?;
                let mut rows = Vec::new();
                while rows.len() < ledger.rows().len() {
                    let page = tx.privacy_rows(row.id, rows.len() as u64, ROWS_AT_ONCE).await?;
                    if page.is_empty() {
                        return Err(LedgerError::Head.into());
                    }
                    rows.extend(page);
                }
                Ok::<_, LedgerFault>((ledger, rows))
            })
        })
        .await
        .map_err(untrusted)?;
    let exported = |(row, sealed): (&PrivacyRow, &SealedRow)| {
        let mut value = serde_json::to_value(&sealed.row).map_err(Error::fault)?;
        if sealed.row.release.sampled.is_secret() {
            let release = value["release"].as_object_mut();
            release.ok_or_else(|| Error::fault("a release is no object"))?.remove("participants");
        }
        Ok(ExportedRow { row: value, published: row.published, at: row.created_at })
    };
    Ok(Json(app.sealer.sign_ledger(&LedgerExport {
        format: FORMAT,
        coordinator: app.sealer.audit_key(),
        task: task.id,
        name: task.spec.name.clone(),
        privacy: task.spec.privacy.clone(),
        rows: rows.iter().zip(ledger.rows()).map(exported).collect::<Result<_>>()?,
        signed_at: app.now(),
        program: format!("tributary {}", listener::version()),
    })))
}

/// What the releases of a task have spent; `None` without a privacy mechanism, and if the ledger is damaged.
pub(super) async fn spent(app: &App, task: &TaskRow) -> Result<Option<EpsilonView>> {
    let Some(of) = &app.models.of(task)?.private else { return Ok(None) };
    let sealer = &app.sealer;
    let end = &ledger::stored_end(sealer, task.id).await?;
    let read = app.store.read("show_spent", |tx| Box::pin(ledger::read(tx, task, of, sealer, end)));
    match read.await {
        Ok(ledger) => Ok(Some(epsilon(&ledger.spent()))),
        Err(LedgerFault::Store(error)) => Err(Error::Store(error)),
        Err(LedgerFault::Ledger(_) | LedgerFault::End(_)) => Ok(None),
    }
}

fn private_of(app: &App, task: &TaskRow) -> Result<Arc<PrivateTask>> {
    let missing = "the task has no privacy mechanism, so there is no ledger: its models promise nothing";
    app.models.of(task)?.private.clone().ok_or_else(|| Error::NotFound(missing.to_owned()))
}

fn untrusted(fault: LedgerFault) -> Error {
    match fault {
        LedgerFault::Store(error) => Error::Store(error),
        untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_)) => Error::Conflict(untrusted.to_string()),
    }
}

/// The delta of the total.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct TotalQuery {
    /// Above 0 and below 1; default: the smallest of the tasks' deltas.
    #[param(exclusive_minimum = 0.0, exclusive_maximum = 1.0)]
    delta: Option<f64>,
}

/// A task's ledger, or the reason for its absence.
type OpenedLedger = (TaskRow, Arc<PrivateTask>, std::result::Result<Ledger, LedgerFault>);

/// Get an upper bound on what all private tasks together have revealed about a participant of each.
#[utoipa::path(
    get, path = route::PRIVACY, params(TotalQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = PrivacyTotal)),
)]
pub(in crate::http) async fn total(
    InScope(bearer): InScope,
    State(app): State<Arc<App>>,
    Query(query): Query<TotalQuery>,
) -> Result<Json<PrivacyTotal>> {
    if query.delta.is_some_and(|delta| !(delta > 0.0 && delta < 1.0)) {
        return Err(Error::InvalidValue("delta must be above 0 and below 1".to_owned()));
    }
    let opened = open_all(&app, bearer.scope).await?;
    let deltas = opened.iter().filter_map(|(task, ..)| task.spec.privacy.delta);
    let delta = query.delta.or_else(|| deltas.min_by(f64::total_cmp));
    let trusted = opened.iter().map(|(_, of, ledger)| ledger.as_ref().ok().map(|ledger| (of.mechanism(), ledger)));
    let trusted: Option<Vec<_>> = trusted.collect();
    let spent = delta.zip(trusted).map(|(delta, ledgers)| epsilon(&ledger::together(ledgers, delta)));
    let tasks = opened.iter().map(|(task, _, ledger)| TaskPrivacy {
        task: task.id,
        name: task.spec.name.clone(),
        mechanism: task.spec.privacy.mechanism,
        delta: task.spec.privacy.delta,
        releases: ledger.as_ref().map_or(0, |ledger| ledger.rows().len() as u64),
        spent: ledger.as_ref().ok().map(|ledger| epsilon(&ledger.spent())),
        damaged: ledger.as_ref().err().map(ToString::to_string),
    });
    Ok(Json(PrivacyTotal { delta, spent, tasks: tasks.collect() }))
}

/// The ledgers of all private tasks within a scope, newest task first.
async fn open_all(app: &Arc<App>, scope: TaskScope) -> Result<Vec<OpenedLedger>> {
    let filter = &TaskFilter { scope, ..TaskFilter::default() };
    let (sealer, models, ends) = (&app.sealer, &app.models, &ends(app, filter).await?);
    let read = app.store.read("show_all_privacy", |tx| {
        Box::pin(async move {
            let (mut opened, mut cursor) = (Vec::new(), None);
            loop {
                let page = tx.tasks_where(filter, cursor, TASKS_AT_ONCE).await?;
                cursor = page.last().map(|task| task.id);
                if cursor.is_none() {
                    return Ok(opened);
                }
                for task in page.into_iter().filter(|task| task.spec.privacy.is_private()) {
                    // Validated at creation; a task without a model has released nothing.
                    let Some(private) = models.of(&task).ok().and_then(|model| model.private.clone()) else {
                        continue;
                    };
                    // A task created after the ends were read has released nothing.
                    let Some(end) = ends.get(&task.id) else { continue };
                    let ledger = match ledger::read(tx, &task, &private, sealer, end).await {
                        Ok(ledger) => Ok(ledger),
                        Err(LedgerFault::Store(error)) => return Err(error),
                        Err(untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_))) => Err(untrusted),
                    };
                    opened.push((task, private, ledger));
                }
            }
        })
    });
    Ok(read.await?)
}

/// Reads the stored ends of the tasks' ledgers.
async fn ends(app: &Arc<App>, filter: &TaskFilter) -> Result<HashMap<TaskId, StoredEnd>> {
    let private = app.store.read("private_tasks", |tx| {
        Box::pin(async move {
            let (mut private, mut cursor) = (Vec::new(), None);
            loop {
                let page = tx.tasks_where(filter, cursor, TASKS_AT_ONCE).await?;
                cursor = page.last().map(|task| task.id);
                if cursor.is_none() {
                    return Ok::<_, StoreError>(private);
                }
                private.extend(page.iter().filter(|task| task.spec.privacy.is_private()).map(|task| task.id));
            }
        })
    });
    let ends =
        stream::iter(private.await?).map(|id| async move { Ok((id, ledger::stored_end(&app.sealer, id).await?)) });
    ends.buffer_unordered(ENDS_AT_ONCE).try_collect().await
}

fn release(row: &PrivacyRow, ledger: &Ledger) -> Option<ReleaseView> {
    let sealed = &ledger.rows().get(usize::try_from(row.idx).ok()?)?.row;
    let LedgerRow { index, release, rho, rdp, pld, total, accounting } = sealed;
    // Neighbouring data sets differ by one participant: with a secret draw, an exact count would reveal a participant.
    let participants = (!release.sampled.is_secret()).then_some(release.participants);
    let mut parameters = serde_json::to_value(release).ok()?;
    if participants.is_none() {
        parameters.as_object_mut()?.remove("participants");
    }
    Some(ReleaseView {
        index: *index,
        round: row.attempt.round,
        attempt: row.attempt.attempt,
        published: row.published,
        mechanism: release.mechanism,
        participants,
        noise_multiplier: release.noise_multiplier(),
        parameters,
        rho: *rho,
        rdp: *rdp,
        pld: *pld,
        total: epsilon(total),
        accounting: *accounting,
        at: row.created_at,
    })
}

/// The three figures for viewers.
pub(super) fn epsilon(epsilons: &Epsilons) -> EpsilonView {
    let reason = epsilons.server_reason.map(|reason| match reason {
        NoServerEpsilon::ServerTrusted => "server_trusted".to_owned(),
        NoServerEpsilon::NoMechanism => "no_mechanism".to_owned(),
    });
    EpsilonView {
        published: epsilons.published,
        cohort_known: epsilons.cohort_known,
        server: epsilons.server,
        server_reason: reason,
    }
}
