//! Samples per second of training the ready models on a device, in every precision, and how far the result is from the
//! processor's.
//!
//! `cargo run --release -p client-sdk --features cuda --bin device-training -- [device=cuda] [models=mlp,cnn] [batches=32,256]
//! [precisions=f32,bf16,f16] [seconds=2]`. Prints a JSON object a line: samples per second of wall time, best of three turns, on
//! 600 random examples in main memory, as a participant has them; `deviation` is the distance of the update after 20 steps
//! from that of the processor in 32 bits, relative to its length. `gpu/torch_training.py` measures PyTorch in the same way.

#![expect(clippy::print_stdout, reason = "a measurement prints")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::time::Instant;

use client_sdk::models::{Architecture, Cnn, Gru, Linear, Mlp};
use client_sdk::train::{Device, DeviceChoice, Examples, Sgd, train};
use learning::Parameters;
use task_spec::{Precision, TrainingPlan};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const EXAMPLES: usize = 600;
const CHARACTERS: usize = 80;
const TURNS: usize = 3;

struct Wanted {
    device: String,
    models: String,
    batches: String,
    precisions: String,
    seconds: f64,
}

impl Wanted {
    fn read() -> Outcome<Self> {
        let mut wanted = Self {
            device: "cuda".to_owned(),
            models: "linear,mlp,cnn,gru".to_owned(),
            batches: "10,32,256".to_owned(),
            precisions: "f32,bf16,f16".to_owned(),
            seconds: 2.0,
        };
        for argument in std::env::args().skip(1) {
            match argument.split_once('=') {
                Some(("device", name)) => wanted.device = name.to_owned(),
                Some(("models", list)) => wanted.models = list.to_owned(),
                Some(("batches", list)) => wanted.batches = list.to_owned(),
                Some(("precisions", list)) => wanted.precisions = list.to_owned(),
                Some(("seconds", number)) => wanted.seconds = number.parse()?,
                _ => {
                    return Err(
                        format!("\"{argument}\" is none of device=, models=, batches=, precisions=, seconds=").into()
                    );
                }
            }
        }
        Ok(wanted)
    }
}

/// A model and its training data.
struct Subject {
    architecture: Architecture,
    start: Parameters,
    features: Vec<f32>,
    labels: Vec<u32>,
}

impl Subject {
    fn new(name: &str) -> Outcome<Self> {
        let architecture = match name {
            "linear" => Architecture::Linear(Linear { inputs: 784, classes: 10 }),
            "mlp" => Architecture::Mlp(Mlp::default()),
            "cnn" => Architecture::Cnn(Cnn::default()),
            "gru" => Architecture::Gru(Gru::with_vocabulary(80)),
            _ => return Err(format!("there is no model \"{name}\"").into()),
        };
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        let count = if name == "gru" { CHARACTERS * EXAMPLES } else { EXAMPLES };
        let features = (0..EXAMPLES * 784).map(|_| next() as f32 / 8_388_608.0 - 1.0).collect();
        let labels = (0..count).map(|_| next() % architecture.classes()).collect();
        Ok(Self { start: architecture.initial(1)?, architecture, features, labels })
    }

    fn examples(&self) -> Examples<'_> {
        match self.architecture {
            Architecture::Gru(_) => Examples::Text { inputs: &self.labels, targets: &self.labels, length: CHARACTERS },
            _ => Examples::Labelled { features: &self.features, labels: &self.labels, width: 784 },
        }
    }

    /// The update after some steps, and their seconds.
    fn train(&self, device: &Device, precision: Precision, batch: u32, steps: u32) -> Outcome<(Vec<f32>, f64)> {
        let plan = TrainingPlan {
            steps: Some(steps),
            batch_size: batch,
            learning_rate: 0.01,
            precision,
            ..TrainingPlan::default()
        };
        let start = Instant::now();
        let trained = train(&self.architecture, &self.start, self.examples(), Sgd { plan: &plan, seed: 0 }, device)?;
        Ok((trained.delta, start.elapsed().as_secs_f64()))
    }

    fn deviation(&self, device: &Device, precision: Precision, batch: u32) -> Outcome<f64> {
        let (found, _) = self.train(device, precision, batch, 20)?;
        let (expected, _) = self.train(&Device::Cpu, Precision::F32, batch, 20)?;
        let length = |squares: f64| squares.sqrt();
        let apart = found.iter().zip(&expected).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        Ok(length(apart) / length(expected.iter().map(|value| f64::from(*value).powi(2)).sum()))
    }

    fn samples_per_second(&self, device: &Device, precision: Precision, batch: u32, seconds: f64) -> Outcome<f64> {
        let mut steps = 20;
        while self.train(device, precision, batch, steps)?.1 < seconds / 2.0 {
            steps *= 2;
        }
        let mut best = f64::MAX;
        for _ in 0..TURNS {
            best = best.min(self.train(device, precision, batch, steps)?.1);
        }
        Ok(f64::from(steps * batch) / best)
    }
}

fn main() -> Outcome<()> {
    let wanted = Wanted::read()?;
    let device = wanted.device.parse::<DeviceChoice>()?.open()?;
    for name in wanted.models.split(',') {
        let subject = Subject::new(name)?;
        for batch in wanted.batches.split(',') {
            let batch: u32 = batch.parse()?;
            for precision in wanted.precisions.split(',') {
                let known = [("f32", Precision::F32), ("bf16", Precision::Bf16), ("f16", Precision::F16)];
                let (_, kind) = known.into_iter().find(|(known, _)| *known == precision).ok_or("f32, bf16 or f16")?;
                let place = format!(
                    "\"what\":\"training\",\"model\":\"{name}\",\"batch\":{batch},\"precision\":\"{precision}\""
                );
                let measured = subject
                    .deviation(&device, kind, batch)
                    .and_then(|apart| Ok((apart, subject.samples_per_second(&device, kind, batch, wanted.seconds)?)));
                match measured {
                    Ok((apart, rate)) => {
                        println!("{{{place},\"samples_per_s\":{rate:.0},\"deviation\":{apart:.2e}}}");
                    }
                    // The others are measured all the same: a failure of candle is one of the results.
                    Err(error) => println!("{{{place},\"error\":{:?}}}", error.to_string()),
                }
            }
        }
    }
    Ok(())
}
