//! Adds a number to every parameter: the participant in Rust of `.ci/sdks.sh`, like `tests/c/shift.c`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of a test, which reads what it says")]

use std::time::Duration;

use client_sdk::runner::{Job, Next, Options, Runner};
use client_sdk::{Participant, PrivacySpent, Trained};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let options = std::fs::read_to_string(arguments.next().ok_or("shift OPTIONS.json NUMBER")?)?;
    let number: f32 = arguments.next().ok_or("shift OPTIONS.json NUMBER")?.parse()?;
    let options: Options = serde_json::from_str(&options)?;
    let runner = Runner::start(options.into_builder()?)?;
    loop {
        match runner.next(Duration::from_secs(60)) {
            Next::Job(job) => {
                let Job { mut parameters, answer, .. } = *job;
                for value in parameters.values_mut() {
                    *value += number;
                }
                let sent = answer.finish(Trained { parameters, examples: 10, metrics: vec![] });
                eprintln!("rust: handed in, {sent:?}");
            }
            Next::Waiting => {}
            Next::Ended(end) => {
                end?;
                break;
            }
        }
    }
    let spent = runner.ask(Participant::privacy_spent).unwrap_or_default();
    println!("{}", serde_json::Value::from_iter(spent.iter().map(PrivacySpent::data)));
    let _ = runner.close();
    Ok(())
}
