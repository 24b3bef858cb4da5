//! A coordinator that may open few files.
#![cfg(target_os = "linux")]

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::support::{Served, tributary};

#[test]
fn the_limit_of_files_is_raised_and_connections_fit_into_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 128 && ulimit -H -n 300 && exec \"$0\" \"$@\""]);
    command.arg(tributary().get_program());
    command.args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    let server = Served::until(command, "serving");
    let process = server.process.0.id();
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().filter(|word| word.parse::<u32>().is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(limit("Max open files"), ["300", "300"], "soft and hard");
    assert_eq!(limit("Max core file size"), ["0", "0"], "its memory has keys");
    // Far more connections than files: all but some are dropped, and an operator comes through.
    let address = server.url.rsplit('/').next().unwrap().replace("localhost", "127.0.0.1");
    let crowd: Vec<_> = (0..600).filter_map(|_| TcpStream::connect(&address).ok()).collect();
    assert_eq!(crowd.len(), 600);
    let open = || std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    // A new connection is not evicted for another one within 2 s.
    let served = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        assert!(open() < 200, "{} files are open", open());
        server.operate(&["task", "list"]).code == 0
    });
    assert!(served);
}
