//! `tributary token`: tokens of operators, and one-time tokens with which participants enrol.

use std::collections::BTreeMap;

use wire::TokenId;
use wire::admin::{
    CreateEnrollmentToken, CreateOperatorToken, EnrollmentTokenReply, OperatorTokenReply, OperatorTokenView, Role,
};
use wire::route;

use crate::command::parse_id;
use crate::command::participant::find;
use crate::failure::Outcome;
use crate::output::{Align, Output, Table, when};
use crate::server::{Server, ServerArgs};

/// What to do with tokens.
#[derive(clap::Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token; its secret is shown this once
    Create(Create),
    /// List the operators' tokens (never their secrets)
    List {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Refuse an operator's token from now on
    Revoke {
        /// Id of the token, as `list` shows it
        id: String,
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Which token to make.
#[derive(clap::Args)]
pub(crate) struct Create {
    /// What the operator may do
    #[arg(long, value_parser = parse_role, required_unless_present = "enrollment", conflicts_with = "enrollment")]
    role: Option<Role>,
    /// Make a one-time token with which one participant enrols
    #[arg(long)]
    enrollment: bool,
    /// Whose it is; with --enrollment the name the participant will have
    #[arg(long, required_unless_present = "enrollment")]
    name: Option<String>,
    /// Id or name of a participant whose certificate has ended: it comes back as itself, with the journal it has
    #[arg(long, value_name = "ID", requires = "enrollment", conflicts_with_all = ["name", "labels"])]
    participant: Option<String>,
    /// A label the participant will carry; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label, requires = "enrollment")]
    labels: Vec<(String, String)>,
    /// Hours in which the token can be used
    #[arg(long, value_name = "HOURS", requires = "enrollment", value_parser = clap::value_parser!(u64).range(1..=720))]
    valid_for: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
}

fn parse_role(text: &str) -> Result<Role, String> {
    Role::ALL
        .into_iter()
        .find(|role| role.as_str() == text)
        .ok_or_else(|| "a role is viewer, operator or admin".to_owned())
}

pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is written KEY=VALUE".to_owned()),
    }
}

impl TokenCommand {
    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::Create(create) => create.run(output).await,
            Self::List { server } => {
                let tokens: Vec<OperatorTokenView> = Server::new(&server)?.list(route::OPERATOR_TOKENS, 10_000).await?;
                output.answer(&tokens, || table(&tokens));
                Ok(())
            }
            Self::Revoke { id, server } => {
                let id: TokenId = parse_id("token", &id)?;
                Server::new(&server)?.act(&route::fill(route::OPERATOR_TOKEN_REVOKE, &[&id])).await?;
                output.answer(&serde_json::json!({ "id": id }), || format!("Token {id} is revoked."));
                Ok(())
            }
        }
    }
}

impl Create {
    async fn run(self, output: Output) -> Outcome {
        let server = Server::new(&self.server)?;
        if let (Some(role), Some(name)) = (self.role, self.name.clone()) {
            let body = CreateOperatorToken { name, role };
            let made: OperatorTokenReply = server.post(route::OPERATOR_TOKENS, &body, None).await?;
            output.answer(&made, || format!("{}\n(token {}; it is not shown again)", made.token, made.id));
            return Ok(());
        }
        let labels: BTreeMap<_, _> = self.labels.into_iter().collect();
        let valid_for_ms = self.valid_for.map(|hours| hours * 3_600_000);
        let participant = match &self.participant {
            Some(named) => Some(find(&server, named).await?),
            None => None,
        };
        let body = CreateEnrollmentToken { name: self.name, labels, participant, valid_for_ms };
        let made: EnrollmentTokenReply = server.post(route::ENROLLMENT_TOKENS, &body, None).await?;
        output.answer(&made, || {
            format!("{}\n(for one participant, until {}; it is not shown again)", made.token, when(made.expires_at))
        });
        Ok(())
    }
}

fn table(tokens: &[OperatorTokenView]) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("ROLE", Align::Left),
        ("CREATED", Align::Left),
        ("REVOKED", Align::Left),
    ]);
    for token in tokens {
        table.row(vec![
            token.id.to_string(),
            token.name.clone(),
            token.role.as_str().to_owned(),
            when(token.created_at),
            token.revoked_at.map(when).unwrap_or_default(),
        ]);
    }
    table.render("There are no tokens.")
}
