//! Checks the demo's last event against a minimum accuracy, so that CI fails if learning breaks.

use std::io::BufRead as _;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Reads the demo's events from standard input; the run must have finished with at least this accuracy.
pub(crate) fn run(floor: f64) -> anyhow::Result<()> {
    let mut last = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let event: Value = serde_json::from_str(&line).with_context(|| format!("not an event: {line}"))?;
        if event["event"] == "round" && event["state"] != "COMPLETED" {
            bail!("a round did not complete: {line}");
        }
        last = Some(event);
    }
    let last = last.context("the demo printed no event")?;
    if last["event"] != "finished" {
        bail!("the demo did not finish; its last event was {last}");
    }
    let accuracy = last["accuracy"].as_f64().context("the last event has no accuracy")?;
    if accuracy < floor {
        bail!("accuracy {accuracy:.4} is below the floor of {floor:.4}");
    }
    println!("accuracy {accuracy:.4}, floor {floor:.4}");
    Ok(())
}
