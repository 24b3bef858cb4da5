//! Which server optimizer the demo's task names.

use clap::builder::PossibleValuesParser;
use task_spec::ServerOptimizer;

use crate::failure::{Exit, Failure, Outcome};

/// How the coordinator steps the model; what is left out is the optimizer's default.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// How the mean update steps the model
    #[arg(long, value_name = "NAME", default_value = "fed_avg", value_parser = PossibleValuesParser::new(ServerOptimizer::NAMES))]
    server_optimizer: String,
    /// Learning rate of the server optimizer [default: 1 for fed_avg and fed_avg_m, 0.1 for fed_adagrad, 0.01 for others]
    #[arg(long, value_name = "RATE")]
    server_lr: Option<f64>,
}

impl ServerArgs {
    pub(super) fn optimizer(&self) -> Outcome<ServerOptimizer> {
        let mut named = serde_json::json!({ "name": self.server_optimizer });
        if let Some(rate) = self.server_lr {
            named["learning_rate"] = rate.into();
        }
        serde_json::from_value(named).map_err(|error| Failure::new(Exit::Usage, format!("--server-lr: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_tasks() {
        for name in ServerOptimizer::NAMES {
            let optimizer =
                |server_lr| ServerArgs { server_optimizer: name.to_owned(), server_lr }.optimizer().unwrap();
            assert_eq!(optimizer(Some(0.25)).name(), name);
            assert_eq!(serde_json::to_value(optimizer(Some(0.25))).unwrap()["learning_rate"], 0.25);
            assert_ne!(optimizer(None), optimizer(Some(0.25)));
        }
    }
}
