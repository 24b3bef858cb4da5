//! A device with pre-issued certificates has the coordinator admit them, and makes no key of its own.

use std::sync::{Arc, Mutex};

use client_sdk::identity::CertificateError;
use client_sdk::journal::MemoryJournal;
use client_sdk::{BuildError, Builder, Event, Participant, ParticipantError, PreIssued};
use wire::problem::ProblemType;
use wire::{ParticipantId, Timestamp};

use crate::support::trainers::Nudge;
use crate::support::{CA, Ca, Coordinator, Fault, cohort};

type Pem = (String, String);

fn issue(years: std::ops::Range<i32>) -> Pem {
    CA.issue(crate::support::participant(), years)
}

fn builder(coordinator: &Coordinator, journal: &Arc<MemoryJournal>, events: &Arc<Mutex<Vec<Event>>>) -> Builder {
    let seen = Arc::clone(events);
    coordinator
        .app()
        .enrollment_token("token")
        .journal(Arc::clone(journal))
        .trainer(Nudge::default())
        .on_event(move |event| seen.lock().unwrap().push(event.clone()))
}

struct World {
    coordinator: Coordinator,
    journal: Arc<MemoryJournal>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl World {
    fn new() -> Self {
        let (journal, events) = (Arc::new(MemoryJournal::new()), Arc::default());
        Self { coordinator: Coordinator::new(1), journal, events }
    }

    fn builder(&self, (chain, key): &Pem) -> Builder {
        builder(&self.coordinator, &self.journal, &self.events).certificate(chain, key)
    }

    async fn run(&self, pem: &Pem) -> Result<Participant, ParticipantError> {
        let mut participant = self.builder(pem).build().unwrap();
        participant.run(std::future::pending()).await.map(|_| participant)
    }

    /// What was sent to be certified or admitted.
    fn sent(&self) -> Vec<String> {
        self.coordinator.world(|world| world.keys.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_certificate_is_admitted_by_the_one_before_and_a_file_left_behind_replaces_nothing() {
    let world = World::new();
    let [first, second] = [issue(2020..2100), issue(2021..2100)];
    let participant = world.run(&first).await.unwrap();
    assert_eq!(participant.certified().unwrap().certificate_pem, first.0);
    assert_eq!(world.sent(), [first.0.as_str()]);
    // The same again, then the next, then the first again, which some file still holds.
    for pem in [&first, &second, &first] {
        world.run(pem).await.unwrap();
    }
    assert_eq!(world.sent(), [first.0.as_str(), &second.0]);
    let calls = ["enroll", "renew"].map(|call| world.coordinator.count(call));
    assert_eq!(calls, [1, 1]);
    assert_eq!(world.run(&second).await.unwrap().certified().unwrap().certificate_pem, second.0);
    // Without any, the journal has what it needs.
    let participant = builder(&world.coordinator, &world.journal, &world.events).build().unwrap();
    assert_eq!(participant.certified().unwrap().certificate_pem, second.0);
}

#[tokio::test(start_paused = true)]
async fn where_certificates_are_renewed_is_looked_again_when_it_is_time() {
    let world = World::new();
    world.coordinator.world(|world| world.renew_at = Some(Timestamp(0)));
    let [first, second] = [issue(2020..2100), issue(2021..2100)];
    let looks = Arc::new(Mutex::new(0));
    let read = {
        let (looks, first, second) = (Arc::clone(&looks), first.clone(), second.clone());
        move || {
            let mut looks = looks.lock().unwrap();
            *looks += 1;
            // Not there yet, unreadable while it is written, then there.
            match *looks {
                1 | 2 => PreIssued::from_pem(first.0.clone(), &first.1),
                3 => PreIssued::from_pem(second.0.clone(), ""),
                _ => PreIssued::from_pem(second.0.clone(), &second.1),
            }
        }
    };
    // It waits for work all the while, for more than a day.
    world.coordinator.script("check_in", vec![Fault::Lost; 20_000]);
    let mut participant =
        builder(&world.coordinator, &world.journal, &world.events).certificates(read).build().unwrap();
    participant.run(std::future::pending()).await.unwrap();
    assert_eq!(participant.certified().unwrap().certificate_pem, second.0);
    assert_eq!(world.sent(), [first.0.as_str(), &second.0]);
    let told: Vec<_> = world
        .events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            Event::Retry { what: "renew the certificate", error, .. } => Some(error.clone()),
            _ => None,
        })
        .collect();
    assert!(told[0].contains("has given it no newer one") && told[1].contains("private key"), "{told:?}");
    assert!(world.events.lock().unwrap().contains(&Event::Renewed));
}

/// The participant's reports about unusable certificates.
fn event_texts(world: &World) -> Vec<String> {
    let events = world.events.lock().unwrap();
    let told = events.iter().filter_map(|event| match event {
        Event::Retry { what: "renew the certificate", error, .. } => Some(error.clone()),
        _ => None,
    });
    told.collect()
}

/// The thief of the key could use each further certificate.
#[tokio::test(start_paused = true)]
async fn a_next_certificate_for_the_same_key_is_refused_until_there_is_one_for_another() {
    let world = World::new();
    world.coordinator.world(|world| world.renew_at = Some(Timestamp(0)));
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let same = |years| (CA.issue_for(&key, crate::support::participant(), years), key.serialize_pem());
    let [first, second, third] = [same(2020..2100), same(2021..2100), issue(2022..2100)];
    let looks = Arc::new(Mutex::new(0));
    let read = {
        let issued = [first.clone(), second, third.clone()];
        move || {
            let mut looks = looks.lock().unwrap();
            *looks += 1;
            let (chain, key) = &issued[(*looks - 1_usize).min(2)];
            PreIssued::from_pem(chain.clone(), key)
        }
    };
    world.coordinator.script("check_in", vec![Fault::Lost; 20_000]);
    let mut participant =
        builder(&world.coordinator, &world.journal, &world.events).certificates(read).build().unwrap();
    participant.run(std::future::pending()).await.unwrap();
    assert_eq!(world.sent(), [first.0.as_str(), &third.0], "the second is never shown");
    let told = event_texts(&world);
    assert!(told[0].contains("for the same key") && told[0].contains("a new key"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_next_certificate_is_not_taken_before_it_begins() {
    for is_due in [false, true] {
        let world = World::new();
        world.coordinator.world(|world| world.renew_at = is_due.then_some(Timestamp(0)));
        let first = issue(2020..2100);
        world.run(&first).await.unwrap();
        world.coordinator.script("check_in", vec![Fault::Lost; 100]);
        world.run(&issue(2090..2100)).await.unwrap();
        assert_eq!(world.sent(), [first.0.as_str()]);
        let told = event_texts(&world);
        assert_eq!(told.iter().any(|why| why.contains("the next one begins at 2090-01-01")), is_due, "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_away_too_long_comes_back_with_a_token_and_a_certificate_that_holds() {
    let world = World::new();
    let [first, second, third] = [issue(2020..2100), issue(2021..2100), issue(2022..2100)];
    let expired = || Fault::Refused(ProblemType::CertificateExpired, None);
    world.coordinator.script("check_in", [expired()]);
    let error = world.run(&first).await.err().unwrap();
    assert!(matches!(error, ParticipantError::Expired(_)), "{error}");
    // The one before cannot speak for the next, and the token was used.
    world.coordinator.script("renew", [expired()]);
    let error = world.run(&second).await.err().unwrap();
    assert!(matches!(error, ParticipantError::Expired(_)), "{error}");
    assert_eq!(world.coordinator.count("enroll"), 1);
    // A token alone does not help either: it is for a certificate that holds.
    world.coordinator.script("check_in", [expired()]);
    let with_token = |pem: &Pem| world.builder(pem).enrollment_token("another").build().unwrap();
    let error = with_token(&first).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ParticipantError::Expired(_)), "{error}");
    assert_eq!(world.coordinator.count("enroll"), 1);
    let mut participant = with_token(&third);
    participant.run(std::future::pending()).await.unwrap();
    assert_eq!(participant.certified().unwrap().certificate_pem, third.0);
    assert_eq!([world.coordinator.count("enroll"), world.coordinator.count("renew")], [2, 1]);
}

fn refused(world: &World, pem: &Pem) -> CertificateError {
    match world.builder(pem).build().err() {
        Some(BuildError::Participant(ParticipantError::PreIssuedCertificate(error))) => error,
        error => panic!("{error:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_this_participants_is_refused_before_anything_is_sent() {
    let world = World::new();
    assert_eq!(
        refused(&world, &Ca::new("CA").issue(crate::support::participant(), 2021..2100)),
        CertificateError::Issuer
    );
    assert_eq!(refused(&world, &(issue(2021..2100).0, issue(2021..2100).1)), CertificateError::Key);
    assert_eq!(refused(&world, &(issue(2021..2100).0, "no key".to_owned())), CertificateError::NoKey);
    assert_eq!(world.coordinator.world(|world| world.calls.len()), 0);
    world.run(&issue(2020..2100)).await.unwrap();
    // An expired certificate is ignored.
    world.run(&issue(2021..2022)).await.unwrap();
    assert_eq!(world.sent().len(), 1);
}

/// Its files may be half written, or another device's: the identity in the journal holds all the same.
#[tokio::test(start_paused = true)]
async fn a_bad_next_certificate_at_the_start_stops_no_enrolled_device_and_is_looked_at_again() {
    let other: ParticipantId = cohort::id(3);
    let next = issue(2021..2100);
    let bad: [(Pem, &str); 4] = [
        ((next.0.clone(), issue(2020..2100).1), "another key"),
        ((next.0.clone(), "no key".to_owned()), "private key is not Ed25519"),
        (CA.issue(other, 2021..2100), "it names participant"),
        (Ca::new("CA").issue(crate::support::participant(), 2021..2100), "not signed by an authority"),
    ];
    for (bad, words) in bad {
        let world = World::new();
        let first = issue(2020..2100);
        world.run(&first).await.unwrap();
        // It looks again, though the present one is not due.
        let is_whole = Arc::new(Mutex::new(false));
        let read = {
            let (is_whole, next) = (Arc::clone(&is_whole), next.clone());
            move || {
                let (chain, key) = if std::mem::replace(&mut *is_whole.lock().unwrap(), true) { &next } else { &bad };
                PreIssued::from_pem(chain.clone(), key)
            }
        };
        world.coordinator.script("check_in", vec![Fault::Lost; 100]);
        let mut participant =
            builder(&world.coordinator, &world.journal, &world.events).certificates(read).build().unwrap();
        assert_eq!(participant.certified().unwrap().certificate_pem, first.0);
        participant.run(std::future::pending()).await.unwrap();
        let told = event_texts(&world);
        assert!(told.len() == 1 && told[0].contains(words), "{words}: {told:?}");
        assert_eq!(world.sent(), [first.0.as_str(), &next.0], "{words}");
    }
}
