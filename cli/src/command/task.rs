//! `tributary task`: create tasks and steer them.

use client_sdk::SecurityPolicy;
use recipe::TaskModel;
use serde::Serialize;
use serde_json::json;
use task_spec::TaskSpec;
use wire::admin::{CheckedTask, CreateTask, RebaseTask};
use wire::grammar::counted;
use wire::inspect::{
    BehindView, RefusalCount, ShortageView, StatusChange, TaskParticipantsView, TaskSummary, TaskView, TaskWaitingFor,
};
use wire::participant::{RefusalCode, SessionTerms};
use wire::route;
use wire::{TaskStatus, Timestamp};

use crate::arguments::one_of;
use crate::failure::Outcome;
use crate::output::{Cells, Output, Table, figure, number, when};
use crate::privacy_notes::{BUDGET_ADVICE, privacy_notes};
use crate::server::{IdempotencyArgs, IfMatchArgs, PartArgs, ServerArgs, Tagged, given, listed, none_of};
use crate::task_input::{self, SetArgs};

mod compare;
mod evaluation;
pub(crate) mod initial_model;
mod report;
mod result;
mod reused;
mod table;

/// A task with every key.
const KEYS: &str = include_str!("../../../docs/config/task.toml");

/// What to do with tasks.
#[derive(clap::Subcommand)]
pub(crate) enum TaskCommand {
    /// Create a task from a TOML file or a preset
    Create {
        /// The task: a file (docs/config/task.toml describes every key), or the name of a preset, which needs a model:
        /// --set model.architecture.kind=mlp
        file: String,
        #[command(flatten)]
        set: SetArgs,
        #[command(flatten)]
        once: IdempotencyArgs,
        /// Have the coordinator judge the task, and create nothing
        #[arg(long, conflicts_with = "idempotency_key")]
        check: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Print a task file that describes every key
    Keys,
    /// List tasks, newest first
    List {
        /// Only tasks with these statuses, separated by commas
        #[arg(long, value_name = "STATUS", value_delimiter = ',')]
        #[arg(value_parser = one_of(TaskStatus::ALL, TaskStatus::as_str))]
        state: Vec<TaskStatus>,
        /// Only tasks that were created then or later: RFC 3339, or milliseconds since 1970
        #[arg(long, value_name = "TIME", value_parser = coordinator::parse_time)]
        since: Option<Timestamp>,
        #[command(flatten)]
        part: PartArgs,
    },
    /// Show one task
    Show(TaskArg),
    /// Show tasks side by side: the keys that differ, and what came of it
    Compare(compare::Compare),
    /// Write one page about a task for readers who are no engineers: participants, protection, privacy cost, curves, digests
    Report(report::TaskReport),
    /// Print the result of an analysis: coefficients, curves, counts
    Result(result::AnalysisResult),
    /// Propose the columns of a table (`model.table`), with ranges, words and missing values, from a task of statistics
    Table(table::ProposeTable),
    /// Open no further rounds; the present one runs on
    Pause(ChangedTask),
    /// Resume a paused task
    Resume(ChangedTask),
    /// End a task and its present round, for good
    Cancel(ChangedTask),
    /// Skip round numbers that participants have used and a restored database has not
    Rebase {
        /// The last round number that is not used again; without it, what participants say they have seen
        #[arg(long, value_name = "ROUND")]
        beyond: Option<u32>,
        #[command(flatten)]
        task: ChangedTask,
    },
}

/// One task.
#[derive(clap::Args)]
pub(crate) struct TaskArg {
    /// Id or name of the task
    task: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// One task that is changed.
#[derive(clap::Args)]
pub(crate) struct ChangedTask {
    #[command(flatten)]
    named: TaskArg,
    #[command(flatten)]
    if_match: IfMatchArgs,
}

impl TaskCommand {
    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::Create { file, set, once, check, server } => {
                let mut spec = task_input::create(&file, &set)?;
                let server = server.client()?;
                initial_model::upload(&mut spec, &file, &server, output).await?;
                let body = CreateTask { spec };
                if check {
                    let query = [("dry_run", true.to_string())];
                    let checked: CheckedTask = server.post_with(route::TASKS, &query, &body).await?;
                    output.answer(&checked, || could_be_created(&checked));
                    privacy_notes(&checked.spec).into_iter().for_each(|note| output.note(note));
                    return Ok(());
                }
                let task = server.post_tagged(route::TASKS, &body, once.condition()).await?;
                show(output, &task);
                privacy_notes(&task.view.spec).into_iter().for_each(|note| output.note(note));
                reused::say_reused(&server, &task.view.summary, output).await;
                objections(&task.view.spec).iter().for_each(|reason| {
                    output.note(format!(
                        "an app with the SDK's defaults takes no part in this task: {reason} (docs/THREAT_MODEL.md)"
                    ));
                });
                Ok(())
            }
            Self::Keys => {
                output.document(&json!({ "task_file": KEYS }), || KEYS.to_owned());
                Ok(())
            }
            Self::List { state, since, part } => {
                let narrow = given([("state", listed(&state)), ("since", since.map(|since| since.0.to_string()))]);
                let part = part.server.client()?.part::<TaskSummary>(route::TASKS, &narrow, part).await?;
                let nothing = none_of(&narrow, "There are no tasks. `tributary task create FILE.toml` makes one.");
                output.answer_list(&part, |tasks, terminal| table(tasks, terminal, nothing));
                Ok(())
            }
            Self::Compare(compare) => compare.run(output).await,
            Self::Report(report) => report.run(output).await,
            Self::Result(result) => result.run(output).await,
            Self::Table(table) => table.run(output).await,
            Self::Show(named) => named.show(output).await,
            Self::Pause(task) => task.change(route::TASK_PAUSE, &json!({}), output).await,
            Self::Resume(task) => task.change(route::TASK_RESUME, &json!({}), output).await,
            Self::Cancel(task) => task.change(route::TASK_CANCEL, &json!({}), output).await,
            Self::Rebase { beyond, task } => task.change(route::TASK_REBASE, &RebaseTask { beyond }, output).await,
        }
    }
}

impl TaskArg {
    async fn show(self, output: Output) -> Outcome {
        let server = self.server.client()?;
        let id = server.task(&self.task).await?;
        show(output, &server.get_tagged(&route::fill(route::TASK, &[&id])).await?);
        Ok(())
    }
}

impl ChangedTask {
    /// Does it, then shows where the task stands.
    async fn change<B: Serialize>(self, template: &str, body: &B, output: Output) -> Outcome {
        let server = self.named.server.client()?;
        let id = server.task(&self.named.task).await?;
        let path = route::fill(template, &[&id]);
        show(output, &server.post_tagged(&path, body, self.if_match.condition()).await?);
        Ok(())
    }
}

/// The reasons why participants would decline the task, unless their apps lower their requirements on secure
/// aggregation.
pub(crate) fn objections(spec: &TaskSpec) -> Vec<String> {
    // The coordinator has accepted it: there is such a model.
    let session = TaskModel::new(spec).ok().and_then(|model| model.session);
    let session = session.as_deref().map(|config| SessionTerms::new(config, spec.batch_size()));
    let max_staleness = spec.ahead().map_or(0, |ahead| ahead.staleness.max);
    SecurityPolicy::default().objections(session.as_ref(), max_staleness)
}

fn could_be_created(checked: &CheckedTask) -> String {
    let CheckedTask { spec, parameters, update_bytes } = checked;
    let (parameters, update_bytes) = (number(*parameters), number(*update_bytes));
    format!("Task {:?} could be created: {parameters} parameters, and {update_bytes} bytes in an update", spec.name)
}

fn table(tasks: &[TaskSummary], terminal: Option<usize>, nothing: &str) -> String {
    let mut table = Table::new(&[
        ("ID", Cells::Key),
        ("NAME", Cells::Text),
        ("STATUS", Cells::Text),
        ("ROUNDS", Cells::Number),
        ("MODEL", Cells::Number),
        ("PARAMETERS", Cells::Number),
        ("CREATED", Cells::Text),
    ])
    .dispensable(&["ID", "CREATED", "PARAMETERS", "MODEL"]);
    for task in tasks {
        table.row(vec![
            task.id.to_string(),
            task.name.clone(),
            task.status.to_string(),
            format!("{}/{}", task.rounds_completed, task.rounds_total),
            task.model_version.to_string(),
            number(task.parameters),
            when(task.created_at),
        ]);
    }
    table.render(terminal, nothing)
}

/// The change that stopped the task's rounds, if it was the last one and the task is not over; and advice for an
/// operator.
pub(crate) fn stopped(task: &TaskView) -> Option<(&StatusChange, String)> {
    let (name, last) = (&task.summary.name, task.history.last()?);
    let advice = match task.summary.status {
        TaskStatus::Active | TaskStatus::Completed | TaskStatus::Cancelled => return None,
        TaskStatus::Paused => format!("`tributary task resume {name}` goes on"),
        TaskStatus::BudgetExhausted => BUDGET_ADVICE.to_owned(),
    };
    let why = last.detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
    Some((last, format!("Stopped     {} since {}{why}: no round opens. {advice}", last.status, when(last.at))))
}

/// Advice for an operator whose database is older than the rounds that participants have seen.
pub(crate) fn behind(view: BehindView) -> String {
    let BehindView { participants, next_round, seen_round } = view;
    format!(
        "Behind      {} sent inputs for rounds up to {seen_round}, which rules out taking part in round {next_round}; was \
         the database restored? `tributary task rebase` goes on beyond round {seen_round}",
        counted(participants, "participant has", "participants have")
    )
}

/// Advice for an operator whose round waits for participants in vain.
pub(crate) fn shortage(view: ShortageView) -> String {
    let ShortageView { needed, enrolled, waiting } = view;
    let are = |count: u32| counted(count, "is", "are");
    let until = if enrolled < needed { format!("; it cannot start before {}", are(needed)) } else { String::new() };
    format!(
        "Waits       for {}: {} enrolled that may take part, {} waiting{until}",
        counted(needed, "participant", "participants"),
        are(enrolled),
        are(waiting)
    )
}

/// The participants that a task could have, and how many of them refuse it, by reason.
fn participants(view: &TaskParticipantsView) -> Vec<String> {
    let TaskParticipantsView { eligible, waiting, refusing } = view;
    let mut lines =
        vec![format!("Eligible    {}, {waiting} waiting", counted(*eligible, "participant", "participants"))];
    lines.extend(refusing.iter().map(|RefusalCount { reason, participants }| {
        let known = RefusalCode::ALL.into_iter().find(|code| code.as_str() == reason);
        let why = known.map(|code| format!(": {code}")).unwrap_or_default();
        format!("Refused     by {} ({}){why}", counted(*participants, "participant", "participants"), reason)
    }));
    lines
}

/// The condition that the task waits for, and its deadline. `None` if the task waits for an operator, see [`stopped`].
pub(crate) fn waits(task: &TaskView) -> Option<String> {
    let lacking = task.shortage.map(shortage);
    // An older coordinator does not report the reason.
    let Some(waiting_for) = task.waiting_for else { return lacking };
    match waiting_for {
        TaskWaitingFor::Participants { until: Some(until), .. } => {
            Some(format!("{}; this attempt waits until {}", lacking?, when(until)))
        }
        TaskWaitingFor::Participants { until: None, .. } => lacking,
        TaskWaitingFor::Phase { round, state, more, until, .. } => {
            let what = more
                .filter(|more| *more > 0)
                .map_or_else(String::new, |more| format!("for {}, ", counted(more, "more answer", "more answers")));
            Some(format!("Waits       {what}in round {round}, which is {state} until {} at the latest", when(until)))
        }
        TaskWaitingFor::Updates { round, more } => {
            let updates = counted(more, "more update", "more updates");
            Some(format!("Waits       for {updates} of participants that train ahead, with which round {round} opens"))
        }
        TaskWaitingFor::Round { round, at: Some(at) } => {
            Some(format!("Waits       for round {round}, which opens at {} at the earliest", when(at)))
        }
        TaskWaitingFor::Round { round, at: None } => {
            Some(format!("Waits       for round {round}, which the coordinator opens by itself"))
        }
        TaskWaitingFor::Nothing | TaskWaitingFor::Operator { .. } | TaskWaitingFor::Other => None,
    }
}

/// Lines under a common heading.
pub(crate) fn under(heading: &str, lines: &[String]) -> Vec<String> {
    let width = heading.chars().count();
    let begins = |index| if index == 0 { heading } else { "" };
    lines.iter().enumerate().map(|(index, line)| format!("{:width$}{line}", begins(index))).collect()
}

/// The number of complete rounds, and of all planned ones, which a cancelled task cannot reach.
fn rounds(task: &TaskSummary) -> String {
    let (completed, planned) = (task.rounds_completed, task.rounds_total);
    match task.status {
        TaskStatus::Cancelled => format!("{completed} completed, then cancelled ({planned} were planned)"),
        TaskStatus::Active | TaskStatus::Paused | TaskStatus::Completed | TaskStatus::BudgetExhausted => {
            format!("{completed} of {planned}")
        }
    }
}

fn show(output: Output, Tagged { view: task, etag }: &Tagged<TaskView>) {
    output.answer_tagged(task, etag.as_deref(), || {
        let summary = &task.summary;
        let mut lines = vec![
            format!("Task        {} ({})", summary.name, summary.id),
            format!("Status      {}", summary.status),
            format!("Rounds      {}", rounds(summary)),
            format!("Model       version {}, {} parameters", summary.model_version, number(summary.parameters)),
        ];
        lines.extend(task.protection.iter().flat_map(|protection| under("Updates     ", &protection.lines())));
        lines.push(format!("Created     {}", when(summary.created_at)));
        lines.extend(etag.iter().map(|etag| format!("ETag        {etag}")));
        if !task.spec.description.is_empty() {
            lines.insert(1, format!("            {}", task.spec.description));
        }
        if task.spec.privacy.is_private() {
            let privacy = &task.spec.privacy;
            let budget = privacy.epsilon.map_or_else(|| "no budget".to_owned(), |epsilon| format!("epsilon {}", figure(epsilon)));
            lines.push(format!(
                "Privacy     {}, noise multiplier {}, {budget} at delta {:e}; `tributary privacy show {}` tells what is spent",
                privacy.mechanism.as_str(),
                privacy.noise_multiplier.map_or_else(|| "unknown".to_owned(), figure),
                privacy.delta.unwrap_or_default(),
                summary.name
            ));
        }
        lines.extend(stopped(task).map(|(_, words)| words));
        lines.extend(task.behind.map(behind));
        lines.extend(waits(task));
        lines.extend(task.participants.iter().flat_map(participants));
        for change in &task.history {
            let why = change.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
            lines.push(format!("            {} {}{why}", when(change.at), change.status));
        }
        lines.join("\n")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn one_is_not_many() {
        let waits = |needed, enrolled, waiting| shortage(ShortageView { needed, enrolled, waiting });
        assert_eq!(
            waits(10, 1, 0),
            "Waits       for 10 participants: 1 is enrolled that may take part, 0 are waiting; it cannot start before 10 are"
        );
        assert_eq!(waits(1, 2, 1), "Waits       for 1 participant: 2 are enrolled that may take part, 1 is waiting");
    }

    #[test]
    fn refusals_are_told_with_their_reasons() {
        let view = serde_json::json!({
            "eligible": 8, "waiting": 3,
            "refusing": [{ "reason": "policy", "participants": 1 }, { "reason": "weather", "participants": 2 }],
        });
        assert_eq!(
            participants(&serde_json::from_value(view).unwrap()),
            [
                "Eligible    8 participants, 3 waiting",
                "Refused     by 1 participant (policy): the task is below what its app demands of secure aggregation",
                "Refused     by 2 participants (weather)",
            ]
        );
    }

    #[test]
    fn whoever_waits_is_told_for_what_and_until_when() {
        let waits = |waiting_for| {
            let task = serde_json::json!({
                "id": "01934c2e-7d3a-7b1c-9f00-0123456789ab", "name": "t", "status": "ACTIVE", "rounds_completed": 1,
                "rounds_total": 3, "model_version": 1, "parameters": 3, "created_at": 0,
                "spec": { "name": "t", "model": { "tensors": [{ "name": "w", "shape": [3] }] } }, "history": [],
                "shortage": { "needed": 3, "enrolled": 2, "waiting": 2 }, "waiting_for": waiting_for,
            });
            waits(&serde_json::from_value(task).unwrap()).unwrap_or_default()
        };
        let lacking = "Waits       for 3 participants: 2 are enrolled that may take part, 2 are waiting; it cannot start before 3 are";
        let phase = |more: Option<u32>| {
            serde_json::json!({
                "kind": "phase", "round": 2, "attempt": 1, "state": "SHARING", "more": more, "until": 1_700_000_000_000_i64
            })
        };
        let cases = [
            (serde_json::Value::Null, lacking.to_owned()),
            (serde_json::json!({ "kind": "participants", "more": 1 }), lacking.to_owned()),
            (
                serde_json::json!({ "kind": "participants", "more": 1, "until": 1_700_000_000_000_i64 }),
                format!("{lacking}; this attempt waits until 2023-11-14 22:13:20Z"),
            ),
            (
                phase(Some(1)),
                "Waits       for 1 more answer, in round 2, which is SHARING until 2023-11-14 22:13:20Z at the latest"
                    .to_owned(),
            ),
            (
                phase(None),
                "Waits       in round 2, which is SHARING until 2023-11-14 22:13:20Z at the latest".to_owned(),
            ),
            (
                phase(Some(0)),
                "Waits       in round 2, which is SHARING until 2023-11-14 22:13:20Z at the latest".to_owned(),
            ),
            (
                serde_json::json!({ "kind": "updates", "round": 2, "more": 4 }),
                "Waits       for 4 more updates of participants that train ahead, with which round 2 opens".to_owned(),
            ),
            (
                serde_json::json!({ "kind": "round", "round": 2, "at": 1_700_000_000_000_i64 }),
                "Waits       for round 2, which opens at 2023-11-14 22:13:20Z at the earliest".to_owned(),
            ),
            (
                serde_json::json!({ "kind": "round", "round": 2 }),
                "Waits       for round 2, which the coordinator opens by itself".to_owned(),
            ),
            (serde_json::json!({ "kind": "operator", "status": "PAUSED", "since": 0 }), String::new()),
            (serde_json::json!({ "kind": "nothing" }), String::new()),
        ];
        for (waiting_for, said) in cases {
            assert_eq!(waits(waiting_for), said);
        }
    }

    #[test]
    fn cancelled_task_plans_no_more_rounds() {
        let of = |status: &str| {
            let task = serde_json::json!({
                "id": "01934c2e-7d3a-7b1c-9f00-0123456789ab", "name": "t", "status": status, "rounds_completed": 1,
                "rounds_total": 10, "model_version": 1, "parameters": 3, "created_at": 0,
            });
            rounds(&serde_json::from_value(task).unwrap())
        };
        assert_eq!(of("CANCELLED"), "1 completed, then cancelled (10 were planned)");
        assert_eq!(of("PAUSED"), "1 of 10");
    }

    #[test]
    fn a_list_of_tasks_fits_eighty_columns() {
        let (id, name) = ("01934c2e-7d3a-7b1c-9f00-0123456789ab", "n".repeat(30));
        let task = serde_json::json!({
            "id": id, "name": name, "status": "BUDGET_EXHAUSTED", "rounds_completed": 1000, "rounds_total": 1000,
            "model_version": 1000, "parameters": 6_653_480, "created_at": 1_700_000_000_000_i64,
        });
        let tasks: [TaskSummary; 1] = [serde_json::from_value(task).unwrap()];
        let (whole, narrow) = (table(&tasks, None, ""), table(&tasks, Some(80), ""));
        assert!(fits_eighty(&narrow) && !fits_eighty(&whole), "{narrow}");
        assert!(narrow.contains(&name) && narrow.contains("1000/1000") && !narrow.contains(id), "{narrow}");
        assert!(narrow.contains("(80 columns: without ID, CREATED; `--format json` has everything)"), "{narrow}");
        assert!(whole.contains(id) && whole.contains("2023-11-14 22:13:20Z"), "{whole}");
    }
}
