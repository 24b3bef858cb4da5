//! Inputs and outputs that are not as usual: arguments, tokens, addresses and stdout.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use crate::support::{Background, Ran, Served, finish, run, tributary};

/// A stdout that cannot be written: its disk is full.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A stdout that cannot be written: its reader has gone.
fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

fn with_stdout(command: &mut Command, stdout: Stdio) -> Ran {
    let output = command.stdin(Stdio::null()).stdout(stdout).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), stdout: String::new(), stderr }
}

#[test]
fn output_that_is_lost_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    for args in [
        &["task", "list"][..],
        &["--format", "json", "task", "list"],
        &["token", "create", "--enrollment"],
        &["--format", "json", "token", "create", "--role", "viewer", "--name", "ann"],
        &["task", "keys"],
        &["completions", "bash"],
        &["--help"],
    ] {
        for stdout in [full(), closed()] {
            let ran = with_stdout(served.command(&served.token).args(args), stdout);
            assert_eq!(ran.code, 15, "{args:?}: {ran}");
            assert!(ran.stderr.contains("cannot be"), "{args:?}: {ran}");
            let is_token = args.contains(&"token");
            assert_eq!(ran.stderr.contains("the new token is lost"), is_token, "{args:?}: {ran}");
        }
    }
}

#[test]
fn arguments_that_are_not_utf8_are_refused_without_a_panic() {
    for args in [
        &[&b"task"[..], b"show", b"--nope\xe9"][..],
        &[b"model", b"evaluate", b"m", b"--data", b"csv:caf\xe9.csv"],
        &[b"\xff"],
        &[b"--format", b"json", b"\xff"],
    ] {
        let ran = tributary().args(args.iter().map(|arg| OsStr::from_bytes(arg))).output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {ran:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let checked = |name: &str| {
        let mut command = tributary();
        command.env(name, OsStr::from_bytes(b"\xff")).args(["fsck", "--data-dir"]).arg(folder.path());
        finish(&mut command)
    };
    let strange = checked("SOMEBODY_ELSES");
    assert!(strange.code < 18 && !strange.stderr.contains("panicked"), "{strange}");
    let own = checked("TRIBUTARY_HTTP_LISTEN");
    assert!(own.code == 3 && own.stderr.contains("TRIBUTARY_HTTP_LISTEN: the value is not UTF-8"), "{own}");
}

#[test]
fn line_break_after_a_token_is_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    for end in ["\n", "\r\n"] {
        let listed = served.operate_as(&(served.token.clone() + end), &["task", "list"]);
        assert_eq!(listed.code, 0, "{listed}");
        let token = served.enrollment_token() + end;
        let name = format!("ward-{}", end.len());
        let mut participant = tributary();
        participant.args(["participant", "run", "--data", "synthetic", "--name", &name, "--journal"]);
        participant.arg(folder.path().join(&name)).args(["--server", &served.url, "--ca", &served.ca]);
        participant.env("TRIBUTARY_ENROLLMENT_TOKEN", token).stdout(Stdio::null()).stderr(Stdio::null());
        let mut participant = Background(participant.spawn().unwrap());
        let is_enrolled = || served.read(&["participant", "list"]).contains(&name);
        while !is_enrolled() {
            assert!(participant.0.try_wait().unwrap().is_none(), "it ended");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

#[test]
fn coordinator_answers_at_the_url_it_prints() {
    for listen in ["[::1]:0", "127.0.0.2:0", "127.0.0.1:0"] {
        if listen.starts_with('[') && std::net::TcpListener::bind(listen).is_err() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = tributary();
        command.args(["--format", "json", "serve", "--dev", "--listen", listen, "--data-dir"]).arg(folder.path());
        let served = Served::until(command, "serving");
        let listed = served.operate(&["task", "list"]);
        assert_eq!(listed.code, 0, "{} {listed}", served.url);
    }
}

#[test]
fn tls_files_are_named_where_they_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["ok", "other"] {
        let key = rcgen::KeyPair::generate().unwrap();
        let issued = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(path(&format!("{name}.pem")), issued.pem()).unwrap();
        std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        std::fs::write(path("der.pem"), issued.der()).unwrap();
    }
    std::fs::create_dir_all(path("models/digits")).unwrap();
    for (certificate, key, expected) in [
        ("none.pem", "ok.key", "none.pem"),
        ("der.pem", "ok.key", "der.pem holds no certificate in PEM"),
        ("ok.pem", "other.key", "other.key does not hold the key of the certificate in"),
    ] {
        let config = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\ncertificate_file = {:?}\nkey_file = {:?}\n[database]\nurl = \"sqlite::memory:\"\n\
             [blobs]\nurl = \"memory:\"\n[identity]\nca_certificate_file = {:?}\nca_key_file = {:?}\n",
            path(certificate),
            path(key),
            path("ca.pem"),
            path("ca-key.pem"),
        );
        std::fs::write(path("c.toml"), config).unwrap();
        let coordinator = finish(tributary().args(["serve", "--config"]).arg(path("c.toml")));
        let mut serve = tributary();
        serve.args(["infer", "serve", "--listen", "127.0.0.1:0", "--models"]).arg(path("models"));
        let models = finish(serve.arg("--certificate").arg(path(certificate)).arg("--key").arg(path(key)));
        for ran in [coordinator, models] {
            assert!(ran.code == 3 && ran.stderr.contains(expected), "{expected}: {ran}");
        }
    }
    std::fs::write(path("empty.pem"), "").unwrap();
    let empty = path("empty.pem").display().to_string();
    let client = run(&["task", "list", "--server", "https://localhost:1", "--token", "t", "--ca", &empty]);
    assert!(client.code == 3 && client.stderr.contains("empty.pem holds no certificate in PEM"), "{client}");
}

#[test]
fn names_of_dots_are_refused_at_creation() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let file = folder.path().join("task.toml");
    for name in [".", "..", "..."] {
        let task =
            format!("name = {name:?}\n[model]\narchitecture = {{ kind = \"linear\", inputs = 2, classes = 2 }}\n");
        std::fs::write(&file, task).unwrap();
        let created = served.operate(&["task", "create", file.to_str().unwrap()]);
        assert!(created.code != 0 && created.stderr.contains("not of dots alone"), "{created}");
        let token = served.operate(&["token", "create", "--enrollment", "--name", name]);
        assert!(token.code == 9 && token.stderr.contains("not of dots alone"), "{token}");
        let models = folder.path().join("models");
        let mut serve = tributary();
        serve.args(["infer", "serve", "--listen", "127.0.0.1:0", "--task", name, "--models"]).arg(&models);
        let refused = finish(&mut serve);
        assert!(refused.code == 2 && !models.exists(), "{refused}");
    }
}

#[test]
fn controls_in_texts_from_elsewhere_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let hostile = "a\u{1b}]0;title\u{7}\u{9b}31m\u{202e}b\u{2066}";
    let file = folder.path().join("task.toml");
    let description: String = hostile.chars().map(|letter| format!("\\u{:04x}", u32::from(letter))).collect();
    let task = format!(
        "name = \"digits\"\ndescription = \"{description}\"\n[model]\narchitecture = {{ kind = \"linear\", inputs = 2, classes = 2 }}\n"
    );
    std::fs::write(&file, task).unwrap();
    let is_active = |letter: char| {
        (letter.is_control() && letter != '\n') || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let file = file.to_str().unwrap();
    let created = served.operate(&["task", "create", file]);
    assert_eq!(created.code, 0, "{created}");
    let shown = served.operate(&["task", "show", "digits"]);
    assert_eq!(shown.data()["spec"]["description"], hostile, "JSON reads back as the same text");
    let text = served.read(&["task", "show", "digits"]);
    assert!(text.contains("\\u{1b}]0;title\\u{7}\\u{9b}31m\\u{202e}b"), "{text}");
    let missing = served.operate(&["task", "show", hostile]);
    assert_eq!(missing.code, 7, "{missing}");
    for printed in [&created.stdout, &shown.stdout, &text, &missing.stdout, &missing.stderr] {
        assert!(!printed.contains(is_active), "{printed:?}");
    }
}
