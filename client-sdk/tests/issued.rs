//! A device that has its certificates from elsewhere has the coordinator admit them, and makes no key of its own.
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::{Arc, Mutex};

use client_sdk::identity::CertificateError;
use client_sdk::journal::MemoryJournal;
use client_sdk::{BuildError, Builder, Event, Participant, ParticipantError, PreIssued, SecurityPolicy};
use support::{CA, Ca, Coordinator, Fault, Nudge, ca_pem, cohort};
use wire::problem::ProblemType;
use wire::{ParticipantId, Timestamp};

type Pem = (String, String);

fn issue(years: std::ops::Range<i32>) -> Pem {
    CA.issue(support::participant(), years)
}

fn builder(coordinator: &Coordinator, journal: &Arc<MemoryJournal>, events: &Arc<Mutex<Vec<Event>>>) -> Builder {
    let seen = Arc::clone(events);
    Participant::builder()
        .secure_aggregation(SecurityPolicy::optional())
        .members_ca_pem(ca_pem())
        .transport(coordinator.clone())
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

#[tokio::test(start_paused = true)]
async fn what_cannot_be_this_participants_is_refused_before_anything_is_sent() {
    let world = World::new();
    world.run(&issue(2020..2100)).await.unwrap();
    let calls = world.coordinator.world(|world| world.calls.len());
    let other: ParticipantId = cohort::id(3);
    let built = |pem: &Pem| match world.builder(pem).build().err() {
        Some(BuildError::Participant(ParticipantError::GivenCertificate(error))) => error,
        error => panic!("{error:?}"),
    };
    assert!(matches!(built(&CA.issue(other, 2021..2100)), CertificateError::Participant { .. }));
    assert_eq!(built(&Ca::new("CA").issue(support::participant(), 2021..2100)), CertificateError::Issuer);
    assert_eq!(built(&(issue(2021..2100).0, issue(2021..2100).1)), CertificateError::Key);
    assert_eq!(built(&(issue(2021..2100).0, "no key".to_owned())), CertificateError::NoKey);
    assert_eq!(world.coordinator.world(|world| world.calls.len()), calls);
    // One that has ended already replaces nothing.
    world.run(&issue(2021..2022)).await.unwrap();
    assert_eq!(world.sent().len(), 1);
}
