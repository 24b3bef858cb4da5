//! `tributary token`: tokens of operators, and one-time tokens with which participants enrol.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use wire::admin::{
    CreateEnrollmentToken, CreateOperatorToken, EnrollmentTokenReply, OperatorTokenReply, OperatorTokenView, Role,
};
use wire::route;
use wire::{TaskId, TokenId};

use crate::arguments::{parse_id, parse_label};
use crate::command::participant::find;
use crate::command::{keeping, serve};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, day, when};
use crate::server::{IdempotencyArgs, PartArgs, ServerArgs};

/// Token commands.
#[derive(clap::Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; its secret is shown only once
    Create(Create),
    /// List operator tokens, without their secrets
    List {
        #[command(flatten)]
        part: PartArgs,
    },
    /// Revoke an operator token
    Revoke {
        /// Token id, as shown by `list`
        id: String,
        /// Allow revoking the last admin token; a new one then needs `create --offline`
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Which token to make.
#[derive(clap::Args)]
pub(crate) struct Create {
    /// Role of the operator
    #[arg(long, value_parser = parse_role, required_unless_present = "enrollment", conflicts_with = "enrollment")]
    role: Option<Role>,
    /// Create a one-time enrolment token for a participant
    #[arg(long)]
    enrollment: bool,
    /// Name of the operator, or with --enrollment of the participant
    #[arg(long, required_unless_present = "enrollment")]
    name: Option<String>,
    /// Id or name of an enrolled participant whose certificate has expired; keeps its id and journal
    #[arg(long, value_name = "ID", requires = "enrollment", conflicts_with_all = ["name", "labels"])]
    participant: Option<String>,
    /// Label of the participant; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label, requires = "enrollment")]
    labels: Vec<(String, String)>,
    /// Validity, such as 30d, 12h or 45m; a plain number means hours [default: one day with --enrollment, otherwise
    /// until revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    valid_for: Option<Duration>,
    /// Restrict the token to this task, by id or name; may be repeated [default: all tasks]
    #[arg(long = "task", value_name = "TASK", conflicts_with = "enrollment")]
    tasks: Vec<String>,
    /// Write the token directly to the database of a stopped coordinator; needs write access, but no token
    #[arg(
        long,
        requires = "offline_database",
        conflicts_with_all = ["enrollment", "idempotency_key", "server", "ca", "token"]
    )]
    offline: bool,
    #[command(flatten)]
    once: IdempotencyArgs,
    #[command(flatten)]
    database: OfflineDatabase,
    #[command(flatten)]
    server: Option<ServerArgs>,
}

/// Where the database of a coordinator is.
#[derive(clap::Args)]
#[group(id = "offline_database", multiple = false)]
struct OfflineDatabase {
    /// With --offline: the coordinator's TOML file
    #[arg(long, value_name = "FILE", requires = "offline")]
    config: Option<PathBuf>,
    /// With --offline: the folder of `serve --dev`
    #[arg(long, value_name = "DIR", requires = "offline")]
    data_dir: Option<PathBuf>,
}

/// A time such as `30d`, `12h` or `45m`; hours without a letter.
fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.char_indices().last() {
        Some((at, 'd')) => (&text[..at], 24 * 3600),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'm')) => (&text[..at], 60),
        Some(_) | None => (text, 3600),
    };
    let number: Option<u64> = number.parse().ok().filter(|number| *number > 0);
    number
        .and_then(|number| number.checked_mul(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| "a time is a number of days, hours or minutes, such as 30d, 12h or 45m".to_owned())
}

fn parse_role(text: &str) -> Result<Role, String> {
    Role::ALL
        .into_iter()
        .find(|role| role.as_str() == text)
        .ok_or_else(|| "a role is predictor, viewer, operator or admin".to_owned())
}

impl TokenCommand {
    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::Create(create) => create.run(output).await,
            Self::List { part } => {
                output.answer_list(
                    &part.server.client()?.part::<OperatorTokenView>(route::OPERATOR_TOKENS, &[], part).await?,
                    table,
                );
                Ok(())
            }
            Self::Revoke { id, force, server } => {
                let id: TokenId = parse_id("token", &id)?;
                let query: &[(&str, String)] = if force { &[("force", true.to_string())] } else { &[] };
                server.client()?.act_with(&route::fill(route::OPERATOR_TOKEN_REVOKE, &[&id]), query).await?;
                output.answer(&serde_json::json!({ "id": id }), || format!("Token {id} is revoked."));
                Ok(())
            }
        }
    }
}

impl Create {
    fn valid_for_ms(&self) -> Option<u64> {
        self.valid_for.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// The operator's token to ask for.
    fn of_operator(&self) -> Option<CreateOperatorToken> {
        let (role, name) = (self.role?, self.name.clone()?);
        let tasks = (!self.tasks.is_empty()).then(|| self.tasks.clone());
        Some(CreateOperatorToken { name, role, valid_for_ms: self.valid_for_ms(), tasks })
    }

    async fn run(self, output: Output) -> Outcome {
        if self.offline {
            return self.run_offline(output).await;
        }
        let missing = || Failure::new(Exit::Usage, "say which coordinator: --server, --ca and --token, or --offline");
        let server = self.server.as_ref().ok_or_else(missing)?.client()?;
        if let Some(body) = self.of_operator() {
            let made: OperatorTokenReply = server.post(route::OPERATOR_TOKENS, &body, self.once.condition()).await?;
            return output.must_answer(&made, || words(&made)).map_err(not_shown);
        }
        let valid_for_ms = self.valid_for_ms();
        let labels: BTreeMap<_, _> = self.labels.into_iter().collect();
        let participant = match &self.participant {
            Some(named) => Some(find(&server, named).await?),
            None => None,
        };
        let body = CreateEnrollmentToken { name: self.name, labels, participant, valid_for_ms };
        let made: EnrollmentTokenReply = server.post(route::ENROLLMENT_TOKENS, &body, self.once.condition()).await?;
        let words =
            || format!("{}\n(for one participant, until {}; it is not shown again)", made.token, when(made.expires_at));
        output.must_answer(&made, words).map_err(not_shown)
    }
}

/// The failure of printing a token that was created and cannot be shown again.
fn not_shown(error: io::Error) -> Failure {
    let detail = "stdout cannot be written, so the new token is lost: create another one";
    Failure::caused(Exit::Io, detail, &error)
}

impl Create {
    async fn run_offline(self, output: Output) -> Outcome {
        let config = match (&self.database.config, &self.database.data_dir) {
            (Some(file), _) => serve::load(file)?,
            (None, Some(folder)) if folder.is_dir() => serve::dev_config(folder)?,
            (None, folder) => {
                let folder = folder.clone().unwrap_or_default();
                return Err(Failure::new(Exit::NotFound, format!("there is no folder {}", folder.display())));
            }
        };
        let request = self.of_operator().ok_or_else(|| Failure::new(Exit::Usage, "give --role and --name"))?;
        let parts = keeping::parts()?;
        let show = |made: &OperatorTokenReply| output.must_answer(made, || words(made));
        let made = coordinator::create_operator_token_offline(&config, parts, &request, show).await;
        made.map(drop).map_err(|error| serve::token_failure(&error))
    }
}

fn words(made: &OperatorTokenReply) -> String {
    let until = made.expires_at.map(|at| format!(", until {}", when(at))).unwrap_or_default();
    format!("{}\n(token {}{until}; it is not shown again)", made.token, made.id)
}

fn table(tokens: &[OperatorTokenView], terminal: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("ID", Cells::Key),
        ("NAME", Cells::Text),
        ("ROLE", Cells::Text),
        ("CREATED", Cells::Text),
        ("VALID", Cells::Key),
        ("TASKS", Cells::Words),
    ])
    .dispensable(&["CREATED"]);
    for token in tokens {
        table.row(vec![
            token.id.to_string(),
            token.name.clone(),
            token.role.as_str().to_owned(),
            when(token.created_at),
            valid(token),
            token.tasks.as_deref().map(join).unwrap_or_default(),
        ]);
    }
    table.render(terminal, "There are no tokens.")
}

/// Until when a token counts, or since when it does not.
fn valid(token: &OperatorTokenView) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", day(at)),
        (None, Some(at)) => format!("until {}", day(at)),
        (None, None) => "until revoked".to_owned(),
    }
}

fn join(tasks: &[TaskId]) -> String {
    tasks.iter().map(TaskId::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn a_list_of_tokens_fits_eighty_columns() {
        let id = "01934c2e-7d3a-7b1c-9f00-0123456789ab";
        let token = serde_json::json!({
            "id": id, "name": "n".repeat(30), "role": "predictor", "created_at": 0, "expires_at": 1_700_000_000_000_i64,
            "tasks": [id, id],
        });
        let limited: OperatorTokenView = serde_json::from_value(token).unwrap();
        let revoked = OperatorTokenView { tasks: None, revoked_at: limited.expires_at, ..limited.clone() };
        let tokens = [limited, OperatorTokenView { expires_at: None, revoked_at: None, ..revoked.clone() }, revoked];
        let (whole, narrow) = (table(&tokens, None), table(&tokens, Some(80)));
        assert!(fits_eighty(&narrow) && !fits_eighty(&whole), "{narrow}");
        let limits = format!("    {id}, {id}");
        for words in ["until 2023-11-14", "until revoked", "revoked 2023-11-14", id, limits.as_str(), "nnnnnnnnnn…"] {
            assert!(narrow.contains(words), "{words}: {narrow}");
        }
        assert_eq!(
            narrow.lines().filter(|line| line.starts_with("    ")).count(),
            2,
            "a heading and what is limited: {narrow}"
        );
    }

    #[test]
    fn a_time_is_days_hours_or_minutes() {
        let hours = |hours: u64| Ok(Duration::from_secs(hours * 3600));
        assert_eq!(["30d", "12h", "120m", "24"].map(parse_time), [hours(720), hours(12), hours(2), hours(24)]);
        for wrong in ["", "d", "0", "0h", "-1h", "1.5h", "30 d", "30s", "é", "18446744073709551615d"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
