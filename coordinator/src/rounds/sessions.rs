//! Cache of the sessions in use by requests, and of their dealt shares. The rows are authoritative.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use federation::id::{Attempt, ParticipantId};
use federation::round::{Round, RoundState};
use listener::PoisonFreeMutex;
use secure_agg::Index;
use secure_agg::messages::{SealedShares, ShareKeys};
use store::entity::session_message::MessageKind;
use store::{Store, StoreError, Transaction};

use crate::rounds::session::{Session, admitted, restore_all};

/// Maximum number of cached sessions.
const KEPT: usize = 64;
/// Maximum number of rounds with dealt shares in memory: up to a hundred megabytes each for a cohort of a thousand.
const DEALT_KEPT: usize = 4;

/// The messages of all dealers, by position.
pub(crate) struct DealtShares(Vec<Option<ShareKeys>>);

impl DealtShares {
    /// The signed message of `dealer`.
    pub(crate) fn shares(&self, dealer: Index) -> Option<&ShareKeys> {
        self.0.get(usize::from(dealer).checked_sub(1)?)?.as_ref()
    }

    /// The shares sealed by `dealer` for `holder`.
    pub(crate) fn sealed(&self, dealer: Index, holder: Index) -> Option<SealedShares> {
        self.shares(dealer)?.body.sealed_for(holder).copied()
    }
}

/// An attempt, and a group of its cohort.
type GroupKey = (Attempt, Option<u32>);
type GroupSessions = Arc<[Option<Arc<Session>>]>;

/// The session of a participant.
pub(crate) enum SessionFound {
    Session(Arc<Session>),
    /// The cohort is divided, and the participant's group was excluded.
    LeftOut,
    /// The round is now in another state: read it again.
    MovedOn,
}

/// The attempt's session with this participant.
fn of_member(groups: &GroupSessions, round: &Round, participant: ParticipantId) -> Option<Arc<Session>> {
    let is_divided = round.limits.groups.is_some();
    let mut left = groups.iter().flatten();
    left.find(|session| !is_divided || session.index(participant).is_some()).map(Arc::clone)
}

/// Cache of recently read sessions; the rows are authoritative.
#[derive(Default)]
pub(crate) struct Sessions {
    phases: PoisonFreeMutex<HashMap<Attempt, (RoundState, GroupSessions)>>,
    dealt: PoisonFreeMutex<HashMap<GroupKey, Arc<tokio::sync::OnceCell<Arc<DealtShares>>>>>,
}

impl Sessions {
    /// The attempt's session with this participant.
    ///
    /// # Errors
    /// Errors of the store; [`StoreError::Corrupt`] without a session.
    pub(crate) async fn find(
        &self,
        store: &Store,
        round: &Round,
        participant: ParticipantId,
    ) -> Result<SessionFound, StoreError> {
        let groups = match self.known(round) {
            Some(groups) => groups,
            None => {
                let read = store.read("session", |tx| Box::pin(self.load(tx, round)));
                let Some(groups) = read.await? else { return Ok(SessionFound::MovedOn) };
                groups
            }
        };
        Ok(of_member(&groups, round, participant).map_or(SessionFound::LeftOut, SessionFound::Session))
    }

    /// The cached sessions of an attempt in this state.
    fn known(&self, round: &Round) -> Option<GroupSessions> {
        let phases = self.phases.lock();
        phases.get(&round.key).filter(|(of, _)| *of == round.state).map(|(_, known)| Arc::clone(known))
    }

    /// Reads the stored sessions; `None` if the round is no longer in this state.
    async fn load(&self, tx: &mut Transaction<'_>, round: &Round) -> Result<Option<GroupSessions>, StoreError> {
        let (attempt, state) = (round.key, round.state);
        let found = tx.state_and_session(attempt).await?.filter(|(present, _)| *present == state);
        let Some((_, stored)) = found else { return Ok(None) };
        let stored = stored.ok_or_else(|| {
            StoreError::corrupt(format!(
                "attempt {} at {} is {state} without a session",
                attempt.attempt,
                attempt.round_key()
            ))
        })?;
        let sessions: GroupSessions =
            restore_all(round, &stored)?.into_iter().map(|session| session.map(Arc::new)).collect();
        // A task has one open round: cached data of others is useless, and may be large.
        let is_over = |other: &Attempt| other.task == attempt.task && *other != attempt;
        self.dealt.lock().retain(|(place, _), _| {
            let is_needed = state == RoundState::Collecting || *place != attempt;
            is_needed && !is_over(place)
        });
        let mut phases = self.phases.lock();
        phases.retain(|place, _| !is_over(place));
        if phases.len() >= KEPT {
            phases.clear();
        }
        phases.insert(attempt, (state, Arc::clone(&sessions)));
        Ok(Some(sessions))
    }

    /// All dealt shares of a session in a COLLECTING attempt; read once for all requests.
    ///
    /// # Errors
    /// Errors of the store; `Busy` if the attempt has continued in between.
    pub(crate) async fn dealt(
        &self,
        store: &store::Store,
        session: &Session,
        attempt: Attempt,
    ) -> Result<Arc<DealtShares>, StoreError> {
        let cell = {
            let mut dealt = self.dealt.lock();
            let rounds: HashSet<_> = dealt.keys().map(|(place, _)| *place).collect();
            if rounds.len() >= DEALT_KEPT && !rounds.contains(&attempt) {
                dealt.clear();
            }
            Arc::clone(dealt.entry((attempt, session.group)).or_default())
        };
        let read = || async {
            let stored = store.read("dealt_shares", |tx| {
                Box::pin(async move {
                    // The shares were cleared if collection closed since the check of the state: not damage, so the retry gets the right
                    // answer.
                    let row = tx.round_attempt(attempt).await?;
                    if row.is_none_or(|row| row.round.state != RoundState::Collecting) {
                        return Err(StoreError::Busy);
                    }
                    let group = session.group.map(|_| session.members());
                    admitted::<ShareKeys>(tx, attempt, MessageKind::Shares, group).await
                })
            });
            let mut dealt = vec![None; session.members().len()];
            for shares in stored.await? {
                let shares = shares.into_message();
                if let Some(slot) = usize::from(shares.body.sender).checked_sub(1).and_then(|at| dealt.get_mut(at)) {
                    *slot = Some(shares);
                }
            }
            Ok::<_, StoreError>(Arc::new(DealtShares(dealt)))
        };
        cell.get_or_try_init(read).await.map(Arc::clone)
    }
}
