//! The simulator with faults: one seed is one run, and all invariants hold under each of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use faults::{Flaws, Profile, Run, Runner, Schedule, search};

fn run(runner: &mut Runner, schedule: &Schedule) -> Run {
    runner.run(schedule, None).unwrap()
}

#[test]
fn one_seed_is_one_run_bit_for_bit() {
    let mut runner = Runner::new(Flaws::default()).unwrap();
    let mut traces = std::collections::BTreeSet::new();
    for seed in 0..6 {
        let schedule = Schedule::draw(seed, None);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let one = runner.run(&schedule, Some(&mut |line: &str| first.push(line.to_owned()))).unwrap();
        let other = runner.run(&schedule, Some(&mut |line: &str| second.push(line.to_owned()))).unwrap();
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(one, other, "seed {seed}");
        traces.insert(one.trace);
    }
    assert_eq!(traces.len(), 6, "and another seed is another run");
}

#[test]
fn a_seed_is_the_same_run_whatever_else_runs_beside_it() {
    let runs = |threads| {
        let mut runs = BTreeMap::new();
        let searched = search(0..6, None, Flaws::default(), threads, |schedule, run| {
            runs.insert(schedule.seed, run);
            ControlFlow::Continue(())
        });
        searched.unwrap();
        runs
    };
    let alone = runs(1);
    assert_eq!(alone.len(), 6);
    assert_eq!(alone, runs(3));
    let mut runner = Runner::new(Flaws::default()).unwrap();
    for (seed, known) in alone.iter().rev() {
        assert_eq!(run(&mut runner, &Schedule::draw(*seed, None)), *known, "seed {seed}, in another order");
    }
}

#[test]
fn a_search_ends_when_it_is_told_to() {
    let mut heard = 0;
    let searched = search(0..u64::MAX, Some(Profile::Calm), Flaws::default(), 2, |_, _| {
        heard += 1;
        if heard == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    searched.unwrap();
    assert_eq!(heard, 3);
}

#[test]
fn nothing_that_is_promised_breaks() {
    let mut runner = Runner::new(Flaws::default()).unwrap();
    for profile in Profile::ALL {
        for seed in 0..4 {
            let schedule = Schedule::draw(seed, Some(profile));
            let run = run(&mut runner, &schedule);
            assert_eq!(run.violation, None, "{profile}, seed {seed}: {schedule:?}");
        }
    }
}
