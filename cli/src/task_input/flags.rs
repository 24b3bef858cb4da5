//! Short flags for keys of a task, as `--set` sets them, and the one grammar that they share.
//!
//! A flag is a row of a table: the key it sets and its form. Its value is validated with the whole task, so a new
//! codec, rule or method works without a change here.

use std::marker::PhantomData;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};
use task_spec::TaskSpec;

use super::preset;
use super::table::{Table, set, value};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// Its name, without dashes.
    pub(crate) name: &'static str,
    /// The task's key that it sets.
    pub(crate) path: &'static str,
    pub(crate) form: FlagForm,
    /// Text of `--help`.
    pub(crate) help: &'static str,
}

/// Form of a flag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlagForm {
    /// A value, under this name in `--help`, read like this.
    Value(&'static str, Reader),
    /// Off: the key is `false`.
    Off,
    /// `KEY=VALUE,…` for keys of the table at the path; without any, such pairs, where the flag may stand alone.
    Table(FlagKeys, Option<&'static str>),
    /// `NAME,KEY=VALUE,…` or `NAME:KEY=VALUE,…`: a new table at the path, whose key of this name is NAME.
    Choice(&'static str, FlagKeys),
}

/// Parses a value.
pub(crate) type Reader = fn(&str) -> Result<Value, String>;

/// Aliases of keys in a flag's pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlagKeys {
    /// An example of a pair, for error messages.
    pub(crate) example: &'static str,
    /// The valid names, where the task's types do not list them.
    pub(crate) names: &'static [&'static str],
    /// Alias, the task's key, and the parser of its value.
    pub(crate) words: &'static [(&'static str, &'static str, Reader)],
}

impl FlagKeys {
    /// Without aliases.
    pub(crate) const fn none(example: &'static str) -> Self {
        Self { example, names: &[], words: &[] }
    }
}

/// A flag as given, with the keys of the task that it sets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlagValue {
    /// The flag's name, for example `codec` or `set`; empty for values set by the command.
    pub(super) flag: &'static str,
    /// The text as given.
    pub(super) text: String,
    /// Dotted paths and their values, in order. A path that begins with a dot belongs to the command.
    pub(super) sets: Vec<(String, Value)>,
    /// Values that apply unless a layer sets them.
    pub(super) defaults: Vec<(String, Value)>,
}

impl FlagValue {
    /// `--set KEY=VALUE`.
    pub(crate) fn set(text: &str) -> Result<Self, String> {
        let (path, value_text) = pair(text, "training.epochs=2")?;
        if path.is_empty() || path.split('.').any(str::is_empty) {
            return Err(format!("`{path}` is no key, such as training.epochs"));
        }
        Ok(Self {
            flag: "set",
            text: text.to_owned(),
            sets: vec![(path.to_owned(), value(value_text))],
            defaults: vec![],
        })
    }

    /// Values set by the command itself, with a name for messages.
    pub(crate) fn by_itself(name: &str, sets: Vec<(String, Value)>) -> Self {
        Self { flag: "", text: name.to_owned(), sets, defaults: vec![] }
    }

    /// The text as given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for FlagValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--{}{}{}", self.flag, if self.text.is_empty() { "" } else { " " }, self.text)
    }
}

impl Flag {
    /// The values that the flag sets with this text.
    ///
    /// # Errors
    /// The text does not have the flag's form.
    pub(crate) fn read(&self, text: &str) -> Result<FlagValue, String> {
        let (mut sets, mut defaults) = (Vec::new(), Vec::new());
        let (words, pairs) = match self.form {
            FlagForm::Value(_, read) => {
                sets.push((self.path.to_owned(), read(text)?));
                (None, None)
            }
            FlagForm::Off => {
                sets.push((self.path.to_owned(), false.into()));
                (None, None)
            }
            FlagForm::Table(words, _) => (Some(words), Some(text)),
            FlagForm::Choice(key, words) => {
                let end = text.find([',', ':']).unwrap_or(text.len());
                let (name, pairs) = text.split_at(end);
                let name = word(name)?;
                defaults = preset::defaults(self.name, name.as_str().unwrap_or_default())?;
                sets.push((self.path.to_owned(), json!({ key: name })));
                (Some(words), pairs.get(1..))
            }
        };
        if let Some((words, pairs)) = words.zip(pairs) {
            for one in pairs.split(',') {
                let (key, text) = pair(one, words.example)?;
                let known = words.words.iter().find(|(word, _, _)| *word == key);
                sets.push(match known {
                    Some((_, path, read)) => ((*path).to_owned(), read(text)?),
                    None => (format!("{}.{key}", self.path), value(text)),
                });
            }
        }
        Ok(FlagValue { flag: self.name, text: text.to_owned(), sets, defaults })
    }

    /// Text of `--help`: purpose, choices and the key.
    pub(crate) fn help(&self) -> String {
        let choices = match self.form {
            FlagForm::Choice(key, words) if words.names.is_empty() => choices(self.path, key),
            FlagForm::Choice(_, words) => words.names.join(", "),
            FlagForm::Value(..) | FlagForm::Off | FlagForm::Table(..) => String::new(),
        };
        let choices = if choices.is_empty() { choices } else { format!(". One of: {choices}") };
        format!("{}{choices} [{}]", self.help, self.path)
    }

    fn arg(&'static self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).help(self.help());
        let arg = arg.value_parser(ValueParser::new(move |text: &str| self.read(text)));
        match self.form {
            FlagForm::Value(name, _) => arg.value_name(name),
            FlagForm::Off => arg.num_args(0).default_missing_value(""),
            FlagForm::Table(_, None) => arg.value_name("KEY=VALUE,…"),
            FlagForm::Table(_, Some(defaults)) => {
                arg.value_name("KEY=VALUE,…").num_args(0..=1).default_missing_value(defaults)
            }
            FlagForm::Choice(..) => arg.value_name("NAME,KEY=VALUE,…"),
        }
        .action(ArgAction::Set)
    }
}

/// The valid names of a choice, from the error for an invalid one.
fn choices(path: &str, key: &str) -> String {
    let mut table = Table::new();
    set(&mut table, "name", "none".into());
    set(&mut table, path, json!({ key: "" }));
    let refusal = serde_json::from_value::<TaskSpec>(Value::Object(table)).err().map(|error| error.to_string());
    let names = refusal
        .as_deref()
        .and_then(|refusal| refusal.split_once("expected one of ").or(refusal.split_once("expected ")));
    names.map_or_else(String::new, |(_, names)| names.replace('`', ""))
}

fn pair<'a>(text: &'a str, example: &str) -> Result<(&'a str, &'a str), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is no KEY=VALUE, such as {example}"))?;
    Ok((key.trim(), value.trim()))
}

/// Reads a value as TOML writes it, else as text.
pub(crate) fn plain(text: &str) -> Result<Value, String> {
    Ok(value(text.trim()))
}

/// Reads a name, in which people write dashes and capitals.
pub(crate) fn word(text: &str) -> Result<Value, String> {
    Ok(text.trim().replace('-', "_").to_lowercase().into())
}

/// Reads the name of a file.
pub(crate) fn file(text: &str) -> Result<Value, String> {
    Ok(text.into())
}

/// Reads names with `+` between them.
pub(crate) fn many(text: &str) -> Result<Value, String> {
    Ok(text.split('+').collect())
}

/// Reads whole seconds, for a key in milliseconds.
pub(crate) fn seconds(text: &str) -> Result<Value, String> {
    let millis = text.trim().parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1000));
    millis.map(Value::from).ok_or_else(|| format!("`{text}` is no whole number of seconds"))
}

/// Reads `yes` or `no`.
pub(crate) fn yes(text: &str) -> Result<Value, String> {
    match text {
        "yes" => Ok(true.into()),
        "no" => Ok(false.into()),
        _ => Err(format!("`{text}`: it is yes or no")),
    }
}

/// The short flags of a command.
pub(crate) trait Flags {
    /// Table after table, in the order in which they apply.
    const ALL: &'static [&'static [Flag]];
}

/// Values of a command's short flags.
#[derive(Clone, Debug)]
pub(crate) struct ShortFlags<F> {
    pub(super) given: Vec<FlagValue>,
    flags: PhantomData<F>,
}

impl<F: Flags> clap::FromArgMatches for ShortFlags<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = F::ALL.iter().copied().flatten();
        let given = given.filter_map(|flag| matches.get_one::<FlagValue>(flag.name).cloned()).collect();
        Ok(Self { given, flags: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<F: Flags> clap::Args for ShortFlags<F> {
    fn augment_args(command: Command) -> Command {
        F::ALL.iter().copied().flatten().fold(command, |command, flag| command.arg(flag.arg()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
