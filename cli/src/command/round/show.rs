//! `tributary round show`: everything the coordinator reports about one round. Empty parts are omitted.

use std::time::Duration;

use wire::inspect::{
    AssignmentView, BufferView, DistributionView, EpsilonView, GroupView, ModelVersionRef, RoundView, SessionView,
    SumWorkView,
};
use wire::{DeviceReason, RoundState, TaskId, route};

use super::words::{because, metrics, state, uploads};
use crate::command::privacy::ledger::spent;
use crate::failure::Outcome;
use crate::output::{Cells, Output, Table, bytes, duration, when};
use crate::server::Server;

/// A round with its cohort.
#[derive(serde::Serialize)]
struct RoundWithCohort {
    #[serde(flatten)]
    round: RoundView,
    assignments: Vec<AssignmentView>,
}

pub(super) async fn show(server: &Server, task: TaskId, number: u32, attempt: Option<u32>, output: Output) -> Outcome {
    let query: Vec<_> = attempt.map(|attempt| ("attempt", attempt.to_string())).into_iter().collect();
    let round: RoundView = server.get(&route::fill(route::ROUND, &[&task, &number]), &query).await?;
    let path = route::fill(route::ASSIGNMENTS, &[&task, &number]);
    let assignments: Vec<AssignmentView> = server.list_where(&path, &query, usize::MAX).await?;
    let answer = RoundWithCohort { round, assignments };
    output.answer(&answer, || words(&answer, output.width()));
    Ok(())
}

fn words(RoundWithCohort { round, assignments }: &RoundWithCohort, terminal: Option<usize>) -> String {
    let mut parts = vec![head(round), phases(round, terminal)];
    if !round.groups.is_empty() {
        parts.push(groups(&round.groups, assignments, terminal));
    }
    parts.push(cohort(assignments, terminal));
    parts.join("\n")
}

/// A line for each fact about the round as a whole.
fn head(round: &RoundView) -> String {
    let mut lines = vec![
        format!("Round       {} (attempt {}) of task {}", round.number, round.attempt, round.task),
        format!("State       {}", state(round)),
        format!("Cohort      {} drawn, {} reported, {} dropped", round.cohort, round.reported, round.dropped),
        format!("Bytes       {} up, {} down", bytes(round.bytes_up), bytes(round.bytes_down)),
        format!("Reported    {}", reported(round)),
        format!("Base        {}", model(&round.base)),
    ];
    lines.extend(round.distributions.iter().map(|(name, of)| spread(name, of)));
    lines.extend(round.round_trip_ms.map(slow_lines));
    lines.extend(round.buffer.iter().map(buffer));
    lines.extend(round.compression.iter().map(|compression| format!("Uploads     by {}", uploads(compression))));
    lines.extend(round.epsilon.iter().map(privacy));
    if let Some(session) = &round.secure_aggregation {
        lines.extend(secrecy(session, round.groups.first()));
    }
    lines.extend(round.work.iter().map(sum));
    lines.extend(round.model.iter().map(|made| format!("Made        {}", model(made))));
    if let Some(to) = round.rolled_back_to {
        let base = round.base.version;
        lines.push(format!("Rolled back to version {to}, made once more: version {base} did not pass the task's gate"));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Metrics from participants: those of the model that the round began with, and of their training. The accuracy of the
/// model that the round made is measured by `demo` and `model evaluate`.
fn reported(round: &RoundView) -> String {
    match metrics(round).as_str() {
        "" => "nothing".to_owned(),
        words => format!("{words} (means over the cohort, each on its own data, of version {})", round.base.version),
    }
}

fn model(ModelVersionRef { version, sha256 }: &ModelVersionRef) -> String {
    format!("version {version}, sha256 {sha256}")
}

fn spread(name: &str, of: &DistributionView) -> String {
    let DistributionView { participants, p10, p25, p50, p75, p90, resolution } = of;
    format!(
        "Spread      {name} over {participants}: 10 % below {p10:.3}, 25 % {p25:.3}, half {p50:.3}, 75 % {p75:.3}, 90 % \
         {p90:.3}, each to {resolution}"
    )
}

fn slow_lines(round_trip_ms: u32) -> String {
    let round_trip = duration(Duration::from_millis(round_trip_ms.into()));
    format!(
        "Lines       nine of ten take at most {round_trip} for a round trip; phases wait so much longer, up to twice their deadlines"
    )
}

fn buffer(buffer: &BufferView) -> String {
    let BufferView { updates, oldest_version, newest_version, mean_staleness, max_staleness, mean_weight, .. } = buffer;
    let mode = buffer.mode.as_str();
    format!(
        "Buffer      {updates} updates trained ahead of the round ({mode}), from versions {oldest_version} to {newest_version}: \
         {mean_staleness:.2} versions behind on average, {max_staleness} at most; an update counts for {mean_weight:.3}"
    )
}

fn privacy(epsilon: &EpsilonView) -> String {
    format!("Privacy     {} after this round", spent(epsilon))
}

/// `group`: one of a cohort that was divided, where every group has such a session of its own.
fn secrecy(session: &SessionView, group: Option<&GroupView>) -> [String; 2] {
    let SessionView { threshold, out_degree, min_out, tolerated_corrupt, advertised, .. } = session;
    let of = group.map_or_else(|| advertised.to_string(), |group| format!("{} in each group", group.members));
    [
        format!(
            "Secrecy     of {of}: {threshold} shares open a sum, {tolerated_corrupt} may collude; each masks with {out_degree} it \
             draws, {min_out} must stay"
        ),
        format!(
            "Took part   U1 {advertised} advertised, U2 {} shared, U3 {} included, U4 {} signed, U5 {} unmasked",
            session.shared, session.included, session.signed, session.unmasked
        ),
    ]
}

fn sum(work: &SumWorkView) -> String {
    let device = |device: &str, reason: Option<DeviceReason>| match reason {
        Some(reason) => format!("{device} ({})", because(reason)),
        None => device.to_owned(),
    };
    // One reason for both is given once.
    let is_same = (&work.unmask_device, work.unmask_because) == (&work.sum_device, work.sum_because);
    let at = work.coordinator.as_ref().map(|coordinator| format!(", at {coordinator}")).unwrap_or_default();
    let failure = work.device_failure.as_ref().map(|failure| format!("; failed: {failure}")).unwrap_or_default();
    format!(
        "Sum         by {} in {:.3} s; masks off by {} in {:.3} s, {} of keystream{at}{failure}",
        device(&work.sum_device, work.sum_because),
        work.sum_seconds,
        device(&work.unmask_device, work.unmask_because.filter(|_| !is_same)),
        work.unmask_seconds,
        bytes(work.keystream_bytes)
    )
}

fn phases(round: &RoundView, terminal: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("PHASE", Cells::Text),
        ("BEGAN", Cells::Text),
        ("TOOK", Cells::Number),
        ("COUNT", Cells::Number),
        ("MIN", Cells::Number),
        ("MAX", Cells::Number),
        ("UP", Cells::Number),
        ("DOWN", Cells::Number),
    ])
    .dispensable(&["DOWN", "UP", "MAX", "MIN"]);
    let some = |count: Option<u32>| count.map(|count| count.to_string()).unwrap_or_default();
    for phase in &round.phases {
        let took = phase.ended_at.map(|end| duration(end.since(phase.started_at)));
        let until = phase.deadline_at.map(|at| format!("until {}", when(at)));
        table.row(vec![
            phase.state.to_string(),
            when(phase.started_at),
            took.or(until).unwrap_or_else(|| "…".to_owned()),
            some(phase.count),
            some(phase.min),
            some(phase.max),
            bytes(phase.bytes_up),
            bytes(phase.bytes_down),
        ]);
    }
    table.render(terminal, "")
}

fn groups(groups: &[GroupView], assignments: &[AssignmentView], terminal: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("GROUP", Cells::Number),
        ("MEMBERS", Cells::Number),
        ("REPORTED", Cells::Number),
        ("EXCLUDED DURING", Cells::Text),
        ("ANOMALY", Cells::Number),
    ]);
    for &GroupView { group, members, reported, anomaly } in groups {
        table.row(vec![
            group.to_string(),
            members.to_string(),
            reported.to_string(),
            left_out_in(group, assignments).map(|phase| phase.to_string()).unwrap_or_default(),
            score(anomaly),
        ]);
    }
    table.render(terminal, "")
}

/// The phase in which a group was excluded. A group in the sum has members that did not drop out.
fn left_out_in(group: u32, assignments: &[AssignmentView]) -> Option<RoundState> {
    let members = assignments.iter().filter(|one| one.group == Some(group));
    let dropped: Option<Vec<_>> = members.map(|one| one.dropped_in).collect();
    dropped?.into_iter().max()
}

/// An anomaly score; 1 is usual.
fn score(anomaly: Option<f64>) -> String {
    anomaly.map(|score| format!("{score:.2}")).unwrap_or_default()
}

fn cohort(assignments: &[AssignmentView], terminal: Option<usize>) -> String {
    let has_groups = assignments.iter().any(|one| one.group.is_some());
    let has_scores = assignments.iter().any(|one| one.anomaly.is_some());
    let has_details = assignments.iter().any(|one| one.detail.is_some());
    let mut columns = vec![("PARTICIPANT", Cells::Text), ("STATE", Cells::Text), ("UP", Cells::Number)];
    columns.extend(has_groups.then_some(("GROUP", Cells::Number)));
    columns.extend(has_scores.then_some(("ANOMALY", Cells::Number)));
    columns.extend([("SETS", Cells::Text), ("DROPPED DURING", Cells::Text)]);
    columns.extend(has_details.then_some(("WHY", Cells::Words)));
    let mut table = Table::new(&columns).dispensable(&["UP"]);
    for one in assignments {
        let mut row = vec![one.name.clone(), one.state.to_string(), one.bytes_up.map(bytes).unwrap_or_default()];
        row.extend(has_groups.then(|| one.group.map(|group| group.to_string()).unwrap_or_default()));
        row.extend(has_scores.then(|| score(one.anomaly)));
        row.push(one.sets.join(" "));
        row.push(one.dropped_in.map(|phase| phase.to_string()).unwrap_or_default());
        row.extend(has_details.then(|| one.detail.clone().unwrap_or_default()));
        table.row(row);
    }
    table.render(terminal, "Nobody is drawn yet.")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::output::fits_eighty;

    /// A group whose three members ended like this.
    fn members(group: u32, dropped_in: [Option<RoundState>; 3]) -> impl Iterator<Item = AssignmentView> {
        let member = move |(at, dropped_in): (u32, Option<RoundState>)| -> Value {
            json!({
                "participant": format!("00000000-0000-0000-0000-0000000000{group}{at}"), "name": format!("p{group}{at}"),
                "state": "REPORTED", "dropped_in": dropped_in, "group": group, "history": [],
            })
        };
        (0..).zip(dropped_in).map(move |one| serde_json::from_value(member(one)).unwrap())
    }

    #[test]
    fn a_sum_says_which_devices_made_it_and_why_as_far_as_that_is_known() {
        let work = SumWorkView {
            coordinator: Some("north".to_owned()),
            sum_device: "cpu".to_owned(),
            sum_because: Some(DeviceReason::TransferCostsMore),
            unmask_device: "cpu".to_owned(),
            unmask_because: Some(DeviceReason::ChosenFailed),
            device_failure: Some("cuda:0: it gave a wrong answer".to_owned()),
            sum_seconds: 0.5,
            unmask_seconds: 1.25,
            keystream_bytes: 0,
        };
        let none = bytes(0);
        assert_eq!(
            sum(&work),
            format!(
                "Sum         by cpu (the way to the GPU costs more) in 0.500 s; masks off by cpu (the chosen one failed) in 1.250 s, \
                 {none} of keystream, at north; failed: cuda:0: it gave a wrong answer"
            )
        );
        let of_cpu = SumWorkView {
            sum_because: Some(DeviceReason::NoGpu),
            unmask_because: Some(DeviceReason::NoGpu),
            device_failure: None,
            ..work.clone()
        };
        assert_eq!(sum(&of_cpu).matches("no GPU passed a self-test").count(), 1);
        let of_old =
            SumWorkView { coordinator: None, sum_because: None, unmask_because: None, device_failure: None, ..work };
        assert_eq!(
            sum(&of_old),
            format!("Sum         by cpu in 0.500 s; masks off by cpu in 1.250 s, {none} of keystream")
        );
    }

    #[test]
    fn a_cohort_fits_eighty_columns() {
        let one = json!({
            "participant": "01934c2e-7d3a-7b1c-9f00-0123456789ab", "name": "n".repeat(30), "state": "ABANDONED", "group": 12,
            "anomaly": 1.5, "bytes_up": 663_000_000, "sets": ["U1", "U2", "U3", "U4", "U5"], "dropped_in": "CONFIRMING",
            "detail": "the app declined: too little charge", "history": [],
        });
        let cohort_of_one: [AssignmentView; 1] = [serde_json::from_value(one).unwrap()];
        let (whole, narrow) = (cohort(&cohort_of_one, None), cohort(&cohort_of_one, Some(80)));
        assert!(fits_eighty(&narrow) && !fits_eighty(&whole), "{narrow}");
        for words in ["ABANDONED", "U1 U2 U3 U4 U5", "CONFIRMING", "the app declined: too little charge"] {
            assert!(narrow.contains(words) && whole.contains(words), "{words}: {narrow}");
        }
    }

    #[test]
    fn a_group_is_left_out_where_the_last_of_it_was_dropped() {
        let (share, sign) = (Some(RoundState::Sharing), Some(RoundState::Confirming));
        let cohort: Vec<_> = members(0, [None; 3]).chain(members(1, [share, sign, sign])).collect();
        let cohort: Vec<_> = cohort.into_iter().chain(members(2, [share, None, share])).collect();
        let phases: Vec<_> = (0..4).map(|group| left_out_in(group, &cohort)).collect();
        assert_eq!(phases, [None, sign, None, None]);

        let view = |group, anomaly| GroupView { group, members: 3, reported: 3, anomaly };
        let shown = groups(&[view(0, Some(1.0)), view(1, None), view(2, Some(2.5))], &cohort, None);
        let rows: Vec<Vec<_>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows[1..],
            [vec!["0", "3", "3", "1.00"], vec!["1", "3", "3", "CONFIRMING"], vec!["2", "3", "3", "2.50"]]
        );
    }
}
