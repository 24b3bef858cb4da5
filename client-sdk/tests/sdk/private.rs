//! Data leaving a participant under a privacy mechanism: clipped and noised, without weight or metrics. Also the terms that the
//! participant refuses.

use std::sync::Arc;

use client_sdk::learning::privacy::accountant::SumNoise;
use client_sdk::learning::privacy::{NoiseLaw, PrivateCodec};
use client_sdk::learning::{Layout, MetricValue, Parameters, TensorSpec};
use client_sdk::pipeline::{Encoder, Protection, masked_input};
use client_sdk::privacy::{PrivateRound, TermsError};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use secure_agg::modular::Modulus;
use secure_agg::packing;
use task_spec::{AdaptiveClip, Clip};
use wire::participant::{Assignment, PrivacyTerms};

use crate::support::cohort::Hub;
use crate::support::private::{MECHANISMS, derive, terms};

/// An assignment that matches its terms.
fn assignment(terms: &PrivacyTerms) -> Assignment {
    let hub = Hub::new(3, 2);
    hub.world(|world| {
        world.privacy = Some(terms.clone());
        world.open(1, 1);
        world.assignment()
    })
}

fn round(terms: &PrivacyTerms, parameters: usize) -> Result<PrivateRound, TermsError> {
    PrivateRound::new(&assignment(terms), terms, parameters)
}

fn parameters(values: Vec<f32>) -> Parameters {
    let spec = TensorSpec { name: "w".into(), shape: vec![values.len() as u64] };
    Parameters::new(Arc::new(Layout::new(vec![spec]).unwrap()), values).unwrap()
}

/// The words that leave the device, without masks, centred.
fn words(terms: &PrivacyTerms, delta: Vec<f32>, examples: u64, seed: u8) -> (Vec<i64>, PrivateCodec) {
    let codec = derive(terms, delta.len() as u64).1;
    let round = round(terms, delta.len()).unwrap();
    let received = parameters(vec![0.0; delta.len()]);
    let metrics = vec![MetricValue { value: 3.0, count: 5 }];
    let mut rng = ChaCha20Rng::from_seed([seed; 32]);
    let encoder = Encoder::Private(&round, &mut rng);
    let input = masked_input(&received, parameters(delta), examples, metrics, encoder, Protection::Plaintext).unwrap();
    let modulus = Modulus::new(32).unwrap();
    let words = packing::unpack(&input.body, codec.len(), modulus).unwrap();
    (words.into_iter().map(|word| modulus.centre(word)).collect(), codec)
}

fn length(words: &[i64]) -> f64 {
    words.iter().map(|word| (*word as f64).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn each_share_of_noise_has_the_variance_of_its_law() {
    const COORDINATES: usize = 1 << 14;
    for mechanism in MECHANISMS {
        let terms = terms(mechanism);
        let (words, codec) = words(&terms, vec![0.0; COORDINATES], 7, 1);
        let variance = words.iter().map(|word| (*word as f64).powi(2)).sum::<f64>() / COORDINATES as f64;
        let shares = derive(&terms, COORDINATES as u64).0.shares(&codec).unwrap();
        let expected = match shares.map(|shares| shares.share) {
            Some(NoiseLaw::DiscreteGaussian(sigma)) => sigma.value().powi(2),
            Some(NoiseLaw::Skellam(variance)) => variance.value(),
            None => 0.0,
        };
        let is_own = !matches!(mechanism, "central_gaussian" | "tree");
        assert_eq!(expected > 0.0, is_own, "{mechanism}");
        // Five standard errors.
        let tolerance = 5.0 * expected * (2.0 / COORDINATES as f64).sqrt();
        assert!((variance - expected).abs() <= tolerance, "{mechanism}: {variance} instead of {expected}");
        if let Some(SumNoise::Skellam { variance }) = shares.map(|shares| shares.noise_of(3).unwrap()) {
            assert!((variance - 3.0 * expected).abs() < 1e-6 * variance);
        }
    }
}

#[test]
fn updates_are_scaled_down_to_the_clip_and_no_further() {
    for mechanism in ["central_gaussian", "tree"] {
        let terms = terms(mechanism);
        // 0.2 is the length of the short one, 100 that of the long one.
        for (value, scale) in [(0.02, 1.0), (10.0, 0.005)] {
            let delta: Vec<f32> = (0..100).map(|index| if index % 2 == 0 { value } else { -value }).collect();
            let (words, codec) = words(&terms, delta.clone(), 1, 2);
            assert_eq!(words.len(), 100, "neither a weight nor metrics ride behind the parameters");
            assert!(length(&words) <= codec.sensitivity());
            for (word, delta) in words.iter().zip(delta) {
                let expected = f64::from(delta) * scale * codec.scale(terms.clip);
                assert!((*word as f64 - expected).abs() <= 1.0, "{word} instead of {expected}");
            }
        }
    }
}

#[test]
fn rotated_updates_are_clipped_too() {
    let mut terms = terms("distributed_skellam");
    terms.spec.noise_multiplier = Some(0.01);
    let (short, codec) = words(&terms, vec![0.01; 300], 1, 3);
    let (long, _) = words(&terms, vec![100.0; 300], 1, 3);
    assert_eq!(short.len(), 512, "padded to a power of two");
    let noise = 0.01 * codec.sensitivity() * (512.0_f64 / 3.0).sqrt();
    let of_short = 0.01 * 300.0_f64.sqrt() * codec.scale(terms.clip);
    assert!((length(&short) - of_short).abs() <= 2.0 * noise, "{} {of_short}", length(&short));
    let of_clip = terms.clip * codec.scale(terms.clip);
    assert!((length(&long) - of_clip).abs() <= 2.0 * noise, "{} {of_clip}", length(&long));
}

#[test]
fn a_weight_is_a_factor_within_the_clip() {
    let mut terms = terms("central_gaussian");
    let of = |terms: &PrivacyTerms, examples| length(&words(terms, vec![0.5; 100], examples, 4).0);
    let full = of(&terms, 1);
    assert!((of(&terms, 50) - full).abs() < 12.0, "everybody weighs the same");
    terms.spec.max_weight = Some(10);
    let scale = derive(&terms, 100).1.scale(terms.clip) / derive(&self::terms("central_gaussian"), 100).1.scale(0.5);
    for (examples, part) in [(1, 0.1), (5, 0.5), (10, 1.0), (5000, 1.0)] {
        assert!((of(&terms, examples) - part * scale * full).abs() < 20.0, "{examples}");
    }
}

#[test]
fn where_the_clip_adapts_one_word_more_says_whether_the_update_was_within_it() {
    let mut terms = terms("central_gaussian");
    terms.spec.clip = Some(Clip::Adaptive(AdaptiveClip { quantile: 0.5, initial: 0.5, learning_rate: 0.2 }));
    terms.spec.noise_multiplier = Some(0.1);
    for clip in [0.5, 0.1] {
        terms.clip = clip;
        let (words, codec) = words(&terms, vec![0.02; 100], 1, 5);
        assert_eq!(words.len(), 101);
        assert_eq!(words[100] > 0, clip == 0.5, "{words:?}");
        assert!(length(&words) <= codec.sensitivity());
    }
}

#[test]
fn two_draws_share_nothing() {
    for mechanism in ["distributed_discrete_gaussian", "distributed_skellam", "local"] {
        let terms = terms(mechanism);
        let of = |seed| words(&terms, vec![0.0; 4096], 1, seed).0;
        let (one, other) = (of(1), of(2));
        let product: f64 = one.iter().zip(&other).map(|(a, b)| *a as f64 * *b as f64).sum();
        let correlation = product / length(&one) / length(&other);
        assert!(correlation.abs() < 5.0 / 64.0, "{mechanism}: {correlation}");
    }
}

/// Why changed terms are not taken.
fn refused(mechanism: &str, change: impl FnOnce(&mut PrivacyTerms)) -> String {
    let good = terms(mechanism);
    let assignment = assignment(&good);
    let mut bad = good;
    change(&mut bad);
    PrivateRound::new(&assignment, &bad, 5).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn terms_that_promise_nothing_or_cannot_be_kept_are_refused() {
    for mechanism in MECHANISMS {
        assert!(round(&terms(mechanism), 5).is_ok(), "{mechanism}");
        let no_mechanism = refused(mechanism, |terms| terms.spec.mechanism = Default::default());
        assert!(no_mechanism.contains("none") || no_mechanism.contains("no mechanism"), "{no_mechanism}");
        let no_noise = refused(mechanism, |terms| terms.spec.noise_multiplier = None);
        assert!(no_noise.contains("noise_multiplier"), "{no_noise}");
        let unsolved = refused(mechanism, |terms| {
            (terms.spec.noise_multiplier, terms.spec.epsilon, terms.spec.rounds) = (None, Some(1.0), Some(2));
        });
        assert_eq!(unsolved, "noise_multiplier is missing");
        let zero = refused(mechanism, |terms| terms.spec.noise_multiplier = Some(0.0));
        assert!(zero.contains("noise_multiplier"), "{zero}");
        for delta in [None, Some(0.0), Some(1.0)] {
            let error = refused(mechanism, |terms| terms.spec.delta = delta);
            assert!(error.contains("delta: must be above 0 and below 1"), "{error}");
        }
        for clip in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(refused(mechanism, |terms| terms.clip = clip).contains("clip must be a normal number above 0"));
        }
        assert!(refused(mechanism, |terms| terms.clip = 0.25).contains("clip must be what the task fixes it to"));
        assert!(refused(mechanism, |terms| terms.cohort = 0).contains("cohort must be"));
        assert!(refused(mechanism, |terms| terms.smallest_cohort = 0).contains("smallest_cohort must be"));
        assert!(refused(mechanism, |terms| terms.smallest_cohort = 4).contains("smallest_cohort must be"));
        assert!(refused(mechanism, |terms| terms.rounds = 0).contains("rounds must be"));
        let cohort = refused(mechanism, |terms| terms.cohort = 4);
        assert_eq!(cohort, "the largest cohort is 3 where they make it 4");
        let weight = refused(mechanism, |terms| terms.spec.max_weight = Some(9));
        assert_eq!(weight, "the largest weight is 1 where they make it 9");
    }
}

#[test]
fn distributed_noise_rests_on_what_the_session_enforces() {
    for mechanism in MECHANISMS {
        let is_distributed = mechanism.starts_with("distributed");
        let terms = terms(mechanism);
        let of = |change: fn(&mut Assignment)| {
            let mut assignment = assignment(&terms);
            change(&mut assignment);
            PrivateRound::new(&assignment, &terms, 5).map(|_| ()).map_err(|error| error.to_string())
        };
        let in_the_clear = of(|assignment| assignment.secure_aggregation = None);
        assert_eq!(in_the_clear.is_err(), is_distributed, "{mechanism}: {in_the_clear:?}");
        let fewer = of(|assignment| assignment.secure_aggregation.as_mut().unwrap().min_included = 2).unwrap_err();
        assert_eq!(fewer, "sums of 2 updates could be opened where the noise counts on 3");
        let colluders = of(|assignment| assignment.secure_aggregation.as_mut().unwrap().max_corrupt = 340_000);
        assert_eq!(colluders.is_err(), is_distributed, "{mechanism}: {colluders:?}");
    }
}

#[test]
fn a_modulus_without_room_is_refused() {
    let mut terms = terms("central_gaussian");
    terms.spec.noise_multiplier = Some(9000.0);
    let mut assignment = assignment(&self::terms("central_gaussian"));
    assignment.encoding.modulus_bits = 16;
    let error = PrivateRound::new(&assignment, &terms, 1 << 20).map(|_| ()).unwrap_err();
    assert!(matches!(error, TermsError::Derived(_)), "{error}");
    assert!(error.to_string().contains("leave"), "{error}");
}

/// The coordinator's forged values.
type Tweak = fn(&mut Assignment);

#[test]
fn bad_terms_are_told_to_the_app_and_the_round_is_given_up() {
    use crate::support::device::{Device, run};
    use client_sdk::Event;
    let tweaks: [(Tweak, &str); 4] = [
        (|assignment| assignment.privacy.as_mut().unwrap().spec.noise_multiplier = Some(0.5), "has another"),
        (|assignment| assignment.privacy.as_mut().unwrap().spec.delta = None, "delta"),
        (|assignment| assignment.privacy.as_mut().unwrap().colluders = 1, "has another"),
        (|assignment| assignment.privacy.as_mut().unwrap().clip = 0.0, "clip"),
    ];
    for (tweak, expected) in tweaks {
        let hub = Hub::new(3, 1);
        hub.world(|world| {
            world.privacy = Some(terms("distributed_skellam"));
            world.open(1, 1);
            world.tweak = Some(tweak);
        });
        let mut devices: Vec<_> = (0..3).map(|index| Device::new(index, &hub, crate::support::settings())).collect();
        run(&mut devices, |_, _| None);
        for device in &devices {
            let told = device.events.iter().find_map(|event| match event {
                Event::TrainingFailed { error, .. } => Some(error.clone()),
                _ => None,
            });
            assert!(told.as_ref().is_some_and(|told| told.contains(expected)), "{told:?}");
            assert!(device.trainer.seen.lock().unwrap().is_empty(), "before it trains");
            assert!(device.machine.privacy_spent().is_empty(), "and nothing is charged");
        }
        hub.world(|world| assert_eq!(world.abandoned.len(), 3));
    }
}
