//! The audit of privacy, end to end: the real coordinator and the SDK's participants, held against their own ledger, and five
//! builds that break the promise and are caught.
//!
//! One run says what epsilon is at least (Steinke, Nasr, Jagielski 2023). The theorem is about independent coins, each of
//! which decides one neighbour of the promise; the promise is about participants, so every canary is a participant of its own:
//! enrolled or not by its own fair coin, with an update of one coordinate that nobody else has and that is much longer than
//! the clip. Many coordinates of one participant would be one coin, and coins for parts of an update would test a weaker
//! promise. Nothing is sampled, so that the ledger's figure is for exactly this neighbour. Coins are guessed from the
//! published model alone.
//!
//! What a guess would notice too late is measured: the noise in every coordinate, since a test knows the sum without it.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::participant::Participant;
use client_sdk::{SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use coordinator::config::Config;
use coordinator::faults::{self, Fault};
use coordinator::{Coordinator, Parts, Running};
use learning::privacy::audit::{Correlation, Design, Guesses, NoiseVariance, noise_power};
use learning::privacy::{PrivacySpec, PrivateCodec, Release, TaskFacts};
use learning::{checkpoint, parameters::Layout};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use serde_json::{Value, json};
use wire::admin::{CreateEnrollmentToken, EnrollmentTokenReply, Role};
use wire::inspect::{PrivacyReport, RoundView, TaskView};
use wire::task::TaskStatus;
use wire::{RoundState, TaskId, route};

use crate::in_process::InProcess;

/// Canaries, and parameters of the model: one for each.
const CANARIES: usize = 2048;
/// Of the highest scores, and as many of the lowest, are guessed. Settled beforehand.
const GUESSES_EACH: u32 = 700;
const CLIP: f64 = 1.0;
/// How much longer than the clip updates are.
const TOO_LONG: f64 = 60.0;
/// What the ledger may say at most.
const EPSILON: f64 = 1.0;
const DELTA: f64 = 1e-5;
/// Of the lower bound.
const CONFIDENCE: f64 = 0.95;
/// Of the variance's interval; a clean build fails with one in a million.
const SURE: f64 = 0.999_999;

/// Moves one coordinate too far, or fails.
struct Canary {
    coordinate: usize,
    fails: bool,
}

impl Trainer for Canary {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        if self.fails {
            return Err(TrainerError::Failed("on purpose".into()));
        }
        let mut values = model.values().to_vec();
        #[expect(clippy::cast_possible_truncation, reason = "a small whole number")]
        let step = (TOO_LONG * CLIP) as f32;
        values[self.coordinate] += step;
        let parameters = Parameters::new(Arc::clone(model.layout()), values).unwrap();
        Ok(Trained { parameters, examples: 1, metrics: Vec::new() })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        1
    }
}

/// Who takes part, and what is wrong.
struct Build {
    mechanism: &'static str,
    rounds: u32,
    /// The coordinates of those who enrol.
    members: Vec<usize>,
    /// How many of them fail in training, once they have dealt shares.
    failing: usize,
    fault: Option<Fault>,
}

/// One round as the world sees it, and what it was charged for.
struct Released {
    /// The released sum in units of the model, a coordinate each.
    sum: Vec<f64>,
    /// Of the noise, in the same units, by the ledger.
    sigma: f64,
}

struct Audited {
    report: PrivacyReport,
    rounds: Vec<Released>,
}

impl Build {
    async fn run(self) -> Audited {
        faults::set(self.fault);
        let running = Coordinator::start(&config(), Parts::system().unwrap()).await.unwrap();
        let token = running.create_operator_token("auditor", Role::Admin).await.unwrap().token;
        let operator = InProcess::operator(running.coordinator().router.clone(), token);
        let task: TaskView = operator.post(route::TASKS, &json!({ "spec": self.spec() })).await.unwrap();
        let mut members = tokio::task::JoinSet::new();
        for (index, &coordinate) in self.members.iter().enumerate() {
            let mut member = self.member(&running, &operator, index, coordinate).await;
            members.spawn(async move { member.run(std::future::pending()).await.map(|_| ()) });
        }
        let id = task.summary.id;
        let audited = self.watch(&operator, id, u32::try_from(self.members.len()).unwrap()).await;
        members.abort_all();
        running.shutdown().await;
        faults::set(None);
        audited
    }

    fn spec(&self) -> Value {
        let secure = self.mechanism.starts_with("distributed");
        let cohort = self.members.len();
        json!({
            "name": "audit",
            "model": { "tensors": [{ "name": "canaries", "shape": [CANARIES], "init": "zeros" }], "seed": 1 },
            "rounds": {
                "count": self.rounds, "select_min": cohort, "select_max": cohort, "collect_min": cohort - self.failing,
                "collect_max": cohort,
            },
            "selection": { "cohort": { "count": cohort } },
            "metrics": [],
            "secure_aggregation": { "enabled": secure, "max_corrupt_fraction": 0.0 },
            "privacy": {
                "mechanism": self.mechanism, "epsilon": EPSILON, "delta": DELTA, "clip": { "fixed": CLIP },
            },
        })
    }

    async fn member(&self, running: &Running, operator: &InProcess, index: usize, coordinate: usize) -> Participant {
        let body = CreateEnrollmentToken { name: Some(format!("canary-{coordinate}")), ..Default::default() };
        let token: EnrollmentTokenReply = operator.post(route::ENROLLMENT_TOKENS, &body).await.unwrap();
        let mut builder = Participant::builder()
            .transport(InProcess::participant(running.coordinator().router.clone()))
            .journal(MemoryJournal::new())
            .trainer(Canary { coordinate, fails: index < self.failing })
            .secure_aggregation(SecurityPolicy { required: false, ..SecurityPolicy::default() })
            .enrollment_token(token.token);
        if self.fault == Some(Fault::NoClipping) {
            builder = builder.deliberate_fault(client_sdk::faults::Fault::NoClipping);
        }
        builder.build().unwrap()
    }

    async fn watch(&self, operator: &InProcess, task: TaskId, cohort: u32) -> Audited {
        for number in 1..=self.rounds {
            until_over(operator, task, number).await;
        }
        let report: PrivacyReport = operator.get(&route::fill(route::TASK_PRIVACY, &[&task])).await;
        assert_eq!(report.releases.len(), self.rounds as usize);
        let shown: TaskView = operator.get(&route::fill(route::TASK, &[&task])).await;
        assert_eq!(shown.summary.status, TaskStatus::Completed);
        let codec = codec(&report, self.rounds);
        let mut rounds = Vec::new();
        let mut before = model(operator, task, 0).await;
        for (version, row) in (1..).zip(&report.releases) {
            let after = model(operator, task, version).await;
            // The mean is over the expected cohort, whoever came.
            let moved = |(after, before): (&f32, &f32)| f64::from(after - before) * f64::from(report.cohort);
            let sum = after.iter().zip(&before).map(moved).collect();
            let release: Release = serde_json::from_value(row.parameters.clone()).unwrap();
            rounds.push(Released { sum, sigma: release.sum.sigma() / codec.scale(CLIP) });
            before = after;
        }
        assert_eq!(report.cohort, cohort);
        Audited { report, rounds }
    }
}

fn config() -> Config {
    const RATE: u32 = 1_000_000;
    let mut config = Config::default();
    config.database.url = "sqlite::memory:".to_owned();
    config.blobs.url = "memory:".to_owned();
    config.identity.ca_certificate_file = "".into();
    config.identity.ca_key_file = "".into();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.http.participant_rate = RATE;
    config.http.operator_rate = RATE;
    config.http.address_rate = RATE;
    config.http.check_ins_per_second = RATE;
    config
}

async fn until_over(operator: &InProcess, task: TaskId, number: u32) {
    for _ in 0..1200 {
        let path = route::fill(route::ROUND, &[&task, &number]);
        let view: Result<RoundView, _> = operator.try_get(&path).await;
        match view.map(|view| (view.state, view.failure)) {
            Ok((RoundState::Completed, _)) => return,
            Ok((state, failure)) if state.is_terminal() => panic!("round {number} ended {state} {failure:?}"),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("round {number} does not end");
}

/// The grid, derived as everybody derives it.
fn codec(report: &PrivacyReport, rounds: u32) -> PrivateCodec {
    let spec: PrivacySpec = serde_json::from_value(serde_json::to_value(&report.spec).unwrap()).unwrap();
    let facts = TaskFacts {
        cohort: report.cohort,
        parameters: CANARIES as u64,
        modulus_bits: 32,
        smallest_cohort: report.smallest_cohort,
        colluders: report.colluders,
        rounds,
    };
    spec.request(&facts).unwrap().codec(spec.noise_multiplier.unwrap()).unwrap()
}

async fn model(operator: &InProcess, task: TaskId, version: u32) -> Vec<f32> {
    let bytes = operator.download(&route::model_parameters(task, version)).await;
    let layout: Arc<Layout> = Arc::new(checkpoint::read_layout(&bytes).unwrap());
    checkpoint::read(&bytes, &layout).unwrap().values().to_vec()
}

/// The lower bound on epsilon that one run proves, and what the ledger says.
async fn lower_bound(fault: Option<Fault>, seed: u64) -> (f64, f64) {
    let mut coins = ChaCha20Rng::seed_from_u64(seed);
    let included: Vec<bool> = (0..CANARIES).map(|_| coins.random()).collect();
    let members = (0..CANARIES).filter(|&canary| included[canary]).collect();
    let build = Build { mechanism: "central_gaussian", rounds: 1, members, failing: 0, fault };
    let audited = build.run().await;
    let scores = &audited.rounds[0].sum;
    let guesses = Guesses::from_scores(scores, &included, GUESSES_EACH as usize, GUESSES_EACH as usize).unwrap();
    let bound = guesses.epsilon_at_least(DELTA, CONFIDENCE).unwrap();
    let ledger = audited.report.spent.cohort_known;
    assert!(ledger <= EPSILON && ledger > 0.9 * EPSILON);
    if fault.is_none() {
        let clean: Vec<f64> = included.iter().map(|&is_in| if is_in { CLIP } else { 0.0 }).collect();
        let noise = variance(&audited.rounds[0], &clean);
        assert!(noise.is_as_charged(), "{noise:?}");
    }
    (bound, ledger)
}

fn variance(released: &Released, clean: &[f64]) -> NoiseVariance {
    NoiseVariance::of(&residual(released, clean), released.sigma, SURE).unwrap()
}

fn residual(released: &Released, clean: &[f64]) -> Vec<f64> {
    released.sum.iter().zip(clean).map(|(sum, clean)| sum - clean).collect()
}

/// What the clipped updates of these add up to.
fn sum_of(members: impl Iterator<Item = usize>) -> Vec<f64> {
    let mut sum = vec![0.0; CANARIES];
    members.for_each(|coordinate| sum[coordinate] += CLIP);
    sum
}

#[test]
fn audits_are_planned_to_notice() {
    // Noise for epsilon 1 is about four clips wide.
    let plan = |shift| {
        let canaries = u32::try_from(CANARIES).unwrap();
        Design { canaries, guesses_each: GUESSES_EACH, shift, delta: DELTA, confidence: CONFIDENCE }
    };
    assert!(plan(f64::INFINITY).power(EPSILON).unwrap() > 0.99, "no noise");
    assert!(plan(TOO_LONG / 6.0).power(EPSILON).unwrap() > 0.99, "no clipping");
    assert!(plan(1.0 / 3.0).power(EPSILON).unwrap() < 0.05, "nothing to notice");
    let canaries = u32::try_from(CANARIES).unwrap();
    assert!(noise_power(canaries, 0.25, SURE).unwrap() > 0.99, "half the noise");
    assert!(noise_power(canaries, 0.7, SURE).unwrap() > 0.99, "the noise of 7 counted as that of 10");
}

/// Faults are of the process: one test after the other where they share one.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn one_run_of_a_clean_build_proves_no_more_than_its_ledger_says() {
    let _one = ONE_AT_A_TIME.lock().await;
    let (bound, ledger) = lower_bound(None, 1).await;
    println!("epsilon is at least {bound:.3}; the ledger says {ledger:.3}");
    assert!(bound <= ledger, "at least {bound}, ledger {ledger}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_without_clipping_is_caught() {
    let _one = ONE_AT_A_TIME.lock().await;
    let (bound, ledger) = lower_bound(Some(Fault::NoClipping), 2).await;
    println!("epsilon is at least {bound:.3}; the ledger says {ledger:.3}");
    assert!(bound > ledger, "at least {bound}, ledger {ledger}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_without_noise_is_caught() {
    let _one = ONE_AT_A_TIME.lock().await;
    let (bound, ledger) = lower_bound(Some(Fault::NoNoise), 3).await;
    println!("epsilon is at least {bound:.3}; the ledger says {ledger:.3}");
    assert!(bound > ledger, "at least {bound}, ledger {ledger}");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_the_noise_and_reused_noise_are_caught() {
    let _one = ONE_AT_A_TIME.lock().await;
    let clean = sum_of(0..8);
    for fault in [None, Some(Fault::HalfNoise), Some(Fault::ReusedNoise)] {
        let members = (0..8).collect();
        let build = Build { mechanism: "central_gaussian", rounds: 2, members, failing: 0, fault };
        let audited = build.run().await;
        let noise = variance(&audited.rounds[0], &clean);
        let pair = [0, 1].map(|round: usize| residual(&audited.rounds[round], &clean));
        let correlation = Correlation::of(&pair[0], &pair[1]).unwrap();
        println!("{fault:?}: {noise:?} {correlation:?}");
        assert_eq!(noise.is_as_charged(), fault != Some(Fault::HalfNoise), "{fault:?}: {noise:?}");
        assert_eq!(correlation.p_value > 1e-6, fault != Some(Fault::ReusedNoise), "{fault:?}: {correlation:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_counted_from_dropped_participants_is_caught() {
    let _one = ONE_AT_A_TIME.lock().await;
    for fault in [None, Some(Fault::DropoutsCounted)] {
        let members = (0..10).collect();
        let build = Build { mechanism: "distributed_skellam", rounds: 1, members, failing: 3, fault };
        let audited = build.run().await;
        let noise = variance(&audited.rounds[0], &sum_of(3..10));
        println!("{fault:?}, three of ten dropped out: {noise:?}");
        assert_eq!(noise.is_as_charged(), fault.is_none(), "{fault:?}: {noise:?}");
    }
}
