//! The deliberate faults have their documented effects, so an audit can be measured by them. Only with the feature
//! `deliberate-faults`.

use client_sdk::faults::Fault;
use client_sdk::learning::privacy::NoiseLaw;
use client_sdk::participant::machine::Settings;

use secure_agg::modular::Modulus;

use crate::support::cohort::Hub;
use crate::support::device::{Device, run};
use crate::support::private::{derive, terms};

/// Root mean square of the words of an opened sum of three updates, over rounds.
fn sums(mechanism: &str, fault: Option<Fault>) -> Vec<i64> {
    const ROUNDS: u32 = 12;
    let hub = Hub::new(3, ROUNDS);
    hub.world(|world| {
        let mut terms = terms(mechanism);
        terms.rounds = ROUNDS;
        world.privacy = Some(terms);
        world.open(1, 1);
    });
    let settings = Settings { fault, ..crate::support::settings() };
    let mut devices: Vec<_> = (0..3).map(|index| Device::new(index, &hub, settings.clone())).collect();
    run(&mut devices, |_, _| None);
    let modulus = Modulus::new(32).unwrap();
    hub.world(|world| {
        assert_eq!(world.published.len(), ROUNDS as usize);
        world.published.iter().flat_map(|done| &done.sum).map(|word| modulus.centre(*word)).collect()
    })
}

fn mean_square(words: &[i64]) -> f64 {
    words.iter().map(|word| (*word as f64).powi(2)).sum::<f64>() / words.len() as f64
}

#[test]
fn without_clipping_a_sum_is_longer_than_three_clipped_updates() {
    let (_, codec) = derive(&terms("central_gaussian"), 5);
    let longest = 3.0 * codec.sensitivity();
    for (fault, is_longer) in [(None, false), (Some(Fault::NoClipping), true)] {
        let words = sums("central_gaussian", fault);
        for sum in words.chunks(codec.len()) {
            assert_eq!((mean_square(sum) * codec.len() as f64).sqrt() > longest, is_longer, "{fault:?}");
        }
    }
}

#[test]
fn missing_and_halved_noise_is_missing_and_halved() {
    for mechanism in ["distributed_discrete_gaussian", "distributed_skellam"] {
        let (request, codec) = derive(&terms(mechanism), 5);
        let share = match request.shares(&codec).unwrap().unwrap().share {
            NoiseLaw::DiscreteGaussian(sigma) => sigma.value().powi(2),
            NoiseLaw::Skellam(variance) => variance.value(),
        };
        // The updates of a round are the same each time but for the rotation; without noise, what is left is theirs.
        let silent = mean_square(&sums(mechanism, Some(Fault::NoNoise)));
        let of = |fault| (mean_square(&sums(mechanism, fault)) - silent) / (3.0 * share);
        let (whole, half) = (of(None), of(Some(Fault::HalfNoise)));
        // 96 words: a standard error of some 15 %, and the cross term's.
        assert!((0.4..1.8).contains(&whole), "{mechanism}: {whole}");
        assert!((0.05..0.45).contains(&half) && half < whole / 2.0, "{mechanism}: {half} of {whole}");
    }
}
