//! The provenance of a model version: shown, saved with the model, and verified offline.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use operator_client::provenance::{get, opened, record};
use ring::digest::{Context, SHA256};
use wire::Digest;
use wire::audit::AuditKey;
use wire::inspect::ModelView;
use wire::provenance::{Provenance, SignedProvenance};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, bytes, figure, when};
use crate::server::{Server, Tagged};

/// Longest file of a record that is read: the answer of the API, indented or not.
const MAX_BYTES: u64 = 1 << 20;

/// Arguments of `tributary model verify`.
#[derive(clap::Args)]
pub(crate) struct Verify {
    /// Model file written by `model fetch`
    file: PathBuf,
    /// Record written by `model fetch --provenance`
    #[arg(long, value_name = "FILE")]
    provenance: PathBuf,
    /// Expected signing key, as shown by `audit head` [default: the key named in the record]
    #[arg(long, value_name = "HEX")]
    key: Option<AuditKey>,
}

/// The result for a model that matches its record.
#[derive(serde::Serialize)]
struct Verdict {
    record: Provenance,
    /// Whether the expected signing key was given.
    key_was_given: bool,
}

/// A version, and where it comes from.
#[derive(serde::Serialize)]
struct Shown {
    #[serde(flatten)]
    model: ModelView,
    /// Absent for a version that was published before records were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    provenance: Option<Provenance>,
}

impl Verify {
    pub(super) fn run(self, output: Output) -> Outcome {
        let record = self.read()?;
        let damaged = |problem: String| Failure::new(Exit::Damaged, format!("{}: {problem}", self.file.display()));
        if let Some(key) = self.key.filter(|key| *key != record.coordinator) {
            return Err(damaged(format!("its record is signed by the key {}, not by {key}", record.coordinator)));
        }
        let (sha256, length) = digest(&self.file)?;
        if (sha256, length) != (record.sha256, record.bytes) {
            let (told, size) = (record.sha256, record.bytes);
            return Err(damaged(format!(
                "it has {length} bytes and the sha256 {sha256}; version {} of task {} has {size} and {told}",
                record.version, record.task
            )));
        }
        let verdict = Verdict { record, key_was_given: self.key.is_some() };
        output.answer(&verdict, || {
            let named = if verdict.key_was_given {
                ""
            } else {
                "\nCompare the key with the one that you know: nobody else did."
            };
            format!("{}\nThe file is this version's.{named}", told(&verdict.record))
        });
        Ok(())
    }

    fn read(&self) -> Outcome<Provenance> {
        let path = self.provenance.display();
        let record = read_signed(&self.provenance)?;
        record.open().map_err(|error| Failure::new(Exit::Damaged, format!("the record in {path}: {error}")))
    }
}

/// Reads a record as it was saved, without a check of its signature.
///
/// # Errors
/// [`Exit::Data`].
pub(crate) fn read_signed(path: &Path) -> Outcome<SignedProvenance> {
    let name = path.display();
    let file = File::open(path).map_err(Failure::because(Exit::Data, format!("cannot read {name}")))?;
    serde_json::from_reader(std::io::Read::take(file, MAX_BYTES))
        .map_err(|error| Failure::new(Exit::Data, format!("{name} is not a record of a model version: {error}")))
}

fn digest(path: &Path) -> Outcome<(Digest, u64)> {
    let unreadable = || Failure::because(Exit::Data, format!("cannot read {}", path.display()));
    let mut file = File::open(path).map_err(unreadable())?;
    let (mut context, mut length, mut buffer) = (Context::new(&SHA256), 0, vec![0; 1 << 16]);
    loop {
        let read = std::io::Read::read(&mut file, &mut buffer).map_err(unreadable())?;
        if read == 0 {
            let mut digest = Digest([0; 32]);
            digest.0.copy_from_slice(context.finish().as_ref());
            return Ok((digest, length));
        }
        context.update(&buffer[..read]);
        length += read as u64;
    }
}

/// Saves the record of a version, if it is signed.
pub(super) async fn save(server: &Server, model: &ModelView, path: &Path) -> Outcome {
    let signed = get(server, model).await?;
    opened(&signed, model)?;
    let cannot = || Failure::because(Exit::Io, format!("cannot write {}", path.display()));
    let mut file = File::create(path).map_err(cannot())?;
    // Text alone: this cannot fail.
    let text = serde_json::to_string(&signed).unwrap_or_default();
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(cannot())
}

/// Shows a version, and where it comes from.
pub(super) async fn show(server: &Server, model: Tagged<ModelView>, output: Output) -> Outcome {
    let Tagged { view: model, etag } = model;
    let provenance = record(server, &model).await?.map(|signed| opened(&signed, &model)).transpose()?;
    let shown = Shown { model, provenance };
    output.answer_tagged(&shown, etag.as_deref(), || {
        let words = match &shown.provenance {
            Some(record) => told(record),
            None => {
                format!("Version {} has no record: it was published before records were kept.", shown.model.version)
            }
        };
        words + &etag.as_ref().map(|etag| format!("\n{:<10} {etag}", "ETag")).unwrap_or_default()
    });
    Ok(())
}

fn told(record: &Provenance) -> String {
    let none = || "-".to_owned();
    let base = record.base.map_or_else(none, |base| format!("version {}, sha256 {}", base.version, base.sha256));
    let round = record.round.map_or_else(none, |made| format!("{}, attempt {}", made.round, made.attempt));
    let privacy = record
        .privacy
        .map_or_else(none, |spent| format!("epsilon {} at delta {:e}", figure(spent.epsilon), spent.delta));
    let lines = [
        ("Version", record.version.to_string()),
        ("Task", record.task.to_string()),
        ("SHA-256", record.sha256.to_string()),
        ("Size", bytes(record.bytes)),
        ("Origin", record.origin.as_str().to_owned()),
        ("Base", base),
        ("Round", round),
        ("Updates", record.updates.map_or_else(none, |updates| updates.to_string())),
        ("Roster", record.roster.map_or_else(none, |roster| roster.to_string())),
        ("Survivors", record.survivors.map_or_else(none, |survivors| survivors.to_string())),
        ("Spent", privacy),
        ("Training", record.task_sha256.to_string()),
        ("Published", when(record.published_at)),
        ("Signed", format!("{} by {}", when(record.signed_at), record.program)),
        ("Key", record.coordinator.to_string()),
    ];
    lines.map(|(name, value)| format!("{name:<10} {value}")).join("\n")
}
