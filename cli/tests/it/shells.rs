//! Files for shells and manual viewers: each script is parsed by its shell, and each page drawn by its viewer, if this
//! machine has it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Ran, finish, run};

/// Shells, each with the arguments to parse a script without running it; `FILE` stands for the script.
const SHELLS: [(&str, &str, &[&str]); 5] = [
    ("bash", "bash", &["-n", "FILE"]),
    ("zsh", "zsh", &["-n", "FILE"]),
    ("fish", "fish", &["--no-execute", "FILE"]),
    ("elvish", "elvish", &["-compileonly", "FILE"]),
    ("powershell", "pwsh", &["-NoProfile", "-NonInteractive", "-Command", PARSE]),
];
const PARSE: &str = "$errors = $null; [void][System.Management.Automation.Language.Parser]::ParseFile('FILE', [ref]$null, [ref]$errors); \
     $errors; exit $errors.Count";

/// Programs that render a manual page, with their arguments; `FILE` stands for the page. mandoc lists the page's errors
/// on stdout.
const VIEWERS: [(&str, &[&str]); 3] = [
    ("man", &["--warnings", "-l", "FILE"]),
    ("groff", &["-K", "utf8", "-man", "-ww", "-Tutf8", "FILE"]),
    ("mandoc", &["-T", "lint", "-W", "error", "FILE"]),
];

/// The output of a program; `None` if this machine does not have it.
fn asked(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program over a file.
fn over(program: &str, args: &[&str], file: &Path) -> Ran {
    let args = args.iter().map(|arg| arg.replace("FILE", file.to_str().unwrap()));
    finish(Command::new(program).args(args).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80"))
}

#[test]
fn each_shell_reads_its_completions() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, program, parse) in SHELLS {
        let script = run(&["completions", shell]);
        assert!(script.code == 0 && script.stdout.contains("idempotency-key"), "{shell}: {script}");
        if asked(program, &["-c", "exit 0"]).is_none() {
            test_servers::skipped(&format!("no {program}, so nobody parsed the completions for {shell}"));
            continue;
        }
        let file = folder.path().join(shell);
        std::fs::write(&file, &script.stdout).unwrap();
        let parsed = over(program, parse, &file);
        assert!(parsed.code == 0 && parsed.stderr.is_empty(), "{shell}: {parsed}");
        std::fs::write(&file, "if (((").unwrap();
        assert_ne!(over(program, parse, &file).code, 0, "{shell} notices what is no script");
    }
}

#[test]
fn bash_completes_subcommands_options_and_their_values() {
    if asked("bash", &["-c", "exit 0"]).is_none() {
        test_servers::skipped("no bash, so nothing was completed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tributary.bash");
    std::fs::write(&file, run(&["completions", "bash"]).stdout).unwrap();
    // Bash calls the function with the command, the word that is completed, and the one before.
    let complete = r#"source FILE
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _tributary tributary "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let completed = |words: &[&str]| {
        let ran = over("bash", &[&["-c", complete, "bash", "tributary"], words].concat(), &file);
        assert!(ran.code == 0 && ran.stderr.is_empty(), "{ran}");
        ran.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed(&["rou"]), ["round"]);
    assert!(completed(&["round", ""]).contains(&"compare".to_owned()));
    assert_eq!(completed(&["task", "pause", "digits", "--if"]), ["--if-match"]);
    assert_eq!(completed(&["task", "list", "--state", "C"]), ["COMPLETED", "CANCELLED"]);
    assert_eq!(completed(&["participant", "list", "--state", ""]), ["active", "revoked"]);
}

/// Every subcommand, as `--help` lists them.
fn commands() -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = vec![Vec::new()];
    let mut next = 0;
    while let Some(command) = found.get(next).cloned() {
        let words: Vec<_> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = run(&words);
        assert_eq!(help.code, 0, "{help}");
        let lines =
            help.stdout.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // The names of other commands are indented by two, the rest of a description by more.
        let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
        let names = names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help");
        found.extend(names.map(|name| [&command[..], &[name.to_owned()]].concat()));
        next += 1;
    }
    found
}

#[test]
fn each_subcommand_has_a_page_that_is_drawn_without_complaint() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_eq!(run(&["manual", pages.to_str().unwrap()]).code, 0);
    let name = |command: &Vec<String>| {
        format!("tributary{}", command.iter().map(|word| format!("-{word}")).collect::<String>())
    };
    let mut expected: Vec<_> = commands().iter().map(|command| format!("{}.1", name(command))).collect();
    let written = std::fs::read_dir(&pages).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap());
    let mut written: Vec<_> = written.collect();
    expected.sort();
    written.sort();
    assert_eq!(written, expected);
    assert!(written.len() > 60 && written.contains(&"tributary-round-list.1".to_owned()), "{written:?}");

    for (viewer, draw) in VIEWERS {
        // Small images have a placeholder for `man`; mandoc does not print its version.
        let version = asked(viewer, &["--version"]);
        if version.is_none_or(|version| viewer != "mandoc" && !version.contains(viewer)) {
            test_servers::skipped(&format!("no {viewer}, so it drew no manual page"));
            continue;
        }
        for page in &written {
            let drawn = over(viewer, draw, &pages.join(page));
            assert!(drawn.code == 0 && drawn.stderr.is_empty(), "{viewer} {page}: {drawn}");
            let hyphens = ['\u{2010}', '\u{2212}'];
            let is_right = match viewer {
                "mandoc" => drawn.stdout.is_empty(),
                _ => drawn.stdout.replace(hyphens, "-").contains(page.trim_end_matches(".1")),
            };
            assert!(is_right, "{viewer} {page}: {drawn}");
        }
    }
}
