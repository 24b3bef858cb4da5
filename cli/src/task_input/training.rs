//! Short flags that several commands share: how participants train, and how rounds follow each other.

use client_sdk::models::Architecture;

use super::flags::{Flag, FlagForm, FlagKeys, file, plain, seconds, word};

const fn number(name: &'static str, path: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, path, form: FlagForm::Value(value, plain), help }
}

/// Flags of local training; omitted values are chosen for the data and model.
pub(crate) const TRAINING: &[Flag] = &[
    Flag {
        name: "model",
        path: "model.architecture",
        form: FlagForm::Choice("kind", FlagKeys { names: &Architecture::KINDS, ..FlagKeys::none("hidden=[100]") }),
        help: "Model to train [default: linear for synthetic, mlp for mnist, gru for text]",
    },
    Flag {
        name: "model-file",
        path: "model.graph",
        form: FlagForm::Value("FILE", file),
        help: "Graph to train, a file that `tributary model import` wrote",
    },
    number("epochs", "training.epochs", "EPOCHS", "Passes over the local data in a round"),
    number("batch-size", "training.batch_size", "EXAMPLES", "Examples in a mini-batch"),
    number("lr", "training.learning_rate", "RATE", "Learning rate"),
    number("momentum", "training.momentum", "MOMENTUM", "Momentum of the local optimizer"),
    number("weight-decay", "training.weight_decay", "DECAY", "L2 penalty"),
    number("proximal-mu", "training.proximal_mu", "MU", "FedProx: strength of the pull towards the received model"),
    Flag {
        name: "solver",
        path: "training.solver",
        form: FlagForm::Choice("name", FlagKeys::none("steps=40")),
        help: "Correction for heterogeneous data and unequal step counts, with steps=N (the unit of an update) and, for scaffold, \
               population=N",
    },
    Flag {
        name: "adaptive-mu",
        path: "training.adaptive_mu",
        form: FlagForm::Table(FlagKeys::none("patience=5"), Some("patience=5")),
        help: "FedProx's rule for --proximal-mu: raises it while a loss rises and lowers it while the loss falls; metric=NAME, step=S, patience=N",
    },
    Flag {
        name: "local-optimizer",
        path: "training.optimizer",
        form: FlagForm::Choice("name", FlagKeys::none("beta1=0.9")),
        help: "Optimizer of local steps: sgd, or adamw,beta1=0.9,beta2=0.999,epsilon=1e-8",
    },
    number("accumulate", "training.accumulate", "BATCHES", "Mini-batches whose gradients are averaged into one step"),
    number("gradient-clip", "training.gradient_clip", "NORM", "Maximum L2 norm of the gradient of a step"),
    Flag {
        name: "schedule",
        path: "training.schedule",
        form: FlagForm::Choice("kind", FlagKeys::none("length=10")),
        help: "Learning-rate schedule, for example step,every=N,factor=F, exponential,factor=F, or \
               cosine,length=N,floor=F; each over=rounds or over=steps",
    },
    Flag {
        name: "warmup",
        path: "training.warmup",
        form: FlagForm::Table(FlagKeys::none("length=10"), None),
        help: "Learning-rate warm-up: length=N, over=rounds or over=steps",
    },
    Flag {
        name: "budget",
        path: "training.budget",
        form: FlagForm::Table(FlagKeys::none("steps=20"), None),
        help: "Budget after which a device sends a partial update: steps=N, time_ms=T",
    },
    Flag {
        name: "precision",
        path: "training.precision",
        form: FlagForm::Value("PRECISION", word),
        help: "Floating-point format, if the device supports it: f32, bf16 or f16",
    },
];

/// How rounds follow each other.
pub(crate) const SCHEDULE: &[Flag] = &[
    Flag {
        name: "mode",
        path: "schedule.mode",
        form: FlagForm::Value("MODE", word),
        help: "Round mode: sync (a cohort trains together), semi-sync (devices train independently; each period sums the finished \
               updates) or buffered (FedBuff: sums as soon as a cohort's number of updates has finished)",
    },
    number(
        "concurrency",
        "schedule.concurrency",
        "DEVICES",
        "Maximum number of devices that train or hold a finished update in asynchronous modes [default: twice the cohort]",
    ),
    number(
        "max-staleness",
        "schedule.max_staleness",
        "VERSIONS",
        "Maximum staleness of an update in asynchronous modes",
    ),
    Flag {
        name: "period",
        path: "schedule.period_ms",
        form: FlagForm::Value("SECONDS", seconds),
        help: "Period of semi-sync rounds, in seconds (virtual time in a simulation) [default: 60]",
    },
];
