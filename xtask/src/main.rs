//! `cargo xtask`: maintenance commands. `tidy` checks the rules of the repository.
#![expect(clippy::print_stdout, reason = "a chore speaks to the person who runs it")]

mod ci;
mod crates;
mod cycles;
mod dependencies;
mod edges;
mod english;
mod floor;
mod rooms;
mod size;
mod test_targets;
mod tidy;

use std::path::PathBuf;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Chores of the Tributary workspace")]
enum Chore {
    /// Check dependency edges, module cycles, file lengths, files per folder, module docs, migrations, unowned notes and plain English.
    Tidy,
    /// Choose the steps of .ci/run by what has changed since the last full run, and print each choice with its reason.
    CiSteps {
        /// Choose every step.
        #[arg(long)]
        full: bool,
    },
    /// Count the crates that an app compiles with the SDK, and compare them with the limit.
    Crates,
    /// List the imports of a crate that are part of a module cycle.
    Cycles {
        /// Name of the crate.
        package: String,
    },
    /// Read a demo's JSON events from standard input and check its final accuracy.
    Floor {
        /// Minimum accuracy, from 0 to 1.
        accuracy: f64,
    },
    /// Document our crates as .ci/clippy.sh compiled them. A warning is an error.
    Rustdoc {
        /// The folder with the compiler's arguments.
        compiled: PathBuf,
        /// The folder for the pages.
        out: PathBuf,
    },
    /// Build the library for C, Kotlin and Swift as small as it gets, and the wheel for Python, and compare their sizes with the limits.
    Size {
        /// Another target than this machine, for example aarch64-unknown-linux-gnu: needs cargo-zigbuild.
        #[arg(long)]
        target: Option<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Chore::parse() {
        Chore::Tidy => tidy::run(),
        Chore::CiSteps { full } => ci::run(full),
        Chore::Crates => crates::run(),
        Chore::Cycles { package } => cycles::run(&package),
        Chore::Floor { accuracy } => floor::run(accuracy),
        Chore::Rustdoc { compiled, out } => ci::rustdoc::run(&compiled, &out),
        Chore::Size { target } => size::run(target.as_deref()),
    }
}
