//! An app's own transformer in candle: five participants learn to continue repeated letters. The head stays on each device.
//!
//! Each text repeats three letters, so attention must find the letter three places back. The participants share the body of the
//! model; the last layer is personal ([`FedPer`](client_sdk::personalize::FedPer)). Run it with `cargo run --release -p examples
//! --bin candle_transformer`.

use anyhow::{Result, ensure};
use client_sdk::candle_trainer::candle_core::{self, D, DType, Tensor};
use client_sdk::candle_trainer::candle_nn::ops::{layer_norm_slow, softmax};
use client_sdk::candle_trainer::candle_nn::{Linear, Module as _, VarBuilder, linear, linear_no_bias, loss};
use client_sdk::journal::MemoryJournal;
use client_sdk::transport::Proxy;
use client_sdk::{CandleTrainer, Dataset, Participant, SecurityPolicy};
use examples::{Lab, say, unit};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const PARTICIPANTS: usize = 5;
const ROUNDS: u32 = 3;
const LETTERS: usize = 8;
const LENGTH: usize = 12;
const PERIOD: usize = 3;
const WIDTH: usize = 32;
const HEADS: usize = 2;

/// One block of a transformer with learnt positions.
struct Net {
    letters: Tensor,
    positions: Tensor,
    norms: [[Tensor; 2]; 2],
    attention: Linear,
    joined: Linear,
    up: Linear,
    down: Linear,
    head: Linear,
}

impl Net {
    fn new(vb: VarBuilder<'_>) -> candle_core::Result<Self> {
        let norm = |name: &str| -> candle_core::Result<[Tensor; 2]> {
            Ok([vb.get(WIDTH, &format!("{name}.weight"))?, vb.get(WIDTH, &format!("{name}.bias"))?])
        };
        Ok(Self {
            letters: vb.get((LETTERS, WIDTH), "letters")?,
            positions: vb.get((LENGTH, WIDTH), "positions")?,
            norms: [norm("norm1")?, norm("norm2")?],
            attention: linear_no_bias(WIDTH, 3 * WIDTH, vb.pp("attention"))?,
            joined: linear(WIDTH, WIDTH, vb.pp("joined"))?,
            up: linear(WIDTH, 4 * WIDTH, vb.pp("up"))?,
            down: linear(4 * WIDTH, WIDTH, vb.pp("down"))?,
            head: linear(WIDTH, LETTERS, vb.pp("head"))?,
        })
    }

    /// candle's `LayerNorm::forward` has no gradient.
    fn norm(&self, index: usize, x: &Tensor) -> candle_core::Result<Tensor> {
        let [weight, bias] = &self.norms[index];
        layer_norm_slow(x, weight, bias, 1e-5)
    }

    /// Causal attention on `[batch, LENGTH, WIDTH]`. candle's `softmax_last_dim` has no gradient.
    fn attend(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let batch = x.dim(0)?;
        let all = self.attention.forward(x)?.reshape((batch, LENGTH, 3, HEADS, WIDTH / HEADS))?;
        let part = |index: usize| all.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (queries, keys, values) = (part(0)?, part(1)?, part(2)?);
        let scores = queries.matmul(&keys.t()?.contiguous()?)?.affine(1.0 / ((WIDTH / HEADS) as f64).sqrt(), 0.0)?;
        let later = (0..LENGTH * LENGTH).map(|at| if at % LENGTH > at / LENGTH { -1e9 } else { 0.0 });
        let later = Tensor::from_vec(later.collect::<Vec<f32>>(), (1, 1, LENGTH, LENGTH), x.device())?;
        let weights = softmax(&scores.broadcast_add(&later)?, D::Minus1)?;
        self.joined.forward(&weights.matmul(&values)?.transpose(1, 2)?.contiguous()?.reshape((batch, LENGTH, WIDTH))?)
    }

    /// Scores `[batch * LENGTH, LETTERS]` of the next letters.
    fn logits(&self, letters: &Tensor) -> candle_core::Result<Tensor> {
        let batch = letters.dim(0)?;
        let x = self.letters.index_select(&letters.flatten_all()?, 0)?.reshape((batch, LENGTH, WIDTH))?;
        let x = x.broadcast_add(&self.positions)?;
        let x = (&x + self.attend(&self.norm(0, &x)?)?)?;
        let x = (&x + self.down.forward(&self.up.forward(&self.norm(1, &x)?)?.gelu()?)?)?;
        self.head.forward(&x.reshape((batch * LENGTH, WIDTH))?)
    }

    fn loss(&self, (letters, next): &(Tensor, Tensor)) -> candle_core::Result<Tensor> {
        loss::cross_entropy(&self.logits(letters)?, &next.flatten_all()?)
    }

    fn metrics(&self, (letters, next): &(Tensor, Tensor)) -> candle_core::Result<Vec<(String, f64)>> {
        let hits = self.logits(letters)?.argmax(D::Minus1)?.eq(&next.flatten_all()?)?.to_dtype(DType::F32)?;
        Ok(vec![("accuracy".to_owned(), hits.mean_all()?.to_scalar::<f32>()?.into())])
    }
}

/// Texts that repeat three letters.
fn texts(count: usize, seed: u64) -> Dataset {
    let mut state = seed;
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..count {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 7")]
        let letters: Vec<u32> = (0..PERIOD).map(|_| (unit(&mut state) * LETTERS as f64) as u32).collect();
        inputs.extend((0..LENGTH).map(|at| letters[at % PERIOD]));
        targets.extend((1..=LENGTH).map(|at| letters[at % PERIOD]));
    }
    Dataset::Text { inputs, targets, length: LENGTH }
}

fn task() -> Value {
    let drawn = |name: &str, shape: &[usize], bound: f64| {
        let init = json!({ "uniform": { "bound": bound } });
        json!({ "name": name, "shape": shape, "init": init })
    };
    let filled = |name: &str, length: usize, init: &str| json!({ "name": name, "shape": [length], "init": init });
    json!({ "spec": {
        "name": "own-transformer",
        "model": { "seed": 1, "personal": ["head.*"], "tensors": [
            drawn("letters", &[LETTERS, WIDTH], 0.5),
            drawn("positions", &[LENGTH, WIDTH], 0.5),
            filled("norm1.weight", WIDTH, "ones"),
            filled("norm1.bias", WIDTH, "zeros"),
            filled("norm2.weight", WIDTH, "ones"),
            filled("norm2.bias", WIDTH, "zeros"),
            drawn("attention.weight", &[3 * WIDTH, WIDTH], 0.18),
            drawn("joined.weight", &[WIDTH, WIDTH], 0.18),
            filled("joined.bias", WIDTH, "zeros"),
            drawn("up.weight", &[4 * WIDTH, WIDTH], 0.18),
            filled("up.bias", 4 * WIDTH, "zeros"),
            drawn("down.weight", &[WIDTH, 4 * WIDTH], 0.09),
            filled("down.bias", WIDTH, "zeros"),
            drawn("head.weight", &[LETTERS, WIDTH], 0.18),
            filled("head.bias", LETTERS, "zeros"),
        ] },
        "training": {
            "epochs": 6, "batch_size": 16, "learning_rate": 0.005, "gradient_clip": 1.0, "optimizer": { "name": "adamw" },
        },
        "rounds": { "count": ROUNDS, "select_max": PARTICIPANTS },
        "selection": { "cohort": { "count": PARTICIPANTS } },
        "metrics": ["accuracy", "train_loss"]
    } })
}

#[tokio::main]
async fn main() -> Result<()> {
    let lab = Lab::start().await?;
    lab.post("/v1/tasks", &task()).await?;
    let mut participants = JoinSet::new();
    for number in 0..PARTICIPANTS {
        let trainer = CandleTrainer::new(Net::new, |net, batch| net.loss(batch), texts(128, number as u64));
        let mut participant = Participant::builder()
            .server(lab.url())
            .proxy(Proxy::none()) // the coordinator is in this process
            .ca_pem(lab.ca_pem())
            .enrollment_token(lab.enrollment_token(&format!("device-{number}")).await?)
            .journal(MemoryJournal::new())
            // Fewer participants than an app should require.
            .secure_aggregation(SecurityPolicy::lowest())
            .trainer(trainer.with_held_out(texts(64, 99)).with_metrics(|net, batch| net.metrics(batch)))
            .seed(Some(number as u64))
            .build()?;
        participants.spawn(async move { participant.run(std::future::pending()).await });
    }
    let mut accuracies = Vec::new();
    for number in 1..=ROUNDS {
        let round = lab.round("own-transformer", number).await?;
        let metric = |name: &str| round["metrics"][name]["value"].as_f64().unwrap_or(f64::NAN);
        let (accuracy, loss) = (100.0 * metric("accuracy"), metric("train_loss"));
        say(&format!("round {number}: accuracy of the received model {accuracy:.1} %, training loss {loss:.3}"));
        accuracies.push(accuracy);
    }
    let published = lab.model("own-transformer", ROUNDS).await?;
    lab.stop().await;
    let names: Vec<&str> = published.layout().tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    ensure!(names.len() == 13 && !names.iter().any(|name| name.starts_with("head")), "the head was sent: {names:?}");
    // The first two letters to predict are random, so 85 % is the most.
    let (first, last) = (accuracies[0], accuracies[accuracies.len() - 1]);
    ensure!(first < 40.0 && last > 60.0, "accuracy went from {first} % to {last} %; chance is 12.5 %");
    Ok(())
}
