//! `tributary privacy export` and `verify`: a ledger with its signature, and its costs computed again offline.

use std::fs::File;
use std::io::{BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use learning::privacy::accountant::{ORDERS, RdpCurve};
use learning::privacy::{Budget, Cost, Ledger, LedgerError, LedgerRow, NoServerEpsilon, Release, Sampled, SealedRow};
use serde::Serialize;
use task_spec::PrivacyMechanism;
use wire::audit::AuditKey;
use wire::grammar::counted;
use wire::ledger::{ExportedRow, LedgerExport, SignedLedger};
use wire::{Digest, TaskId, Timestamp, route};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, figure, when};
use crate::server::ServerArgs;

/// Longest file that is read: a million rows.
const MAX_BYTES: u64 = 1 << 30;
/// Deltas of the figures, besides the task's own.
const DELTAS: [f64; 4] = [1e-5, 1e-6, 1e-7, 1e-8];
/// Orders of the Rényi curve in a text.
const SHOWN_ORDERS: [f64; 6] = [2.0, 4.0, 8.0, 16.0, 32.0, 63.0];

/// Arguments of `tributary privacy export`.
#[derive(clap::Args)]
pub(crate) struct Export {
    /// Id or name of the task
    task: String,
    /// Output file; must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `tributary privacy verify`.
#[derive(clap::Args)]
pub(crate) struct Verify {
    /// A file written by `privacy export`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Expected signing key, as shown by `audit head` [default: the key named in the file]
    #[arg(long, value_name = "HEX")]
    key: Option<AuditKey>,
    /// Delta of further figures; may be repeated [default: 1e-5, 1e-6, 1e-7 and 1e-8]
    #[arg(long = "delta", value_name = "DELTA", value_parser = parse_delta)]
    deltas: Vec<f64>,
}

fn parse_delta(text: &str) -> Result<f64, String> {
    let delta = text.parse().ok().filter(|delta| *delta > 0.0 && *delta < 1.0);
    delta.ok_or_else(|| "a delta is above 0 and below 1".to_owned())
}

/// Output of an export.
#[derive(Serialize)]
struct Exported<'f> {
    path: &'f Path,
    /// Number of rows in the written file.
    rows: usize,
    key: AuditKey,
}

impl Export {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = self.server.client()?;
        let task = server.task(&self.task).await?;
        let signed: SignedLedger = server.get(&route::fill(route::TASK_PRIVACY_EXPORT, &[&task]), &[]).await?;
        let ledger = signed.open().map_err(|error| Failure::new(Exit::Integrity, error))?;
        let path = self.file.as_path();
        let cannot = || Failure::because(Exit::Io, format!("cannot write {}", path.display()));
        // Text alone: this cannot fail.
        let text = serde_json::to_string(&signed).unwrap_or_default();
        let mut file = File::create_new(path).map_err(cannot())?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(cannot())?;
        let exported = Exported { path, rows: ledger.rows.len(), key: ledger.coordinator };
        output.answer(&exported, || {
            let rows = counted(exported.rows as u64, "release", "releases");
            format!("{rows} in {}; `tributary privacy verify` checks them.", path.display())
        });
        Ok(())
    }
}

/// The figures of an intact ledger.
#[derive(Serialize)]
struct Verdict {
    task: TaskId,
    name: String,
    signed_at: Timestamp,
    key: AuditKey,
    /// Whether the expected signing key was given.
    key_was_given: bool,
    /// The change of the data between neighbours.
    neighbours: &'static str,
    rows: Vec<Row>,
    /// Of all releases together, to a participant in as many of them as the task allows.
    total: Figures,
}

#[derive(Serialize)]
struct Row {
    round: u64,
    attempt: u32,
    published: bool,
    #[serde(flatten)]
    figures: Figures,
}

/// A cost in the field's languages. Curves are bounds at [`Figures::orders`]; null: no bound.
#[derive(Serialize)]
struct Figures {
    /// zCDP to observers who know the cohorts, if there is one.
    rho: Option<f64>,
    /// Gaussian DP (Dong, Roth and Su 2022) to the same observers, of continuous noise as wide as the discrete noise of one party; null for
    /// other noise.
    mu: Option<f64>,
    orders: &'static [f64],
    /// Rényi divergences to observers of the models alone.
    rdp_published: Vec<f64>,
    /// The same to observers who also know the cohorts.
    rdp_cohort_known: Vec<f64>,
    epsilons: Vec<AtDelta>,
}

#[derive(Serialize)]
struct AtDelta {
    delta: f64,
    published: f64,
    cohort_known: f64,
}

impl Figures {
    fn of(cost: &Cost, ledger: &LedgerExport, deltas: &[f64]) -> Self {
        let server = NoServerEpsilon::of(ledger.privacy.mechanism);
        let at = |delta: &f64| {
            let found = cost.at(*delta, server, ledger.privacy.accounting);
            AtDelta { delta: *delta, published: found.published, cohort_known: found.cohort_known }
        };
        let curve = |curve: &RdpCurve| curve.values().to_vec();
        Self {
            rho: cost.rho,
            mu: cost.rho.filter(|_| is_gaussian(ledger.privacy.mechanism)).map(|rho| (2.0 * rho).sqrt()),
            orders: &ORDERS,
            rdp_published: curve(&cost.published),
            rdp_cohort_known: curve(&cost.cohort_known),
            epsilons: deltas.iter().map(at).collect(),
        }
    }
}

/// Whether one party draws Gaussian noise. Of these releases zCDP is exact for continuous noise: mu is the square root of 2 rho.
fn is_gaussian(mechanism: PrivacyMechanism) -> bool {
    match mechanism {
        PrivacyMechanism::CentralGaussian
        | PrivacyMechanism::Tree
        | PrivacyMechanism::BandedMatrix
        | PrivacyMechanism::Local => true,
        PrivacyMechanism::None
        | PrivacyMechanism::DistributedDiscreteGaussian
        | PrivacyMechanism::DistributedSkellam => false,
    }
}

impl Verify {
    pub(super) fn run(self, output: Output) -> Outcome {
        let export = self.read()?;
        let damaged = |problem: &dyn std::fmt::Display| {
            Failure::new(Exit::Damaged, format!("{}: {problem}", self.file.display()))
        };
        if let Some(key) = self.key.filter(|key| *key != export.coordinator) {
            return Err(damaged(&format!("it is signed by the key {}, not by {key}", export.coordinator)));
        }
        let budget = Budget::of(&export.privacy).ok_or_else(|| damaged(&"its task has no privacy mechanism"))?;
        let ledger = charged(&export, budget).map_err(|error| damaged(&error))?;
        let further = if self.deltas.is_empty() { &DELTAS[..] } else { &self.deltas };
        let mut deltas: Vec<_> = [budget.delta].into_iter().chain(further.iter().copied()).collect();
        deltas.sort_by(|one, another| another.total_cmp(one));
        deltas.dedup();
        let row = |(sealed, exported): (&SealedRow, &ExportedRow)| {
            let Release { round, attempt, .. } = sealed.row.release;
            let figures = Figures::of(&sealed.row.release.cost(budget.accounting), &export, &deltas);
            Row { round, attempt, published: exported.published, figures }
        };
        let verdict = Verdict {
            task: export.task,
            name: export.name.clone(),
            signed_at: export.signed_at,
            key: export.coordinator,
            key_was_given: self.key.is_some(),
            neighbours: neighbours(&ledger),
            rows: ledger.rows().iter().zip(&export.rows).map(row).collect(),
            total: Figures::of(&ledger.cost_after(None), &export, &deltas),
        };
        output.answer(&verdict, || words(&verdict, output.width()));
        Ok(())
    }

    fn read(&self) -> Outcome<LedgerExport> {
        let path = self.file.display();
        let unreadable = || Failure::because(Exit::Data, format!("cannot read {path}"));
        let file = File::open(&self.file).map_err(unreadable())?;
        let signed: SignedLedger = serde_json::from_reader(BufReader::new(file.take(MAX_BYTES)))
            .map_err(|error| Failure::new(Exit::Data, format!("{path} is no exported privacy ledger: {error}")))?;
        signed.open().map_err(|error| Failure::new(Exit::Damaged, format!("{path}: {error}")))
    }
}

/// Charges every release again; the figures must be those of the rows.
fn charged(export: &LedgerExport, budget: Budget) -> Result<Ledger, LedgerError> {
    // The coordinator's seals need its secret key. The signature over all rows takes their place.
    let row = |(index, exported): (u64, &ExportedRow)| {
        let mut row = exported.row.clone();
        if let Some(release) = row.get_mut("release").and_then(serde_json::Value::as_object_mut) {
            // Where it is secret, nothing is computed from it.
            release.entry("participants").or_insert_with(|| 1.into());
        }
        let row: LedgerRow = serde_json::from_value(row).map_err(|_| LedgerError::Tampered(index))?;
        Ok(SealedRow { row, seal: Digest([0; 32]) })
    };
    let rows = (0..).zip(&export.rows).map(row).collect::<Result<_, LedgerError>>()?;
    Ledger::open(export.privacy.mechanism, budget, rows, &|_: &[u8]| [0; 32])
}

fn neighbours(ledger: &Ledger) -> &'static str {
    match ledger.rows().first().map(|sealed| sealed.row.release.sampled) {
        Some(Sampled::FixedSize { .. }) => "one participant replaced by another",
        Some(Sampled::Anyhow | Sampled::Poisson { .. }) | None => "one participant more or less",
    }
}

fn words(verdict: &Verdict, terminal: Option<usize>) -> String {
    let total = &verdict.total;
    let rho = |figures: &Figures| figures.rho.map_or_else(|| "-".to_owned(), figure);
    let mut table = Table::new(&[
        ("ROUND", Cells::Number),
        ("ATTEMPT", Cells::Number),
        ("RHO", Cells::Number),
        ("PUBLISHED", Cells::Number),
        ("COHORT KNOWN", Cells::Number),
        ("", Cells::Words),
    ])
    .dispensable(&["ATTEMPT", "RHO"]);
    for row in &verdict.rows {
        let Some(first) = row.figures.epsilons.first() else { continue };
        table.row(vec![
            row.round.to_string(),
            row.attempt.to_string(),
            rho(&row.figures),
            figure(first.published),
            figure(first.cohort_known),
            if row.published { "" } else { "nothing published" }.to_owned(),
        ]);
    }
    let largest = total.epsilons.first().map_or(f64::NAN, |first| first.delta);
    let epsilons = total.epsilons.iter().map(|AtDelta { delta, published, cohort_known }| {
        format!("Delta {delta:<6e}  epsilon {} published, {} cohort known", figure(*published), figure(*cohort_known))
    });
    let at = |order: &f64| {
        let place = total.orders.iter().position(|known| known == order)?;
        Some(format!("{order}: {}", figure(*total.rdp_cohort_known.get(place)?)))
    };
    let curve: Vec<_> = SHOWN_ORDERS.iter().filter_map(at).collect();
    let mut lines = vec![
        table.render(terminal, "Nothing has been released."),
        format!(
            "All {} of task {} are charged rightly, signed {} by",
            counted(verdict.rows.len() as u64, "release", "releases"),
            verdict.name,
            when(verdict.signed_at)
        ),
        format!("{}.", verdict.key),
        format!("Neighbours    {}", verdict.neighbours),
        format!("Rows          epsilon of each release alone, at delta {largest:e}"),
        format!("zCDP          rho {} in total, cohort known", rho(total)),
        format!(
            "GDP           mu {} in total, cohort known, of continuous noise as wide",
            total.mu.map_or_else(|| "-".to_owned(), figure)
        ),
        format!("Renyi         by order, cohort known: {}", curve.join(", ")),
    ];
    lines.extend(epsilons);
    if !verdict.key_was_given {
        lines.push("Compare the key with the one that you know: nobody else did.".to_owned());
    }
    lines.join("\n")
}
