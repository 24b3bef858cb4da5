//! Draws of fixed batches, stored as database rows.
//!
//! Each function checks and stores one participant's report, by the rules of `secure_agg::batch::draw`. A draw accepts
//! offers until enough participants have made one, or until its deadline passes with enough for two batches. Then the
//! pool is fixed, and its participants have until the next deadline to reveal their nonces.

use std::time::Duration;

use bytes::Bytes;
use federation::id::{ParticipantId, TaskId};
use federation::time::Timestamp;
use secure_agg::MAX_COHORT;
use secure_agg::batch::draw::{Drawn, Offer, Pool, Reveal, admit_offer, admit_reveal};
use secure_agg::codec::{DecodeError, Message as _};
use secure_agg::rejection::MessageRejection;
use store::entity::batch::{BatchDraw, BatchOffer};
use store::{StoreError, Transaction};
use task_spec::TaskSpec;
use uuid::Uuid;
use wire::base64::Base64;
use wire::certificate::Authority;
use wire::participant::{BatchReport, BatchStep};

use crate::rounds::session::participant as named;

/// Time after which a draw may begin with fewer offers than wanted.
const OFFERS: Duration = Duration::from_secs(60);
/// Time for the participants of a pool to reveal their nonces.
const REVEALS: Duration = Duration::from_secs(60);
/// Maximum age of an offer's last repetition to enter the pool.
const FRESH: Duration = Duration::from_secs(60);

/// How long a participant is excluded from a task's draws after withholding its nonce.
const LEFT_OUT_MS: i64 = 3600 * 1000;

/// The batches required by a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The task whose participants are drawn.
    task: TaskId,
    /// Number of members of a drawn batch (T); members of larger batches are admitted, too.
    pub(crate) size: u16,
    /// Number of offers at which a draw begins at once.
    wanted: u32,
    /// Minimum number of offers for a draw after its deadline.
    least: u32,
}

impl Demand {
    /// The demand of a task; `None` if the task works without batches.
    pub(crate) fn of(task: TaskId, spec: &TaskSpec) -> Option<Self> {
        let size = spec.batch_size()?;
        let most = u32::from(MAX_COHORT) / size * size;
        let whole = |count: u32| count.next_multiple_of(size).clamp(2 * size, most.max(2 * size));
        let (wanted, least) = (whole(spec.draw(u32::MAX).cohort), whole(spec.session_min()));
        u16::try_from(size).ok().map(|size| Self { task, size, wanted: wanted.max(least), least })
    }
}

/// Outcome of a participant's batch report.
pub(crate) enum Progress {
    /// The participant's next step. `awakened`: other participants with a new step because of this report.
    Step { step: BatchStep, awakened: Vec<ParticipantId> },
    /// The participant waits for others.
    Waits,
    /// The report was rejected.
    Rejected(MessageRejection),
}

impl Progress {
    fn step(step: BatchStep) -> Self {
        Self::Step { step, awakened: Vec::new() }
    }
}

/// The participant of one check-in, and the inputs of the decision.
pub(crate) struct Reporter<'r> {
    pub(crate) participant: ParticipantId,
    pub(crate) authority: &'r Authority,
    pub(crate) fresh_id: Uuid,
    pub(crate) now: Timestamp,
    /// The tasks with rounds waiting for it.
    pub(crate) tasks: &'r [TaskId],
}

/// Checks and stores a participant's report, and returns its outcome.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn report(
    tx: &mut Transaction<'_>,
    reporter: &Reporter<'_>,
    demand: Demand,
    report: Option<&BatchReport>,
) -> Result<Progress, StoreError> {
    let progress = match report {
        None | Some(BatchReport::Member { .. }) => None,
        Some(BatchReport::Offer { draw, offer }) => match tx.batch_draw(*draw).await? {
            Some(draw) if draw.failed => None,
            Some(draw) if draw.task == demand.task => offered(tx, reporter, demand, draw, offer).await?,
            Some(draw) => of_another_task(reporter, &draw),
            None => None,
        },
        Some(BatchReport::Reveal { draw, reveal }) => match tx.batch_draw(*draw).await? {
            Some(draw) if draw.failed => None,
            Some(draw) if draw.task == demand.task || draw.drawn.is_some() => {
                revealed(tx, reporter, draw, reveal).await?
            }
            Some(draw) => of_another_task(reporter, &draw),
            None => None,
        },
    };
    match progress {
        Some(progress) => Ok(progress),
        None => invite(tx, reporter, demand).await,
    }
}

/// A participant is in one draw at a time. It finishes the draw if the draw's task waits for it; otherwise it leaves.
fn of_another_task(reporter: &Reporter<'_>, draw: &BatchDraw) -> Option<Progress> {
    reporter.tasks.contains(&draw.task).then_some(Progress::Waits)
}

/// Requests an offer for the task's open draw; opens a draw if necessary.
async fn invite(tx: &mut Transaction<'_>, reporter: &Reporter<'_>, demand: Demand) -> Result<Progress, StoreError> {
    let Demand { task, size, .. } = demand;
    // A participant that withholds its nonce would make each draw fail for all others.
    let since = Timestamp(reporter.now.0.saturating_sub(LEFT_OUT_MS));
    if tx.has_failed_batch_draw(reporter.participant, task, since).await? {
        return Ok(Progress::Waits);
    }
    let open = tx.open_batch_draw(task).await?;
    let id = match open {
        Some(draw) => draw.id,
        None => {
            let (id, opened_at) = (reporter.fresh_id, reporter.now);
            let deadline_at = opened_at.plus(OFFERS);
            let size = u32::from(size);
            let draw = BatchDraw { id, task, size, opened_at, deadline_at, pool: None, drawn: None, failed: false };
            tx.insert_batch_draw(&draw).await?;
            id
        }
    };
    Ok(Progress::step(BatchStep::Offer { task, draw: id, size }))
}

/// Stores an offer, and fixes the pool at enough offers. `None` if the participant must make a new offer.
async fn offered(
    tx: &mut Transaction<'_>,
    reporter: &Reporter<'_>,
    demand: Demand,
    draw: BatchDraw,
    offer: &Base64,
) -> Result<Option<Progress>, StoreError> {
    let Reporter { participant, authority, now, .. } = *reporter;
    let Ok(decoded) = Offer::decode(&offer.0) else {
        return Ok(Some(Progress::Rejected(MessageRejection::WrongRound)));
    };
    let size = u16::try_from(draw.size).unwrap_or(u16::MAX);
    if decoded.body.client_id.as_slice() != participant.0.as_bytes() {
        return Ok(Some(Progress::Rejected(MessageRejection::Certificate)));
    }
    if let Some(pool) = &draw.pool {
        let pool = decode(pool)?;
        let is_in = pool.ids().any(|id| id == participant.0.as_bytes());
        let step = || BatchStep::Reveal { task: draw.task, draw: draw.id, pool: Base64(pool.encode()) };
        return Ok(is_in.then(|| Progress::step(step())));
    }
    // Also checks a stored offer: its certificate may have expired since.
    if let Err(rejection) = admit_offer(draw.id.as_bytes(), size, &decoded, authority) {
        return Ok(Some(Progress::Rejected(rejection)));
    }
    let (offered_at, offer) = (now, Bytes::from(offer.0.clone()));
    let row = BatchOffer { draw: draw.id, participant, offered_at, offer, reveal: None };
    if !tx.insert_batch_offer(&row).await? {
        // A repeated offer, or a new one after the participant lost its journal or renewed its certificate.
        tx.replace_batch_offer(&row).await?;
    }
    // A smaller pool is likelier to be revealed completely.
    let wanted = if tx.has_batch_draw_failed(draw.task).await? { demand.least } else { demand.wanted };
    let count = tx.batch_offer_count(draw.id).await?;
    if count < wanted && (now < draw.deadline_at || count < demand.least) {
        return Ok(Some(Progress::Waits));
    }
    let (mut offers, mut outside) = (Vec::new(), Vec::new());
    for stored in tx.batch_offers(draw.id).await? {
        outside.push(stored.participant);
        if now.since(stored.offered_at) <= FRESH {
            offers.push(Offer::decode(&stored.offer).map_err(|error| unreadable(&draw, error))?);
        }
    }
    offers.truncate(usize::from(MAX_COHORT));
    let enough = if now < draw.deadline_at { wanted } else { demand.least };
    if u32::try_from(offers.len()).unwrap_or(u32::MAX) < enough {
        return Ok(Some(Progress::Waits));
    }
    let pool = Pool::fix(*draw.id.as_bytes(), size, offers);
    let encoded = Bytes::from(pool.encode());
    let awakened: Vec<_> = pool.ids().filter_map(named).collect();
    outside.retain(|participant| !awakened.contains(participant));
    if !tx.fix_batch_pool(draw.id, &encoded, &outside, now.plus(REVEALS)).await? {
        return Ok(Some(Progress::Waits));
    }
    tracing::info!(draw = %draw.id, size, participants = pool.offers.len(), "a draw of batches begins");
    Ok(Some(match awakened.contains(&participant) {
        true => Progress::Step {
            step: BatchStep::Reveal { task: draw.task, draw: draw.id, pool: Base64(pool.encode()) },
            awakened,
        },
        // The participant's batch is incomplete, so it waits for the next draw.
        false => Progress::Waits,
    }))
}

/// Stores a nonce, and the result once the whole pool has revealed. `None` without a pool, or if the draw fails now.
async fn revealed(
    tx: &mut Transaction<'_>,
    reporter: &Reporter<'_>,
    draw: BatchDraw,
    reveal: &Base64,
) -> Result<Option<Progress>, StoreError> {
    let Reporter { participant, now, .. } = *reporter;
    let Some(pool) = &draw.pool else { return Ok(None) };
    let step = |drawn: &[u8]| BatchStep::Drawn { draw: draw.id, drawn: Base64(drawn.to_vec()) };
    if let Some(drawn) = &draw.drawn {
        return Ok(Some(Progress::step(step(drawn))));
    }
    let pool = decode(pool)?;
    let Ok(decoded) = Reveal::decode(&reveal.0) else {
        return Ok(Some(Progress::Rejected(MessageRejection::WrongRound)));
    };
    if let Err(rejection) = admit_reveal(&pool, participant.0.as_bytes(), &decoded) {
        return Ok(Some(Progress::Rejected(rejection)));
    }
    tx.set_batch_reveal(draw.id, participant, &Bytes::from(reveal.0.clone())).await?;
    let offers = tx.batch_offers(draw.id).await?;
    let mut nonces = Vec::with_capacity(pool.offers.len());
    for id in pool.ids() {
        let offer = offers.iter().find(|offer| offer.participant.0.as_bytes() == id);
        let Some(reveal) = offer.and_then(|offer| offer.reveal.as_ref()) else { continue };
        nonces.push(Reveal::decode(reveal).map_err(|error| unreadable(&draw, error))?.nonce);
    }
    let awakened: Vec<_> = pool.ids().filter_map(named).collect();
    if nonces.len() == pool.offers.len() {
        let drawn = Bytes::from(Drawn { draw: *draw.id.as_bytes(), nonces: nonces.into() }.encode());
        tx.finish_batch_draw(draw.id, &drawn).await?;
        tracing::info!(draw = %draw.id, size = draw.size, participants = awakened.len(), "batches were drawn");
        return Ok(Some(Progress::Step { step: step(&drawn), awakened }));
    }
    if now < draw.deadline_at {
        return Ok(Some(Progress::Waits));
    }
    let missing = pool.offers.len() - nonces.len();
    tx.fail_batch_draw(draw.id).await?;
    tracing::warn!(draw = %draw.id, missing, "a draw of batches ends without a result: participants did not reveal");
    Ok(None)
}

fn decode(pool: &Bytes) -> Result<Pool, StoreError> {
    Pool::decode(pool).map_err(|error| StoreError::unreadable("the pool of a draw of batches", error))
}

fn unreadable(draw: &BatchDraw, error: DecodeError) -> StoreError {
    StoreError::unreadable(format!("a message of the draw {} of batches", draw.id), error)
}
