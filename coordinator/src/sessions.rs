//! Cache of the sessions that requests ask for, and of the shares dealt in them. The rows are authoritative.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use federation::id::{Attempt, ParticipantId};
use federation::round::{Round, RoundState};
use secure_agg::Index;
use secure_agg::messages::{SealedShares, ShareKeys};
use store::entity::session_message::MessageKind;
use store::{Store, StoreError, Transaction};

use crate::guarded::Guarded;
use crate::session::{Session, admitted, restore_all};

/// Sessions kept in memory at once.
const KEPT: usize = 64;
/// Maximum number of rounds whose dealt shares are in memory: up to a hundred megabytes each for a cohort of a
/// thousand.
const DEALT_KEPT: usize = 4;

/// The messages of all dealers, by position.
pub(crate) struct DealtShares(Vec<Option<ShareKeys>>);

impl DealtShares {
    /// The message of `dealer`, as signed.
    pub(crate) fn shares(&self, dealer: Index) -> Option<&ShareKeys> {
        self.0.get(usize::from(dealer).checked_sub(1)?)?.as_ref()
    }

    /// The shares that `dealer` sealed for `holder`.
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
    /// The cohort is divided, and the participant is in no group that is left.
    LeftOut,
    /// The round is in another state by now: it must be looked at again.
    MovedOn,
}

/// The session, of an attempt's, that a participant is in.
fn of_member(groups: &GroupSessions, round: &Round, participant: ParticipantId) -> Option<Arc<Session>> {
    let is_divided = round.limits.groups.is_some();
    let mut left = groups.iter().flatten();
    left.find(|session| !is_divided || session.index(participant).is_some()).map(Arc::clone)
}

/// Cache of recently read sessions; the rows are authoritative.
#[derive(Default)]
pub(crate) struct Sessions {
    phases: Guarded<HashMap<Attempt, (RoundState, GroupSessions)>>,
    dealt: Guarded<HashMap<GroupKey, Arc<tokio::sync::OnceCell<Arc<DealtShares>>>>>,
}

impl Sessions {
    /// The session of an attempt that a participant is in.
    ///
    /// # Errors
    /// The store's; [`StoreError::Corrupt`] if there is no session.
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

    /// The same within a transaction, in whose state the round is; `None` if the participant is in no group that is left.
    ///
    /// # Errors
    /// The store's; [`StoreError::Corrupt`] if there is no session.
    pub(crate) async fn read(
        &self,
        tx: &mut Transaction<'_>,
        round: &Round,
        participant: ParticipantId,
    ) -> Result<Option<Arc<Session>>, StoreError> {
        let groups = match self.known(round) {
            Some(groups) => groups,
            None => self.load(tx, round).await?.ok_or(StoreError::Busy)?,
        };
        Ok(of_member(&groups, round, participant))
    }

    /// The sessions of an attempt in this state, if they were read before.
    fn known(&self, round: &Round) -> Option<GroupSessions> {
        let phases = self.phases.lock();
        phases.get(&round.key).filter(|(of, _)| *of == round.state).map(|(_, known)| Arc::clone(known))
    }

    /// The sessions as they are stored; `None` if the round is no longer in this state.
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
        // A task has one open round: cached data of another is useless, and may be large.
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

    /// What everybody in a session dealt, in an attempt that is COLLECTING; read once, however many ask.
    ///
    /// # Errors
    /// The store's; `Busy` if the attempt has gone on meanwhile.
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
                    // When collection has closed since the gate was passed, they are cleared: not damage, but an answer that
                    // the next try gets.
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
