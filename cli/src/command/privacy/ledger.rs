//! `tributary privacy show`: a task's ledger on the coordinator, or the total of all private tasks.

use std::path::PathBuf;

use learning::privacy::Epsilons;
use wire::TaskStatus;
use wire::grammar::counted;
use wire::inspect::{EpsilonView, PrivacyReport, PrivacyTotal, ReleaseView};
use wire::{TaskId, route};

use super::chart;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, check_writable, figure, markup, when};
use crate::privacy_notes::BUDGET_ADVICE;
use crate::server::{Server, ServerArgs};

/// Releases of a page.
const PAGE: u32 = 100;

/// Arguments of `tributary privacy show`.
#[derive(clap::Args)]
pub(crate) struct Show {
    /// Id or name of the task; without it, all private tasks together
    task: Option<String>,
    /// Plot what has been spent over the task's releases into this file
    #[arg(long, value_name = "FILE", requires = "task")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Show {
    pub(super) async fn run(self, output: Output) -> Outcome {
        self.svg.as_deref().map_or(Ok(()), check_writable)?;
        let server = self.server.client()?;
        let Some(name) = &self.task else { return total(&server, output).await };
        let id = server.task(name).await?;
        let report = get(&server, id).await?;
        if let Some(path) = &self.svg {
            let points = points(&report.releases);
            if points.is_empty() {
                return Err(Failure::new(Exit::NotFound, "nothing has been released, so there is nothing to plot"));
            }
            let subject = format!("{}, {}", name, report.spec.mechanism.as_str());
            let delta = report.spec.delta.unwrap_or_default();
            std::fs::write(path, chart::epsilon_over("releases", &points, &markup(&subject), delta))
                .map_err(Failure::because(Exit::Io, format!("cannot write {}", path.display())))?;
        }
        let status = server.task_view(id).await?.summary.status;
        output.answer(&report, || {
            let words = words(name, &report, status, self.svg.as_deref());
            format!("{words}\n\n{}", table(&report.releases, output.width()))
        });
        Ok(())
    }
}

/// Prints the total cost of all private tasks for a participant in each.
async fn total(server: &Server, output: Output) -> Outcome {
    let total: PrivacyTotal = server.get(route::PRIVACY, &[]).await?;
    output.answer(&total, || total_words(&total, output.width()));
    Ok(())
}

fn total_words(total: &PrivacyTotal, terminal: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("TASK", Cells::Text),
        ("MECHANISM", Cells::Text),
        ("RELEASES", Cells::Number),
        ("DELTA", Cells::Number),
        ("SPENT", Cells::Words),
    ]);
    for task in &total.tasks {
        let damaged = || format!("nobody knows: {}", task.damaged.as_deref().unwrap_or("its ledger cannot be read"));
        table.row(vec![
            task.name.clone(),
            task.mechanism.as_str().to_owned(),
            task.releases.to_string(),
            task.delta.map_or_else(|| "-".to_owned(), |delta| format!("{delta:e}")),
            task.spent.as_ref().map_or_else(damaged, spent),
        ]);
    }
    let table = table.render(terminal, "There is no private task.");
    let Some(delta) = total.delta else { return table };
    let all = total.spent.as_ref().map_or_else(|| "nobody knows: a ledger cannot be trusted".to_owned(), spent);
    format!("{table}\n\nAll together, on a participant of each: {all}, at delta {delta:e}")
}

/// Reads all pages of a ledger.
pub(crate) async fn get(server: &Server, task: TaskId) -> Outcome<PrivacyReport> {
    let path = route::fill(route::TASK_PRIVACY, &[&task]);
    let limit = ("limit", PAGE.to_string());
    let mut report: PrivacyReport = server.get(&path, std::slice::from_ref(&limit)).await?;
    while let Some(cursor) = report.next_cursor.take() {
        let page: PrivacyReport = server.get(&path, &[limit.clone(), ("cursor", cursor)]).await?;
        if page.releases.is_empty() {
            break;
        }
        let mut releases = std::mem::take(&mut report.releases);
        releases.extend(page.releases);
        // The figures of the last page are the latest.
        report = PrivacyReport { releases, ..page };
    }
    Ok(report)
}

/// Running totals by number of releases.
fn points(releases: &[ReleaseView]) -> Vec<(u32, Epsilons)> {
    let of = |total: &EpsilonView| Epsilons {
        published: total.published,
        cohort_known: total.cohort_known,
        server: total.server,
        server_reason: None,
        closeness: None,
        cohort_closeness: None,
    };
    (1..).zip(releases).map(|(count, release)| (count, of(&release.total))).collect()
}

fn words(name: &str, report: &PrivacyReport, status: TaskStatus, svg: Option<&std::path::Path>) -> String {
    let spec = &report.spec;
    let delta = spec.delta.unwrap_or_default();
    let mut lines = vec![
        format!("Task        {name}, {status}"),
        format!(
            "Mechanism   {}, noise multiplier {}",
            spec.mechanism.as_str(),
            spec.noise_multiplier.map_or_else(|| "unknown".to_owned(), figure)
        ),
        format!("Clipping    to L2 norm {}", figure(report.clip)),
        format!(
            "Cohort      about {}; a sum has at least {}, of whom {} may tell the coordinator their share of the noise",
            report.cohort, report.smallest_cohort, report.colluders
        ),
        format!("Spent       {}, at delta {delta:e}", spent(&report.spent)),
    ];
    if let Some(most) = spec.participations.filter(|_| spec.mechanism.needs_secure_aggregation()) {
        let releases = counted(most, "release", "releases");
        lines.insert(4, format!("Charged     for {releases} at most: no participant is in more"));
    }
    match (spec.epsilon, report.rounds_left) {
        (Some(budget), Some(left)) => {
            lines.push(format!("Budget      epsilon {}: room for {left} more rounds", figure(budget)))
        }
        _ => lines.push("Budget      none: spending is counted and not limited".to_owned()),
    }
    if status == TaskStatus::BudgetExhausted {
        lines.push(String::new());
        lines.push(BUDGET_ADVICE.to_owned());
    }
    if let Some(path) = svg {
        lines.push(format!("Plotted in  {}", path.display()));
    }
    lines.join("\n")
}

/// Three figures in a line.
pub(crate) fn spent(spent: &EpsilonView) -> String {
    let server = match (spent.server, spent.server_reason.as_deref()) {
        (Some(server), _) => figure(server),
        (None, reason) => format!("none ({})", reason.unwrap_or("unknown")),
    };
    format!(
        "epsilon {} published, {} cohort known, {server} server",
        figure(spent.published),
        figure(spent.cohort_known)
    )
}

fn table(releases: &[ReleaseView], terminal: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("ROUND", Cells::Number),
        ("ATTEMPT", Cells::Number),
        ("UPDATES", Cells::Number),
        ("NOISE", Cells::Number),
        ("RHO", Cells::Number),
        ("RDP", Cells::Number),
        ("PLD", Cells::Number),
        ("PUBLISHED", Cells::Number),
        ("COHORT KNOWN", Cells::Number),
        ("SERVER", Cells::Number),
        ("CHARGED", Cells::Text),
        ("", Cells::Words),
    ])
    .dispensable(&["RHO", "RDP", "PLD", "ATTEMPT", "NOISE", "UPDATES"]);
    let some = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
    for release in releases {
        table.row(vec![
            release.round.to_string(),
            release.attempt.to_string(),
            release.participants.map_or_else(|| "secret".to_owned(), |participants| participants.to_string()),
            figure(release.noise_multiplier),
            some(release.rho),
            figure(release.rdp),
            some(release.pld),
            figure(release.total.published),
            figure(release.total.cohort_known),
            some(release.total.server),
            when(release.at),
            if release.published { "" } else { "nothing published" }.to_owned(),
        ]);
    }
    table.render(terminal, "Nothing has been released.")
}
