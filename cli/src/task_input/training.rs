//! Short flags that several commands share: how participants train, and how rounds follow each other.

use client_sdk::models::Architecture;

use super::flags::{Flag, FlagForm, FlagKeys, plain, seconds, word};

const fn number(name: &'static str, path: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, path, form: FlagForm::Value(value, plain), help }
}

/// How participants train; what is left out is chosen for the data and model.
pub(crate) const TRAINING: &[Flag] = &[
    Flag {
        name: "model",
        path: "model.architecture",
        form: FlagForm::Choice("kind", FlagKeys { names: &Architecture::KINDS, ..FlagKeys::none("hidden=[100]") }),
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
        form: FlagForm::Choice("name", FlagKeys::none("steps=40")),
        help: "What keeps participants together that take unequal steps on unlike data, with steps=N (an update's unit) and for \
               scaffold population=N",
    },
    Flag {
        name: "adaptive-mu",
        path: "training.adaptive_mu",
        form: FlagForm::Table(FlagKeys::none("patience=5"), Some("patience=5")),
        help: "FedProx's rule for --proximal-mu: up while a loss rises, down while it falls; metric=NAME, step=S, patience=N",
    },
    Flag {
        name: "local-optimizer",
        path: "training.optimizer",
        form: FlagForm::Choice("name", FlagKeys::none("beta1=0.9")),
        help: "The rule of local steps: sgd, or adamw,beta1=0.9,beta2=0.999,epsilon=1e-8",
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
        form: FlagForm::Choice("kind", FlagKeys::none("length=10")),
        help: "How the learning rate changes, for example step,every=N,factor=F, exponential,factor=F, or \
               cosine,length=N,floor=F; each over=rounds or over=steps",
    },
    Flag {
        name: "warmup",
        path: "training.warmup",
        form: FlagForm::Table(FlagKeys::none("length=10"), None),
        help: "How long the learning rate rises: length=N, over=rounds or over=steps",
    },
    Flag {
        name: "budget",
        path: "training.budget",
        form: FlagForm::Table(FlagKeys::none("steps=20"), None),
        help: "When a device stops and sends what it has: steps=N, time_ms=T",
    },
    Flag {
        name: "precision",
        path: "training.precision",
        form: FlagForm::Value("PRECISION", word),
        help: "Numbers to compute with, where the device has them: f32, bf16 or f16",
    },
];

/// How rounds follow each other.
pub(crate) const SCHEDULE: &[Flag] = &[
    Flag {
        name: "mode",
        path: "schedule.mode",
        form: FlagForm::Value("MODE", word),
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
        form: FlagForm::Value("SECONDS", seconds),
        help: "From one round to the next in mode semi-sync, in seconds (of virtual time in a simulation) [default: 60]",
    },
];
