//! This executable understands every command in the pages, and CI runs it unless `docs/site/commands.toml` gives a
//! reason.

use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{HELP_COLUMNS, parse};

/// All pages: those of `docs/` and the readmes.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages: Vec<_> =
        ["README.md", "deploy/README.md", "client-sdk/python/README.md"].iter().map(|page| root.join(page)).collect();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The commands of a page, as its reader would type them.
struct Commands {
    /// Those that are a line of code each.
    lines: Vec<String>,
    /// Those within a line of text.
    inline: Vec<String>,
    /// Lines of code that begin with one of [`OTHERS`].
    others: Vec<String>,
}

/// Programs of others that pages tell to run.
const OTHERS: [&str; 13] = [
    "cargo",
    "curl",
    "docker",
    "helm",
    "install",
    "journalctl",
    "kubectl",
    "openssl",
    "pip",
    "python3",
    "rustup",
    "sed",
    "systemctl",
];

fn commands(page: &str) -> Commands {
    let page = page.replace("\\\n", " ");
    let (mut lines, mut inline, mut others, mut is_fenced) = (Vec::new(), Vec::new(), Vec::new(), false);
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            let code = line.trim().trim_start_matches("$ ");
            match command(code) {
                Some(command) => lines.push(command),
                None if OTHERS.contains(&code.split(' ').next().unwrap_or_default()) => others.push(code.to_owned()),
                None => {}
            }
        } else {
            inline.extend(line.split('`').skip(1).step_by(2).filter_map(command));
        }
    }
    Commands { lines, inline, others }
}

/// The command that a piece of code is, if it is one of ours.
fn command(code: &str) -> Option<String> {
    let typed = ["tributary ", "cargo run --release -- "].iter().find_map(|start| code.strip_prefix(start));
    typed.map(|words| format!("tributary {words}"))
}

/// The words of a command up to its end, as a shell reads them.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in command.chars() {
        match (letter, quote) {
            (_, Some(of)) if letter == of => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            ('#' | '|' | '>' | '&' | ';' | ')', None) if word.is_none() => break,
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    // Removes placeholders of the page.
    words.retain(|word| word != "…" && word != "...");
    words
}

/// Whether a value stands for one: `DIR`, `N`, `METHOD[:KEY=VALUE,…]`, `$TOKEN`, `https://…`, `uniform|oort`, or is left out.
fn stands_for_one(value: &str) -> bool {
    value.is_empty() || value.contains(['$', '…', '|']) || value.starts_with(|letter: char| letter.is_ascii_uppercase())
}

/// The error of a command, except for placeholders of the page.
fn wrong(command: &str) -> Option<String> {
    let error = parse(words(command), HELP_COLUMNS).err()?;
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    let is_wrong = match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict => true,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => !stands_for_one(value),
        _ => false,
    };
    is_wrong.then(|| error.to_string())
}

#[test]
fn every_command_that_a_page_tells_is_understood() {
    let (mut count, mut lacking) = (0, Vec::new());
    for page in pages() {
        let Commands { lines, inline, .. } = commands(&std::fs::read_to_string(&page).unwrap());
        for command in lines.into_iter().chain(inline) {
            count += 1;
            lacking.extend(wrong(&command).map(|error| format!("{}: {command}\n{error}", page.display())));
        }
    }
    assert!(count >= 100, "{count}");
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}

#[test]
fn a_command_that_is_not_there_is_noticed() {
    let page = "Try `tributary task crate x`, or\n\n    tributary demo --rounds 3 \\\n      --romds 4    # four\n    curl --silent URL\n    \
                curly = 3\n\n`tributary demo --seed N`\n";
    let Commands { lines, inline, others } = commands(page);
    assert_eq!((lines.len(), inline.len()), (1, 2), "{lines:?} {inline:?}");
    assert_eq!(others, ["curl --silent URL"]);
    let found: Vec<_> = inline[..1].iter().chain(&lines).chain(&inline[1..]).collect();
    let wrongs: Vec<_> = found.iter().filter_map(|command| wrong(command)).collect();
    assert!(wrongs.len() == 2 && wrongs[0].contains("crate") && wrongs[1].contains("--romds"), "{wrongs:?}");
    assert_eq!(words("tributary a 'b c' \"$D/e\" --f=g > h"), ["tributary", "a", "b c", "$D/e", "--f=g"]);
}

/// `docs/site/commands.toml`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct InCi {
    /// Pages whose commands run as they are.
    tutorials: Vec<String>,
    /// Commands that run before the first one, for `docs/site/commands.py`.
    #[serde(rename = "setup")]
    _setup: String,
    #[serde(rename = "command")]
    commands: Vec<Entry>,
    /// Entries for commands of the programs in [`OTHERS`].
    #[serde(rename = "other")]
    others: Vec<Entry>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    says: String,
    run: Option<String>,
    r#in: Option<String>,
    why: Option<String>,
}

impl Entry {
    /// The error of the entry itself.
    fn wrong(&self, root: &Path) -> Option<String> {
        if [&self.run, &self.r#in, &self.why].into_iter().flatten().count() > 1 {
            return Some("has more than one of run, in and why".to_owned());
        }
        if let Some(run) = &self.run {
            let [said, run] = [words(&self.says), words(run.trim_start_matches("timeout --signal INT 5 "))];
            return (!subcommand(&run).starts_with(&subcommand(&said))).then(|| "runs another command".to_owned());
        }
        let file = self.r#in.as_ref()?;
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            return Some(format!("names {file}, which is not there"));
        };
        let said = words(&self.says);
        let program = said.first().filter(|program| *program != "tributary").cloned();
        let absent = program.into_iter().chain(subcommand(&said)).find(|word| !text.contains(word.as_str()));
        absent.map(|word| format!("names {file}, which does not run `{word}`"))
    }
}

/// The words of a command that name it: `task create`, `demo`.
fn subcommand(command: &[String]) -> Vec<String> {
    let is_name = |word: &&String| {
        word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-') && !word.starts_with('-')
    };
    command.iter().skip(1).take(2).take_while(is_name).cloned().collect()
}

#[test]
fn every_command_of_a_line_runs_in_ci_or_is_excused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let InCi { tutorials, commands: entries, others: of_others, .. } =
        toml::from_str(&std::fs::read_to_string(root.join("docs/site/commands.toml")).unwrap()).unwrap();
    let scripts = [".ci/docs.sh", ".ci/python.sh"].map(|script| std::fs::read_to_string(root.join(script)).unwrap());
    for tutorial in &tutorials {
        assert!(root.join(tutorial).is_file(), "{tutorial}");
        let name = tutorial.trim_start_matches("docs/");
        assert!(scripts.iter().any(|script| script.contains(name)), "no script of CI runs {tutorial}");
    }
    let (mut told, mut others) = (Vec::new(), Vec::new());
    for page in pages() {
        let page = page.canonicalize().unwrap();
        if tutorials.iter().any(|tutorial| page == root.join(tutorial)) {
            continue;
        }
        let found = commands(&std::fs::read_to_string(&page).unwrap());
        let of_page = |line: String| (page.display().to_string(), words(&line));
        told.extend(found.lines.into_iter().map(of_page));
        others.extend(found.others.into_iter().map(of_page));
    }
    let mut wrong = unmatched(&told, &entries, &root);
    wrong.extend(unmatched(&others, &of_others, &root));
    wrong.extend(
        of_others
            .iter()
            .filter(|entry| entry.r#in.is_none() == entry.why.is_none())
            .map(|entry| format!("`{}` has neither a file that runs it nor a reason why none does", entry.says)),
    );
    assert!(wrong.is_empty(), "docs/site/commands.toml:\n{}", wrong.join("\n"));
    assert!(entries.iter().filter(|entry| entry.why.is_none()).count() > 2 * entries.len() / 3, "most of them run");
}

/// The commands of pages without an entry, the entries without a command, and the errors of entries.
fn unmatched(told: &[(String, Vec<String>)], entries: &[Entry], root: &Path) -> Vec<String> {
    let mut wrong: Vec<String> = Vec::new();
    for (page, command) in told {
        if !entries.iter().any(|entry| words(&entry.says) == *command) {
            wrong.push(format!("{page}: CI does not run `{}`: give it an entry", command.join(" ")));
        }
    }
    for entry in entries {
        if !told.iter().any(|(_, command)| *command == words(&entry.says)) {
            wrong.push(format!("no page tells `{}`: remove it", entry.says));
        }
        wrong.extend(entry.wrong(root).map(|why| format!("`{}` {why}", entry.says)));
    }
    wrong
}
