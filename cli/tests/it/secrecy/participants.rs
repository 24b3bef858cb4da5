//! Participants and their secrets, read from their journals.

use std::path::Path;
use std::sync::{Arc, Mutex};

use client_sdk::journal::{Journal, JournalError, MemoryJournal};
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::participant::{Outcome, Participant};
use client_sdk::transport::Proxy;
use client_sdk::{PrivacyPolicy, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use zeroize::Zeroizing;

use crate::support::Served;

/// Participants of each task.
pub(super) const EACH: usize = 4;
/// Values of the model.
pub(super) const VALUES: usize = 8;
/// Before the 32 bytes of an Ed25519 key in PKCS #8.
const ED25519: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// All secrets, by kind.
#[derive(Default)]
pub(super) struct Secrets(Vec<(&'static str, Vec<u8>)>);

impl Secrets {
    /// Secrets of a coordinator whose keys are in this folder, as after `serve --dev`.
    pub(super) fn of_coordinator(data: &Path, token: &str) -> Self {
        let mut secrets = Self::default();
        secrets.add("an operator's token", token.as_bytes());
        let key = std::fs::read(data.join("seal.key")).unwrap();
        assert_eq!(key.len(), 32);
        secrets.add("the sealing key", &key);
        secrets.add_key("the authority's key", &data.join("ca-key.pem"));
        secrets
    }

    /// The private part of the key in a PEM file.
    pub(super) fn add_key(&mut self, what: &'static str, file: &Path) {
        let pem = std::fs::read_to_string(file).unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = wire::base64::decode(&body).unwrap();
        self.add(what, private_part(&der));
    }

    pub(super) fn add(&mut self, what: &'static str, secret: &[u8]) {
        assert!(secret.len() >= 15, "{what} is too short to be known by: {}", secret.len());
        self.0.push((what, secret.to_vec()));
    }

    /// Adds numbers as [`Self::add_numbers`] does, and the first one as text.
    pub(super) fn add_values(&mut self, what: &'static str, values: &[f32]) {
        self.add_numbers(what, values);
        values.iter().take(1).for_each(|value| self.add_text("a value of an update", *value));
    }

    /// Adds numbers as runs of four in single and of two in double precision, little-endian.
    pub(super) fn add_numbers(&mut self, what: &'static str, values: &[f32]) {
        for four in values.chunks_exact(4) {
            self.add(what, &four.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
        }
        for two in values.chunks_exact(2) {
            self.add(what, &two.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect::<Vec<_>>());
        }
    }

    /// A number between 0 and 1 in decimal digits, with enough digits to be unique.
    pub(super) fn add_text(&mut self, what: &'static str, value: f32) {
        let text = format!("{:.17}", f64::from(value));
        self.0.push((what, text.as_bytes()[1..9].to_vec()));
    }

    /// Adds the keys, seeds and shares in a record of a journal. `secure-agg/src/client` has the form of a session.
    pub(super) fn add_record(&mut self, record: &[u8]) {
        if let Some(at) = record.windows(16).position(|window| *window == ED25519) {
            self.add("a participant's key", &record[at + 16..at + 48]);
        }
        let Some(snapshot) = session(record) else { return };
        let parts = parts(&snapshot[2..]);
        match snapshot[1] {
            1 => parts[1..4].iter().for_each(|part| self.add("a seed or single-use key", part)),
            2 => {
                parts[1..3].iter().for_each(|part| self.add("a seed or single-use key", part));
                parts[3].chunks(32).for_each(|part| self.add("a single-use key", part));
            }
            3 => parts[3].chunks(32).for_each(|part| self.add("a share", part)),
            _ => {}
        }
    }

    pub(super) fn join(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(super) fn all(&self) -> &[(&'static str, Vec<u8>)] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The octet string of 32 bytes in a key in DER: the key itself.
fn private_part(der: &[u8]) -> &[u8] {
    let at = der.windows(2).position(|pair| pair == [0x04, 0x20]).expect("a key of 32 bytes");
    &der[at + 2..at + 34]
}

/// A journal that exposes written records.
#[derive(Clone, Default)]
struct Open {
    inner: Arc<MemoryJournal>,
    written: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Journal for Open {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        self.inner.load(name)
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        self.written.lock().unwrap().push(bytes.to_vec());
        self.inner.save(name, bytes)
    }
}

impl Open {
    /// Secrets in the records that were written so far.
    fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        self.written.lock().unwrap().iter().for_each(|record| secrets.add_record(record));
        secrets
    }
}

/// The session in a record of a round, if it has one.
fn session(record: &[u8]) -> Option<&[u8]> {
    // Length and digest of an update may come before the header.
    let rest = record.get(if *record.get(16)? < 8 { 18 } else { 18 + 40 }..)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (header, parts) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).unwrap())?;
    let header: serde_json::Value = serde_json::from_slice(header).ok()?;
    let bytes = usize::try_from(header.get("snapshot_bytes")?.as_u64()?).unwrap();
    Some(&parts[..bytes])
}

/// The parts of a session, each behind its length.
fn parts(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (part, after) = after.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap());
        parts.push(part);
        rest = after;
    }
    parts
}

/// Moves the model by distinct values, and reports a distinct loss.
struct Moves {
    by: Vec<f32>,
    loss: f32,
}

impl Trainer for Moves {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        parameters.values_mut().iter_mut().zip(&self.by).for_each(|(value, by)| *value += by);
        let loss = MetricValue { value: f64::from(self.loss), count: 10 };
        Ok(Trained { parameters, examples: 10, metrics: vec![("secret_loss".to_owned(), loss)] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        10
    }
}

/// Runs a task to its end with new participants, and returns their secrets.
pub(super) async fn play(served: &Served, task: &str, participants: usize) -> Secrets {
    let mut secrets = Secrets::default();
    let mut running = tokio::task::JoinSet::new();
    let mut journals = Vec::new();
    for index in 0..participants {
        let mut rng = ChaCha20Rng::seed_from_u64(41 * index as u64 + task.len() as u64);
        let mut value = || f32::from(u16::try_from(rng.next_u32() >> 16).unwrap()) / 65_536.0 * 0.313_7 + 0.011_1;
        let by: Vec<f32> = (0..VALUES).map(|_| value()).collect();
        let loss = value();
        secrets.add_values("an update", &by);
        secrets.add_text("a participant's loss", loss);
        let token = served.enrollment_token();
        secrets.add("an enrolment token", token.as_bytes());
        let journal = Open::default();
        journals.push(journal.clone());
        let ca = std::fs::read_to_string(&served.ca).unwrap();
        let mut participant = Participant::builder()
            .server(&served.url)
            .proxy(Proxy::none())
            .ca_pem(ca)
            .enrollment_token(token)
            .name(format!("{task}-{index}"))
            .task(task)
            .journal(journal)
            .trainer(Moves { by, loss })
            .secure_aggregation(SecurityPolicy::lowest())
            .privacy(PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() })
            .build()
            .unwrap();
        running.spawn(async move { participant.run(std::future::pending()).await });
    }
    while let Some(ended) = running.join_next().await {
        assert!(matches!(ended.unwrap().unwrap(), Outcome::TaskOver { .. }));
    }
    for journal in journals {
        let found = journal.secrets();
        assert!(found.len() > 10, "a key, and of two sessions seeds, keys and shares: {}", found.len());
        secrets.join(found);
    }
    secrets
}
