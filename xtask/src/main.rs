//! `cargo xtask`: chores that have logic. `tidy` is the house rules as a test.
#![expect(clippy::print_stdout, reason = "a chore speaks to the person who runs it")]

mod edges;
mod floor;
mod tidy;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Chores of the Tributary workspace")]
enum Chore {
    /// Check dependency edges, file lengths, module docs, migrations and unowned notes.
    Tidy,
    /// Read a demo's JSON events from standard input and hold its accuracy against a floor.
    Floor {
        /// The least accuracy, from 0 to 1.
        accuracy: f64,
    },
}

fn main() -> anyhow::Result<()> {
    match Chore::parse() {
        Chore::Tidy => tidy::run(),
        Chore::Floor { accuracy } => floor::run(accuracy),
    }
}
