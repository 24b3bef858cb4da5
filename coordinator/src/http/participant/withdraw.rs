//! `POST /v1/withdraw`: a participant revokes itself, and gets the statement about its contributions.

use std::sync::Arc;

use axum::extract::State;
use federation::event::Actor;
use federation::id::{ParticipantId, RoundKey};
use federation::round::RoundState;
use federation::time::Timestamp;
use listener::Key;
use store::{StoreError, Transaction, WakeEvent};
use wire::contributions::SignedContributions;
use wire::route;

use crate::http::app::App;
use crate::http::auth::authenticate::EvenRevoked;
use crate::http::extract::Json;
use crate::http::inspect::contributions;
use crate::http::reply::problem::{Error, Result};
use crate::observe::count_dropped;

/// Withdraw: end this participant for good, and get the signed statement about its contributions.
#[utoipa::path(
    post, path = route::WITHDRAW, security(("certificate" = [])),
    responses((status = 200, body = SignedContributions)),
)]
pub(in crate::http) async fn withdraw(
    // Revoked ones may repeat the request, since the statement may get lost.
    EvenRevoked(caller): EvenRevoked,
    State(app): State<Arc<App>>,
) -> Result<Json<SignedContributions>> {
    let (participant, now) = (caller.id, app.now());
    // The statement computes the costs of whole ledgers.
    app.limiter.admit_costly(Key::Participant(participant), now).map_err(Error::RateLimited)?;
    let revocation = app
        .store
        .transact("withdraw", |tx| {
            Box::pin(async move {
                tx.act_for(Actor::Participant { participant });
                Revocation::of(tx, participant, now).await
            })
        })
        .await?;
    if revocation.take_effect(&app) {
        tracing::info!(%participant, "participant {participant} has withdrawn");
    }
    let statement = contributions::statement(&app, participant).await?;
    statement.map(Json).ok_or_else(|| Error::fault("a participant with a certificate is not there"))
}

/// A revocation in the database.
pub(in crate::http) struct Revocation {
    participant: ParticipantId,
    /// Whether it was not revoked before.
    is_news: bool,
    /// The rounds that it had a place in.
    rounds: Vec<RoundKey>,
    /// Their states.
    phases: Vec<RoundState>,
}

impl Revocation {
    /// Revokes the participant, and frees its places in rounds. Without an effect if it is revoked or unknown.
    ///
    /// # Errors
    /// Those of the store.
    pub(in crate::http) async fn of(
        tx: &mut Transaction<'_>,
        participant: ParticipantId,
        now: Timestamp,
    ) -> std::result::Result<Self, StoreError> {
        let (mut rounds, mut phases) = (Vec::new(), Vec::new());
        let is_news = tx.revoke_participant(participant, now).await?;
        if is_news {
            tx.remove_check_ins(&[participant]).await?;
            rounds = tx.revoke_pending(participant, now).await?;
        }
        for round in &rounds {
            phases.extend(tx.round(*round).await?.map(|row| row.round.state));
        }
        Ok(Self { participant, is_news, rounds, phases })
    }

    /// Ends what is in memory of the participant, after the commit. Returns whether it was not revoked before.
    pub(in crate::http) fn take_effect(self, app: &App) -> bool {
        let Self { participant, is_news, rounds, phases } = self;
        phases.into_iter().for_each(|phase| count_dropped(phase, "revoked", 1));
        app.identities.forget(participant);
        app.check_ins.forget(participant);
        for round in rounds {
            app.store.wake().publish(WakeEvent::Round(round));
        }
        app.store.wake().publish(WakeEvent::Work);
        is_news
    }
}
