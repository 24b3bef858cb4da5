//! Parses the command line, and extends clap's errors with the valid values.

use std::error::Error as _;
use std::io::IsTerminal as _;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::command::Cli;

/// Columns that help is wrapped at on a terminal of at least that width, or if the output goes elsewhere.
const HELP_COLUMNS: usize = 100;

/// Parses the process's arguments.
///
/// # Errors
/// The error, with a valid form.
pub(crate) fn cli() -> Result<Cli, clap::Error> {
    let stdout = std::io::stdout().is_terminal().then(|| console::Term::stdout().size_checked()).flatten();
    let columns = stdout.map_or(HELP_COLUMNS, |(_, columns)| HELP_COLUMNS.min(columns.into()));
    parse(std::env::args_os(), columns)
}

/// Parses these words; help is wrapped at so many columns.
fn parse(
    words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
    columns: usize,
) -> Result<Cli, clap::Error> {
    let words: Vec<std::ffi::OsString> = words.into_iter().map(Into::into).collect();
    // Given here, so that it does not depend on another stream's terminal or a variable.
    let mut command = with_negative_numbers(Cli::command()).term_width(columns);
    if words.iter().any(|word| word == "--offline") {
        command = of_no_coordinator(command);
    }
    let matches = command.try_get_matches_from_mut(words);
    let cli = matches
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command)));
    cli.map_err(|error| explained(error, &command))
}

/// Treats `-1` as a value out of range, not as an unknown argument.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let numbers = |arg: clap::Arg| {
        let takes_values =
            arg.get_action().takes_values() && arg.get_num_args().is_none_or(|count| count.takes_values());
        if takes_values { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(numbers).mut_subcommands(with_negative_numbers)
}

/// Ignores a coordinator in the environment: an `--offline` command works on files, also where one is set.
fn of_no_coordinator(command: clap::Command) -> clap::Command {
    let coordinator = |arg: clap::Arg| {
        let is_its = matches!(arg.get_long(), Some("server" | "ca" | "token"));
        if is_its { arg.env(None::<&'static str>) } else { arg }
    };
    command.mut_args(coordinator).mut_subcommands(of_no_coordinator)
}

fn explained(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    let tips = match error.kind() {
        ErrorKind::MissingRequiredArgument => {
            let dev = of_serve(&error).then(|| "for a first try: `tributary serve --dev --data-dir DIR`".to_owned());
            environment(&error, command).into_iter().chain(dev).collect()
        }
        ErrorKind::ValueValidation => error.source().and_then(expected).map(str::to_owned).into_iter().collect(),
        _ => Vec::new(),
    };
    if !tips.is_empty() {
        let tips = tips.into_iter().map(StyledStr::from).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Whether the usage in the error is that of `tributary serve`.
fn of_serve(error: &clap::Error) -> bool {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    usage.is_some_and(|usage| usage.contains("tributary serve "))
}

/// Which of the missing arguments may be variables of the environment.
fn environment(error: &clap::Error, command: &clap::Command) -> Vec<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return Vec::new() };
    let mut tips = Vec::new();
    for flag in missing.iter().filter_map(|shown| shown.split_whitespace().next()) {
        let long = flag.trim_start_matches('-');
        if let Some(variable) = variable(command, long) {
            tips.push(format!("{flag} may also be given as {variable} in the environment"));
        }
    }
    tips
}

/// The variable of the environment that stands in for a flag, which is the same in each subcommand.
fn variable(command: &clap::Command, long: &str) -> Option<String> {
    let own = command.get_arguments().find(|arg| arg.get_long() == Some(long)).and_then(clap::Arg::get_env);
    let own = own.map(|name| name.to_string_lossy().into_owned());
    own.or_else(|| command.get_subcommands().find_map(|subcommand| variable(subcommand, long)))
}

/// The valid form, if the value's own error lacks it.
fn expected(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<ParseIntError>() {
        return Some(match error.kind() {
            IntErrorKind::PosOverflow => "a smaller whole number is expected",
            IntErrorKind::Zero => "a whole number is expected, 1 or more",
            _ => "a whole number is expected, 0 or more",
        });
    }
    if error.is::<ParseFloatError>() {
        return Some("a number is expected, as in 0.5 or 1e-5");
    }
    if error.is::<std::net::AddrParseError>() {
        return Some("an address with a port is expected, as in 127.0.0.1:8443");
    }
    error.is::<url::ParseError>().then_some("a URL is expected, as in https://localhost:8443")
}

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> String {
        let words = std::iter::once("tributary").chain(words.split(' '));
        parse(words, HELP_COLUMNS).err().unwrap().to_string()
    }

    #[test]
    fn serve_without_a_configuration_suggests_dev() {
        assert!(said("serve").contains("tributary serve --dev --data-dir DIR"), "{}", said("serve"));
        assert!(!said("work").contains("--dev"), "{}", said("work"));
    }

    #[test]
    fn the_command_line_is_sound() {
        with_negative_numbers(Cli::command()).debug_assert();
    }

    #[test]
    fn help_is_wrapped_at_the_width_of_the_terminal() {
        let help = |columns| {
            let words = ["tributary", "participant", "run", "--help"];
            parse(words, columns).err().unwrap().to_string()
        };
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        let (narrow, wide) = (help(60), help(HELP_COLUMNS));
        assert!(widest(&wide) <= HELP_COLUMNS && widest(&wide) > 80, "{wide}");
        let words = |text: &str| text.split_whitespace().collect::<String>();
        assert!(narrow.lines().count() > wide.lines().count());
        assert_eq!(words(&narrow), words(&wide), "the same words");
    }

    #[test]
    fn a_negative_number_is_a_value_that_is_out_of_range() {
        let refused = said("demo --participants -1");
        assert!(refused.contains("invalid value '-1' for '--participants"), "{refused}");
        let refused = said("task list --limit -3 --server https://x --token t");
        assert!(refused.contains("invalid value '-3'") && refused.contains("a whole number is expected"), "{refused}");
        assert!(said("task list --limit 0 --server https://x --token t").contains("1 or more"));
        assert!(said("demo --alpha x").contains("a number is expected, as in 0.5"));
        assert!(said("task list --server nowhere --token t").contains("a URL is expected"));
    }

    #[test]
    fn a_missing_argument_names_its_variable() {
        let refused = said("task list");
        assert!(refused.contains("--token may also be given as TRIBUTARY_TOKEN in the environment"), "{refused}");
        assert!(refused.contains("--server may also be given as TRIBUTARY_SERVER in the environment"), "{refused}");
    }
}
