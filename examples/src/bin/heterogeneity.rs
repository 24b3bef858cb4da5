//! Compares local solvers on heterogeneous data and devices; `cargo run --release -p examples --bin heterogeneity`.
//!
//! Synthetic(1, 1), 30 devices, 20 local epochs in batches of 10 at learning rate 0.01, five seeds.

#![expect(clippy::print_stdout, reason = "a program that prints")]

use anyhow::Result;
use examples::heterogeneity::{Federation, Setting, Solver, rounds_to};

const SEEDS: u64 = 5;

fn main() -> Result<()> {
    let stragglers = Setting { most_examples: usize::MAX, epochs: 20, rounds: 100, everybody: false };
    println!("10 of 30 devices a round, 9 of them stragglers, 100 rounds: training loss at the end");
    println!("seed    FedAvg, drops  keeps, mu = 0  FedProx, mu = 1        FedNova");
    let solvers = [Solver::FedAvg, Solver::Partial, Solver::FedProx, Solver::FedNova];
    let mut sums = [0.0; 4];
    for seed in 1..=SEEDS {
        let mut line = format!("{seed:<4}");
        for (solver, sum) in solvers.into_iter().zip(&mut sums) {
            let losses = Federation::new(stragglers.most_examples, seed)?.run(solver, stragglers, false)?;
            let last = losses.last().copied().unwrap_or(f64::NAN);
            *sum += last;
            line += &format!(" {last:>16.4}");
        }
        println!("{line}");
    }
    println!("mean {}", sums.map(|sum| format!("{:>16.4}", sum / SEEDS as f64)).join(" "));

    let everybody = Setting { everybody: true, rounds: 60, ..stragglers };
    println!("\nAll 30 devices, everybody alike: rounds to the loss that FedAvg has after 60");
    println!("seed     loss    FedAvg  SCAFFOLD");
    for seed in 1..=SEEDS {
        let mut federation = Federation::new(everybody.most_examples, seed)?;
        let plain = federation.run(Solver::Plain, everybody, true)?;
        let controlled = federation.run(Solver::Scaffold, everybody, true)?;
        let target = plain.last().copied().unwrap_or(f64::NAN);
        let rounds = |losses: &[f64]| rounds_to(losses, target).map_or_else(|| "never".to_owned(), |n| n.to_string());
        println!("{seed:<4} {target:>8.4} {:>9} {:>9}", rounds(&plain), rounds(&controlled));
    }
    Ok(())
}
