//! `tributary infer servers`: the servers of a task's model, as reported to the coordinator.

use wire::inspect::{ServerReport, ServerView};
use wire::route;

use crate::failure::Outcome;
use crate::output::{Cells, Output, Table, when};
use crate::server::PartArgs;

/// Arguments of `tributary infer servers`.
#[derive(clap::Args)]
pub(crate) struct Servers {
    /// Id or name of the task
    task: String,
    #[command(flatten)]
    part: PartArgs,
}

impl Servers {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = self.part.server.client()?;
        let id = server.task(&self.task).await?;
        let servers = server.part::<ServerView>(&route::fill(route::TASK_SERVERS, &[&id]), &[], self.part).await?;
        let newest = server.task_view(id).await?.summary.model_version;
        output.answer_list(&servers, |servers, terminal| table(servers, newest, terminal));
        Ok(())
    }
}

fn table(servers: &[ServerView], newest: u32, terminal: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("SERVER", Cells::Text),
        ("VERSION", Cells::Text),
        ("CANARY", Cells::Text),
        ("REQUESTS/S", Cells::Number),
        ("ERRORS", Cells::Number),
        ("P99", Cells::Number),
        ("QUEUE", Cells::Number),
        ("REPLICAS", Cells::Number),
        ("LAST REPORT", Cells::Text),
        ("REJECTED", Cells::Words),
    ])
    .dispensable(&["QUEUE", "LAST REPORT", "REPLICAS"]);
    for ServerView { name, told_at, report } in servers {
        table.row(vec![
            name.clone(),
            version(report.version, newest),
            report.canary.map(|canary| format!("{} ({} %)", canary.version, canary.percent)).unwrap_or_default(),
            format!("{:.1}", per_second(report)),
            report.errors.to_string(),
            report.p99_ms.map(|p99| format!("{p99} ms")).unwrap_or_default(),
            report.queue.to_string(),
            report.desired_replicas.map(|replicas| replicas.to_string()).unwrap_or_default(),
            when(*told_at),
            refused(report),
        ]);
    }
    table.render(
        terminal,
        "Nobody serves it, or says so: `tributary infer serve --from URL --task NAME` does (docs/SERVING.md).",
    )
}

fn version(version: Option<u32>, newest: u32) -> String {
    match version {
        None => "none yet".to_owned(),
        Some(version) if version < newest => format!("{version} ({} behind)", newest - version),
        Some(version) => version.to_string(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a measurement, which nothing depends on")]
fn per_second(report: &ServerReport) -> f64 {
    report.requests as f64 * 1000.0 / report.over_ms.max(1) as f64
}

fn refused(report: &ServerReport) -> String {
    let each = report.refused.iter().map(|refused| format!("{} {}", refused.version, refused.because.as_str()));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use wire::Timestamp;
    use wire::inspect::{CanaryView, RefusedBecause, RefusedVersion};

    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn a_server_says_what_it_uses_how_fast_and_what_it_does_not_use() {
        let report = ServerReport {
            version: Some(11),
            canary: Some(CanaryView { version: 12, percent: 20.0, left_ms: 1 }),
            refused: vec![
                RefusedVersion { version: 10, because: RefusedBecause::RolledBack },
                RefusedVersion { version: 7, because: RefusedBecause::Slow },
            ],
            over_ms: 30_000,
            requests: 4200,
            errors: 3,
            p99_ms: Some(18),
            queue: 2,
            desired_replicas: Some(3),
        };
        let server = |name: &str, report| ServerView { name: name.to_owned(), told_at: Timestamp(0), report };
        let servers = [server("icu.example.org:8500", report), server("new", ServerReport::default())];
        let told = table(&servers, 12, None);
        for words in ["11 (1 behind)", "12 (20 %)", "140.0", "18 ms", "10 rolled_back, 7 slow", "none yet", "0.0"] {
            assert!(told.contains(words), "{words}: {told}");
        }
        let narrow = table(&servers, 12, Some(80));
        assert!(fits_eighty(&narrow) && narrow.contains("10 rolled_back, 7 slow"), "{narrow}");
        assert_eq!(version(Some(12), 12), "12");
        assert!(table(&[], 12, None).contains("infer serve --from"));
    }
}
