//! Agreement with opendp 0.16 where it has the mechanism: zCDP and its conversion, composition, and the discrete Gaussian.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "helpers of tests")]

use dashu::base::ConversionError;
use dashu::rational::RBig;
use learning::privacy::accountant::{SumMechanism, SumNoise, zcdp};
use learning::privacy::{Budget, DiscreteGaussian, Ledger, Release, Sampled, Sigma};
use opendp::combinators::{make_composition, make_zCDP_to_approxDP};
use opendp::core::Measurement;
use opendp::domains::{AtomDomain, VectorDomain};
use opendp::measurements::make_gaussian;
use opendp::measures::ZeroConcentratedDivergence;
use opendp::metrics::L2Distance;
use opendp::traits::samplers::sample_discrete_gaussian;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use task_spec::{PrivacyAccounting, PrivacyMechanism, PrivacyView};

type Gaussian = Measurement<VectorDomain<AtomDomain<i64>>, L2Distance<f64>, ZeroConcentratedDivergence, Vec<i64>>;

fn gaussian(scale: f64) -> Gaussian {
    make_gaussian(VectorDomain::new(AtomDomain::<i64>::default()), L2Distance::<f64>::default(), scale, None).unwrap()
}

#[test]
fn zcdp_of_a_release_and_its_conversion() {
    for (sigma, sensitivity, delta) in [(10.0, 1.0, 1e-6), (50.0, 10.0, 1e-8), (2.0, 1.0, 1e-5), (300.0, 299.5, 1e-6)] {
        let ours = SumMechanism { noise: SumNoise::DiscreteGaussian { sigma }, sensitivity, dimension: 5 };
        let rho = gaussian(sigma).map(&sensitivity).unwrap();
        assert!((ours.rho().unwrap() / rho - 1.0).abs() < 1e-12, "{sigma}");
        let profile = make_zCDP_to_approxDP(gaussian(sigma)).unwrap().map(&sensitivity).unwrap();
        let (theirs, ours) = (profile.epsilon(delta).unwrap(), zcdp::epsilon(rho, delta));
        assert!((ours / theirs - 1.0).abs() < 1e-9, "{sigma} {sensitivity} {delta}: {ours} {theirs}");
    }
    // The specification's figure.
    assert!((zcdp::epsilon(0.005, 1e-6) - 0.429_941_468_836_949_34).abs() < 1e-12);
}

#[test]
fn a_ledger_adds_up_as_a_composition() {
    let (sensitivity, delta) = (10.0, 1e-6);
    let sigmas = [50.0, 70.0, 50.0, 900.0, 33.0];
    let budget =
        Budget { epsilon: None, delta, against: PrivacyView::CohortKnown, accounting: PrivacyAccounting::General };
    let sealer = |_: &[u8]| [0; 32];
    let mut ledger = Ledger::open(PrivacyMechanism::CentralGaussian, budget, vec![], &sealer).unwrap();
    for (round, &sigma) in (0..).zip(&sigmas) {
        let sum = SumMechanism { noise: SumNoise::DiscreteGaussian { sigma }, sensitivity, dimension: 3 };
        let release = Release {
            round,
            attempt: 0,
            mechanism: PrivacyMechanism::CentralGaussian,
            sum,
            sampled: Sampled::Anyhow,
            participants: 9,
            tree_release: None,
            bands: None,
            participations: None,
        };
        ledger.charge(release, &sealer).unwrap();
    }
    let composed = make_composition(sigmas.iter().map(|&sigma| gaussian(sigma)).collect()).unwrap();
    let rho = composed.map(&sensitivity).unwrap();
    let ours = ledger.spent();
    let theirs = make_zCDP_to_approxDP(composed).unwrap().map(&sensitivity).unwrap().epsilon(delta).unwrap();
    assert!(
        (ours.cohort_known / theirs - 1.0).abs() < 1e-9 && ours.published == ours.cohort_known,
        "{ours:?} {theirs}"
    );
    let rows: f64 = ledger.rows().iter().map(|sealed| sealed.row.rho.unwrap()).sum();
    assert!((rows / rho - 1.0).abs() < 1e-12);
}

/// Two samples, one of each sampler, cannot be distinguished by chi-square; opendp draws from the system's generator, so the limit is wide:
/// a correct sampler fails once in ten million runs.
#[test]
fn samples_have_the_same_distribution() {
    let (sigma, draws) = (4.5, 20_000_u32);
    let ours = DiscreteGaussian::new(Sigma::at_least(sigma).unwrap());
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let scale: Result<RBig, ConversionError> = RBig::try_from(sigma);
    let scale = scale.unwrap();
    let mut counts = [[0.0_f64; 23]; 2];
    let bin = |x: i64| (x.clamp(-11, 11) + 11) as usize;
    for _ in 0..draws {
        counts[0][bin(ours.sample(&mut rng))] += 1.0;
        let theirs = i64::try_from(sample_discrete_gaussian(scale.clone()).unwrap()).unwrap();
        counts[1][bin(theirs)] += 1.0;
    }
    let statistic: f64 = (0..23).map(|i| (counts[0][i] - counts[1][i]).powi(2) / (counts[0][i] + counts[1][i])).sum();
    // 22 degrees of freedom: P(chi-square > 75) = 1e-7.
    assert!(statistic < 75.0, "{statistic} {counts:?}");
}

/// The library as a coordinator's sampler.
#[cfg(feature = "opendp")]
mod as_a_sampler {
    use learning::ExactSum;
    use learning::privacy::audit::NoiseVariance;
    use learning::privacy::{OpenDpError, OpenDpGaussian};

    use super::*;

    #[test]
    fn its_privacy_map_is_what_a_release_is_charged() {
        for (sigma, sensitivity) in [(10.0, 1.0), (50.0, 10.3), (0.02, 1.0), (300.7, 299.5), (4.0e9, 12_345.678)] {
            let sigma = Sigma::at_least(sigma).unwrap();
            let noise = |sigma: f64| SumNoise::DiscreteGaussian { sigma };
            let charged = |sigma: f64| SumMechanism { noise: noise(sigma), sensitivity, dimension: 5 };
            let measurement = OpenDpGaussian::new(sigma).unwrap();
            measurement.check(&charged(sigma.value())).unwrap();
            // A ledger that assumes slightly more noise than drawn is detected, and one that assumes less is accepted.
            measurement.check(&charged(sigma.value() * 0.999_999)).unwrap();
            let error = measurement.check(&charged(sigma.value() * 1.000_001)).unwrap_err();
            assert!(matches!(error, OpenDpError::Undercharged { .. }), "{error}");
            let noise = SumNoise::Skellam { variance: sigma.value().powi(2) };
            let none = SumMechanism { noise, sensitivity, dimension: 5 };
            assert!(matches!(measurement.check(&none), Err(OpenDpError::Undercharged { charged: None, .. })));
        }
        let measurement = OpenDpGaussian::new(Sigma::at_least(1.0).unwrap()).unwrap();
        assert!(matches!(measurement.rho(f64::NAN), Err(OpenDpError::Library(_))));
    }

    #[test]
    fn its_noise_is_added_to_every_word_modulo() {
        let (exact, bits, sigma) = (0xf_fff0, 20, Sigma::at_least(40.0).unwrap());
        let sum = ExactSum::new(vec![exact; 10_000], bits, 3).unwrap();
        let noised = sum.add_opendp_noise(OpenDpGaussian::new(sigma).unwrap()).unwrap();
        assert!(noised.words().iter().all(|&word| word < 1 << bits) && noised.participants() == 3);
        assert!(noised.words().iter().any(|&word| word < 100), "words have wrapped");
        let residual = |&word: &u32| {
            let centred = (i64::from(word) - i64::from(exact) + (1 << 19)).rem_euclid(1 << 20) - (1 << 19);
            centred as f64
        };
        let residuals: Vec<_> = noised.words().iter().map(residual).collect();
        // The system's randomness: once in a billion runs it is not.
        let seen = NoiseVariance::of(&residuals, sigma.value(), 1.0 - 1e-9).unwrap();
        assert!(seen.is_as_charged(), "{seen:?}");
        let mean = residuals.iter().sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 6.5 * 40.0 / 100.0, "{mean}");
    }
}

#[cfg(not(feature = "opendp"))]
#[test]
fn a_build_without_it_says_so() {
    let error = learning::privacy::OpenDpGaussian::new(Sigma::at_least(1.0).unwrap()).unwrap_err();
    assert!(error.to_string().contains("--features opendp"), "{error}");
}
