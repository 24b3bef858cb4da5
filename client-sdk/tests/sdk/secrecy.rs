//! Searches for every secret of whole rounds in all data visible to an observer, a log or the coordinator.

use std::sync::Arc;

use client_sdk::Event;
use client_sdk::participant::snapshot;
use wire::base64;

use crate::support::cohort::Hub;
use crate::support::device::{Device, cohort, deal_garbage, finish, refusals};

/// Secrets in a journal's record. `kept` never leaves the device; of the two `shares` of a dealer
/// one may be revealed in the end.
#[derive(Default)]
struct Secrets {
    kept: Vec<Vec<u8>>,
    shares: Vec<[Vec<u8>; 2]>,
}

/// The session in a record of a round, if it has one.
fn session(record: &[u8]) -> Option<&[u8]> {
    // Since version 8 length and digest of an update may come before the header.
    let rest = &record[if record[16] < 8 { 18 } else { 18 + 40 }..];
    let header_bytes = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
    let (header, parts) = rest[4..].split_at(header_bytes);
    let header: serde_json::Value = serde_json::from_slice(header).unwrap();
    let bytes = usize::try_from(header.get("snapshot_bytes")?.as_u64().unwrap()).unwrap();
    Some(&parts[..bytes])
}

/// The parts of `secure_agg`'s snapshot, each behind its length.
fn parts(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (part, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        parts.push(part);
        rest = after;
    }
    parts
}

impl Secrets {
    fn of(device: &Device) -> Self {
        let mut secrets = Self::default();
        let (key, seen) = (device.machine.identity().unwrap().key.expose_pkcs8().to_vec(), &device.records);
        secrets.kept.push(key[16..48].to_vec());
        for snapshot in seen.iter().filter_map(|record| session(record)) {
            let parts = parts(&snapshot[2..]);
            let pieces = |part: &[u8]| part.chunks(32).map(<[u8]>::to_vec).collect::<Vec<_>>();
            match snapshot[1] {
                1 => secrets.kept.extend([parts[1], parts[2], parts[3]].map(<[u8]>::to_vec)),
                2 => secrets.kept.extend(pieces(parts[3])),
                3 => secrets.shares.extend(parts[3].chunks(64).map(|pair| [pair[..32].to_vec(), pair[32..].to_vec()])),
                _ => {}
            }
        }
        secrets
    }

    fn all(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.kept.iter().chain(self.shares.iter().flatten())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// A secret in every way in which a program prints bytes.
fn spellings(secret: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = secret[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let list: Vec<String> = secret[..8].iter().map(u8::to_string).collect();
    let mut spellings = vec![secret[..8].to_vec(), list.join(", ").into(), list.join(",").into()];
    spellings.extend([hex.to_uppercase().into_bytes(), hex.into_bytes()]);
    spellings.extend((0..3).map(|skip| base64::encode(&secret[skip..skip + 12]).into_bytes()));
    spellings
}

/// All output of a run: events, outcomes, settings, errors of damaged records.
fn event_text(devices: &[Device]) -> Vec<u8> {
    let mut text = String::new();
    for device in devices {
        for event in &device.events {
            text += &format!("{event:?} {event:#?}\n");
        }
        text += &format!("{:?} {:?}\n", device.ended, device.settings);
        for record in &device.records {
            let mut damaged = record.to_vec();
            damaged[40] ^= 1;
            let error = device.with_record(snapshot::ROUND, &damaged).unwrap_err();
            text += &format!("{error} {error:?}\n");
            let error = device.with_record(snapshot::ROUND, &record[..record.len() - 1]).unwrap_err();
            text += &format!("{error} {error:?}\n");
        }
    }
    text.into_bytes()
}

fn check(hub: &Hub, devices: &[Device]) {
    let told = event_text(devices);
    let said: Vec<u8> = hub.world(|world| world.said.values().flatten().copied().collect());
    for device in devices {
        let secrets = Secrets::of(device);
        assert!(secrets.kept.len() > 5, "the test looks for something");
        for secret in secrets.all() {
            for spelling in spellings(secret) {
                assert!(!contains(&told, &spelling), "a secret is told: {}", String::from_utf8_lossy(&spelling));
            }
            assert!(!contains(&device.round_record(), secret), "a secret outlives its round");
        }
        for secret in &secrets.kept {
            assert!(!contains(&said, secret), "a secret is sent");
        }
        for [one, other] in &secrets.shares {
            assert!(!(contains(&said, one) && contains(&said, other)), "both shares of a dealer are sent");
        }
    }
}

#[test]
fn a_whole_task_tells_no_secret() {
    let hub = Hub::new(5, 2);
    hub.world(|world| world.drops = [(3, wire::RoundState::Collecting)].into());
    let mut devices = cohort(&hub);
    finish(&hub, &mut devices);
    devices.remove(3);
    assert!(devices.iter().all(|device| Secrets::of(device).shares.len() >= 5));
    let said: Vec<u8> = hub.world(|world| world.said.values().flatten().copied().collect());
    let revealed = |[one, other]: &[Vec<u8>; 2]| contains(&said, one) || contains(&said, other);
    assert!(
        devices.iter().all(|device| Secrets::of(device).shares.iter().any(revealed)),
        "shares are found where they are"
    );
    check(&hub, &devices);
}

#[test]
fn refusals_and_complaints_tell_no_secret() {
    let hub = Hub::new(4, 2);
    let mut devices = cohort(&hub);
    deal_garbage(&hub, &mut devices);
    while hub.world(|world| world.complaints.is_empty()) {
        devices.iter_mut().for_each(|device| device.step(None));
    }
    hub.world(|world| world.bend_dealt = None);
    hub.world(|world| {
        world.bend = Some(Arc::new(|what, device, message| match (what, device) {
            (wire::participant::Announcement::Delivery, 1) => message.into_iter().rev().collect(),
            _ => message,
        }));
    });
    finish(&hub, &mut devices);
    assert!(!refusals(&devices[1]).is_empty());
    assert!(devices[0].events.iter().any(|event| matches!(event, Event::Complained { .. })));
    let told = event_text(&devices);
    for device in &devices {
        for secret in Secrets::of(device).all() {
            assert!(spellings(secret).iter().all(|spelling| !contains(&told, spelling)));
        }
    }
}
