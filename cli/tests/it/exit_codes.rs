//! Every failure without a coordinator has its exit code, a message, and a JSON envelope.

use std::io::Write as _;
use std::path::Path;

use crate::support::{Ran, run};

fn fails(args: &[&str], code: i32, words: &str) -> Ran {
    let ran = run(args);
    assert_eq!(ran.code, code, "{args:?}: {ran}");
    assert!(ran.stderr.contains(words), "{args:?} does not say {words:?}: {ran}");
    ran
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_command_line_that_cannot_be_understood() {
    fails(&["dmeo"], 2, "dmeo");
    fails(&["demo", "--partcipants", "3"], 2, "--partcipants");
    fails(&["demo", "--drop", "1.5"], 2, "--drop");
    fails(&["demo", "--cohort", "9", "--participants", "3"], 2, "--cohort");
    fails(&["demo", "--model", "cnn"], 2, "takes square images, and these examples are none");
    fails(&["demo", "--data", "text"], 2, "--data-dir");
    fails(&["demo", "--partition", "stripes"], 2, "dirichlet:ALPHA");
    fails(&["serve"], 2, "--config");
    fails(&["serve", "--dev"], 2, "--data-dir");
    fails(&["task", "list", "--token", "x"], 2, "--server");
    fails(&["task", "list", "--token", "x", "--server", "http://localhost:1"], 2, "https://");
    fails(&["token", "create", "--server", "https://localhost:1", "--token", "x"], 2, "--role");
    let misspelt = run(&["--format", "json", "task", "lst"]);
    assert_eq!(misspelt.code, 2);
    assert_eq!(misspelt.envelope()["data"]["exit_code"], 2);
    assert_eq!(run(&["--help"]).code, 0);
    let version = run(&["--version"]);
    assert_eq!(version.code, 0);
    assert!(version.stdout.starts_with(concat!("tributary ", env!("CARGO_PKG_VERSION"))), "{version}");
}

#[test]
fn ways_to_train_that_are_none() {
    for (flag, value, words) in [
        ("--personalize", "dito", "unknown variant `dito`, expected one of `fed_per`"),
        ("--personalize", "ditto:lamda=1", "unknown field `lamda`"),
        ("--personalize", "ditto:lambda", "`lambda` is no KEY=VALUE, such as lambda=0.1"),
        ("--personalize", "ditto:lambda=", "invalid type: string \"\""),
        ("--personalize", "fedper:lambda=1", "unknown field `lambda`"),
        ("--personalize", "ditto:lambda=0.5,1", "`1` is no KEY=VALUE"),
        ("--solver", "fednova", "unknown variant `fednova`, expected `fed_nova` or `scaffold`"),
        ("--solver", "fed_nova,step=7", "unknown field `step`, expected"),
        ("--solver", "fed_nova,steps", "`steps` is no KEY=VALUE"),
        ("--solver", "scaffold,steps=many", "invalid type: string \"many\""),
        ("--adaptive-mu", "metrics=loss", "unknown field `metrics`"),
        ("--adaptive-mu", "patience", "`patience` is no KEY=VALUE"),
        ("--mode", "whenever", "unknown variant `whenever`, expected one of `sync`, `semi_sync`, `buffered`"),
        ("--codec", "zip", "unknown variant `zip`, expected one of `rotated`"),
        ("--codec", "top_k,k", "`k` is no KEY=VALUE, such as k=1%"),
        ("--codec", "top_k,k=inf", "invalid type: string \"inf\""),
        ("--codec", "top_k,n=3", "unknown field `n`"),
        ("--codec", "rotated,k=3", "unknown field `k`"),
        ("--codec", "top_k,feedback=maybe", "yes or no"),
        ("--robust", "mode", "unknown variant `mode`, expected one of `median`"),
        ("--robust", "median,f=1", "unknown field `f`"),
        ("--robust", "median,attackers=many", "invalid type: string \"many\""),
        ("--robust", "median,5", "`5` is no KEY=VALUE"),
        ("--schedule", "triangle", "unknown variant `triangle`"),
        ("--schedule", "cosine", "missing field `length`"),
        ("--warmup", "length=3,rounds", "`rounds` is no KEY=VALUE"),
        ("--budget", "hours=1", "unknown field `hours`"),
        ("--server-optimizer", "adam", "unknown variant `adam`, expected one of `fed_avg`"),
        ("--set", "training.epohcs=2", "training.epohcs: unknown field `epohcs`, expected one of `epochs`"),
        ("--set", "training.epochs=many", "training.epochs: invalid type: string \"many\""),
        ("--set", "trainnig.epochs=2", "trainnig: unknown field `trainnig`, expected one of `name`"),
        ("--set", "compression.codec=zip", "compression.codec: unknown variant `zip`"),
        ("--set", "epochs", "`epochs` is no KEY=VALUE, such as training.epochs=2"),
        ("--set", "training.=2", "`training.` is no key"),
        ("--set", "aggregation.clip_norm=inf", "aggregation.clip_norm: invalid type: string \"inf\""),
    ] {
        let ran = fails(&["demo", flag, value], 2, words);
        assert!(ran.stderr.contains(flag), "the flag is named: {ran}");
    }
    for flag in ["--personalize", "--solver", "--mode"] {
        fails(&["demo", flag], 2, "a value is required");
    }
    fails(&["demo", "--period", "5"], 2, "schedule.period_ms: is for schedule.mode");
    fails(&["demo", "--personalize", "ditto:personal=fc.*"], 2, "model.personal: must be left out");
    // Errors of several keys together, and tasks that a coordinator would reject, are reported before anything starts.
    fails(&["demo", "--set", "rounds.count=0"], 2, "rounds.count: must be between 1 and 1000000");
    fails(&["demo", "--set", "rounds.count=0", "--lr=-1"], 2, "training.learning_rate: must be positive and finite");
    fails(&["demo", "--cohort", "4", "--set", "name=a b"], 2, "name: must be 1 to 64 letters");
    fails(&["simulate", "--set", "selection.cohort.fraction=-1"], 2, "selection.cohort.fraction");
    fails(&["demo", "--mode", "buffered", "--drop", "0.1"], 2, "--drop plans who drops out");
}

#[test]
fn a_configuration_that_cannot_work() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = written(folder.path(), "unknown.toml", "[http]\nlisten_on = \"127.0.0.1:1\"\n");
    let zero = written(folder.path(), "zero.toml", "[http]\nconnections_max = 0\n");
    for command in ["check-config", "migrate", "serve"] {
        fails(&[command, "--config", &unknown], 3, "listen_on");
        fails(&[command, "--config", &zero], 3, "http.connections_max");
        fails(&[command, "--config", "/no/such/file.toml"], 3, "/no/such/file.toml");
    }
    let failed = run(&["--format", "json", "check-config", "--config", &unknown]);
    let data = &failed.envelope()["data"];
    assert_eq!(data["exit_code"], 3);
    assert!(data["title"].is_string() && data["detail"].as_str().unwrap().contains("listen_on"));
}

#[test]
fn a_configuration_that_works_is_shown_whole() {
    let folder = tempfile::tempdir().unwrap();
    let config = written(folder.path(), "good.toml", "[http]\npoll_max_ms = 1234\n");
    let data = run(&["--format", "json", "check-config", "--config", &config]).data();
    assert_eq!(data["config"]["http"]["poll_max_ms"], 1234);
    assert!(data["config"]["work"]["lease_ttl_ms"].is_u64());
    assert!(data["devices"].as_array().unwrap().iter().any(|device| device.as_str().unwrap().contains("chosen")));
}

#[test]
fn migrating_twice_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        format!("[database]\nurl = \"sqlite:{0}/c.db\"\n[blobs]\nurl = \"file:{0}/blobs\"\n", folder.path().display());
    let config = written(folder.path(), "c.toml", &text);
    for _ in 0..2 {
        let data = run(&["--format", "json", "migrate", "--config", &config]).data();
        assert_eq!(data["database"], "up_to_date");
    }
    assert!(folder.path().join("c.db").exists());
}

#[test]
fn a_task_file_that_is_wrong_names_the_key() {
    let folder = tempfile::tempdir().unwrap();
    for (text, key) in [
        ("name = \"a\"\nrouds = 3\n[model]\n", "rouds"),
        ("name = \"a\"\n[model]\n[rounds]\ncount = \"ten\"\n", "count"),
        ("name = \"a\"\n[model.architecture]\nkind = \"mlp\"\nhiden = [3]\n", "hiden"),
        ("name = \"a\"\n[model.architecture]\nkind = \"mlp\"\nhidden = [0]\n", "hidden"),
        (
            "name = \"a\"\n[model.architecture]\nkind = \"linear\"\ninputs = 1048576\nclasses = 1048576\n",
            "model.architecture",
        ),
        ("name = \"a\"\n[model.architecture]\nkind = \"oracle\"\n", "oracle"),
        ("name = [\n", "line"),
    ] {
        let file = written(folder.path(), "task.toml", text);
        fails(&["task", "create", &file, "--server", "https://localhost:1", "--token", "x"], 3, key);
    }
}

#[test]
fn data_that_are_not_there_or_damaged() {
    fails(&["demo", "--data", "mnist", "--data-dir", "/no/such/folder"], 4, "/no/such/folder");
    fails(&["demo", "--data", "text", "--data-dir", "/no/such/folder"], 4, "/no/such/folder");
    fails(&["model", "evaluate", "/no/such.safetensors"], 4, "/no/such.safetensors");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    fails(&["demo", "--data", "mnist", "--data-dir", path], 4, "t10k-images");
    // Ten images are announced, one byte is there.
    let mut images = std::fs::File::create(folder.path().join("t10k-images-idx3-ubyte")).unwrap();
    images.write_all(&[0, 0, 8, 3, 0, 0, 0, 10, 0, 0, 0, 28, 0, 0, 0, 28, 7]).unwrap();
    std::fs::write(folder.path().join("t10k-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 10]).unwrap();
    fails(&["demo", "--data", "mnist", "--data-dir", path], 4, "truncated");
}

#[test]
fn a_coordinator_that_is_not_there() {
    let ran = run(&["--format", "json", "task", "list", "--server", "https://127.0.0.1:1", "--token", "secret-token"]);
    assert_eq!(ran.code, 5, "{ran}");
    assert_eq!(ran.envelope()["data"]["exit_code"], 5);
    assert!(!ran.stdout.contains("secret-token") && !ran.stderr.contains("secret-token"), "{ran}");
}

#[test]
fn a_device_that_is_not_there() {
    if cfg!(any(feature = "train-cuda", feature = "train-metal")) {
        return;
    }
    fails(&["demo", "--device", "cuda"], 13, "feature is `train-cuda`");
    fails(&["demo", "--device", "metal"], 13, "feature is `train-metal`");
    fails(&["infer", "serve", "--models", ".", "--task", "digits", "--device", "cuda"], 13, "feature is `train-cuda`");
    fails(&["demo", "--device", "tpu"], 2, "auto, cpu, cuda or metal");
}

#[test]
fn a_folder_that_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "precious", "");
    fails(&["demo", "--dir", folder.path().to_str().unwrap()], 15, "not empty");
}
