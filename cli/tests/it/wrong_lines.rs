//! Wrong command lines: each message names the error and the correction. The full texts are in
//! `wrong_lines.txt`; run with `TRIBUTARY_BLESS=1` to write it anew, and read the difference.

use std::fmt::Write as _;
use std::path::Path;

use crate::support::{finish, tributary};

/// Where the coordinator would be.
const AT: &str = "--server https://localhost:1 --token t";
/// A participant that could run.
const RUN: &str = "participant run --server https://localhost:1 --ca ca.pem --journal j";

/// A command line, and words of its message: the error, and the valid form. `@` stands for a coordinator's address and
/// token, `RUN` for a participant.
const LINES: &[(&str, &str, &str)] = &[
    // Subcommands.
    ("dmeo", "'dmeo'", "'demo'"),
    ("task craete", "'craete'", "'create'"),
    ("participant lst", "'lst'", "'list'"),
    ("devices now", "'now'", "Usage: tributary devices"),
    ("--format xml devices", "'xml' for '--format", "[possible values: text, json]"),
    // The demo.
    ("demo --rounds ten", "rounds.count", "expected a whole number"),
    ("demo --rounds -1", "rounds.count", "expected a whole number"),
    ("demo --rounds 0", "rounds.count", "between 1 and 1000000"),
    ("demo --participants 0", "--participants", "1..=10000"),
    ("demo --participants 20000", "--participants", "1..=10000"),
    ("demo --participants few", "--participants", "a whole number is expected"),
    ("demo --participant 3", "'--participant'", "'--participants'"),
    ("demo --partition dirichlet", "--partition", "dirichlet:ALPHA (a number above 0)"),
    ("demo --partition dirichlet:0", "--partition", "a number above 0"),
    ("demo --data mnits", "'mnits' for '--data", "synthetic, mnist, text"),
    ("demo --data csv:x.csv", "--data", "`participant run` and `model evaluate`"),
    ("demo --data text", "--data-dir", "TRIBUTARY_DATA_DIR in the environment"),
    ("demo --data mnist --data-dir nowhere", "nowhere", "t10k-images-idx3-ubyte"),
    ("demo --alpha -1", "alpha = -1", "a number from 0"),
    ("demo --alpha x", "--alpha", "a number is expected"),
    ("demo --drop 2", "--drop", "at least 0 and below 1"),
    ("demo --model resnet", "model.architecture", "linear, mlp, cnn, gru"),
    ("demo --lr fast", "training.learning_rate", "expected a number"),
    ("demo --lr -1", "training.learning_rate", "positive and finite"),
    ("demo --set rounds.cuont=3", "rounds.cuont", "`count`"),
    ("demo --set rounds", "--set", "KEY=VALUE, such as training.epochs=2"),
    ("demo --task typo.toml", "modle", "`model`"),
    ("demo --task nosuch", "`nosuch`", "presets are asynchronous"),
    ("demo --task broken.toml", "broken.toml", "expected `]`"),
    ("demo --device gpu", "--device", "auto, cpu, cuda or metal"),
    ("demo --privacy epsilon=much", "privacy.epsilon", "expected a number"),
    ("demo --codec zip", "compression.codec", "`rotated`"),
    // Simulations.
    ("simulate --population 0", "--population", "1..=1000000"),
    ("simulate --cohort many", "--cohort", "a whole number is expected"),
    ("simulate --trace week", "--trace", "always and day"),
    ("simulate --svg nowhere/x.svg", "nowhere/x.svg", "cannot write"),
    ("simulate --dropout 2 --population 100", "dropout", "between 0 and 0.8"),
    // A coordinator.
    ("serve", "--config <FILE>", "Usage: tributary serve --config <FILE>"),
    ("serve --dev", "--data-dir <DIR>", "serve --data-dir <DIR> --dev"),
    ("serve --dev --config x.toml", "'--dev' cannot be used with '--config", "Usage: tributary serve"),
    ("serve --config nosuch.toml", "nosuch.toml", "cannot read the configuration file"),
    ("serve --config bad-config.toml", "listen = \"nowhere\"", "invalid socket address"),
    ("serve --config typo-config.toml", "`htp`", "expected one of `http`"),
    ("serve --dev --data-dir text.txt", "text.txt", "cannot use the folder"),
    ("serve --dev --data-dir d --listen nowhere", "--listen", "as in 127.0.0.1:8443"),
    ("work --config nosuch.toml", "nosuch.toml", "cannot read the configuration file"),
    ("check-config", "--config <FILE>", "Usage: tributary check-config --config <FILE>"),
    ("check-config --config typo-config.toml", "`htp`", "expected one of `http`"),
    ("migrate --config nosuch.toml", "nosuch.toml", "cannot read the configuration file"),
    // Tasks.
    ("task create", "--server <URL>", "TRIBUTARY_TOKEN in the environment"),
    ("task create nosuch.toml @", "nosuch.toml", "cannot read"),
    ("task create typo.toml @", "`modle`", "`model`"),
    ("task create broken.toml @", "broken.toml", "expected `]`"),
    ("task create empty.toml @", "`name`", "missing field"),
    ("task create folder @", "folder", "Is a directory"),
    ("task create count.toml @", "count = \"ten\"", "expected a whole number"),
    ("task list", "--token <TOKEN>", "TRIBUTARY_TOKEN in the environment"),
    ("task list --server https://localhost:1", "--token <TOKEN>", "TRIBUTARY_TOKEN in the environment"),
    ("task list --server localhost --token t", "--server", "as in https://localhost:8443"),
    ("task list --server http://localhost:1 --token t", "`http://localhost:1/`", "begins with https://"),
    ("task list @ --ca nosuch.pem", "nosuch.pem", "cannot read the CA file"),
    ("task list @ --ca text.txt", "CA file", "certificate in PEM"),
    ("task list --limit -1 @", "--limit", "a whole number is expected"),
    ("task list --state paused @", "'paused' for '--state", "[possible values: ACTIVE, PAUSED"),
    ("task show @", "<TASK>", "Usage: tributary task show"),
    ("task compare one @", "TASKS", "2 values required"),
    ("task rebase t --beyond x @", "--beyond", "a whole number is expected"),
    ("task list @", "https://localhost:1/", "Connection refused"),
    // Rounds and models.
    ("round list t --since yesterday @", "'yesterday' for '--since", "such as 2026-11-24T12:00:00Z"),
    ("round show t @", "<ROUND>", "Usage: tributary round show"),
    ("round show t first @", "<ROUND>", "a whole number is expected"),
    ("round compare t 1 @", "ROUNDS", "2 values required"),
    ("round compare t 1 last @", "'last' for '<ROUNDS>", "NUMBER/ATTEMPT"),
    ("round watch @", "<TASK>", "Usage: tributary round watch"),
    ("model fetch @", "<TASK>", "Usage: tributary model fetch"),
    ("model fetch t --model-version newest @", "--model-version", "a whole number is expected"),
    ("model fetch t --model-version 1 --promoted @", "--model-version", "cannot be used with '--promoted'"),
    ("model pin t @", "<VERSION>", "Usage: tributary model pin"),
    ("model evaluate nosuch.safetensors", "nosuch.safetensors", "cannot read"),
    ("model evaluate text.txt", "text.txt", "safetensors file"),
    ("model export text.txt", "--onnx <FILE>|--triton <DIR>", "Usage: tributary model export"),
    ("model export text.txt --onnx out.onnx", "text.txt", "safetensors file"),
    ("model export text.txt --onnx out.onnx --name x", "--triton <DIR>", "Usage: tributary model export"),
    ("model verify text.txt", "--provenance <FILE>", "Usage: tributary model verify"),
    ("model verify text.txt --provenance nosuch.json", "nosuch.json", "cannot read"),
    ("model verify text.txt --provenance text.txt --key 12", "--key", "64 hexadecimal digits"),
    // Participants.
    ("participant run", "--server <URL>", "TRIBUTARY_SERVER in the environment"),
    (
        "participant run --server https://localhost:1 --ca nosuch.pem --journal j",
        "nosuch.pem",
        "cannot read the CA file",
    ),
    ("RUN --index 30", "--index 30", "below --participants 20"),
    ("RUN --label eu", "--label", "KEY=VALUE"),
    ("RUN --attribute x", "--attribute", "KEY=VALUE"),
    ("RUN --max-epsilon -1", "--max-epsilon", "finite and above 0"),
    ("RUN --lifetime-epsilon 0", "--lifetime-epsilon", "finite and above 0"),
    ("RUN --coordinator-key 12", "--coordinator-key", "64 hexadecimal digits"),
    ("RUN --certificate x", "--key <FILE>", "--certificate"),
    ("RUN --min-tolerated-corrupt 0.9", "min_tolerated_corrupt", "between 0 and 0.5"),
    ("RUN --min-cohort ten", "--min-cohort", "a whole number is expected"),
    ("RUN --device tpu", "--device", "auto, cpu, cuda or metal"),
    ("RUN --data csv:nosuch.csv", "nosuch.csv", "cannot read"),
    ("RUN --data csv:empty.toml", "empty.toml", "must name the columns"),
    ("RUN --data parquet:text.txt", "text.txt", "Parquet file"),
    ("RUN --data xlsx:text.txt", "--data", "csv:FILE, parquet:FILE or"),
    ("RUN", "the CA file", "PEM"),
    ("participant show @", "<PARTICIPANT>", "Usage: tributary participant show"),
    // Tokens, privacy, the log, and stored data.
    ("token create @", "--role <ROLE>", "Usage: tributary token create"),
    ("token create --role king --name x @", "--role", "predictor, viewer, operator or admin"),
    ("token create --role viewer --name x --valid-for soon @", "--valid-for", "30d, 12h or 45m"),
    ("token create --enrollment --role viewer @", "--enrollment", "cannot be used with '--role"),
    ("token revoke nobody @", "`nobody`", "no id of a token"),
    ("token create --offline --role viewer --name x --data-dir nosuch", "nosuch", "there is no folder"),
    ("privacy plan", "--population <N>", "--epsilon <E>|--noise <Z>"),
    ("privacy plan --population 1000 --cohort 100 --rounds 10 --delta 2 --epsilon 1", "--delta", "above 0 and below 1"),
    ("privacy plan --population 1000 --cohort 100 --rounds 10 --delta 1e-5 --epsilon -1", "--epsilon", "above 0"),
    (
        "privacy plan --population 10 --cohort 100 --rounds 10 --delta 1e-5 --epsilon 1",
        "--cohort",
        "at most --population",
    ),
    ("silo plan", "--gpus <N>", "Usage: tributary silo plan"),
    ("silo plan --gpus 8 --gpu tpu --parameters 7e9", "'tpu' for '--gpu", "h100, a100, v100, p100"),
    ("silo plan --gpus 0 --gpu h100 --parameters 7e9", "--gpus", "1..=64"),
    ("silo plan --gpus 8 --gpu h100 --parameters seven", "\"seven\"", "7e9, 7B or 350M"),
    ("silo plan --gpus 8 --gpu h100 --parameters 7e9 --gpu-memory 80", "--gpu-memory", "80GB or 500MiB"),
    ("silo plan --gpus 8 --gpu h100 --parameters 7e9 --target-batch 500", "--target-batch 500", "496 or 504 is one"),
    (
        "silo plan --gpus 8 --gpu h100 --parameters 7e9 --target-batch 512 --batch-per-gpu 5",
        "--batch-per-gpu 5",
        "4 per GPU is",
    ),
    ("silo plan --gpus 8 --gpu h100 --parameters 7e9 --learning-rate -1", "--learning-rate", "above 0 is expected"),
    ("silo plan --gpus 8 --gpu h100 --parameters 80e9 --engine pytorch", "--engine pytorch", "--engine deepspeed"),
    ("silo plan --gpus 1 --gpu p100 --parameters 7e9 --script slurm", "does not fit", "more GPUs or nodes"),
    (
        "silo plan --gpus 8 --gpu h100 --parameters 7e9 --program x.py",
        "--script <SCRIPT>",
        "Usage: tributary silo plan",
    ),
    ("silo report nosuch.jsonl", "nosuch.jsonl", "cannot read"),
    ("silo report text.txt", "no line of progress", "participant run --trainer"),
    ("privacy show t --svg nowhere/x.svg @", "nowhere/x.svg", "cannot write"),
    ("privacy show --svg x.svg @", "<TASK>", "Usage: tributary privacy show"),
    ("export --as excel @", "--as", "csv, parquet, tensorboard, mlflow"),
    ("export t @", "--as <FORMAT>", "Usage: tributary export"),
    ("audit verify", "<FILE>", "Usage: tributary audit verify"),
    ("audit verify nosuch.json", "nosuch.json", "cannot read"),
    ("audit verify text.txt", "text.txt", "export of the audit log"),
    ("audit export @", "<FILE>", "Usage: tributary audit export"),
    ("backup", "<DIR>", "Usage: tributary backup"),
    ("backup d --config nosuch.toml", "nosuch.toml", "cannot read the configuration file"),
    ("restore nosuch --data-dir d2", "nosuch", "manifest.json"),
    ("completions tcsh", "'tcsh'", "[possible values: bash"),
    ("manual", "<FOLDER>", "Usage: tributary manual"),
    ("manual text.txt", "text.txt", "cannot write to"),
];

/// Invalid files.
fn files(folder: &Path) {
    for (name, text) in [
        ("typo.toml", "name = \"a\"\nmodle = 1\n"),
        ("empty.toml", ""),
        ("broken.toml", "[model\n"),
        ("count.toml", "name = \"a\"\n[rounds]\ncount = \"ten\"\n"),
        ("text.txt", "hello\n"),
        ("bad-config.toml", "[http]\nlisten = \"nowhere\"\n"),
        ("typo-config.toml", "[htp]\nlisten = \"127.0.0.1:0\"\n"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    std::fs::create_dir(folder.join("folder")).unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
}

#[test]
fn each_wrong_line_names_what_is_wrong_and_what_would_be_right() {
    assert!(LINES.len() >= 66, "{}", LINES.len());
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let mut all = String::new();
    let mut lacking = Vec::new();
    for (line, wrong, right) in LINES {
        let whole = if *line == "RUN" {
            format!("{RUN} --ca text.txt").replacen("--ca ca.pem ", "", 1)
        } else {
            line.replace("RUN", RUN)
        };
        let words = whole.replace('@', AT);
        let ran = finish(tributary().current_dir(folder.path()).args(words.split(' ').filter(|word| !word.is_empty())));
        let said = ran.stderr.replace(&folder.path().display().to_string(), "FOLDER");
        if ran.code == 0 || !said.contains(wrong) || !said.contains(right) {
            lacking
                .push(format!("{line}: exit code {}, and {wrong:?} and {right:?} are not both in\n{said}", ran.code));
        }
        if ran.code > 1 {
            writeln!(all, "$ tributary {line}\n{}\n", said.trim_end()).unwrap();
        }
    }
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
    snapshot("wrong_lines.txt", &all);
}

/// Compares with the stored lines.
pub(crate) fn snapshot(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name);
    if std::env::var_os("TRIBUTARY_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let other = kept.lines().zip(found.lines()).find(|(kept, found)| kept != found);
    assert!(
        kept == found,
        "{name} is another; the first line that differs: {other:?}. TRIBUTARY_BLESS=1 writes it anew"
    );
}
