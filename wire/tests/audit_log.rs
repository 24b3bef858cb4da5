//! The audit log's hash chain: every tampering is detected.

use federation::event::{Actor, Event, EventKind, Fact, Subject};
use federation::id::{Attempt, TaskId, TokenId};
use federation::time::Timestamp;
use proptest::prelude::*;
use ring::digest::SHA256;
use ring::signature::Ed25519KeyPair;
use uuid::Uuid;
use wire::audit::{AuditKey, ChainEnd, Entry, FORMAT, Finding, Head, Header, Line, Verified, Verifier};

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn event(n: u32) -> Event {
    let task = TaskId(Uuid::from_u128(9));
    let actor = Actor::Operator { token: TokenId(Uuid::from_u128(4)), name: "ann".to_owned() };
    let at = Timestamp(1_750_000_000_000 + i64::from(n));
    match n % 3 {
        0 => Subject::Task(task).event(at, EventKind::TaskPaused, actor, [("detail", Fact::from("by ann"))]),
        1 => {
            let round = Subject::Round(Attempt { task, round: n, attempt: 1 });
            round.event(at, EventKind::RoundOpened, Actor::Coordinator, [("base_version", n.into())])
        }
        _ => Subject::Service.event(at, EventKind::OperatorTokenRevoked, Actor::Coordinator, []),
    }
}

/// The lines of a log of these events, signed by this key.
fn log(events: impl IntoIterator<Item = Event>, pair: &Ed25519KeyPair) -> Vec<String> {
    let mut end = ChainEnd::default();
    let mut entries = Vec::new();
    for event in events {
        end = end.and(&event);
        entries.push(Line::Entry(Entry { position: end.position, event, hash: end.hash }));
    }
    let head = Head::sign(end, Timestamp(1_750_000_100_000), pair);
    let header = Line::Header(Header { format: FORMAT, key: head.key });
    let lines = std::iter::once(header).chain(entries).chain([Line::Head(head)]);
    lines.map(|line| line.text().trim_end().to_owned()).collect()
}

fn verify(lines: &[String], key: Option<AuditKey>, kept: Option<&Head>) -> Result<Verified, Finding> {
    let mut verifier = Verifier::new(key, kept.cloned())?;
    lines.iter().try_for_each(|line| verifier.line(line))?;
    verifier.finish()
}

fn head_of(lines: &[String]) -> Head {
    match serde_json::from_str(lines.last().unwrap()).unwrap() {
        Line::Head(head) => head,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_known_chain_has_known_hashes() {
    let end = (0..3).map(event).fold(ChainEnd::default(), |end, event| end.and(&event));
    let head = Head::sign(end, Timestamp(1_750_000_100_000), &pair(7));
    let text = serde_json::to_string(&event(0)).unwrap();
    // SHA-256 of the documented bytes, assembled here by hand.
    let first = [&b"tributary audit entry 1\0"[..], &[0; 32], &[0, 0, 0, 0, 0, 0, 0, 1], text.as_bytes()].concat();
    let first = ring::digest::digest(&SHA256, &first);
    assert_eq!(ChainEnd::default().and(&event(0)).hash.0, first.as_ref());
    assert_eq!(
        (end.position, end.hash.to_string(), head.key.to_string()),
        (
            3,
            "5cb786008024e0004a812098bc1e2a9f6570167a46a7ba2545e7ce77529a020f".to_owned(),
            "ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c".to_owned(),
        )
    );
    assert!(head.is_signed());
    assert!(!Head { at: Timestamp(0), ..head }.is_signed());
}

#[test]
fn a_whole_log_is_said_to_be_whole() {
    for events in [0, 1, 7] {
        let lines = log((0..events).map(event), &pair(7));
        let head = head_of(&lines);
        let verified = verify(&lines, Some(head.key), Some(&head)).unwrap();
        assert_eq!(verified, Verified { entries: events.into(), signed_at: head.at, key: head.key });
    }
    // A head kept from an earlier, shorter log.
    let earlier = head_of(&log((0..3).map(event), &pair(7)));
    assert!(verify(&log((0..7).map(event), &pair(7)), None, Some(&earlier)).is_ok());
}

#[test]
fn whoever_rewrites_everything_is_found_by_the_key_or_by_a_kept_head() {
    let kept = head_of(&log((0..5).map(event), &pair(7)));
    let forged = log((0..7).map(|n| event(if n == 2 { 5 } else { n })), &pair(8));
    let found = verify(&forged, Some(kept.key), None).unwrap_err();
    assert!(matches!(found, Finding::OtherKey { .. }), "{found}");
    assert_eq!(verify(&forged, None, Some(&kept)), Err(Finding::Rewritten(5)));
    // If the forger has the signing key, only a kept head detects the change.
    let forged = log((0..7).map(|n| event(if n == 2 { 5 } else { n })), &pair(7));
    assert!(verify(&forged, Some(kept.key), None).is_ok());
    assert_eq!(verify(&forged, Some(kept.key), Some(&kept)), Err(Finding::Rewritten(5)));
    let shorter = log((0..4).map(event), &pair(7));
    assert_eq!(verify(&shorter, Some(kept.key), Some(&kept)), Err(Finding::CutOff { entries: 4, head: 5 }));
    assert_eq!(verify(&shorter, None, Some(&Head { position: 9, ..kept })), Err(Finding::Signature(9)));
}

#[test]
fn what_is_no_export_is_told_so() {
    let whole = log((0..3).map(event), &pair(7));
    let told = |lines: &[String]| verify(lines, None, None).unwrap_err();
    assert_eq!(told(&[]), Finding::NoHead(0));
    assert_eq!(told(&whole[..4]), Finding::NoHead(3));
    assert!(matches!(told(&["hello".to_owned()]), Finding::Unreadable { line: 1, .. }));
    assert_eq!(told(&whole[1..]), Finding::Order { line: 1, expected: "the header" });
    let newer = vec![whole[0].replace("\"format\":1", "\"format\":2")];
    assert!(matches!(told(&newer), Finding::Unreadable { line: 1, .. }));
    let twice: Vec<_> = whole.iter().chain(&whole[4..]).cloned().collect();
    assert_eq!(told(&twice), Finding::BeyondHead { head: 3 });
    let headless: Vec<_> = [&whole[..1], &whole[..1]].concat();
    assert_eq!(told(&headless), Finding::Order { line: 2, expected: "an entry" });
}

/// One way to tamper with a log.
#[derive(Clone, Debug)]
enum Tampering {
    Remove,
    Repeat,
    Swap(usize),
    /// A byte of the line is replaced.
    Byte(usize, u8),
    /// Another event replaces the entry, with a matching hash.
    Replace(u32),
    Insert(u32),
    Truncate,
}

fn tampering() -> impl Strategy<Value = Tampering> {
    prop_oneof![
        Just(Tampering::Remove),
        Just(Tampering::Repeat),
        (1..40_usize).prop_map(Tampering::Swap),
        (any::<usize>(), 1..=255_u8).prop_map(|(at, by)| Tampering::Byte(at, by)),
        (100..200_u32).prop_map(Tampering::Replace),
        (100..200_u32).prop_map(Tampering::Insert),
        Just(Tampering::Truncate),
    ]
}

/// An entry for this line of a log, with a hash that matches its predecessor.
fn fitting(lines: &[String], at: usize, event: Event) -> String {
    let before = lines[1..at].last().map_or(ChainEnd::default(), |line| match serde_json::from_str(line).unwrap() {
        Line::Entry(entry) => ChainEnd { position: entry.position, hash: entry.hash },
        other => panic!("{other:?}"),
    });
    let end = before.and(&event);
    Line::Entry(Entry { position: end.position, event, hash: end.hash }).text().trim_end().to_owned()
}

/// Whether the finding names the entry at `place`, in which one byte was changed.
fn names_the_changed_byte(found: &Finding, place: u64) -> bool {
    match found {
        Finding::Changed(position) => *position == place,
        Finding::Unlinked(position) => *position == place && place > 1,
        Finding::Missing { expected, .. } | Finding::Misplaced { expected, .. } => *expected == place,
        // The header is the first line.
        Finding::Unreadable { line, .. } => *line == place + 1,
        Finding::Order { .. }
        | Finding::CutOff { .. }
        | Finding::NoHead(_)
        | Finding::BeyondHead { .. }
        | Finding::Rewritten(_)
        | Finding::Signature(_)
        | Finding::OtherKey { .. } => false,
    }
}

#[test]
fn an_entry_that_is_written_otherwise_is_named_by_its_place() {
    let whole = log((0..14).map(event), &pair(7));
    let mut lines = whole.clone();
    lines[12] = lines[12].replacen("\"position\":12", "\"position\": 2", 1);
    assert_ne!(lines, whole);
    assert_eq!(verify(&lines, None, None), Err(Finding::Changed(12)));
}

#[test]
fn a_finding_accuses_no_entry_alone_where_another_one_may_have_been_changed() {
    let whole = log((0..5).map(event), &pair(7));
    let told = |at: usize, line: String| {
        let mut lines = whole.clone();
        lines[at] = line;
        verify(&lines, None, None).unwrap_err().to_string()
    };
    let replaced = told(2, fitting(&whole, 2, event(100)));
    assert!(
        replaced.starts_with("position 3 was changed, or the entry before it together with its hash"),
        "{replaced}"
    );
    // Changing position 3 itself gives the same finding.
    assert_eq!(told(3, whole[3].replace("operator_token_revoked", "task_paused")), replaced);
    let first = told(1, whole[1].replace("task_paused", "task_resumed"));
    assert!(first.starts_with("position 1 was changed:"), "{first}");
}

proptest! {
    /// Every change of one entry is detected, and the finding names its place as exactly as possible.
    #[test]
    fn any_single_tampering_is_found_and_named(
        events in 2..20_u32,
        of in any::<prop::sample::Index>(),
        tampering in tampering(),
    ) {
        let whole = log((0..events).map(event), &pair(7));
        let at = 1 + of.index(events as usize);
        let (place, last) = (at as u64, u64::from(events));
        let mut lines = whole.clone();
        let expected = match &tampering {
            Tampering::Remove => {
                lines.remove(at);
                match place == last {
                    true => Some(Finding::CutOff { entries: last - 1, head: last }),
                    false => Some(Finding::Missing { expected: place, found: place + 1 }),
                }
            }
            Tampering::Repeat => {
                lines.insert(at, whole[at].clone());
                Some(Finding::Misplaced { expected: place + 1, found: place })
            }
            Tampering::Swap(by) => {
                let other = 1 + (at - 1 + by) % events as usize;
                prop_assume!(other != at);
                lines.swap(at, other);
                let other = other as u64;
                Some(Finding::Missing { expected: place.min(other), found: place.max(other) })
            }
            Tampering::Byte(byte, by) => {
                let mut bytes = lines[at].clone().into_bytes();
                let byte = byte % bytes.len();
                bytes[byte] ^= by;
                lines[at] = String::from_utf8_lossy(&bytes).into_owned();
                None
            }
            Tampering::Replace(other) => {
                lines[at] = fitting(&whole, at, event(*other));
                // The next entry, or the head after the last one, does not match.
                match place == last {
                    true => Some(Finding::Rewritten(last)),
                    false => Some(Finding::Unlinked(place + 1)),
                }
            }
            Tampering::Insert(other) => {
                lines.insert(at, fitting(&whole, at, event(*other)));
                // It matches its predecessor, but the next entry has the same number.
                Some(Finding::Misplaced { expected: place + 1, found: place })
            }
            Tampering::Truncate => {
                lines.truncate(at);
                Some(Finding::NoHead(place - 1))
            }
        };
        let found = verify(&lines, Some(head_of(&whole).key), None).unwrap_err();
        match expected {
            Some(expected) => prop_assert_eq!(found, expected),
            None => prop_assert!(names_the_changed_byte(&found, place), "{found} for position {place}"),
        }
    }
}
