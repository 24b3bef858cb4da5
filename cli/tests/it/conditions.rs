//! Conditional writes: they succeed only on the version that was read, and only once.

use serde_json::Value;

use crate::operator::with_digits;
use crate::support::{Ran, run};

const STALE: &str = "urn:tributary:problem:precondition-failed";

fn etag(ran: &Ran) -> String {
    assert_eq!(ran.code, 0, "{ran}");
    ran.envelope()["etag"].as_str().unwrap().to_owned()
}

#[test]
fn what_somebody_else_has_changed_meanwhile_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let served = with_digits(folder.path());
    let seen = etag(&served.operate(&["task", "show", "digits"]));
    let (revision, _) = seen.split_once('-').unwrap();
    let words = served.read(&["task", "show", "digits"]);
    assert!(words.contains(&format!("ETag        {revision}-")), "{words}");

    // A shell passes text on without its quotation marks.
    let paused = served.operate(&["task", "pause", "digits", "--if-match", seen.trim_matches('"')]);
    assert_eq!(paused.data()["status"], "PAUSED");
    let now = etag(&paused);
    for write in [
        &["task", "resume", "digits"][..],
        &["task", "cancel", "digits"],
        &["task", "rebase", "digits"],
        &["model", "promote", "digits", "0"],
        &["model", "restore", "digits", "0"],
    ] {
        let late = served.operate(&[write, &["--if-match", &seen]].concat());
        assert_eq!((late.code, &late.envelope()["data"]["type"]), (8, &Value::from(STALE)), "{write:?}: {late}");
    }
    assert_eq!(served.operate(&["task", "show", "digits"]).data()["status"], "PAUSED");

    let of_model = etag(&served.operate(&["model", "show", "digits", "0"]));
    assert!(served.read(&["model", "show", "digits", "0"]).contains(&format!("ETag       {of_model}")));
    let pinned = served.operate(&["model", "pin", "digits", "0", "--if-match", &of_model]);
    assert_ne!(etag(&pinned), of_model);
    assert_eq!(served.operate(&["model", "unpin", "digits", "0", "--if-match", &of_model]).code, 8);
    let promoted = served.operate(&["model", "promote", "digits", "0", "--if-match", &now]);
    assert_eq!(promoted.data()["promoted_version"], 0);
    let cancelled = served.operate(&["task", "cancel", "digits", "--if-match", &etag(&promoted)]);
    assert_eq!(cancelled.data()["status"], "CANCELLED");
}

#[test]
fn a_token_is_made_once_however_often_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let served = with_digits(folder.path());
    for kind in [&["--role", "viewer", "--name", "ann"][..], &["--enrollment", "--name", "ward-7"]] {
        let create = [&["token", "create", "--idempotency-key", "k1"], kind].concat();
        let made = served.operate(&create).data();
        let again = served.operate(&create);
        assert_eq!(again.code, 8, "{again}");
        assert!(again.stderr.contains(made["id"].as_str().unwrap()), "it names the first: {again}");
    }
    assert_eq!(served.operate(&["token", "list"]).data().as_array().unwrap().len(), 2, "the first admin, and ann");
    let offline = ["token", "create", "--offline", "--data-dir", "x", "--role", "viewer", "--name", "x"];
    assert_eq!(run(&[&offline[..], &["--idempotency-key", "k1"]].concat()).code, 2, "there is nobody to repeat it to");
}
