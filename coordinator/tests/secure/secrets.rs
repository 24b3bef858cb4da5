//! Secrets absent from all databases, blobs, logs, metrics and responses: seeds, keys, shares, single updates.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use federation::round::RoundState;
use wire::route;

use crate::support::member::parts;
use crate::support::secure::World;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log of the process from now on, at the most verbose level.
fn capture() -> Log {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .try_init()
        .expect("nobody else takes the log of this process");
    log
}

/// All secrets written by a participant to its journal, by kind.
struct Secrets {
    /// Seeds of masks, private keys, single-use keys, shares of its own seeds: never revealed to others.
    own: Vec<Vec<u8>>,
    /// Both shares of every dealer.
    held: Vec<Vec<u8>>,
    /// One of each, revealed to the coordinator by the last message.
    revealed: Vec<Vec<u8>>,
}

fn chunks(part: &[u8]) -> Vec<Vec<u8>> {
    assert!(!part.is_empty() && part.len().is_multiple_of(32));
    part.chunks(32).map(<[u8]>::to_vec).collect()
}

fn secrets(snapshots: &[Vec<u8>]) -> Secrets {
    let mut secrets = Secrets { own: Vec::new(), held: Vec::new(), revealed: Vec::new() };
    for snapshot in snapshots {
        let parts = parts(snapshot);
        match snapshot[1] {
            1 => secrets.own.extend(parts[1..4].iter().map(|part| part.to_vec())),
            2 => {
                secrets.own.extend(parts[1..3].iter().map(|part| part.to_vec()));
                secrets.own.extend(parts[3..5].iter().flat_map(|part| chunks(part)));
            }
            3 => {
                secrets.held.extend(chunks(parts[3]));
            }
            4 => secrets.revealed.extend(chunks(parts[3])),
            _ => {}
        }
    }
    secrets
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Textual encodings of bytes.
fn spellings(secret: &[u8]) -> Vec<Vec<u8>> {
    let start = &secret[..secret.len().min(15)];
    let list: Vec<_> = start.iter().map(u8::to_string).collect();
    let base64 = wire::base64::encode(start);
    vec![
        secret.to_vec(),
        hex::encode(start).into_bytes(),
        hex::encode_upper(start).into_bytes(),
        list.join(", ").into_bytes(),
        list.join(",").into_bytes(),
        base64.into_bytes(),
    ]
}

/// All data outside of the participants.
struct Outside(Vec<(String, Vec<u8>)>);

impl Outside {
    async fn look(world: &World, log: &Log) -> Self {
        let t = &world.t;
        assert!(t.inner.engine.number_events().await.unwrap() > 0, "there are events to look into");
        for path in [
            format!("{}?limit=500", route::AUDIT),
            route::AUDIT_EXPORT.to_owned(),
            route::AUDIT_KEY.to_owned(),
            route::METRICS.to_owned(),
            "/v1/tasks".to_owned(),
            "/v1/tasks/secure".to_owned(),
            "/v1/tasks/secure/rounds".to_owned(),
            "/v1/tasks/secure/rounds/1".to_owned(),
            "/v1/tasks/secure/rounds/1/assignments".to_owned(),
            "/v1/tasks/secure/models".to_owned(),
            "/v1/participants".to_owned(),
        ] {
            assert_eq!(t.get(&t.viewer, &path).await.status, 200, "{path}");
        }
        let mut places: Vec<_> =
            world.files().into_iter().map(|(path, bytes)| (path.display().to_string(), bytes)).collect();
        places.push(("the log".to_owned(), log.0.lock().unwrap().clone()));
        places.push(("the answers".to_owned(), t.told.lock().unwrap().join(&b"\n"[..])));
        assert!(places.iter().filter(|(_, bytes)| bytes.len() > 1000).count() >= 3, "rows, log and answers");
        Self(places)
    }

    /// Searches for every encoding of every secret at once, since the data is long.
    fn must_not_hold(&self, secrets: &[(&'static str, Vec<u8>)]) {
        let mut first_two = vec![false; 1 << 16];
        let mut spelt: HashMap<[u8; 8], Vec<(&'static str, Vec<u8>)>> = HashMap::new();
        for (what, secret) in secrets {
            for spelling in spellings(secret) {
                let start = *spelling.first_chunk::<8>().unwrap();
                first_two[usize::from(u16::from_be_bytes([start[0], start[1]]))] = true;
                spelt.entry(start).or_default().push((what, spelling));
            }
        }
        for (place, bytes) in &self.0 {
            for (at, start) in bytes.array_windows::<8>().enumerate() {
                if !first_two[usize::from(u16::from_be_bytes([start[0], start[1]]))] {
                    continue;
                }
                for (what, spelling) in spelt.get(start).into_iter().flatten() {
                    assert!(!bytes[at..].starts_with(spelling), "{place} holds {what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn no_secret_is_stored_logged_measured_or_told() {
    let log = capture();
    let mut world = World::on_disk(5, |_| {}).await;
    world.up_to(1, RoundState::Collecting).await;
    // One deals and then stops: its mask seed is opened in the end, and deleted again.
    world.act(RoundState::Collecting, |at| at < 4).await;
    world.time_out().await;
    world.act(RoundState::Confirming, |at| at < 4).await;

    // Received answers are stored, but sealed.
    world.act(RoundState::Unmasking, |at| at < 3).await;
    assert_eq!(world.state(1).await, RoundState::Unmasking);
    let during = Outside::look(&world, &log).await;
    world.act(RoundState::Unmasking, |at| at == 3).await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    let after = Outside::look(&world, &log).await;
    assert_eq!(world.released(1).await, Some(world.plain(1, |at| at < 4)));

    let mut found = Vec::new();
    for member in &world.members {
        let Secrets { own, held, revealed } = secrets(&member.snapshots);
        found.extend(own.into_iter().map(|secret| ("a seed or key", secret)));
        found.extend(held.into_iter().map(|share| ("a share", share)));
        found.extend(revealed.into_iter().map(|share| ("an answer", share)));
    }
    // Each: two seeds and a key; the seeds again, four keys, a pair of shares. Four of them: five pairs, five answers.
    assert_eq!(found.len(), 5 * (3 + 8) + 4 * (2 * 5) + 4 * 5);
    for member in &world.members[..4] {
        found.push(("an update", secure_agg::packing::pack(&member.words, world.model.modulus)));
        found.push(("an update", member.words.iter().flat_map(|word| word.to_le_bytes()).collect()));
    }
    during.must_not_hold(&found);
    after.must_not_hold(&found);
    // The search finds existing data.
    let masked = [("a masked input", world.members[0].masked.clone())];
    assert!(std::panic::catch_unwind(|| after.must_not_hold(&masked)).is_err(), "masked inputs are blobs");
    assert!(contains(&log.0.lock().unwrap(), b"sum released"));
}

#[tokio::test]
async fn what_is_kept_for_a_session_goes_with_it() {
    let mut world = World::on_disk(4, |_| {}).await;
    world.up_to(1, RoundState::Unmasking).await;
    let key = federation::id::RoundKey { task: world.task, number: 1 };
    let kept = async |world: &World| {
        let mut kept = Vec::new();
        for kind in store::entity::session_message::MessageKind::ALL {
            let read =
                world.t.inner.store.read("test", |tx| Box::pin(async move { tx.messages(key.attempt(1), kind).await }));
            kept.extend(read.await.unwrap().into_iter().filter_map(|message| message.message));
        }
        kept
    };
    let before = kept(&world).await;
    assert_eq!(before.len(), 8, "signed inputs and signatures; the dealt shares went when inputs were in");
    world.act(RoundState::Unmasking, |at| at < 3).await;
    let sealed = kept(&world).await;
    assert_eq!(sealed.len(), 11);
    world.act(RoundState::Unmasking, |at| at == 3).await;
    assert_eq!(kept(&world).await.len(), 0);
    for message in sealed.iter().filter(|message| message.len() > 100) {
        for (path, bytes) in world.files() {
            let is_log = path.to_string_lossy().ends_with("-wal");
            assert!(is_log || !contains(&bytes, &message[40..80]), "{} still holds a message", path.display());
        }
    }
}
