//! A round of version 9: an update that is sent in parts, on its way. The sample is compressed, since a part has 8 MiB.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::journal::{Journal as _, MemoryJournal};
use client_sdk::participant::machine::{Action, Input};
use client_sdk::participant::snapshot;
use client_sdk::transport::{Request, Response};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use secure_agg::upload::{PART_BYTES, PartTree};
use wire::participant::UploadReply;
use wire::{Digest, Timestamp};

use super::{folder, of_records, sample};
use crate::support::device::Device;
use crate::support::trainers::Exact;
use crate::support::{Coordinator, in_the_clear, sha256, task};

const WRITTEN_BY: &str = "write_an_update_in_parts_of_version_9";
/// Bytes before the header of a record with an update behind its digest: magic, version, its length and digest.
const BEFORE_HEADER: usize = 16 + 2 + 8 + 32;

fn read(name: &str) -> Vec<u8> {
    sample(&folder("v9").join(name), WRITTEN_BY)
}

/// The records of the identity and of the round.
fn records() -> (Vec<u8>, Vec<u8>) {
    let mut round = Vec::new();
    GzDecoder::new(&read("round-parts.record.gz")[..]).read_to_end(&mut round).unwrap();
    (read("identity-parts.record"), round)
}

/// The update at the end of the record.
fn update(round: &[u8]) -> &[u8] {
    let bytes = u64::from_le_bytes(*round[18..].first_chunk().unwrap());
    &round[round.len() - usize::try_from(bytes).unwrap()..]
}

#[test]
fn an_update_in_parts_goes_out_as_it_was_written() {
    let (identity, round) = records();
    assert_eq!(round[16..18], [9, 0]);
    let now = Now { elapsed: Duration::ZERO, wall: Timestamp(0) };
    let mut machine = of_records(identity, round).unwrap();
    let Action::Send(Request::Manifest(manifest)) = machine.poll(Input::Tick, now) else {
        panic!("it does not say which parts there are")
    };
    assert_eq!((manifest.place.task, manifest.place.round, manifest.place.attempt), (task(), 1, 1));
    let said = String::from_utf8(read("round-parts.sha256")).unwrap();
    assert_eq!((Digest(manifest.tree.root()).to_string().as_str(), manifest.tree.parts().len()), (said.trim(), 2));
    let missing = UploadReply::Missing { parts: vec![0, 1] };
    let mut next = machine.poll(Input::Response(Response::Manifested(Ok(missing))), now);
    for (number, digest) in (0..).zip(manifest.tree.parts()) {
        let Action::Send(Request::Part(part)) = next else { panic!("it does not send part {number}") };
        assert_eq!((part.number, sha256(&part.body)), (number, Digest(*digest)));
        next = machine.poll(Input::Response(Response::PartStored(Ok(()))), now);
    }
    assert!(matches!(next, Action::Send(Request::Manifest(_))));
}

#[test]
fn damage_to_an_update_in_parts_is_found() {
    let (identity, round) = records();
    let load = |round: &[u8]| of_records(identity.clone(), round.to_vec()).map(|_| ());
    load(&round).unwrap();
    // In the length and the digest of the update, in the header, in the digest of these, and in each part.
    let begin = round.len() - update(&round).len();
    let second = begin + PART_BYTES;
    for position in [18, 30, BEFORE_HEADER, BEFORE_HEADER + 20, begin - 1, begin, second - 1, second, round.len() - 1] {
        let mut damaged = round.clone();
        damaged[position] ^= 1;
        assert!(load(&damaged).is_err(), "bit flipped at {position}");
        assert!(load(&round[..position]).is_err(), "cut at {position}");
    }
}

#[test]
#[ignore = "wrote the round of version 9 with an update in parts, once"]
fn write_an_update_in_parts_of_version_9() {
    let coordinator = Coordinator::new(1);
    // With the head and the metrics it is a little longer than a part.
    coordinator.world(|world| world.base_values = Some(PART_BYTES as u64 / 4));
    let mut device = Device::with(Arc::new(MemoryJournal::new()), 0, coordinator, Exact::new(0), in_the_clear());
    for _ in 0..100 {
        if device.records.is_empty() {
            device.step(None);
        }
    }
    let round = &device.records[0];
    let tree = PartTree::of(update(round));
    assert_eq!((round[16], tree.parts().len()), (9, 2));
    let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
    compressed.write_all(round).unwrap();
    let compressed = compressed.finish().unwrap();
    assert!(compressed.len() < 100_000, "{} bytes are too many for a sample", compressed.len());
    let identity = device.journal.load(snapshot::IDENTITY).unwrap().unwrap();
    for (name, bytes) in [
        ("identity-parts.record", &identity[..]),
        ("round-parts.record.gz", &compressed[..]),
        ("round-parts.sha256", format!("{}\n", Digest(tree.root())).as_bytes()),
    ] {
        std::fs::write(folder("v9").join(name), bytes).unwrap();
    }
}
