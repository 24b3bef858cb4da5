//! The demo's description of a private task's promise.

use task_spec::{Clip, Sampling};
use wire::grammar::counted;
use wire::inspect::PrivacyReport;

use super::events::Spent;
use crate::output::figure;

/// The promise, as text for people.
pub(super) fn words(report: &PrivacyReport) -> Vec<String> {
    let spec = &report.spec;
    let mechanism = spec.mechanism.as_str();
    let noise = spec.noise_multiplier.map_or_else(String::new, |z| format!(", noise multiplier {}", figure(z)));
    let adapts = if matches!(spec.clip, Some(Clip::Adaptive(_))) { " at first" } else { "" };
    let budget = match (spec.epsilon, spec.rounds) {
        (Some(epsilon), Some(rounds)) => format!("epsilon {} for {rounds} rounds", figure(epsilon)),
        (Some(epsilon), None) => format!("epsilon {}", figure(epsilon)),
        (None, _) => "no limit on epsilon".to_owned(),
    };
    let drawn = match spec.sampling {
        Some(Sampling::Poisson(rate)) => format!("each is drawn with probability {}", figure(rate)),
        Some(Sampling::FixedSize(size)) => format!("exactly {size} are drawn"),
        None => "nothing is gained from how they are drawn".to_owned(),
    };
    let mut lines = vec![
        format!("Privacy      of a participant's whole data: {mechanism}{noise}, updates clipped to L2 norm {}{adapts}", figure(report.clip)),
        format!("             {budget} at delta {:e}, published; of {} participants {drawn}", spec.delta.unwrap_or_default(), spec.population.unwrap_or_default()),
        "             EPSILON is what has been spent on those who see the models and not who took part. Participants report no".to_owned(),
        "             metrics: TEST ACC is the demo's own, of each published model on data that nobody trained on.".to_owned(),
    ];
    lines.push(
        "             Its devices live for this one task: they have no limit over all tasks, as those of an app do."
            .to_owned(),
    );
    if spec.mechanism.needs_secure_aggregation() {
        if let Some(most) = spec.participations {
            let releases = counted(most, "release", "releases");
            lines.push(format!("             Each is in {releases} at most, and is charged for no more."));
        }
        lines.push(format!(
            "             A sum has at least {} updates, of whose noise {} may tell the coordinator their share.",
            report.smallest_cohort, report.colluders
        ));
    }
    lines
}

/// The ledger's state, as text for people.
pub(super) fn spent_words(spent: &Spent) -> Vec<String> {
    let of = spent.budget.map_or_else(String::new, |budget| format!(" of {}", figure(budget)));
    let server = match spent.epsilon.server {
        Some(server) => format!("{} to the coordinator itself", figure(server)),
        None => "no figure for the coordinator, which adds the noise and is trusted".to_owned(),
    };
    vec![format!(
        "Privacy: epsilon {}{of} at delta {:e}, published; {} to those who also know who took part; {server}.",
        figure(spent.epsilon.published),
        spent.delta,
        figure(spent.epsilon.cohort_known)
    )]
}
