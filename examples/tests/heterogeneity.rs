//! What solvers for unlike data promise, on less data than `src/bin/heterogeneity.rs` prints figures for.

use examples::heterogeneity::{Federation, Setting, Solver, rounds_to};

#[test]
fn fed_prox_with_partial_work_ends_below_fed_avg_that_drops_stragglers() {
    let setting = Setting { most_examples: 60, epochs: 20, rounds: 12, everybody: false };
    let (mut dropped, mut kept) = (0.0, 0.0);
    for seed in 1..=5 {
        let last = |solver| *Federation::new(60, seed).unwrap().run(solver, setting, false).unwrap().last().unwrap();
        dropped += last(Solver::FedAvg) / 5.0;
        kept += last(Solver::FedProx) / 5.0;
    }
    println!("training loss: FedAvg without stragglers {dropped:.3}, FedProx with their partial work {kept:.3}");
    assert!(kept < 0.8 * dropped, "{kept} {dropped}");
}

#[test]
fn scaffold_needs_fewer_rounds_than_fed_avg() {
    let setting = Setting { most_examples: 60, epochs: 20, rounds: 8, everybody: true };
    let mut federation = Federation::new(60, 1).unwrap();
    let plain = federation.run(Solver::Plain, setting, true).unwrap();
    let controlled = federation.run(Solver::Scaffold, setting, true).unwrap();
    let rounds = rounds_to(&controlled, *plain.last().unwrap()).expect("SCAFFOLD comes so far");
    println!("training loss {:.3}: FedAvg 8 rounds, SCAFFOLD {rounds}", plain.last().unwrap());
    assert!(rounds <= 6, "{plain:?} {controlled:?}");
}
