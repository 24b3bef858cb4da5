//! Sums of several rounds and tasks, subtracted from each other end to end: an attacker that has all sums that a real
//! coordinator opened, and knows whose updates are in each, solves for the updates.
//!
//! Without fixed batches each attack ends with the victim's data. With batches of [`BATCH`] members each linear
//! combination of the sums is over a whole batch or more, and the best estimate is not the victim's.

mod algebra;
mod members;

use std::sync::{Arc, Mutex};

use secure_agg::IndexSet;
use secure_agg::codec::Message as _;
use secure_agg::messages::Survivors;
use serde_json::Value;
use wire::ParticipantId;

use self::algebra::{cosine, error, smallest_support, solve};
use self::members::{BATCH, Federation, MEMBERS, Opened, POLL_MS, Protection, Task, age, model, update};
use crate::company::Company;
use crate::liar::{Asked, Liar, Lies};
use crate::support::Served;

const VICTIM: usize = 4;
/// A server's learning rate with which the model, and so each update, stays nearly the same.
const TINY: f64 = 1e-6;

fn sets(opened: &[Opened]) -> Vec<Vec<f64>> {
    opened.iter().map(|sum| sum.set.clone()).collect()
}

/// Asserts that these sums, of which the coordinator published the means times `rate`, reveal the victim's update, or
/// hide all updates.
fn attack(federation: &Federation, opened: &[(&str, Opened)], rate: f64, protection: Protection) {
    let sum = |(task, opened): &(&str, Opened)| -> Vec<f64> {
        let count: f64 = opened.set.iter().sum();
        federation.moved(task, opened).iter().map(|moved| moved * count / rate).collect()
    };
    let sums: Vec<_> = opened.iter().map(sum).collect();
    let sets: Vec<_> = opened.iter().map(|(_, opened)| opened.set.clone()).collect();
    let estimates = solve(&sets, &sums);
    reveals(&sets, &estimates, protection);
}

/// Asserts that the estimate of the victim is right, or that all estimates are wrong.
fn reveals(sets: &[Vec<f64>], estimates: &[Vec<f64>], protection: Protection) {
    let likeness = |member: usize| {
        let (estimate, update) = (&estimates[member], update(member));
        (cosine(estimate, &update), error(estimate, &update))
    };
    if protection == Protection::None {
        let (cosine, error) = likeness(VICTIM);
        assert!(cosine > 0.999 && error < 0.01, "the attack fails: cosine {cosine}, error {error}, {sets:?}");
        return;
    }
    assert!(smallest_support(sets) >= BATCH, "{sets:?}");
    for member in 0..MEMBERS {
        // A member's own part in the combination that is closest to it.
        assert!(solve(sets, sets)[member][member] < 0.34, "member {member}: {sets:?}");
        let (cosine, error) = likeness(member);
        assert!(cosine < 0.8 && error > 0.5, "member {member}: cosine {cosine}, error {error}");
    }
}

/// Whether further sums are useless: without batches, once the victim's update follows; with batches, once all batches'
/// sums do, or after many rounds.
fn is_enough(opened: &[Opened], protection: Protection) -> bool {
    let sets = sets(opened);
    if protection == Protection::None {
        return !sets.is_empty() && solve(&sets, &sets)[VICTIM][VICTIM] > 0.999;
    }
    let mut distinct = sets.clone();
    distinct.sort_by(|one, other| one.partial_cmp(other).unwrap());
    distinct.dedup();
    opened.len() >= 25 || (opened.len() >= 6 && distinct.len() >= MEMBERS / BATCH)
}

/// A task with all members, and then another from nearly the same model without the victim.
fn twice(protection: Protection) {
    let federation = Federation::start();
    let first = model("\"zeros\"", "");
    federation.run(&Task { name: "first", rounds: 1, cohort: MEMBERS, protection, may_lose: false, body: &first });
    federation.leave(VICTIM);
    let second = model("{ uniform = { bound = 1e-9 } }", "");
    let cohort = if protection == Protection::Batches { MEMBERS - BATCH } else { MEMBERS - 1 };
    federation.run(&Task { name: "second", rounds: 1, cohort, protection, may_lose: false, body: &second });
    let opened = |task| federation.opened(task).into_iter().map(move |opened| (task, opened));
    let opened: Vec<_> = opened("first").chain(opened("second")).collect();
    assert_eq!(opened.len(), 2, "{opened:?}");
    assert!(opened[0].1.set[VICTIM] > 0.5 && opened[1].1.set[VICTIM] < 0.5, "{opened:?}");
    attack(&federation, &opened, 1.0, protection);
}

#[test]
fn two_tasks_without_batches_reveal_an_update() {
    twice(Protection::None);
}

#[test]
fn two_tasks_with_batches_reveal_no_update() {
    twice(Protection::Batches);
}

/// One task at a tiny learning rate: rounds of six of the nine members.
fn repeated(protection: Protection, schedule: &str) {
    let federation = Federation::start();
    if protection == Protection::Batches {
        federation.draw_batches();
    }
    let optimizer = format!("optimizer = {{ name = \"fed_avg\", learning_rate = {TINY:e} }}\n{schedule}");
    let body = model("\"zeros\"", &optimizer);
    federation.create(&Task {
        name: "many",
        rounds: 200,
        cohort: MEMBERS - BATCH,
        protection,
        may_lose: false,
        body: &body,
    });
    let opened = federation.opened_until("many", |opened| is_enough(opened, protection));
    let opened: Vec<_> = opened.into_iter().map(|opened| ("many", opened)).collect();
    attack(&federation, &opened, TINY, protection);
}

#[test]
fn many_rounds_without_batches_reveal_an_update() {
    repeated(Protection::None, "");
}

#[test]
fn many_rounds_with_batches_reveal_no_update() {
    repeated(Protection::Batches, "");
}

/// All updates weigh the same, however stale.
const BUFFERED: &str = "[schedule]\nmode = \"buffered\"\nstaleness_a = 0.0";

#[test]
fn many_buffers_without_batches_reveal_an_update() {
    repeated(Protection::None, BUFFERED);
}

#[test]
fn many_buffers_with_batches_reveal_no_update() {
    repeated(Protection::Batches, BUFFERED);
}

/// One task whose cohort is divided into groups of three anew in each round. The coordinator has the sum of each group
/// in memory; the published model has the median of their means, which shows whose updates these are.
fn grouped(protection: Protection) {
    let federation = Federation::start();
    let rule = format!(
        "optimizer = {{ name = \"fed_avg\", learning_rate = {TINY:e} }}\n\
         robust = {{ rule = \"median\", attackers = 0.1, group_size = {BATCH} }}"
    );
    let body = model("\"zeros\"", &rule);
    federation.create(&Task { name: "groups", rounds: 200, cohort: MEMBERS, protection, may_lose: false, body: &body });
    let opened = federation.opened_until("groups", |opened| is_enough(opened, protection));
    assert!(opened.len() >= 6, "{opened:?}");
    let sum = |opened: &Opened| -> Vec<f64> {
        let updates = (0..MEMBERS).filter(|member| opened.set[*member] > 0.5).map(update);
        updates.reduce(|one, other| one.iter().zip(&other).map(|(one, other)| one + other).collect()).unwrap()
    };
    for groups in opened.chunks(MEMBERS / BATCH).take(3) {
        let numbers: Vec<_> = groups.iter().map(|group| (group.round, group.group)).collect();
        let round = groups[0].round;
        assert_eq!(numbers, [(round, Some(0)), (round, Some(1)), (round, Some(2))]);
        let sums: Vec<_> = groups.iter().map(sum).collect();
        for (at, moved) in federation.moved("groups", &groups[0]).into_iter().enumerate() {
            let mut means = [0, 1, 2].map(|group: usize| sums[group][at] / 3.0);
            means.sort_by(f64::total_cmp);
            assert!((moved / TINY - means[1]).abs() < 1e-3, "round {round}: {moved}, {means:?}");
        }
    }
    let sums: Vec<_> = opened.iter().map(sum).collect();
    let sets = sets(&opened);
    reveals(&sets, &solve(&sets, &sums), protection);
}

#[test]
fn groups_without_batches_reveal_an_update() {
    grouped(Protection::None);
}

#[test]
fn groups_with_batches_reveal_no_update() {
    grouped(Protection::Batches);
}

/// Two analyses that differ in an edge, the second without the victim. Each member has one row.
fn analysed(protection: Protection) {
    let federation = Federation::start();
    let body = |edge: u32| {
        format!(
            "[analytics]\nkind = \"statistics\"\nmax_rows = 100\ncolumns = \
             [{{ type = \"real\", name = \"age\", low = 0, high = 120, edges = [18, {edge}] }}]\n"
        )
    };
    federation.run(&Task { name: "first", rounds: 1, cohort: MEMBERS, protection, may_lose: false, body: &body(40) });
    federation.leave(VICTIM);
    let cohort = if protection == Protection::Batches { MEMBERS - BATCH } else { MEMBERS - 1 };
    federation.run(&Task { name: "second", rounds: 1, cohort, protection, may_lose: false, body: &body(41) });
    let opened = ["first", "second"].map(|task| federation.opened(task));
    let sums = ["first", "second"].map(|task| {
        let state: Value = serde_json::from_slice(&federation.version(task, 1)).unwrap();
        let state = &state["statistics"];
        let rows = state["rows"].as_f64().unwrap();
        let [mean, variance] = ["mean", "variance"].map(|key| state["columns"][0]["real"][key].as_f64().unwrap());
        vec![rows, rows * mean, rows * (variance + mean * mean)]
    });
    let sets = sets(&opened.concat());
    assert_eq!(sets.len(), 2);
    let differs: Vec<f64> = sums[0].iter().zip(&sums[1]).map(|(first, second)| first - second).collect();
    let (estimate, truth) = (solve(&sets, &sums).swap_remove(VICTIM), age(VICTIM));
    if protection == Protection::None {
        assert!((differs[0] - 1.0).abs() < 1e-6 && (differs[1] - truth).abs() < 1e-3, "{differs:?}");
        assert!((differs[2] - truth * truth).abs() < 0.1 && (estimate[1] - truth).abs() < 1e-3, "{estimate:?}");
        return;
    }
    assert!(smallest_support(&sets) >= BATCH, "{sets:?}");
    assert!((differs[0] - 3.0).abs() < 1e-6, "the rows of a batch: {differs:?}");
    assert!((estimate[1] - truth).abs() > 10.0, "{estimate:?}");
}

#[test]
fn two_analyses_without_batches_reveal_a_row() {
    analysed(Protection::None);
}

#[test]
fn two_analyses_with_batches_reveal_no_row() {
    analysed(Protection::Batches);
}

/// The treatment, by a lying coordinator, of a member that it wants to leave out.
#[derive(Clone, Copy, PartialEq)]
enum Lie {
    /// It loses the victim's input.
    LostInput,
    /// It loses the input, and presents all others as the survivors.
    Survivors,
}

/// The lying coordinator of the second task, in which all members take part.
struct Target {
    /// Their ids, in the order of the roster, and the victim's; from the second task on.
    ids: Option<(Vec<ParticipantId>, ParticipantId)>,
    lie: Lie,
}

impl Target {
    /// Loses the victim's input.
    fn swallows(&self, asked: &Asked) -> bool {
        let victim = self.ids.as_ref().map(|(_, victim)| *victim);
        victim.is_some() && asked.member == victim && asked.path.contains("/masked-inputs/")
    }

    /// Replaces the survivors by all members but the victim.
    fn tells(&self, asked: &Asked, body: Vec<u8>) -> Vec<u8> {
        let Some((ids, victim)) =
            self.ids.as_ref().filter(|_| self.lie == Lie::Survivors && asked.path.contains("/survivors"))
        else {
            return body;
        };
        let Ok(honest) = Survivors::decode(&body) else { return body };
        let universe = honest.survivors.universe();
        let others = (1..=universe).zip(ids).filter(|(_, id)| *id != victim).map(|(position, _)| position);
        Survivors { survivors: IndexSet::of(universe, others), ..honest }.encode()
    }
}

/// Two tasks with all members before a coordinator that loses the victim's input in the second.
fn lied_to(protection: Protection, lie: Lie) -> Federation {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Deadlines are at least as long as a poll.
    let served = Served::dev_with(&data, &[("TRIBUTARY_HTTP_POLL_MAX_MS", &POLL_MS.to_string())]);
    let own = Arc::new(Company::of_coordinator(&data));
    let target = Arc::new(Mutex::new(Target { ids: None, lie }));
    let (telling, swallowing) = (Arc::clone(&target), Arc::clone(&target));
    let lies = Lies {
        tell: Box::new(move |asked, body| telling.lock().unwrap().tells(asked, body)),
        swallow: Box::new(move |asked| swallowing.lock().unwrap().swallows(asked)),
        ..Lies::none(&own)
    };
    let liar = Liar::before(&served, &own, &[&own.pem], folder.path(), lies);
    let federation = Federation::behind(liar, served, folder);
    let first = model("\"zeros\"", "");
    federation.run(&Task { name: "first", rounds: 1, cohort: MEMBERS, protection, may_lose: true, body: &first });
    let mut ids: Vec<_> = (0..MEMBERS).map(|member| federation.id(member)).collect();
    ids.sort_unstable();
    target.lock().unwrap().ids = Some((ids, federation.id(VICTIM)));
    let second = model("{ uniform = { bound = 1e-9 } }", "");
    federation.create(&Task { name: "second", rounds: 1, cohort: MEMBERS, protection, may_lose: true, body: &second });
    federation
}

fn lost_input(protection: Protection) {
    let federation = lied_to(protection, Lie::LostInput);
    federation.opened_until("second", |opened| !opened.is_empty());
    let opened = |task| federation.opened(task).into_iter().map(move |opened| (task, opened));
    let opened: Vec<_> = opened("first").chain(opened("second")).collect();
    attack(&federation, &opened, 1.0, protection);
}

#[test]
fn lost_input_without_batches_reveals_an_update() {
    lost_input(Protection::None);
}

#[test]
fn lost_input_with_batches_reveals_no_update() {
    lost_input(Protection::Batches);
}

#[test]
fn survivors_without_one_of_a_batch_open_no_sum() {
    let federation = lied_to(Protection::Batches, Lie::Survivors);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while !federation.states("second").contains("FAILED") {
        assert!(std::time::Instant::now() < end, "{:?}", federation.states("second"));
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let (signed, refusals) = federation.told(|told| (told.signed.clone(), told.refusals.clone()));
    assert!(signed.iter().all(|survivors| *survivors == 9), "the first task's: {signed:?}");
    assert!(refusals.iter().filter(|reason| reason.contains("batch_not_whole")).count() >= 2, "{refusals:?}");
    assert!(federation.opened("second").is_empty());
}
