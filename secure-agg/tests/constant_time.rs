//! Tests whether the running time of operations on secrets reveals them: Welch's t between one fixed input and random ones, as in dudect
//! [Reparaz, Balasch and Verbauwhede, *Dude, is my code constant time?*, 2017].
//!
//! `cargo test --release -p secure-agg --lib constant_time -- --ignored --nocapture` prints t for each operation, over all measurements and
//! over those below the 90th and the 50th percentile, which other load on the machine disturbs less. |t| above 4.5 needs inspection, above
//! 10 is a leak. The last two lines are deliberate leaks, which the harness must detect. There are no assertions: load on a shared machine
//! would cause false failures.
#![expect(clippy::disallowed_methods, reason = "the clock is what this is about")]

use std::hint::black_box;
use std::time::Instant;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

use crate::crypto::field::Element;
use crate::crypto::shamir;
use crate::mask::{self, MaskPlan, MaskSeed, Plane, Sign};
use crate::modular::{self, Modulus};
use crate::packing;
use crate::secret::Secret;

/// Inputs of each class in a batch.
const INPUTS: usize = 500;

/// Batches of each operation.
const BATCHES: usize = 100;

#[test]
#[ignore = "prints measurements: see the top of the file"]
fn the_time_of_what_touches_secrets() {
    println!(
        "{:42} {:>9} {:>8} {:>8} {:>8}",
        "operation: fixed against random input", "samples", "t", "t, 90 %", "t, 50 %"
    );
    fields();
    sharing();
    vectors();
    leaks();
}

/// Measures `operation` on inputs of two classes in random order; `input` creates one, random if its argument is true.
fn measure<I, O>(name: &str, mut input: impl FnMut(bool, &mut ChaCha20Rng) -> I, mut operation: impl FnMut(&I) -> O) {
    let mut rng = ChaCha20Rng::seed_from_u64(name.len() as u64);
    let mut times: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..BATCHES {
        let inputs: Vec<(usize, I)> = (0..2 * INPUTS)
            .map(|_| {
                let random = rng.next_u32() & 1 == 1;
                (usize::from(random), input(random, &mut rng))
            })
            .collect();
        for (class, input) in &inputs {
            let start = Instant::now();
            black_box(operation(black_box(input)));
            times[*class].push(f64::from(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX)));
        }
    }
    let samples = times[0].len() + times[1].len();
    let t = |share: usize| welch(&times, share);
    println!("{name:42} {samples:9} {:8.2} {:8.2} {:8.2}", t(100), t(90), t(50));
}

/// Welch's t over the measurements up to a percentile of all.
fn welch(times: &[Vec<f64>; 2], percent: usize) -> f64 {
    let mut all: Vec<f64> = times.concat();
    all.sort_unstable_by(f64::total_cmp);
    let most = all[(all.len() * percent / 100).min(all.len()) - 1];
    let [(mean_a, spread_a), (mean_b, spread_b)] = [0, 1].map(|class: usize| {
        let kept: Vec<f64> = times[class].iter().copied().filter(|time| *time <= most).collect();
        let count = f64::from(u32::try_from(kept.len()).unwrap_or(u32::MAX));
        let mean = kept.iter().sum::<f64>() / count;
        let variance = kept.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (mean_a - mean_b) / (spread_a + spread_b).sqrt().max(f64::MIN_POSITIVE)
}

fn repeated(times: usize, start: Element, step: impl Fn(Element) -> Element) -> u64 {
    (0..times).fold(start, |value, _| step(value)).value()
}

fn fields() {
    let zero_or_random = |random: bool, rng: &mut ChaCha20Rng| {
        let element = Element::random(rng);
        if random { element } else { Element::ZERO }
    };
    let largest = Element::ZERO.sub(Element::ONE);
    let largest_or_random = move |random: bool, rng: &mut ChaCha20Rng| {
        let element = Element::random(rng);
        if random { element } else { largest }
    };
    let other = Element::random(&mut ChaCha20Rng::seed_from_u64(9));
    // Chains of operations, so that the measured time far exceeds the cost of reading the clock; the input enters at each step.
    measure("field: 200 × add, 0", zero_or_random, |x| repeated(200, other, |value| value.add(*x)));
    measure("field: 200 × add, -1", largest_or_random, |x| repeated(200, other, |value| value.add(*x)));
    measure("field: 200 × sub, -1", largest_or_random, |x| repeated(200, other, |value| value.sub(*x)));
    measure("field: 200 × mul, 0", zero_or_random, |x| repeated(200, other, |value| value.mul(*x)));
    measure("field: 200 × mul, -1", largest_or_random, |x| repeated(200, other, |value| value.mul(*x)));
    measure("field: inverse, -1", largest_or_random, |x| x.invert().value());
}

fn sharing() {
    let seed = |random: bool, rng: &mut ChaCha20Rng| {
        let drawn = Secret::<[u8; shamir::SEED_BYTES]>::random(rng);
        if random { drawn } else { Secret::new([0; shamir::SEED_BYTES]) }
    };
    measure("Shamir: deal, t = 11, n = 20, seed 0", seed, |seed| {
        shamir::split(seed, 11, 20, &mut ChaCha20Rng::seed_from_u64(1))
    });
    let basis = shamir::Basis::new(&(1..=11).collect::<Vec<_>>());
    let shares = |random: bool, rng: &mut ChaCha20Rng| {
        let mut drawn = [[0u8; shamir::SHARE_BYTES]; 11];
        for share in &mut drawn {
            for limb in share.chunks_exact_mut(8) {
                let element = Element::random(rng);
                limb.copy_from_slice(&if random { element } else { Element::ZERO }.value().to_le_bytes());
            }
        }
        drawn
    };
    measure("Shamir: read and write 11 shares, 0", shares, |shares| {
        shares
            .iter()
            .filter_map(shamir::Share::from_bytes)
            .map(|share| share.to_bytes().expose()[0])
            .fold(0, u8::wrapping_add)
    });
    // Interpolation itself; whether the result is a seed is public, so random shares are those of random seeds.
    let dealt = |random: bool, rng: &mut ChaCha20Rng| {
        let drawn = Secret::<[u8; shamir::SEED_BYTES]>::random(rng);
        let seed = if random { drawn } else { Secret::new([0; shamir::SEED_BYTES]) };
        shamir::split(&seed, 11, 11, rng)
    };
    measure("Shamir: restore, t = 11, seed 0", dealt, |shares| basis.restore(shares).is_some());
}

fn vectors() {
    let modulus = Modulus::new(20).unwrap();
    let words = |random: bool, rng: &mut ChaCha20Rng| -> Vec<u32> {
        (0..256).map(|_| modulus.reduce(if random { rng.next_u32() } else { rng.next_u32() & 1 })).collect()
    };
    measure("modular: centre 256 words, small", words, |words| {
        words.iter().map(|word| modulus.centre(*word).unsigned_abs()).fold(0, u64::wrapping_add)
    });
    measure("modular: add 256 words, small", words, |words| {
        let mut sum = [7u32; 256];
        modular::add_assign(&mut sum, words);
        sum
    });
    measure("packing: 256 words, small", words, |words| packing::pack(words, modulus));
    let mut plan = MaskPlan::new(Plane::Model, 256, modulus).unwrap();
    (1..4u8).for_each(|byte| plan.push(MaskSeed::new(&mut [byte; 32]), Sign::Add));
    measure("mask: 3 masks on 256 words, small", words, |words| {
        let mut words = words.clone();
        mask::apply(&plan, 0, &mut words).map(|()| words)
    });
}

/// Deliberate leaks that must be detected.
fn leaks() {
    let bytes = |random: bool, rng: &mut ChaCha20Rng| {
        let mut bytes = [0u8; 512];
        if random {
            rng.fill_bytes(&mut bytes);
        }
        bytes
    };
    measure("LEAK: comparison that stops", bytes, |bytes| bytes.iter().position(|byte| *byte != 0));
    let exponent = |random: bool, rng: &mut ChaCha20Rng| if random { rng.next_u64() >> 3 } else { 1 };
    measure("LEAK: power by squaring, branching", exponent, |exponent| {
        let (mut value, mut power, mut left) = (Element::ONE, Element::small(3), *exponent);
        while left > 0 {
            if left & 1 == 1 {
                value = value.mul(power);
            }
            power = power.mul(power);
            left >>= 1;
        }
        value.value()
    });
}
