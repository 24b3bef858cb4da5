//! Every command that a page tells is one that this executable understands. What runs in CI is said by `.ci/docs.sh`; the rest at least names
//! no command, flag or value that is not there.

use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::parse;

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

/// The commands of a page, as its reader would type them: lines of code, and code within a line.
fn commands(page: &str) -> Vec<String> {
    let page = page.replace("\\\n", " ");
    let (mut all, mut is_fenced) = (Vec::new(), false);
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            all.push(line.trim().trim_start_matches("$ ").to_owned());
        } else {
            all.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    let after = |command: String| {
        let typed = ["tributary ", "cargo run --release -- "].iter().find_map(|start| command.strip_prefix(start));
        typed.map(|words| format!("tributary {words}"))
    };
    all.into_iter().filter_map(after).collect()
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
    // What the page leaves out.
    words.retain(|word| word != "…" && word != "...");
    words
}

/// Whether a value stands for one: `DIR`, `N`, `METHOD[:KEY=VALUE,…]`, `$TOKEN`, `https://…`, `uniform|oort`, or is left out.
fn stands_for_one(value: &str) -> bool {
    value.is_empty() || value.contains(['$', '…', '|']) || value.starts_with(|letter: char| letter.is_ascii_uppercase())
}

/// What is wrong with a command, other than what the page leaves to its reader.
fn wrong(command: &str) -> Option<String> {
    let error = parse(words(command)).err()?;
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
        for command in commands(&std::fs::read_to_string(&page).unwrap()) {
            count += 1;
            lacking.extend(wrong(&command).map(|error| format!("{}: {command}\n{error}", page.display())));
        }
    }
    assert!(count >= 100, "{count}");
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}

#[test]
fn a_command_that_is_not_there_is_noticed() {
    let page = "Try `tributary task crate x`, or\n\n    tributary demo --rounds 3 \\\n      --romds 4    # four\n\n`tributary demo --seed N`\n";
    let found = commands(page);
    assert_eq!(found.len(), 3, "{found:?}");
    let wrongs: Vec<_> = found.iter().filter_map(|command| wrong(command)).collect();
    assert!(wrongs.len() == 2 && wrongs[0].contains("crate") && wrongs[1].contains("--romds"), "{wrongs:?}");
    assert_eq!(words("tributary a 'b c' \"$D/e\" --f=g > h"), ["tributary", "a", "b c", "$D/e", "--f=g"]);
}
