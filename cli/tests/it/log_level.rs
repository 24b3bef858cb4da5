//! The log's level follows the configuration at SIGHUP, while the coordinator serves; a log in a file is without
//! colours.

#![cfg(unix)]

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Served, tributary};

/// Waits until the log has a line with these words.
fn wait_for(log: &Path, words: &str) {
    let began = Instant::now();
    while !std::fs::read_to_string(log).unwrap().contains(words) {
        assert!(began.elapsed() < Duration::from_secs(60), "{words:?}: {}", std::fs::read_to_string(log).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_level_is_that_of_the_file_after_a_hangup_and_stays_where_the_file_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (config, log) = (at("coordinator.toml"), at("log"));
    let write = |level: &str| {
        let text = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = \"sqlite:{}\"\n[blobs]\nurl = \"file:{}\"\n[identity]\n\
             ca_certificate_file = {:?}\nca_key_file = {:?}\n[telemetry]\nlevel = {level:?}\nformat = \"json\"\n",
            at("rows.db").display(),
            at("blobs").display(),
            at("ca.pem"),
            at("ca-key.pem"),
        );
        std::fs::write(&config, text).unwrap();
    };
    write("warn");
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--config"]).arg(&config).stderr(File::create(&log).unwrap());
    let served = Served::until_in_words(command, "serving");
    let hangup = || {
        let sent = Command::new("kill").args(["-HUP", &served.process.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    served.operate(&["task", "list"]).data();
    assert!(!std::fs::read_to_string(&log).unwrap().contains("\"level\":\"DEBUG\""), "only warnings are logged");
    write("debug");
    hangup();
    wait_for(&log, "the log level is that of the file now: debug");
    served.operate(&["task", "list"]).data();
    wait_for(&log, "\"level\":\"DEBUG\"");
    write("loud=very");
    hangup();
    wait_for(&log, "the log level stays as it is: ");
    served.operate(&["task", "list"]).data();
}

#[test]
fn a_log_that_goes_to_a_file_has_no_colours() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(folder.path().join("data")).stderr(File::create(&log).unwrap());
    let _served = Served::until_in_words(command, "serving");
    wait_for(&log, " INFO ");
    assert!(!std::fs::read_to_string(&log).unwrap().contains('\u{1b}'), "colours are for who looks on");
}
