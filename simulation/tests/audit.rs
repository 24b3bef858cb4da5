//! The privacy audit passes honest tasks, and finds participants that add half of their noise, none, or forget to clip.

use client_sdk::faults::Fault;
use client_sdk::participant::machine::Settings;
use serde_json::{Value, json};
use simulation::{AuditReport, AuditStage, Finding, PrivacyAudit};
use task_spec::TaskSpec;

fn task(mechanism: &str, more: Value) -> TaskSpec {
    let mut text = json!({
        "name": "digits",
        "model": { "tensors": [{ "name": "w", "shape": [1500] }] },
        "rounds": { "count": 5 },
        "selection": { "cohort": { "count": 20 } },
        "secure_aggregation": { "enabled": mechanism.starts_with("distributed") },
        "privacy": { "mechanism": mechanism, "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 0.5 } },
    });
    if let (Value::Object(text), Value::Object(more)) = (&mut text, more) {
        text.extend(more);
    }
    serde_json::from_value(text).unwrap()
}

fn audit(mechanism: &str, participants: u32, participant: fn(Settings) -> Settings) -> PrivacyAudit {
    PrivacyAudit { task: task(mechanism, json!({})), participants, confidence: 0.99, seed: Some(3), participant }
}

fn run(mechanism: &str, participants: u32, participant: fn(Settings) -> Settings) -> AuditReport {
    let audit = audit(mechanism, participants, participant);
    let design = audit.design().unwrap();
    let mut rounds = 0;
    let report = audit.run(&mut |stage| rounds += u32::from(matches!(stage, AuditStage::Round(_)))).unwrap();
    assert_eq!(rounds, 3);
    assert!(design.power_of_half_noise > 0.99, "{design:?}");
    report
}

fn honest(settings: Settings) -> Settings {
    settings
}

fn half(settings: Settings) -> Settings {
    Settings { fault: Some(Fault::HalfNoise), ..settings }
}

fn silent(settings: Settings) -> Settings {
    Settings { fault: Some(Fault::NoNoise), ..settings }
}

#[test]
fn honest_tasks_pass() {
    for (mechanism, participants) in [("central_gaussian", 100), ("distributed_skellam", 20), ("local", 40)] {
        let report = run(mechanism, participants, honest);
        assert_eq!(report.findings, [], "{report:?}");
        assert!((0.9..1.4).contains(&report.noise.ratio) && report.noise.low < report.noise.high, "{report:?}");
        assert!(report.epsilon > 1.0 && report.epsilon_at_least < report.epsilon, "{report:?}");
    }
}

#[test]
fn half_of_the_noise_is_found() {
    let report = run("distributed_discrete_gaussian", 20, half);
    assert!(report.findings.contains(&Finding::NarrowNoise), "{report:?}");
    assert!((0.2..0.35).contains(&report.noise.ratio), "{report:?}");
}

#[test]
fn absence_of_noise_is_found_by_both_tests() {
    let mut audit = audit("local", 100, silent);
    audit.task.privacy.noise_multiplier = Some(5.0);
    let (design, report) = (audit.design().unwrap(), audit.run(&mut |_| ()).unwrap());
    assert_eq!(report.findings, [Finding::NarrowNoise, Finding::Canaries], "{report:?}");
    assert_eq!((report.correct, report.epsilon_at_least), (design.guesses, design.highest_bound));
    assert!(report.correlation.is_none(), "there is nothing to correlate");
}

#[test]
fn tasks_that_cannot_be_audited_are_rejected_with_the_reason() {
    let reason = |task: TaskSpec, participants: u32| {
        let audit = PrivacyAudit { task, participants, ..audit("local", 20, honest) };
        audit.design().unwrap_err().to_string()
    };
    assert!(reason(task("none", json!({ "privacy": {} })), 40).contains("no privacy mechanism"));
    for participants in [5, 100_001, u32::MAX] {
        assert!(reason(task("local", json!({})), participants).contains("20 to 100000 participants"));
    }
    let tree = json!({ "selection": { "cohort": { "count": 20 }, "require": { "max_participations": 1 } } });
    assert!(reason(task("tree", tree), 40).contains("of other rounds"));
    let audit = PrivacyAudit { confidence: 1.0, ..audit("local", 20, honest) };
    assert!(audit.design().unwrap_err().to_string().contains("below 1"));
}
