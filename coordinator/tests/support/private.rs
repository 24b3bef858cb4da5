//! Participants of a private task: their derived parameters, uploads and noise.

use federation::id::ParticipantId;
use federation::round::RoundState;
use learning::Update;
use learning::privacy::{NoiseSampler, NoiseShares, PlanRequest, PrivateCodec, TaskFacts};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use recipe::digest::rotation_seed;
use serde_json::{Value, json};
use store::entity::privacy_ledger::PrivacyRow;
use wire::inspect::{PrivacyReport, RoundView};
use wire::participant::{Assignment, PrivacyTerms};

use super::Reply;
use super::secure::World;

/// Path of the ledger.
pub(crate) const PRIVACY: &str = "/v1/tasks/secure/privacy";

/// Parameters of [`mechanism`]'s model: enough to measure the variance of noise to a few per cent.
pub(crate) const PARAMETERS: usize = 4096;

/// A task with this mechanism, updates longer than its clip, and a model large enough to measure noise.
pub(crate) fn mechanism(spec: &mut Value, name: &str) {
    spec["model"]["tensors"][0]["shape"] = json!([PARAMETERS]);
    spec["metrics"] = json!([]);
    spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.3);
    spec["secure_aggregation"]["max_corrupt_fraction"] = json!(0.1);
    spec["privacy"] = json!({
        "mechanism": name, "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 5.0 },
    });
}

pub(crate) fn in_the_clear(spec: &mut Value, name: &str) {
    mechanism(spec, name);
    spec["secure_aggregation"] = json!({ "enabled": false });
}

/// The values derived by a participant from its assignment alone.
pub(crate) struct Derived {
    pub(crate) codec: PrivateCodec,
    pub(crate) shares: Option<NoiseShares>,
    pub(crate) clip: f64,
}

impl Derived {
    pub(crate) fn new(place: &Assignment, terms: &PrivacyTerms) -> Self {
        let parameters = place.model.tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
        let facts = TaskFacts {
            cohort: terms.cohort,
            parameters,
            modulus_bits: place.encoding.modulus_bits,
            smallest_cohort: terms.smallest_cohort,
            colluders: terms.colluders,
            rounds: terms.rounds,
        };
        let request: PlanRequest = PlanRequest::of(&terms.spec, &facts).unwrap();
        let codec = request.codec(terms.spec.noise_multiplier.expect("participants are always told")).unwrap();
        Self { codec, shares: request.shares(&codec).unwrap(), clip: terms.clip }
    }
}

fn rng(id: ParticipantId, round: u32, attempt: u32, purpose: u8) -> ChaCha20Rng {
    let mut seed = [purpose; 32];
    seed[..16].copy_from_slice(id.0.as_bytes());
    seed[16..20].copy_from_slice(&round.to_be_bytes());
    seed[20..24].copy_from_slice(&attempt.to_be_bytes());
    ChaCha20Rng::from_seed(seed)
}

/// An unclipped update; its norm is about 18 for [`PARAMETERS`].
pub(crate) fn update(parameters: usize, id: ParticipantId, round: u32) -> Update {
    let mut rng = rng(id, round, 0, 0);
    let mut uniform = || f32::from(u16::try_from(rng.next_u32() >> 16).unwrap()) / 65_536.0 - 0.5;
    Update { delta: (0..parameters).map(|_| uniform()).collect(), examples: 10, metrics: Vec::new() }
}

/// The words sent for this place: on the grid, with the participant's own noise if any.
pub(crate) fn words(place: &Assignment, terms: &PrivacyTerms, id: ParticipantId) -> (Vec<u32>, Vec<u32>) {
    let Derived { codec, shares, clip } = Derived::new(place, terms);
    let (round, attempt) = (place.round, place.attempt);
    let update = update(codec.params().parameters, id, round);
    let rotation = rotation_seed(place.attempt_key()).0;
    let plain = codec.encode(&update, clip, &rotation, &mut rng(id, round, attempt, 1)).unwrap().words;
    let mut noised = plain.clone();
    if let Some(shares) = shares {
        let bits = codec.params().modulus_bits;
        NoiseSampler::new(shares.share).add_to(&mut noised, bits, &mut rng(id, round, attempt, 2));
    }
    (plain, noised)
}

/// Asserts that the residual's variance is within a number of standard deviations of the expected one. An error by half, or by one part in
/// four, is far outside for [`PARAMETERS`] coordinates.
#[track_caller]
pub(crate) fn assert_variance(residual: &[i64], expected: f64) {
    let count = residual.len() as f64;
    let mean = residual.iter().map(|&r| r as f64).sum::<f64>() / count;
    let square = residual.iter().map(|&r| (r as f64).powi(2)).sum::<f64>();
    let (chi, spread) = (square / expected, (2.0 * count).sqrt());
    assert!((chi - count).abs() < 5.0 * spread, "variance {} where {expected} was charged", square / count);
    assert!(mean.abs() < 5.0 * (expected / count).sqrt(), "mean {mean} at variance {expected}");
}

impl World {
    /// The complete ledger, as shown to viewers.
    pub(crate) async fn ledger(&self) -> PrivacyReport {
        self.privacy().await.read()
    }

    pub(crate) async fn privacy(&self) -> Reply {
        self.t.get(&self.t.viewer, PRIVACY).await
    }

    /// The ledger's rows as they are stored.
    pub(crate) async fn rows(&self) -> Vec<PrivacyRow> {
        let task = self.task;
        let read = self.t.inner.store.read("test", |tx| Box::pin(async move { tx.privacy_rows(task, 0, 1000).await }));
        read.await.unwrap()
    }

    /// Status of the task with its reason.
    pub(crate) async fn status(&self) -> (String, String) {
        let task = self.t.get(&self.t.viewer, "/v1/tasks/secure").await.json();
        let history = task["history"].as_array().unwrap();
        let last = history.last().unwrap();
        assert_eq!(last["status"], task["status"], "{task}");
        (task["status"].as_str().unwrap().to_owned(), last["detail"].as_str().unwrap_or_default().to_owned())
    }

    /// A round without secure aggregation of the online participants. These report, the others time out.
    pub(crate) async fn run_in_the_clear(
        &mut self,
        number: u32,
        is_there: impl Fn(usize) -> bool,
        reports: impl Fn(usize) -> bool,
    ) -> RoundView {
        self.t.work().await;
        for (at, member) in self.members.iter().enumerate() {
            if is_there(at) {
                member.check_in(&self.t).await;
            }
        }
        self.t.work().await;
        for (at, member) in self.members.iter_mut().enumerate() {
            if is_there(at) && reports(at) {
                member.assigned(&self.t).await;
                member.report(&self.t, &self.model).await;
            }
        }
        self.t.work().await;
        if self.state(number).await == RoundState::Collecting {
            self.time_out().await;
        }
        self.view(number).await
    }

    /// The noise: a released sum minus these updates, before their own noise.
    pub(crate) async fn residual(&self, number: u32, included: impl Fn(usize) -> bool) -> Vec<i64> {
        let released = self.released(number).await.expect("a sum was released");
        let mut exact = vec![0; self.model.codec.len()];
        for (_, member) in self.members.iter().enumerate().filter(|(at, _)| included(*at)) {
            secure_agg::modular::add_assign(&mut exact, &member.plain);
        }
        secure_agg::modular::reduce(&mut exact, self.model.modulus);
        let bits = self.model.encoding.modulus_bits;
        let half = 1_i64 << (bits - 1);
        let centred = |word: i64| (word + half).rem_euclid(2 * half) - half;
        released.iter().zip(&exact).map(|(&a, &b)| centred(i64::from(a) - i64::from(b))).collect()
    }
}

/// Variance of the noise in the sum of a ledger's row, excluding the colluders' share.
pub(crate) fn charged_variance(parameters: &Value) -> f64 {
    let noise = &parameters["sum"]["noise"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number in {parameters}"));
    if let Some(gaussian) = noise.get("discrete_gaussian") {
        number(&gaussian["sigma"]).powi(2)
    } else if let Some(shares) = noise.get("discrete_gaussian_shares") {
        number(&shares["sigma"]).powi(2) * number(&shares["shares"])
    } else {
        number(&noise["skellam"]["variance"])
    }
}
