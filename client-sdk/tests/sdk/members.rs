//! The app chooses the authority of members: a coordinator that substitutes its own authority is rejected at enrolment, at renewal and
//! in a roster.

use std::sync::{Arc, Mutex};

use client_sdk::identity::CertificateError;
use client_sdk::journal::MemoryJournal;
use client_sdk::{Event, Participant, ParticipantError};
use wire::Timestamp;
use wire::certificate::{Issuers, chain_der};
use wire::participant::RefusalCode;

use crate::support::cohort::Hub;
use crate::support::device::{Device, refusals};
use crate::support::trainers::Nudge;
use crate::support::{Ca, Coordinator, ca_pem};

/// A participant of an app that names its company's CA, and its events.
#[expect(clippy::unwrap_used, reason = "a test")]
fn participant(coordinator: &Coordinator) -> (Participant, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let participant = coordinator
        .app()
        .enrollment_token("token")
        .journal(MemoryJournal::new())
        .trainer(Nudge::default())
        .on_event(move |event| seen.lock().unwrap().push(event.clone()))
        .build()
        .unwrap();
    (participant, events)
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_another_issuer_is_refused_at_enrolment() {
    // With the company's name: only the key differs.
    for name in ["CA", "Coordinator"] {
        let coordinator = Coordinator::new(1);
        coordinator.world(|world| world.ca = Some(Arc::new(Ca::new(name))));
        let (mut participant, events) = participant(&coordinator);
        let error = participant.run(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, ParticipantError::Uncertified(CertificateError::Issuer)), "{error}");
        assert!(error.to_string().contains("members_ca_pem"), "{error}");
        let told = events.lock().unwrap();
        assert!(told.iter().all(|event| matches!(event, Event::Lowered { .. })), "{told:?}");
        assert!(participant.certified().is_none());
        assert_eq!(coordinator.count("check_in"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_for_another_key_or_participant_is_refused_at_enrolment() {
    let coordinator = Coordinator::new(1);
    let other = client_sdk::identity::SigningKey::generate().unwrap().signing_request().unwrap();
    coordinator.world(|world| world.certified_key = Some(other));
    let error = participant(&coordinator).0.run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ParticipantError::Uncertified(CertificateError::Key)), "{error}");

    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.certified_participant = Some(crate::support::cohort::id(9)));
    let error = participant(&coordinator).0.run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ParticipantError::Uncertified(CertificateError::Participant { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_another_issuer_or_for_another_key_is_refused_at_renewal() {
    let other_key = client_sdk::identity::SigningKey::generate().unwrap().signing_request().unwrap();
    for (ca, key, words) in [(Some(Arc::new(Ca::new("CA"))), None, "members"), (None, Some(other_key), "another key")] {
        let coordinator = Coordinator::new(1);
        coordinator.world(|world| (world.renew_at, world.lie_at_renewal) = (Some(Timestamp(0)), Some((ca, key))));
        let (mut participant, events) = participant(&coordinator);
        participant.run(std::future::pending()).await.unwrap();
        assert!(coordinator.count("renew") > 0);
        let kept = chain_der(&participant.certified().unwrap().certificate_pem).unwrap().remove(0);
        let members = crate::support::settings().members;
        assert!(members.holder(&kept).is_some(), "the one it has is kept");
        let events = events.lock().unwrap();
        assert!(!events.contains(&Event::Renewed));
        let told = |event: &Event| matches!(event, Event::Retry { error, .. } if error.contains(words));
        assert!(events.iter().any(told), "{events:?}");
    }
}

#[test]
fn a_roster_with_a_member_of_another_issuer_is_refused() {
    let hub = Hub::new(5, 1);
    let own = Arc::new(Ca::new("Coordinator"));
    hub.world(|world| world.accomplices.insert(4, Arc::clone(&own)));
    let mut accomplice = crate::support::settings();
    accomplice.members = Issuers::from_pem(&(own.pem.clone() + ca_pem())).unwrap();
    let mut devices: Vec<_> = (0..4).map(|index| Device::new(index, &hub, crate::support::settings())).collect();
    devices.push(Device::new(4, &hub, accomplice));
    let has_left = |device: &Device| device.events.iter().any(|event| matches!(event, Event::Abandoned { .. }));
    for _ in 0..300 {
        devices.iter_mut().filter(|device| !has_left(device)).for_each(|device| device.step(None));
    }
    for device in &devices[..4] {
        let told = refusals(device);
        assert!(told.len() == 1 && told[0].contains("certificate"), "{told:?}");
    }
    // The app gets the same reason as operators.
    let told = |event: &Event| matches!(event, Event::Abandoned { refusal: Some(RefusalCode::Protocol), .. });
    assert!(devices[..4].iter().all(|device| device.events.iter().any(told)));
    // They advertised keys, before there was a roster, and were silent after it.
    let said = hub.world(|world| world.said.keys().map(|(_, _, kind, device)| (*kind, *device)).collect::<Vec<_>>());
    assert!(said.iter().all(|(kind, device)| *kind == "keys" || *device == 4), "{said:?}");
}
