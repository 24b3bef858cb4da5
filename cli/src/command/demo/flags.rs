//! The demo's short flags for keys of its task.

use serde_json::{Value, json};

use crate::task_input::{Flag, FlagForm, FlagKeys, Flags, Reader, SCHEDULE, TRAINING, many, plain, word, yes};

#[derive(Clone, Debug)]
pub(super) struct DemoFlags;

impl Flags for DemoFlags {
    const ALL: &'static [&'static [Flag]] = &[OWN, SCHEDULE, TRAINING];
}

/// The demo's `--privacy sampling=…` chooses how cohorts are drawn; the demo fills in the numbers.
pub(super) const SAMPLING: &str = ".sampling";

const OWN: &[Flag] = &[
    Flag {
        name: "rounds",
        path: "rounds.count",
        form: FlagForm::Value("ROUNDS", plain),
        help: "Rounds to run [default: 10]",
    },
    Flag {
        name: "insecure-aggregation",
        path: "secure_aggregation.enabled",
        form: FlagForm::Off,
        help: "Let the coordinator read every update: no secure aggregation",
    },
    Flag {
        name: "privacy",
        path: "privacy",
        form: FlagForm::Table(
            FlagKeys {
                example: "epsilon=8",
                names: &[],
                words: &[
                    ("noise", "privacy.noise_multiplier", plain),
                    ("clip", "privacy.clip", clip),
                    ("sampling", SAMPLING, sampling),
                ],
            },
            None,
        ),
        help: "Differential privacy: epsilon=E or noise=Z, and delta=D, mechanism=M, clip=S or clip=adaptive, sampling=poisson or \
               fixed, rounds=T, accounting=general; for example epsilon=8,delta=1e-5",
    },
    Flag {
        name: "codec",
        path: "compression",
        form: FlagForm::Choice(
            "codec",
            FlagKeys {
                example: "k=1%",
                names: &[],
                words: &[("norm", "aggregation.clip_norm", plain), ("feedback", "compression.error_feedback", yes)],
            },
        ),
        help: "Smaller uploads, with k=COUNT or k=PERCENT%, bits=B, keep=PART, rank=R, norm=S, feedback=yes or no; for example \
               top_k,k=1% or rotated,bits=2,keep=0.75,norm=2",
    },
    Flag {
        name: "robust",
        path: "aggregation.robust",
        form: FlagForm::Choice("rule", FlagKeys::none("attackers=0.1")),
        help: "A robust rule instead of the mean, with attackers=PART, group_size=S (needed under secure aggregation), \
               norm_factor=X; for example median,attackers=0.05,group_size=5",
    },
    Flag {
        name: "server-optimizer",
        path: "aggregation.optimizer",
        form: FlagForm::Choice("name", FlagKeys::none("beta1=0.9")),
        help: "How the mean update steps the model, for example fed_adam,beta1=0.5 [default: fed_avg]",
    },
    Flag {
        name: "server-lr",
        path: "aggregation.optimizer.learning_rate",
        form: FlagForm::Value("RATE", plain),
        help: "Learning rate of the server optimizer [default: 1 for fed_avg and fed_avg_m, 0.1 for fed_adagrad, 0.01 for others]",
    },
];

/// A personalization method; given several times, the demo runs one federation after the other.
pub(super) const PERSONALIZE: Flag = Flag {
    name: "personalize",
    path: "personalization",
    form: FlagForm::Choice(
        "method",
        FlagKeys {
            example: "lambda=0.1",
            names: &[],
            words: &[("personal", "model.personal", many), ("layers", "personalization.layers", many as Reader)],
        },
    ),
    help: "Personalize the model for each participant, with the numbers of [personalization], and personal=PATTERN+… for tensors \
           that stay local or layers=PATTERN+… for those with adapters; for example ditto:lambda=0.1. Shows accuracy on each \
           participant's held-out data beside that of FedAvg and of training alone. Several: one after the other",
};

/// `NORM`, `adaptive` or `adaptive:NORM`.
fn clip(text: &str) -> Result<Value, String> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let (word, initial) = text.split_once(':').unwrap_or((text, "1"));
    let clip = match word {
        "adaptive" => number(initial).map(|initial| json!({ "adaptive": { "initial": initial } })),
        norm => number(norm).map(|norm| json!({ "fixed": norm })),
    };
    clip.ok_or_else(|| {
        format!("clip={text}: a norm is expected, or `adaptive`, or `adaptive:NORM` with the norm of the first round")
    })
}

fn sampling(text: &str) -> Result<Value, String> {
    match text {
        "poisson" | "fixed" | "none" => word(text),
        _ => Err(format!("sampling={text}: it is poisson, fixed or none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_flags_fill_in_is_of_flags_and_names_that_there_are() {
        let usual: toml::Table = toml::from_str(include_str!("../../../presets/defaults.toml")).unwrap();
        let flags: Vec<_> = DemoFlags::ALL.iter().copied().flatten().chain([&PERSONALIZE]).collect();
        for (flag, names) in usual {
            let flag = flags.iter().find(|known| known.name == flag).unwrap_or_else(|| panic!("no flag {flag}"));
            for name in names.as_table().unwrap().keys().filter(|name| *name != "*") {
                let FlagForm::Choice(key, _) = flag.form else { panic!("{} names nothing", flag.name) };
                let given = flag.read(name).unwrap();
                let task = crate::task_input::TaskInput::default().with(given.clone()).draft(&json!({ "name": "t" }));
                assert!(task.is_ok(), "{name} is a {key} with its usual numbers: {task:?}");
            }
        }
    }

    #[test]
    fn help_names_what_can_be_chosen_and_the_key() {
        let help = |name: &str| {
            DemoFlags::ALL.iter().copied().flatten().find(|flag| flag.name == name).map(Flag::help).unwrap()
        };
        assert!(
            help("codec").ends_with(". One of: rotated, random_k, low_rank, top_k, int8 [compression]"),
            "{}",
            help("codec")
        );
        assert!(help("solver").ends_with(". One of: fed_nova or scaffold [training.solver]"), "{}", help("solver"));
        assert!(help("model").ends_with(". One of: linear, mlp, cnn, gru [model.architecture]"), "{}", help("model"));
        assert!(help("lr").ends_with("Learning rate [training.learning_rate]"), "{}", help("lr"));
    }
}
