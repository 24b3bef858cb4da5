//! `/readyz` of the executable: it reports read and write failures, and recovers with them.

#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Served, run, tributary};

/// Runs `script` first, and then `serve --dev` in its place, with health on a listener of its own.
pub(crate) fn serve(launcher: &[&str], script: &str, data: &Path) -> Served {
    let (program, before) = launcher.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(before).args(["sh", "-c", &format!("{script}\nexec \"$@\""), "serve"]);
    command.arg(tributary().get_program()).args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0"]);
    command.arg("--data-dir").arg(data).env("TRIBUTARY_HTTP_HEALTH_LISTEN", "127.0.0.1:0").env("DATA", data);
    Served::until(command, "serving")
}

/// Status and body.
pub(crate) fn readyz(served: &Served) -> (u16, String) {
    let mut stream = TcpStream::connect(&served.health).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer}")), answer)
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_database_that_cannot_be_written_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    // A write beyond the limit fails, instead of ending the process.
    let served = serve(&["env"], "trap '' XFSZ", &folder.path().join("data"));
    assert_eq!(readyz(&served).0, 200);
    let limit = |bytes: &str| {
        let pid = served.process.0.id().to_string();
        let ran = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]).status();
        ran.is_ok_and(|status| status.success())
    };
    assert!(limit("0"), "prlimit of util-linux is needed");
    wait_until("somebody looks", || readyz(&served).0 == 503);
    for _ in 0..2 {
        let (status, answer) = readyz(&served);
        assert!(status == 503 && answer.contains("the database cannot be written"), "{answer}");
        assert!(answer.to_lowercase().contains("retry-after"), "{answer}");
    }
    assert!(limit("unlimited"));
    wait_until("it is ready again", || readyz(&served).0 == 200);
}

/// Makes the folder of blobs read-only in its own mount namespace on demand, and writable again.
const TURNS_READ_ONLY: &str = r#"
when() { for _ in $(seq 6000); do [ -e "$DATA.$1" ] && return; sleep 0.01; done; exit 1; }
( exec >/dev/null 2>&1
  when go; mount --bind "$DATA/blobs" "$DATA/blobs" && mount -o remount,ro,bind "$DATA/blobs" && touch "$DATA.gone"
  when back; umount "$DATA/blobs" && touch "$DATA.here" ) &
"#;

#[test]
fn a_disk_that_turns_read_only_is_not_ready() {
    let namespace = ["unshare", "-rm"];
    let mut mount = Command::new(namespace[0]);
    let mount = mount.args([namespace[1], "mount", "-t", "tmpfs", "none", "/mnt"]);
    let mountable = mount.stderr(Stdio::null()).status();
    if !mountable.is_ok_and(|status| status.success()) {
        test_servers::skipped("nothing can be mounted here (unshare -rm): no folder of blobs turned read-only");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let served = serve(&namespace, TURNS_READ_ONLY, &data);
    assert_eq!(readyz(&served).0, 200);
    let at = |end: &str| folder.path().join(format!("data.{end}"));
    std::fs::write(at("go"), "").unwrap();
    wait_until("it turns read-only", || at("gone").exists());
    wait_until("somebody looks", || readyz(&served).0 == 503);
    for _ in 0..2 {
        let (status, answer) = readyz(&served);
        assert!(status == 503 && answer.contains("the folder of blobs cannot be written"), "{answer}");
        assert!(answer.contains("stored state is read-only"), "{answer}");
    }
    std::fs::write(at("back"), "").unwrap();
    wait_until("it is writable again", || at("here").exists());
    wait_until("it is ready again", || readyz(&served).0 == 200);
}

#[test]
fn a_malformed_database_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let served = serve(&["env"], "", &data);
    assert_eq!(readyz(&served).0, 200);
    drop(served);
    // A single connection checkpoints the log into the file.
    let folder = data.to_str().unwrap();
    let ran = run(&["token", "create", "--role", "viewer", "--name", "v", "--offline", "--data-dir", folder]);
    assert_eq!(ran.code, 0, "{ran}");
    let path = data.join("coordinator.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    // The requests here do not read an empty table or index.
    let is_empty = |page: &[u8]| matches!(page[0], 10 | 13) && page[3..5] == [0, 0];
    bytes.chunks_exact_mut(page).rfind(|page| is_empty(page)).unwrap().fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let served = serve(&["env"], "", &data);
    for _ in 0..2 {
        let (status, answer) = readyz(&served);
        assert!(status == 503 && answer.contains("the database is malformed"), "{answer}");
    }
}
