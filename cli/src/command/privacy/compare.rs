//! `tributary privacy compare`: every mechanism for the same participants, cohort, rounds and published epsilon.

use learning::privacy::Choice;
use task_spec::PrivacyMechanism;

use super::plan::{CohortDraw, Compared, PlanArgs, no_plan};
use crate::failure::Outcome;
use crate::output::{Cells, Output, Table, figure, number};
use crate::privacy_notes::LifetimeRoom;

/// Arguments of `tributary privacy compare`.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Participants enrolled
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    population: u32,
    /// Participants that a round is expected to have
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..))]
    cohort: u32,
    /// Number of rounds that the promise covers
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Probability with which the promise may fail; well below one over the population
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    delta: f64,
    /// The published epsilon to keep
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    epsilon: f64,
    /// Shared parameters of the model; the default is `linear` on MNIST
    #[arg(long, value_name = "P", default_value_t = 7850)]
    parameters: u64,
}

/// Output of the command.
#[derive(serde::Serialize)]
struct Comparison {
    mechanisms: Vec<Alternative>,
}

/// A mechanism with its settings, and what it takes.
#[derive(serde::Serialize)]
struct Alternative {
    mechanism: PrivacyMechanism,
    sampling: CohortDraw,
    /// How often a participant takes part at most, if that is limited.
    participations: Option<u32>,
    /// Absent if the mechanism is not possible here.
    choice: Option<Choice>,
    /// What the SDK's default lifetime limit allows.
    lifetime: Option<LifetimeRoom>,
    /// Why it is not possible.
    problem: Option<String>,
}

impl Compare {
    pub(super) fn run(self, output: Output) -> Outcome {
        let Self { population, cohort, rounds, delta, epsilon, parameters } = self;
        let compared = Compared { population, cohort, rounds, delta, epsilon, parameters };
        let mut mechanisms: Vec<_> = settings(compared).map(|settings| alternative(&settings, epsilon)).collect();
        // Impossible ones come last.
        let noise = |one: &Alternative| one.choice.as_ref().map_or(f64::INFINITY, |choice| choice.noise_in_all);
        mechanisms.sort_by(|one, another| noise(one).total_cmp(&noise(another)));
        let comparison = Comparison { mechanisms };
        output.answer(&comparison, || table(&comparison.mechanisms, output.width()));
        Ok(())
    }
}

fn settings(compared: Compared) -> impl Iterator<Item = PlanArgs> {
    use CohortDraw::{None as Anyhow, Poisson};
    use PrivacyMechanism::{BandedMatrix, CentralGaussian, DistributedDiscreteGaussian, DistributedSkellam, Local};
    let Compared { population, cohort, rounds, .. } = compared;
    // As often as each has to take part for the population to suffice.
    let often = (u64::from(rounds) * u64::from(cohort)).div_ceil(population.into());
    let often = u32::try_from(often).ok();
    [
        (CentralGaussian, Poisson, None),
        (CentralGaussian, Anyhow, None),
        (BandedMatrix, Anyhow, often),
        (DistributedSkellam, Anyhow, None),
        (DistributedSkellam, Anyhow, often),
        (DistributedDiscreteGaussian, Anyhow, often),
        (Local, Anyhow, None),
    ]
    .into_iter()
    .map(move |(mechanism, sampling, often)| PlanArgs::of(compared, mechanism, sampling, often))
}

fn alternative(args: &PlanArgs, epsilon: f64) -> Alternative {
    let planned = || -> Outcome<(Choice, LifetimeRoom)> {
        let request = args.request(args.shares()?)?;
        let choice = request.within(epsilon).map_err(|error| no_plan(&error))?;
        let room = LifetimeRoom::of(&request, choice.noise_multiplier);
        Ok((choice, room.map_err(|error| no_plan(&error))?))
    };
    let (choice, lifetime, problem) = match planned() {
        Ok((choice, room)) => (Some(choice), Some(room), None),
        Err(failure) => (None, None, Some(failure.detail)),
    };
    let (mechanism, participations) = args.mechanism();
    Alternative { mechanism, sampling: args.sampling(), participations, choice, lifetime, problem }
}

fn table(alternatives: &[Alternative], terminal: Option<usize>) -> String {
    let numbers = ["MULTIPLIER", "NOISE ON A MEAN", "NOISE IN ALL", "COHORT KNOWN"].map(|head| (head, Cells::Number));
    let heads = [&[("MECHANISM", Cells::Text)][..], &numbers, &[("", Cells::Words)]].concat();
    let mut table = Table::new(&heads).dispensable(&["MULTIPLIER"]);
    for one in alternatives {
        let often = match (one.sampling, one.participations) {
            (CohortDraw::Poisson, _) => "secret draw, unmasked".to_owned(),
            (CohortDraw::Fixed | CohortDraw::None, Some(most)) => format!("each in {} at most", number(most.into())),
            (CohortDraw::Fixed | CohortDraw::None, None) => "any draw".to_owned(),
        };
        let mut cells = vec![one.mechanism.as_str().to_owned()];
        match &one.choice {
            Some(choice) => cells.extend(
                [choice.noise_multiplier, choice.noise_to_signal, choice.noise_in_all, choice.epsilon.cohort_known]
                    .map(figure),
            ),
            None => cells.extend(std::iter::repeat_n(String::new(), 4)),
        }
        let room = one.lifetime.as_ref().map(LifetimeRoom::short);
        cells.push([Some(often), room, one.problem.clone()].into_iter().flatten().collect::<Vec<_>>().join("; "));
        table.row(cells);
    }
    let words = "Other mechanisms for the same published epsilon, cohort and rounds, least noise in all means first. Unless a draw is secret,\n\
                 updates are masked or the coordinator adds the noise.";
    format!("{words}\n{}", table.render(terminal, ""))
}
