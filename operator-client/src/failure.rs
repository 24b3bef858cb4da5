//! Why a command fails: the message and the exit code.
//!
//! Every error a command meets becomes a [`Failure`] at the place that knows what it means for the user. The numbers are a
//! contract with scripts: `docs/EXIT_CODES.md` lists them, and a test compares the two.

use std::fmt::Display;

use serde::Serialize;
use wire::problem::{FieldError, Problem, ProblemType};

/// The number a process exits with. Numbers are never reused for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Something that should not happen; a defect of ours.
    Internal = 1,
    /// The command line cannot be understood (clap's own number).
    Usage = 2,
    /// A configuration or task file is wrong.
    Configuration = 3,
    /// Data or a model file cannot be read, or does not fit.
    Data = 4,
    /// The coordinator cannot be reached or its certificate is not trusted.
    Connection = 5,
    /// The token or certificate is missing, unknown or not enough.
    Denied = 6,
    /// There is no such task, round, model, participant or token, or not any more.
    NotFound = 7,
    /// It contradicts what is stored, or the task's status does not allow it.
    Conflict = 8,
    /// The coordinator refused the request as it was written.
    Refused = 9,
    /// The coordinator is not able to serve this now; try again later.
    Unavailable = 10,
    /// The coordinator failed inside.
    Server = 11,
    /// A download does not match its digest.
    Integrity = 12,
    /// The requested device is missing.
    Device = 13,
    /// A round failed, or a task ended before its rounds were done.
    Round = 14,
    /// A file or folder cannot be written, a port not be bound.
    Io = 15,
    /// Training failed.
    Training = 16,
    /// What is stored, or a backup of it, is not as it was written.
    Damaged = 17,
    /// It is done with tools that are not ours.
    Elsewhere = 18,
    /// A participant took part in no round.
    Idle = 19,
    /// An audit found that a task breaks its promise of privacy.
    Promise = 20,
}

impl Exit {
    /// Every number, for the page that lists them.
    #[cfg(test)]
    pub const ALL: [Self; 20] = [
        Self::Internal,
        Self::Usage,
        Self::Configuration,
        Self::Data,
        Self::Connection,
        Self::Denied,
        Self::NotFound,
        Self::Conflict,
        Self::Refused,
        Self::Unavailable,
        Self::Server,
        Self::Integrity,
        Self::Device,
        Self::Round,
        Self::Io,
        Self::Training,
        Self::Damaged,
        Self::Elsewhere,
        Self::Idle,
        Self::Promise,
    ];

    /// The first line of the message.
    pub fn title(self) -> &'static str {
        match self {
            Self::Internal => "Something went wrong inside tributary",
            Self::Usage => "The command line cannot be understood",
            Self::Configuration => "The configuration or task file is wrong",
            Self::Data => "The data cannot be used",
            Self::Connection => "The coordinator cannot be reached",
            Self::Denied => "You are not allowed to do this",
            Self::NotFound => "There is no such thing here",
            Self::Conflict => "It contradicts what is stored",
            Self::Refused => "The coordinator refused the request",
            Self::Unavailable => "The coordinator cannot serve this now",
            Self::Server => "Something went wrong inside the coordinator",
            Self::Integrity => "What was received is damaged",
            Self::Device => "The device is not there",
            Self::Round => "The rounds did not complete",
            Self::Io => "A file, folder or port cannot be used",
            Self::Training => "Training failed",
            Self::Damaged => "What is stored is damaged",
            Self::Elsewhere => "Other tools do this",
            Self::Idle => "There was nothing to do",
            Self::Promise => "The task breaks its promise of privacy",
        }
    }

    fn of(kind: Option<ProblemType>, status: u16) -> Self {
        match kind {
            Some(ProblemType::Conflict | ProblemType::TaskStatus | ProblemType::PhaseClosed) => Self::Conflict,
            Some(ProblemType::NotAssigned) => Self::Denied,
            _ => match status {
                401 | 403 => Self::Denied,
                404 | 410 => Self::NotFound,
                409 | 412 => Self::Conflict,
                408 | 429 | 503 => Self::Unavailable,
                400..=499 => Self::Refused,
                _ => Self::Server,
            },
        }
    }
}

/// A command that cannot go on.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// What the process exits with.
    #[serde(rename = "exit_code", serialize_with = "as_number")]
    pub exit: Exit,
    /// A few words that do not change.
    pub title: String,
    /// What was wrong this time and what would be right.
    pub detail: String,
    /// What more is known.
    #[serde(flatten)]
    pub more: Box<FailureDetails>,
}

/// What a coordinator or a file adds to a failure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FailureDetails {
    /// The problem type's URI, if the coordinator sent one.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What is wrong where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The status of HTTP, if a coordinator answered.
    #[serde(skip)]
    pub status: Option<u16>,
    /// Id of the request in the coordinator's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// What a command, or a part of it, results in.
pub type Outcome<T = ()> = Result<T, Failure>;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn as_number<S: serde::Serializer>(exit: &Exit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(*exit as u8)
}

impl Failure {
    /// A failure of this kind, with its usual title.
    pub fn new(exit: Exit, detail: impl Display) -> Self {
        Self { exit, title: exit.title().to_owned(), detail: detail.to_string(), more: Box::default() }
    }

    /// The same, naming what is wrong where.
    pub fn with_error(mut self, field: &str, detail: String) -> Self {
        self.more.errors.push(FieldError { field: field.to_owned(), detail });
        self
    }

    /// A failure whose cause is an error with causes of its own.
    pub fn caused(exit: Exit, what: impl Display, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(exit, format!("{what}: {}", chain(error)))
    }

    /// Shorthand for `map_err`: `read(path).map_err(Failure::because(Exit::Io, "cannot read"))`.
    pub fn because<E: std::error::Error + 'static>(exit: Exit, what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::caused(exit, what, &error)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self {
            exit: Exit::of(problem.problem_type(), problem.status),
            title: problem.title,
            detail: problem.detail.unwrap_or_default(),
            more: Box::new(FailureDetails {
                kind: Some(problem.kind),
                errors: problem.errors,
                status: Some(problem.status),
                // A coordinator does not log rejections, whose details are complete. It logs the first of its temporary failures.
                instance: problem.instance.filter(|_| problem.status >= 500 && problem.status != 503),
            }),
        }
    }
}

/// An error and its causes in one line, without saying anything twice.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_every_number_with_its_title() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/EXIT_CODES.md");
        let page = std::fs::read_to_string(path).unwrap();
        for exit in Exit::ALL {
            let row = format!("| {} | {} |", exit as u8, exit.title());
            assert!(page.contains(&row), "{path} lacks the row {row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit()).count();
        assert_eq!(rows, Exit::ALL.len() + 1, "every number and 0");
    }

    #[test]
    fn every_problem_has_a_number_that_fits_its_status() {
        for kind in ProblemType::ALL {
            let failure = Failure::from(Problem::new(*kind, "because"));
            let expected = match kind.status() {
                401 | 403 => Exit::Denied,
                404 | 410 => Exit::NotFound,
                409 | 412 => Exit::Conflict,
                408 | 429 | 503 => Exit::Unavailable,
                500 => Exit::Server,
                _ => Exit::Refused,
            };
            assert_eq!(failure.exit, expected, "{}", kind.code());
        }
    }
}
