//! Guarantees of participants.

use std::collections::BTreeMap;

use federation::id::Digest;

use super::sample::{NOW, after, assignment, digest, labels, participant, participant_id, round, task};
use crate::entity::open_task::Glance;
use crate::entity::participant::{Certificates, ParticipantFilter, ParticipantRow};
use crate::{Result, Store};

/// Those of a participant that is not revoked.
fn certificates(n: u128, newest: Digest, previous: Option<Digest>) -> Certificates {
    Certificates { participant: participant_id(n), newest, previous, revoked_at: None }
}

/// Id and name each lead to the whole row, and the id to the certificates that count; names and certificates are unique; pages are contiguous.
pub async fn participants_are_found_by_id_and_name(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let all = &ParticipantFilter::default();
                for n in [2, 1, 3] {
                    tx.insert_participant(&participant(n)).await?;
                }
                assert_eq!(tx.participant(participant_id(1)).await?, Some(participant(1)));
                assert_eq!(tx.participant_by_name("site-2").await?, Some(participant(2)));
                assert_eq!(tx.certificates(participant_id(3)).await?, Some(certificates(3, digest(3), None)));
                assert_eq!(tx.certificates(participant_id(4)).await?, None);
                assert_eq!(tx.participants(all, None, 2).await?, [participant(1), participant(2)]);
                assert_eq!(tx.participants(all, Some(participant_id(2)), 2).await?, [participant(3)]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let namesake = ParticipantRow { name: "site-1".to_owned(), ..participant(4) };
    let double = ParticipantRow { certificate_fingerprint: digest(1), ..participant(4) };
    for twin in &[namesake, double] {
        refused!(store, |tx| tx.insert_participant(twin));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.touch(&[participant_id(1), participant_id(3), participant_id(9)], after(7)).await?;
                let seen: Vec<_> = tx
                    .participants(&ParticipantFilter::default(), None, 9)
                    .await?
                    .iter()
                    .map(|row| row.last_seen_at)
                    .collect();
                assert_eq!(seen, [after(7), after(0), after(7)]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// The newest certificate counts, and the one shown to request it; others do not.
pub async fn a_renewal_keeps_the_previous_certificate(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let id = participant_id(1);
                tx.insert_participant(&participant(1)).await?;
                tx.insert_participant(&participant(2)).await?;
                assert!(tx.set_certificate(id, digest(1), digest(11), after(2_000), NOW).await?);
                assert_eq!(tx.certificates(id).await?, Some(certificates(1, digest(11), Some(digest(1)))));
                // A participant whose answer was lost shows the same certificate again, any number of times.
                for n in 12..=14 {
                    assert!(tx.set_certificate(id, digest(1), digest(n), after(2_500), NOW).await?);
                    let row = tx.participant(id).await?.unwrap();
                    assert_eq!((row.certificate_fingerprint, row.certificate_expires_at), (digest(n), after(2_500)));
                    assert_eq!(tx.certificates(id).await?, Some(certificates(1, digest(n), Some(digest(1)))));
                }
                assert!(tx.set_certificate(id, digest(14), digest(15), after(3_000), NOW).await?);
                assert_eq!(tx.certificates(id).await?, Some(certificates(1, digest(15), Some(digest(14)))));
                assert!(!tx.set_certificate(id, digest(1), digest(16), after(3_000), NOW).await?, "shown too late");
                // After the first use of the newest certificate, the previous one leads nowhere.
                assert!(!tx.end_previous_certificate(id, digest(14)).await?, "not the newest");
                assert!(tx.end_previous_certificate(id, digest(15)).await?);
                assert!(!tx.end_previous_certificate(id, digest(15)).await?, "once");
                assert_eq!(tx.certificates(id).await?, Some(certificates(1, digest(15), None)));
                assert!(!tx.set_certificate(id, digest(14), digest(16), after(3_000), NOW).await?, "shown too late");
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let id = participant_id(1);
    refused!(store, |tx| tx.set_certificate(id, digest(15), digest(2), after(3_000), NOW));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert!(!tx.set_certificate(participant_id(9), digest(15), digest(17), after(3_000), NOW).await?);
                // Another enrolment ends all earlier certificates.
                assert!(tx.set_certificate(id, digest(15), digest(18), after(3_000), NOW).await?);
                assert!(tx.replace_certificate(id, digest(19), after(4_000), NOW).await?);
                assert_eq!(tx.certificates(id).await?, Some(certificates(1, digest(19), None)));
                assert_eq!(tx.participant(id).await?.unwrap().certificate_expires_at, after(4_000));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A revoked participant keeps its time of revocation, and its requests for certificates are rejected.
pub async fn revoking_happens_once(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let id = participant_id(1);
                tx.insert_participant(&participant(1)).await?;
                assert!(tx.revoke_participant(id, after(5)).await?);
                assert!(!tx.revoke_participant(id, after(6)).await?);
                assert!(!tx.revoke_participant(participant_id(2), after(6)).await?);
                assert_eq!(tx.participant(id).await?.unwrap().revoked_at, Some(after(5)));
                let revoked = Certificates { revoked_at: Some(after(5)), ..certificates(1, digest(1), None) };
                assert_eq!(tx.certificates(id).await?, Some(revoked));
                assert_eq!(tx.glance(id, None).await?, Some(Glance { certificates: revoked, tasks: Vec::new() }));
                assert!(!tx.set_certificate(id, digest(1), digest(11), after(2_000), NOW).await?);
                assert!(!tx.replace_certificate(id, digest(11), after(2_000), NOW).await?);

                tx.insert_participant(&participant(2)).await?;
                assert!(!tx.release_name(&participant(2)).await?, "it is not revoked");
                assert!(tx.release_name(&participant(1)).await?);
                let namesake = ParticipantRow { name: "site-1".to_owned(), ..participant(3) };
                tx.insert_participant(&namesake).await?;
                assert_eq!(tx.participant_by_name("site-1").await?, Some(namesake));
                let named = tx.participant(id).await?.unwrap().name;
                assert_eq!(named, format!("site-1 (revoked {id})"));

                assert_eq!(tx.participations(id).await?, 0);
                for n in 1..=2 {
                    tx.insert_task(&task(n, &format!("task-{n}"))).await?;
                    tx.insert_round(&round(n, 1, 1)).await?;
                    tx.insert_assignments(&[assignment(&round(n, 1, 1), 1)]).await?;
                }
                assert_eq!(tx.participations(id).await?, 2);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Lists are filtered by labels, all of which must match, and by revocation.
pub async fn participants_are_narrowed_down(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let mut far = ParticipantRow { labels: labels("us"), enrolled_at: after(5), ..participant(4) };
                far.labels.insert("site".to_owned(), "x".to_owned());
                for row in [&participant(1), &participant(2), &participant(3), &far] {
                    tx.insert_participant(row).await?;
                }
                assert!(tx.revoke_participant(participant_id(2), after(1)).await?);
                let both = BTreeMap::from([("region", "us"), ("site", "x")].map(|(k, v)| (k.to_owned(), v.to_owned())));
                let other =
                    BTreeMap::from([("region".to_owned(), "eu".to_owned()), ("site".to_owned(), "x".to_owned())]);
                for (labels, is_revoked, since, cursor, found) in [
                    (labels("eu"), None, None, None, &[1, 2, 3][..]),
                    (labels("eu"), Some(false), None, None, &[1, 3]),
                    (labels("eu"), Some(true), None, None, &[2]),
                    (labels("us"), Some(true), None, None, &[]),
                    (BTreeMap::new(), Some(false), None, Some(1), &[3, 4]),
                    // A cursor that the filter does not take.
                    (labels("eu"), Some(false), None, Some(2), &[3]),
                    (both, None, None, None, &[4]),
                    (other, None, None, None, &[]),
                    (BTreeMap::new(), None, Some(0), None, &[1, 2, 3, 4]),
                    (BTreeMap::new(), None, Some(5), None, &[4]),
                    (BTreeMap::new(), Some(true), Some(0), None, &[2]),
                    (labels("us"), None, Some(6), None, &[]),
                ] {
                    let filter = ParticipantFilter { labels, is_revoked, since: since.map(after) };
                    let rows = tx.participants(&filter, cursor.map(participant_id), 9).await?;
                    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
                    assert_eq!(ids, found.iter().copied().map(participant_id).collect::<Vec<_>>(), "{filter:?}");
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
