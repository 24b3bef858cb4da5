//! `tributary round compare`: rounds of a task side by side.

use wire::inspect::Comparison;
use wire::route;

use crate::command::comparison::side_by_side;
use crate::failure::Outcome;
use crate::output::Output;
use crate::server::ServerArgs;

/// Arguments of `tributary round compare`.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Id or name of the task
    task: String,
    /// Two to eight rounds: NUMBER for the latest attempt, NUMBER/ATTEMPT for another one
    #[arg(required = true, num_args = 2..=8, value_parser = parse_round)]
    rounds: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Checks `NUMBER` or `NUMBER/ATTEMPT`.
fn parse_round(text: &str) -> Result<String, &'static str> {
    let numbers: Vec<_> = text.split('/').map(str::parse::<u32>).collect();
    let is_one = numbers.len() <= 2 && numbers.iter().all(Result::is_ok);
    if is_one { Ok(text.to_owned()) } else { Err("a round is its number, or NUMBER/ATTEMPT") }
}

impl Compare {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = self.server.client()?;
        let task = server.task(&self.task).await?;
        let query: Vec<_> = self.rounds.iter().map(|round| ("round", format!("{task}/{round}"))).collect();
        let compared: Comparison = server.get(route::COMPARE, &query).await?;
        output.answer(&compared, || side_by_side(&compared, "Numbers", "They have no numbers.", output.width()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_a_number_with_or_without_its_attempt() {
        assert_eq!(["7", "7/2"].map(parse_round), [Ok("7".to_owned()), Ok("7/2".to_owned())]);
        for wrong in ["", "first", "7/", "/2", "7/2/1", "digits/7", "-1"] {
            assert!(parse_round(wrong).is_err(), "{wrong:?}");
        }
    }
}
