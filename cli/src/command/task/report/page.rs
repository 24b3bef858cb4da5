//! The page of a report: HTML without scripts, which loads nothing from elsewhere.

use std::fmt::Write as _;

use learning::analytics::AnalyticsState;
use wire::grammar::counted;
use wire::inspect::{EpsilonView, ModelView, PrivacyReport, Protection, RoundView};
use wire::{Digest, TaskStatus};

use super::curve;
use super::facts::Facts;
use super::survival;
use crate::command::task::result;
use crate::output::{day, figure, markup, number, when};

/// Maximum number of curves.
const CURVES_MAX: usize = 8;
/// Epsilon above which its factor says nothing to a reader.
const FACTOR_MAX: f64 = 10.0;

const STYLE: &str = "\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1f2328; background: #fff; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #d5d9de; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid #d5d9de; vertical-align: top; }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; } pre { overflow-x: auto; }
.curves { display: flex; flex-wrap: wrap; gap: 1rem; } .curves svg { max-width: 100%; height: auto; }
.note { color: #57606a; }
@media (prefers-color-scheme: dark) { body { color: #e4e7eb; background: #15191e; } h2, th, td { border-color: #39414a; } .note { color: #9aa4ae; } }
@media print { body { max-width: none; } details { display: none; } }
";

/// A whole HTML document.
pub(super) fn draw(facts: &Facts) -> String {
    let name = markup(&facts.task.summary.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{name}: report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
    );
    let description = &facts.task.spec.description;
    if !description.is_empty() {
        let _ = writeln!(page, "<p>{}</p>", markup(description));
    }
    let program = env!("CARGO_PKG_VERSION");
    let _ = writeln!(
        page,
        "<p class=\"note\">Made by tributary {program} at {} from what the coordinator shows. Task {}, created at {}.</p>",
        when(facts.at),
        facts.task.summary.id,
        when(facts.task.summary.created_at)
    );
    for (title, body) in [
        ("In short", in_short(facts)),
        ("Participants", participants(facts)),
        ("What was computed", computed(facts)),
        ("Protection of single updates", protection(facts)),
        ("Privacy of the results", privacy(facts)),
        ("Results", results(facts)),
        ("Versions", versions(facts)),
        ("How to check this page", checks(facts)),
    ] {
        let _ = writeln!(page, "<h2>{title}</h2>\n{body}");
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn paragraph(words: &str) -> String {
    format!("<p>{words}</p>\n")
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: String = items.into_iter().map(|item| format!("<li>{item}</li>\n")).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// A table whose first column is text and whose other columns are figures, unless `is_text`. Cells are markup.
fn table(headings: &[&str], rows: &[Vec<String>], is_text: bool) -> String {
    let class = |column: usize| if column == 0 || is_text { "" } else { " class=\"figure\"" };
    let cells = |tag: &str, row: &mut dyn Iterator<Item = &str>| -> String {
        row.enumerate().map(|(column, cell)| format!("<{tag}{}>{cell}</{tag}>", class(column))).collect()
    };
    let mut text = format!("<table>\n<tr>{}</tr>\n", cells("th", &mut headings.iter().copied()));
    for row in rows {
        let _ = writeln!(text, "<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)));
    }
    text.push_str("</table>\n");
    text
}

fn code(digest: &Digest) -> String {
    format!("<code>{digest}</code>")
}

fn in_short(facts: &Facts) -> String {
    let summary = &facts.task.summary;
    let (completed, planned) = (summary.rounds_completed, summary.rounds_total);
    let state = match summary.status {
        TaskStatus::Active => "The task is running",
        TaskStatus::Paused => "The task is paused",
        TaskStatus::Completed => "The task is complete",
        TaskStatus::Cancelled => "The task was cancelled",
        TaskStatus::BudgetExhausted => "The task has stopped because its privacy budget is spent",
    };
    let mut lines = vec![format!("{state}. {completed} of {planned} planned rounds were completed.")];
    let ends: Vec<_> = facts.completed().filter_map(|round| round.ended_at).collect();
    if let (Some(first), Some(last)) = (facts.completed().map(|round| round.opened_at).min(), ends.into_iter().max()) {
        lines.push(format!("They took place from {} to {}.", day(first), day(last)));
    }
    lines.push(
        "Data stayed with the participants. Each one computed an update from its own data, and the coordinator published \
         only what it computed from these updates."
            .to_owned(),
    );
    lines.push(match &facts.task.protection {
        Some(Protection::HiddenInSums { smallest_sum, .. }) => format!(
            "Updates were masked before they left the participants: the coordinator could read only sums of at least {smallest_sum} updates."
        ),
        Some(Protection::ReadableByCoordinator) => {
            "Updates were <strong>not masked</strong>: the coordinator and its operator could read each of them.".to_owned()
        }
        None => "This coordinator does not state who could read updates.".to_owned(),
    });
    lines.push(match &facts.privacy {
        Some(report) => format!(
            "Noise limits what the published results reveal about one participant: epsilon {} at delta {} (below).",
            figure(report.spent.published),
            delta(report)
        ),
        None => "No noise was added: nothing limits by proof what the published results reveal about one participant."
            .to_owned(),
    });
    list(lines)
}

fn participants(facts: &Facts) -> String {
    if facts.has_secret_sizes() {
        return paragraph(
            "The privacy guarantee relies on the secrecy of the number of participants in each round. So this page leaves these numbers out.",
        );
    }
    let completed: Vec<&RoundView> = facts.completed().collect();
    let over = |of: fn(&RoundView) -> u32| {
        let values = || completed.iter().map(|round| of(round));
        let (low, high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
        let total: u64 = values().map(u64::from).sum();
        vec![number(low.into()), number(high.into()), number(total)]
    };
    let row = |name: &str, of: fn(&RoundView) -> u32| [vec![name.to_owned()], over(of)].concat();
    let rows = [
        row("drawn by the coordinator", |round| round.cohort),
        row("updates in the published sum", in_sum),
        row("dropped out", |round| round.dropped),
    ];
    let mut text =
        table(&["In completed rounds", "Fewest in a round", "Most in a round", "In all rounds"], &rows, false);
    let failed = facts.rounds.len() - completed.len();
    let attempts: u64 = facts.rounds.iter().map(|round| u64::from(round.attempt)).sum();
    text.push_str(&paragraph(&format!(
        "Rounds: {}; attempts at them: {}; rounds whose latest attempt published nothing: {failed}. A participant counts once in each round \
         that it took part in.",
        number(facts.rounds.len() as u64),
        number(attempts)
    )));
    if let Some(view) = facts.task.participants.as_ref() {
        text.push_str(&paragraph(&format!("{} enrolled participants are eligible now.", number(view.eligible.into()))));
    }
    text
}

/// Number of updates in the sum of a completed round.
fn in_sum(round: &RoundView) -> u32 {
    round.secure_aggregation.as_ref().map_or(round.reported, |session| session.included)
}

fn computed(facts: &Facts) -> String {
    let spec = &facts.task.spec;
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    let kind = |value: Option<serde_json::Value>| {
        value.as_ref().and_then(|value| value["kind"].as_str()).map_or_else(|| "its own program".to_owned(), markup)
    };
    match &spec.analytics {
        Some(analysis) => row("Analysis", kind(serde_json::to_value(analysis).ok())),
        None => {
            let parameters = number(facts.task.summary.parameters);
            row(
                "Model",
                format!("{}, {parameters} parameters", kind(serde_json::to_value(&spec.model.architecture).ok())),
            );
            let plan = &spec.training;
            let length = plan.steps.map_or_else(
                || counted(plan.epochs, "pass over the local data", "passes over the local data"),
                |steps| counted(steps, "step", "steps"),
            );
            let rate = figure(plan.learning_rate);
            row(
                "Training in each round",
                format!("{length}, {} examples at a time, learning rate {rate}", plan.batch_size),
            );
            row("Metrics", markup(&spec.metrics.join(", ")));
        }
    }
    row(
        "Weight of an update",
        match spec.aggregation.max_weight {
            _ if spec.privacy.is_private() || spec.analytics.is_some() => "bounded by the task file below".to_owned(),
            1 => "the same for all participants".to_owned(),
            most => format!("its number of examples, at most {}", number(most.into())),
        },
    );
    let mut text = table(&["", ""], &rows, true);
    if let Ok(file) = toml::to_string(spec) {
        let _ = writeln!(text, "<details><summary>The whole task file</summary><pre>{}</pre></details>", markup(&file));
    }
    text
}

fn protection(facts: &Facts) -> String {
    let Some(protection) = &facts.task.protection else {
        return paragraph("This coordinator does not state who could read updates.");
    };
    let lines = protection.lines();
    let mut text = list(lines.iter().map(|line| format!("Updates are {}.", markup(line))).take(1));
    text.push_str(&list(lines.iter().skip(1).map(|line| markup(line))));
    if let Protection::HiddenInSums { .. } = protection {
        text.push_str(&paragraph(
            "Masked updates look like random numbers. The masks of all participants of a round cancel in the sum, so only the sum can be read. \
             This fails if more participants than stated collude with the coordinator.",
        ));
    }
    text
}

fn delta(report: &PrivacyReport) -> String {
    report.spec.delta.map_or_else(|| "not stated".to_owned(), |delta| format!("{delta:e}"))
}

fn privacy(facts: &Facts) -> String {
    let Some(report) = &facts.privacy else {
        return paragraph(
            "The task has no privacy mechanism. Published models and sums can reveal something about single participants, for example by \
             comparison of successive versions.",
        );
    };
    let EpsilonView { published, cohort_known, server, .. } = report.spent;
    let budget = report.spec.epsilon.map_or_else(|| "none".to_owned(), figure);
    let rows = [
        vec!["Mechanism".to_owned(), report.spec.mechanism.as_str().to_owned()],
        vec!["Budget: epsilon".to_owned(), budget],
        vec!["Delta".to_owned(), delta(report)],
        vec!["Releases".to_owned(), number(report.releases.len() as u64)],
        vec!["Epsilon against readers of the published results".to_owned(), figure(published)],
        vec!["Epsilon against those who know the participants of each round".to_owned(), figure(cohort_known)],
        vec![
            "Epsilon against the coordinator itself".to_owned(),
            server.map_or_else(|| "unbounded: the coordinator adds the noise".to_owned(), figure),
        ],
    ];
    let mut text = table(&["", ""], &rows, true);
    let factor = match published <= FACTOR_MAX {
        true => format!("a factor of {} (e to the power of epsilon)", figure(published.exp())),
        false => "a factor of e to the power of epsilon".to_owned(),
    };
    text.push_str(&paragraph(&format!(
        "Epsilon bounds what taking part changes: with or without one participant, every result is equally probable up to {factor}, but for \
         a probability of delta. Smaller is more private; 0 reveals nothing. The unit is one participant with all its data in this task."
    )));
    text
}

fn results(facts: &Facts) -> String {
    let found = facts.analysis.as_ref().map_or_else(String::new, |state| {
        let curves = match state {
            AnalyticsState::Survival(state) => survival::draw(&state.groups, &result::groups(&facts.task.spec)),
            _ => String::new(),
        };
        format!(
            "<div class=\"curves\">\n{curves}</div>\n<pre>{}</pre>\n",
            markup(&result::words(&facts.task.spec, state))
        )
    });
    found + &metrics(facts)
}

fn metrics(facts: &Facts) -> String {
    let mut names: Vec<&String> = facts.completed().flat_map(|round| round.metrics.keys()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return paragraph("No metrics were published.");
    }
    let curves: String = names
        .iter()
        .take(CURVES_MAX)
        .map(|name| {
            let value = |round: &RoundView| round.metrics.get(*name).map(|metric| (round.number, metric.value));
            let points: Vec<_> = facts.completed().filter_map(value).filter(|(_, value)| value.is_finite()).collect();
            if points.is_empty() { String::new() } else { curve::draw(&markup(name), &points) }
        })
        .collect();
    let last = facts.completed().last();
    let rows: Vec<_> = last
        .iter()
        .flat_map(|round| &round.metrics)
        .map(|(name, metric)| vec![markup(name), figure(metric.value), number(metric.count)])
        .collect();
    let mut text = format!("<div class=\"curves\">\n{curves}</div>\n");
    if names.len() > CURVES_MAX {
        let left_out: Vec<_> = names[CURVES_MAX..].iter().map(|name| markup(name)).collect();
        text.push_str(&paragraph(&format!("Without curves: {}.", left_out.join(", "))));
    }
    text.push_str(&paragraph(
        "Means over the participants of each round, weighted by their numbers of examples. Metrics of the received model are of the version \
         that the round started from.",
    ));
    text.push_str(&table(&["In the last completed round", "Value", "Examples"], &rows, false));
    text
}

fn versions(facts: &Facts) -> String {
    let promoted = facts.task.promoted_version;
    let row = |model: &ModelView| {
        let mark = if promoted == Some(model.version) { " (promoted)" } else { "" };
        let round = model.round.map_or_else(|| "-".to_owned(), |round| round.to_string());
        vec![format!("{}{mark}", model.version), round, when(model.created_at), code(&model.sha256)]
    };
    let rows: Vec<_> = facts.versions.iter().map(row).collect();
    table(&["Version", "Round", "Published", "SHA-256 of its file"], &rows, true)
}

fn checks(facts: &Facts) -> String {
    let name = markup(&facts.task.summary.name);
    let mut rows = vec![vec!["Signing key".to_owned(), format!("<code>{}</code>", facts.audit.key)]];
    if let Some(head) = &facts.audit.head {
        rows.push(vec!["Entries in the audit log".to_owned(), number(head.position)]);
        rows.push(vec!["Hash of the last one".to_owned(), format!("<code>{}</code>", head.hash)]);
        rows.push(vec!["Signed".to_owned(), when(head.at)]);
    }
    let mut text = paragraph(
        "This page is a copy of what the coordinator shows, and is not signed. The audit log, the records of versions and the privacy ledger are: \
         they can be compared with the figures here.",
    );
    text.push_str(&table(&["", ""], &rows, true));
    let mut commands = vec![
        "tributary audit export log.jsonl &amp;&amp; tributary audit verify log.jsonl".to_owned(),
        format!("tributary model fetch {name} --out model.safetensors --provenance record.json"),
    ];
    if facts.privacy.is_some() {
        commands.push(format!(
            "tributary privacy export {name} ledger.json &amp;&amp; tributary privacy verify ledger.json"
        ));
    }
    let _ = writeln!(text, "<pre>{}</pre>", commands.join("\n"));
    text
}
