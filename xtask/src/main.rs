//! `cargo xtask`: chores that have logic. `tidy` is the house rules as a test.
#![expect(clippy::print_stdout, reason = "a chore speaks to the person who runs it")]

mod edges;
mod tidy;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Chores of the Tributary workspace")]
enum Chore {
    /// Check dependency edges, file lengths, module docs, migrations and unowned notes.
    Tidy,
}

fn main() -> anyhow::Result<()> {
    match Chore::parse() {
        Chore::Tidy => tidy::run(),
    }
}
