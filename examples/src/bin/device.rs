//! An app on one device: its journal is on disk, it takes part in a task of a coordinator, and has the model afterwards.
//!
//! `device SERVER CA_FILE TOKEN FOLDER MEASURED`; `docs/tutorials/app-developer-rust.md` runs ten of them.

use anyhow::{Context as _, Result};
use client_sdk::journal::JournalFiles;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::{Participant, Trained, Trainer, TrainerError, TrainingJob};
use examples::say;

/// This device's private measurement. The model is one number: the mean of the measurements of all devices.
struct Thermometer {
    measured: f32,
}

impl Trainer for Thermometer {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        for _ in 0..job.plan.epochs {
            for value in parameters.values_mut() {
                *value += (self.measured - *value) / 2.0;
            }
        }
        Ok(Trained { parameters, examples: self.examples(), metrics: vec![] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        1
    }
}

/// Ctrl-c; an app on a phone has its own reasons to stop.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Ok([server, ca_file, token, folder, measured]) = <[String; 5]>::try_from(arguments) else {
        anyhow::bail!("device SERVER CA_FILE TOKEN FOLDER MEASURED");
    };
    let ca = std::fs::read_to_string(ca_file)?;
    let thermometer = Thermometer { measured: measured.parse()? };

    let mut participant = Participant::builder()
        .server(server)
        .ca_pem(ca)
        .enrollment_token(token)
        .task("temperature")
        .journal(JournalFiles::beside(folder).open()?) // or FileJournal with the device's key store
        .trainer(thermometer) // train(), evaluate(), examples()
        .build()?;
    participant.run(interrupted()).await?; // or participant.poll(limit).await from time to time
    let model = participant.model_of("temperature")?; // works offline

    let model = model.context("no model yet")?;
    say(&format!("measured {measured}; the mean of all is near {:.2}", model.parameters().values()[0]));
    Ok(())
}

#[cfg(test)]
mod tests {
    const PAGES: [&str; 2] =
        [include_str!("../../../README.md"), include_str!("../../../docs/tutorials/app-developer-rust.md")];

    const APPS: [&str; 2] = [include_str!("device.rs"), include_str!("candle_cnn.rs")];

    #[test]
    fn pages_show_code_of_the_examples() {
        for page in PAGES {
            let mut count = 0;
            for shown in page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()) {
                let in_main: String = shown.lines().map(|line| format!("    {line}\n")).collect();
                assert!(APPS.iter().any(|app| app.contains(shown) || app.contains(&in_main)), "{shown}");
                count += 1;
            }
            assert!(count > 0);
        }
    }
}
