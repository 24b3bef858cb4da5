//! An app with its own model: five participants fit one line without revealing any point.
//!
//! Each participant sees a different part of the x axis, so none could fit the line as well alone. Run it with `cargo
//! run -p examples --bin quickstart`.

use anyhow::{Result, ensure};
use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::transport::Proxy;
use client_sdk::{Participant, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use examples::{Lab, say};
use serde_json::json;
use tokio::task::JoinSet;

const SLOPE: f32 = 3.0;
const OFFSET: f32 = -2.0;

/// The app's model, `y = w x + b`, and its private points.
struct Line {
    points: Vec<(f32, f32)>,
}

impl Trainer for Line {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        #[expect(clippy::cast_possible_truncation, reason = "the model is f32")]
        let rate = job.plan.learning_rate as f32;
        for _ in 0..job.plan.epochs {
            for (x, y) in &self.points {
                let values = parameters.values_mut();
                let error = values[0] * x + values[1] - y;
                values[0] -= rate * error * x;
                values[1] -= rate * error;
            }
        }
        Ok(Trained { parameters, examples: self.examples(), metrics: vec![] })
    }

    fn evaluate(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        let (w, b) = (model.values()[0], model.values()[1]);
        let sum: f64 = self.points.iter().map(|(x, y)| f64::from(w * x + b - y).powi(2)).sum();
        Ok(vec![("loss".into(), MetricValue { value: sum / self.points.len() as f64, count: self.examples() })])
    }

    fn examples(&self) -> u64 {
        self.points.len() as u64
    }
}

/// Points near the line between `from` and `from + 1`, alternately above and below it.
fn points(from: f32) -> Vec<(f32, f32)> {
    let xs = (0_u16..20).map(|step| from + f32::from(step) / 20.0);
    xs.enumerate().map(|(i, x)| (x, SLOPE * x + OFFSET + if i % 2 == 0 { 0.1 } else { -0.1 })).collect()
}

#[tokio::main]
async fn main() -> Result<()> {
    let lab = Lab::start().await?;
    let task = json!({ "spec": {
        "name": "line",
        "model": { "tensors": [{ "name": "w", "shape": [1] }, { "name": "b", "shape": [1] }] },
        "training": { "epochs": 5, "learning_rate": 0.05 },
        "rounds": { "count": 20, "select_max": 5 },
        "selection": { "cohort": { "count": 5 } },
        "aggregation": { "clip_range": 10.0 },
        "metrics": ["loss"]
    } });
    lab.post("/v1/tasks", &task).await?;

    let mut participants = JoinSet::new();
    for (index, from) in [-2.0, -1.0, 0.0, 1.0, 2.0].into_iter().enumerate() {
        let token = lab.enrollment_token(&format!("device-{index}")).await?;
        let mut participant = Participant::builder()
            .server(lab.url())
            .proxy(Proxy::none()) // the coordinator is in this process
            .ca_pem(lab.ca_pem())
            .enrollment_token(token)
            .task("line")
            .journal(MemoryJournal::new())
            // Fewer participants than an app should require.
            .secure_aggregation(SecurityPolicy::lowest())
            .trainer(Line { points: points(from) })
            .build()?;
        participants.spawn(async move { participant.run(std::future::pending()).await });
    }
    for number in 1..=20 {
        let round = lab.round("line", number).await?;
        let loss = round["metrics"]["loss"]["value"].as_f64().unwrap_or(f64::NAN);
        say(&format!("round {number:>2}: squared error of the model the devices received: {loss:.4}"));
    }
    let model = lab.model("line", 20).await?;
    while let Some(ended) = participants.join_next().await {
        ended??;
    }
    lab.stop().await;

    let (w, b) = (model.values()[0], model.values()[1]);
    say(&format!("learned y = {w:.3} x + {b:.3}; the points were made from y = {SLOPE} x + {OFFSET}"));
    ensure!((w - SLOPE).abs() < 0.05 && (b - OFFSET).abs() < 0.1, "this is not the line");
    Ok(())
}
