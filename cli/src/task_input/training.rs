//! Short flags that several commands share: how participants train, and how rounds follow each other.

use std::time::Duration;

use client_sdk::models::Architecture;
use serde_json::{Value, json};
use task_spec::{Cohort, MAX_COHORT, MAX_SECURE_COHORT, TaskSpec};

use super::flags::{Flag, Form, Words, plain, seconds, word};

/// How long a round waits for updates that are finished already.
const COLLECT: Duration = Duration::from_secs(60);
/// From one round to the next where they open by the clock.
const PERIOD: Duration = Duration::from_secs(60);

const fn number(name: &'static str, path: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, path, form: Form::Value(value, plain), help }
}

/// How participants train; what is left out is chosen for the data and model.
pub(crate) const TRAINING: &[Flag] = &[
    Flag {
        name: "model",
        path: "model.architecture",
        form: Form::Choice("kind", Words { names: &Architecture::KINDS, ..Words::none("hidden=[100]") }),
        help: "Model to train [default: linear for synthetic, mlp for mnist, gru for text]",
    },
    number("epochs", "training.epochs", "EPOCHS", "Passes over the local data in a round"),
    number("batch-size", "training.batch_size", "EXAMPLES", "Examples in a mini-batch"),
    number("lr", "training.learning_rate", "RATE", "Learning rate"),
    number("momentum", "training.momentum", "MOMENTUM", "Momentum of the local optimizer"),
    number("weight-decay", "training.weight_decay", "DECAY", "L2 penalty"),
    number(
        "proximal-mu",
        "training.proximal_mu",
        "MU",
        "FedProx: how strongly local models are held to the received one",
    ),
    Flag {
        name: "solver",
        path: "training.solver",
        form: Form::Choice("name", Words::none("steps=40")),
        help: "What keeps participants together that take unequal steps on unlike data, with steps=N (an update's unit) and for \
               scaffold population=N",
    },
    Flag {
        name: "adaptive-mu",
        path: "training.adaptive_mu",
        form: Form::Table(Words::none("patience=5"), Some("patience=5")),
        help: "FedProx's rule for --proximal-mu: up while a loss rises, down while it falls; metric=NAME, step=S, patience=N",
    },
    number("accumulate", "training.accumulate", "BATCHES", "Mini-batches whose gradients are averaged into one step"),
    number(
        "gradient-clip",
        "training.gradient_clip",
        "NORM",
        "L2 norm that the gradient of each step is scaled down to",
    ),
    Flag {
        name: "schedule",
        path: "training.schedule",
        form: Form::Choice("kind", Words::none("length=10")),
        help: "How the learning rate changes, for example step,every=N,factor=F, exponential,factor=F, or \
               cosine,length=N,floor=F; each over=rounds or over=steps",
    },
    Flag {
        name: "warmup",
        path: "training.warmup",
        form: Form::Table(Words::none("length=10"), None),
        help: "How long the learning rate rises: length=N, over=rounds or over=steps",
    },
    Flag {
        name: "budget",
        path: "training.budget",
        form: Form::Table(Words::none("steps=20"), None),
        help: "When a device stops and sends what it has: steps=N, time_ms=T",
    },
    Flag {
        name: "precision",
        path: "training.precision",
        form: Form::Value("PRECISION", word),
        help: "Numbers to compute with, where the device has them: f32, bf16 or f16",
    },
];

/// How rounds follow each other.
pub(crate) const SCHEDULE: &[Flag] = &[
    Flag {
        name: "mode",
        path: "schedule.mode",
        form: Form::Value("MODE", word),
        help: "How rounds follow each other: sync (a cohort is drawn and trains together), semi-sync (devices train on their own; \
               each period what is ready is aggregated) or buffered (as soon as a cohort's worth of updates is ready; FedBuff)",
    },
    number(
        "concurrency",
        "schedule.concurrency",
        "DEVICES",
        "Devices that train or wait with a finished update at the same time, where they train ahead of rounds [default: twice those \
         drawn]",
    ),
    number(
        "max-staleness",
        "schedule.max_staleness",
        "VERSIONS",
        "Versions that an update may be behind, where devices train ahead of rounds",
    ),
    Flag {
        name: "period",
        path: "schedule.period_ms",
        form: Form::Value("SECONDS", seconds),
        help: "From one round to the next in mode semi-sync, in seconds (of virtual time in a simulation) [default: 60]",
    },
];

/// What rounds for which participants train ahead imply, given that a round opens with `drawn` updates and a training may take
/// `training`; nothing where participants train in rounds.
pub(crate) fn ahead_of_rounds(task: &TaskSpec, drawn: u32, training: Duration) -> Value {
    let Some(ahead) = task.ahead() else { return json!({}) };
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let concurrency = task.schedule.concurrency.unwrap_or_else(|| drawn.saturating_mul(2));
    let mut implied = json!({
        "schedule": { "concurrency": concurrency, "training_deadline_ms": millis(training) },
        // The updates are finished when the round begins.
        "rounds": { "collect_deadline_ms": millis(COLLECT), "select_min": drawn },
    });
    if ahead.period.is_some() {
        // As many as there are.
        let most = if task.secure_aggregation.enabled { MAX_SECURE_COHORT } else { MAX_COHORT };
        implied["schedule"]["period_ms"] = millis(PERIOD).into();
        implied["selection"] = json!({ "cohort": Cohort::Fraction(1.0) });
        implied["rounds"]["select_max"] = concurrency.max(drawn).min(most).into();
        implied["rounds"]["collect_max"] = Value::Null;
    }
    implied
}

#[cfg(test)]
mod tests {
    use task_spec::Mode;

    use super::*;

    fn implied(schedule: &Value) -> (TaskSpec, Value) {
        let task: TaskSpec = serde_json::from_value(json!({ "name": "t", "schedule": schedule })).unwrap();
        let implied = ahead_of_rounds(&task, 13, Duration::from_secs(600));
        (task, implied)
    }

    #[test]
    fn a_schedule_implies_how_rounds_open() {
        assert_eq!(implied(&json!({})).1, json!({}));
        let (task, buffered) = implied(&json!({ "mode": "buffered" }));
        assert_eq!(task.schedule.mode, Mode::Buffered);
        assert_eq!(buffered["schedule"], json!({ "concurrency": 26, "training_deadline_ms": 600_000 }));
        assert_eq!(buffered["rounds"], json!({ "collect_deadline_ms": 60_000, "select_min": 13 }));
        let (_, semi) = implied(&json!({ "mode": "semi_sync", "concurrency": 20 }));
        assert_eq!(semi["schedule"]["period_ms"], 60_000);
        assert_eq!(semi["selection"]["cohort"], json!({ "fraction": 1.0 }), "all that is ready");
        assert_eq!((&semi["rounds"]["select_max"], &semi["rounds"]["collect_max"]), (&json!(20), &Value::Null));
    }
}
