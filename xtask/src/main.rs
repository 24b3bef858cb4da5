//! `cargo xtask`: chores that have logic. `tidy` is the house rules as a test.
#![expect(clippy::print_stdout, reason = "a chore speaks to the person who runs it")]

mod cycles;
mod edges;
mod floor;
mod tidy;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Chores of the Tributary workspace")]
enum Chore {
    /// Check dependency edges, cycles of modules, file lengths, module docs, migrations and unowned notes.
    Tidy,
    /// List the imports of a crate that are part of a cycle of modules.
    Cycles {
        /// The name of the crate.
        package: String,
    },
    /// Read a demo's JSON events from standard input and hold its accuracy against a floor.
    Floor {
        /// The least accuracy, from 0 to 1.
        accuracy: f64,
    },
}

fn main() -> anyhow::Result<()> {
    match Chore::parse() {
        Chore::Tidy => tidy::run(),
        Chore::Cycles { package } => cycles::run(&package),
        Chore::Floor { accuracy } => floor::run(accuracy),
    }
}
