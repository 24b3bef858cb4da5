//! Tables of a plan.

use learning::privacy::{Choice, NoServerEpsilon, Plan};

use crate::output::{Cells, Table, figure, number};

/// The epsilons of a plan, by observer.
pub(super) fn epsilons(plan: &Plan, terminal: Option<usize>) -> String {
    let mut table = Table::new(&[("AGAINST", Cells::Text), ("EPSILON", Cells::Number), ("THAT IS", Cells::Words)]);
    let mut row = |name: &str, value: String, whom: &str| table.row(vec![name.to_owned(), value, whom.to_owned()]);
    row("published", figure(plan.epsilon.published), "those who see the models and not who took part");
    row("cohort_known", figure(plan.epsilon.cohort_known), "those who also see who took part");
    let (server, whom) = match (plan.epsilon.server, plan.epsilon.server_reason) {
        (Some(server), _) => (figure(server), "the coordinator itself"),
        (None, Some(NoServerEpsilon::ServerTrusted)) => {
            ("none".to_owned(), "the coordinator, which adds the noise and so sees the sum without it")
        }
        (None, _) => ("none".to_owned(), "the coordinator: there is no noise"),
    };
    row("server", server, whom);
    table.render(terminal, "")
}

/// Alternatives for the same budget, least noise first.
pub(super) fn choices_table(choices: &[Choice], terminal: Option<usize>) -> String {
    let is_apart = choices.iter().any(|choice| choice.separation.is_some());
    let heads = ["COHORT", "ROUNDS", "UPLOADS", "MULTIPLIER", "NOISE ON A MEAN", "NOISE IN ALL", "COHORT KNOWN"];
    let heads: Vec<_> =
        heads.into_iter().chain(is_apart.then_some("SEPARATION")).map(|head| (head, Cells::Number)).collect();
    let mut table = Table::new(&heads).dispensable(&["COHORT KNOWN"]);
    for choice in choices {
        let mut cells = vec![
            number(choice.cohort.into()),
            number(choice.rounds.into()),
            number(choice.uploads),
            figure(choice.noise_multiplier),
            figure(choice.noise_to_signal),
            figure(choice.noise_in_all),
            figure(choice.epsilon.cohort_known),
        ];
        cells.extend(is_apart.then(|| choice.separation.map_or_else(String::new, |rounds| number(rounds.into()))));
        table.row(cells);
    }
    let words = "The same published epsilon with other cohorts and rounds. NOISE IN ALL is on the sum of all means, over as many\n\
                 clipping norms as there are rounds: the first has least of it. Fewer rounds learn less.";
    format!("{words}\n{}", table.render(terminal, ""))
}
