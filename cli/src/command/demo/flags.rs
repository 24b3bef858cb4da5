//! The demo's short flags for keys of its task.

use crate::privacy_input::PRIVACY;
use crate::task_input::{Flag, FlagForm, FlagKeys, Flags, Reader, SCHEDULE, TRAINING, many, plain, yes};

#[derive(Clone, Debug)]
pub(super) struct DemoFlags;

impl Flags for DemoFlags {
    const ALL: &'static [&'static [Flag]] = &[OWN, PRIVACY, SCHEDULE, TRAINING];
}

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
        help: "Disable secure aggregation, so that the coordinator can read every update",
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
        help: "Compression of uploads, with k=COUNT or k=PERCENT%, bits=B, keep=PART, rank=R, norm=S, feedback=yes or no; for example \
               top_k,k=1% or rotated,bits=2,keep=0.75,norm=2",
    },
    Flag {
        name: "robust",
        path: "aggregation.robust",
        form: FlagForm::Choice("rule", FlagKeys::none("attackers=0.1")),
        help: "Robust aggregation rule, with attackers=PART, group_size=S (needed under secure aggregation), \
               norm_factor=X; for example median,attackers=0.05,group_size=5",
    },
    Flag {
        name: "server-optimizer",
        path: "aggregation.optimizer",
        form: FlagForm::Choice("name", FlagKeys::none("beta1=0.9")),
        help: "Server optimizer, for example fed_adam,beta1=0.5 [default: fed_avg]",
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
    help: "Personalization method with keys of [personalization], personal=PATTERN+… for local tensors or layers=PATTERN+… for tensors \
           with adapters; for example ditto:lambda=0.1. Compares accuracy on each participant's held-out data with FedAvg and with \
           local training. May be repeated",
};

#[cfg(test)]
mod tests {
    use serde_json::json;

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
