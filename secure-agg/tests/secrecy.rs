//! Secrecy: `Debug` prints no secret, only the last message holds an unencrypted share, states erase what they no longer need, and a masked
//! input looks like noise.

use std::fmt::Debug;

use crate::support::{
    Dealt, advertised, answered, cohort, config, delivery, held_shares, parts, plain_sum, unmasked_sum,
};
use secure_agg::client::Client;
use secure_agg::codec::Message;
use secure_agg::packing;
use secure_agg::params::{SessionConfig, VectorShape};
use secure_agg::server::{Admitted, Phase};

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// All data that left a participant or was stored by the coordinator, as bytes and as `Debug` output.
#[derive(Default)]
struct Outside {
    messages: Vec<Vec<u8>>,
    printed: String,
}

impl Outside {
    fn see<M: Message + Debug>(&mut self, message: &M) {
        self.messages.push(message.encode());
        self.printed += &format!("{message:?}\n{message:#?}\n");
    }

    fn phase(&mut self, phase: &Phase) {
        self.messages.push(phase.encode());
        self.printed += &format!("{phase:?}\n");
    }

    /// In the ways a byte string can be printed: a list of numbers or hexadecimal digits.
    fn prints(&self, secret: &[u8]) -> bool {
        let start = &secret[..12];
        let list: Vec<String> = start.iter().map(u8::to_string).collect();
        let hexadecimal = hex::encode(start);
        let column = format!("{},", list.join(",\n"));
        let squeezed: String = self.printed.split(' ').collect();
        self.printed.contains(&list.join(", "))
            || squeezed.contains(&column)
            || self.printed.contains(&hexadecimal)
            || self.printed.contains(&hexadecimal.to_uppercase())
    }

    fn sends(&self, secret: &[u8]) -> bool {
        self.messages.iter().any(|message| contains(message, secret))
    }
}

#[test]
fn a_full_run_sends_and_prints_no_secret_but_the_shares_it_must() {
    let (mut world, mut members) = cohort(5, config(5, 6), 50);
    let mut outside = Outside::default();
    let mut secrets: Vec<Vec<u8>> = Vec::new();
    let phase = advertised(&mut world, &mut members);
    outside.see(phase.roster());
    for member in &members {
        // Both seeds and the private key that opens shares.
        secrets.extend(parts(&member.snapshot)[1..4].iter().map(|part| part.to_vec()));
    }
    let mut dealt = Dealt::new();
    for member in &mut members {
        let shares = member.share(&mut world, phase.roster()).unwrap();
        outside.see(&shares);
        let parts = parts(&member.snapshot);
        secrets.extend(parts[3].chunks(32).map(<[u8]>::to_vec));
        secrets.extend(parts[4].chunks(32).map(<[u8]>::to_vec));
        dealt.insert(shares.body.sender, shares);
    }
    let phase = phase.close(dealt.values().cloned().map(Admitted::from_store).collect()).unwrap();
    let mut uploads = std::collections::BTreeMap::new();
    let mut held = Vec::new();
    for (index, member) in (1..).zip(&mut members) {
        let delivery = delivery(&phase, &dealt, index);
        outside.see(&delivery);
        let upload = member.upload(&delivery);
        outside.see(&upload.message);
        outside.messages.push(upload.body.clone());
        held.push(held_shares(&member.snapshot));
        let input: Vec<u8> = member.model.iter().flat_map(|word| word.to_le_bytes()).collect();
        secrets.push(input);
        uploads.insert(index, upload);
    }
    uploads.remove(&2);
    let admitted = uploads.values().map(|upload| Admitted::from_store(upload.message.clone())).collect();
    let phase = phase.close(admitted).unwrap();
    outside.see(&phase.announcement());
    let phase = crate::support::agreed(phase, &mut members);
    outside.see(phase.agreement());

    for (number, secret) in secrets.iter().enumerate() {
        assert!(!outside.sends(secret) && !outside.prints(secret), "secret {number}");
    }
    for share in held.iter().flatten().flatten() {
        assert!(!outside.sends(share) && !outside.prints(share));
    }

    // Only now, and only one of each pair: of the self mask for the survivors, of the mask key for participant 2.
    let answers = answered(&phase, &mut members);
    answers.iter().for_each(|answer| outside.see(answer.message()));
    for (holder, answer) in answers.iter().map(|answer| (answer.message().body.sender, answer)) {
        for (column, pair) in held[usize::from(holder) - 1].iter().enumerate() {
            let revealed = usize::from(column != 1);
            assert_eq!(answer.message().body.shares.as_slice()[column], pair[revealed]);
            assert!(outside.sends(&pair[revealed]) && !outside.sends(&pair[1 - revealed]));
            assert!(!outside.prints(&pair[0]) && !outside.prints(&pair[1]), "Debug never prints a share");
        }
    }
    outside.phase(&Phase::CollectUnmasking(phase));
    assert!(held.iter().flatten().flatten().all(|share| !outside.prints(share)));
    let Some(Phase::CollectUnmasking(phase)) = outside.messages.last().map(|bytes| Phase::restore(bytes).unwrap())
    else {
        panic!("another phase")
    };
    let unmasked = phase.close(answers).unwrap();
    let sums = unmasked_sum(&world.config, &unmasked, &uploads);
    assert_eq!(sums, plain_sum(&world.config, &members, [1, 3, 4, 5].into_iter()));
}

/// Positive control: the search finds deliberately printed secrets.
#[test]
fn the_search_for_secrets_finds_what_is_there() {
    let secret: Vec<u8> = (100..130).collect();
    for printed in [format!("{secret:?}"), format!("{secret:#?}"), hex::encode(&secret)] {
        let outside = Outside { messages: Vec::new(), printed };
        assert!(outside.prints(&secret));
        assert!(!outside.prints(&[7; 30]));
    }
    assert!(Outside { messages: vec![[&[1], &secret[..], &[2]].concat()], printed: String::new() }.sends(&secret));
}

#[test]
fn a_state_forgets_what_the_next_question_does_not_need() {
    let (mut world, mut members) = cohort(4, config(4, 1), 51);
    let phase = advertised(&mut world, &mut members);
    let first: Vec<Vec<u8>> = parts(&members[0].snapshot)[1..4].iter().map(|part| part.to_vec()).collect();
    let [seed_s, seed_b, c_sk] = first.as_slice() else { panic!("three secrets") };

    let mut dealt = Dealt::new();
    for member in &mut members {
        let shares = member.share(&mut world, phase.roster()).unwrap();
        dealt.insert(shares.body.sender, shares);
    }
    let dealt_snapshot = members[0].snapshot.clone();
    assert!(contains(&dealt_snapshot, seed_s) && contains(&dealt_snapshot, seed_b));
    assert!(!contains(&dealt_snapshot, c_sk), "the key that seals shares has done its work");

    let phase = phase.close(dealt.values().cloned().map(Admitted::from_store).collect()).unwrap();
    let (phase, _) = crate::support::masked(phase, &dealt, &mut members, |index| index != 4);
    let sent = members[0].snapshot.clone();
    assert!(!contains(&sent, seed_s) && !contains(&sent, seed_b), "nobody can mask a second input");
    for key in parts(&dealt_snapshot)[3].chunks(32) {
        assert!(!contains(&sent, key));
    }

    let held = held_shares(&sent);
    members[0].check(&phase.announcement()).unwrap();
    let signed = &members[0].snapshot;
    for (column, pair) in held.iter().enumerate() {
        let kept = usize::from(column != 3);
        assert!(contains(signed, &pair[kept]) && !contains(signed, &pair[1 - kept]), "one share of each dealer");
    }
    assert!(matches!(Client::restore(signed).unwrap(), Client::Unmask(_)));
}

/// The masked model words of participant 1 for an input of `value` everywhere.
fn masked_words(words: u64, bits: u8, value: u32, seed: u64) -> Vec<u32> {
    let model = VectorShape { words, modulus_bits: bits, input_bound: 1000, noise_margin: 0 };
    let config = SessionConfig { model, scalars: VectorShape::NONE, ..config(3, 1) };
    let (mut world, mut members) = cohort(3, config, seed);
    let (phase, dealt) = crate::support::shared(&mut world, &mut members);
    members[0].model.fill(value);
    let upload = members[0].upload(&delivery(&phase, &dealt, 1));
    packing::unpack(&upload.body, usize::try_from(words).unwrap(), model.modulus().unwrap()).unwrap()
}

/// Two-sided bound of a normal variable that noise exceeds once in 10^6.
const NORMAL: f64 = 4.892;

/// The same for chi-square, by Wilson and Hilferty.
fn chi_square_bounds(freedom: f64) -> std::ops::Range<f64> {
    let (centre, spread) = (1.0 - 2.0 / (9.0 * freedom), NORMAL * (2.0 / (9.0 * freedom)).sqrt());
    freedom * (centre - spread).powi(3)..freedom * (centre + spread).powi(3)
}

/// Monobit, chi-square over bytes, serial correlation and Kolmogorov-Smirnov, each within bounds that noise exceeds once in 10^6.
fn assert_looks_like_noise(words: &[u32], bits: u8) {
    let count = f64::from(u32::try_from(words.len()).unwrap());
    let ones: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
    let tosses = count * f64::from(bits);
    #[expect(clippy::cast_precision_loss, reason = "below 2^32")]
    let monobit = (ones as f64 - tosses / 2.0) / (tosses.sqrt() / 2.0);
    assert!(monobit.abs() < NORMAL, "monobit {monobit}");

    // The last byte may have fewer bits.
    for start in (0..bits).step_by(8) {
        let kinds = 1u32 << (bits - start).min(8);
        let mut seen = [0u32; 256];
        words.iter().for_each(|word| seen[usize::try_from(word >> start & (kinds - 1)).unwrap()] += 1);
        let expected = count / f64::from(kinds);
        let seen = &seen[..usize::try_from(kinds).unwrap()];
        let chi: f64 = seen.iter().map(|seen| (f64::from(*seen) - expected).powi(2) / expected).sum();
        assert!(chi_square_bounds(f64::from(kinds - 1)).contains(&chi), "bits from {start}: chi-square {chi}");
    }

    let half = f64::from(u32::MAX >> (32 - bits)) / 2.0;
    let centred = |word: u32| f64::from(word) - half;
    let power: f64 = words.iter().map(|word| centred(*word).powi(2)).sum();
    // The next word, the next block, and the words on either side of the chunks of mask expansion.
    for lag in [1, 2, 16, 1024, 4096] {
        let lagged: f64 = words.iter().zip(&words[lag..]).map(|(a, b)| centred(*a) * centred(*b)).sum();
        let correlation = lagged / power * count.sqrt();
        assert!(correlation.abs() < NORMAL, "serial correlation at {lag}: {correlation}");
    }

    let mut sorted = words.to_vec();
    sorted.sort_unstable();
    let uniform = |word: u32| (f64::from(word) + 0.5) / (2.0 * half + 1.0);
    let distance = (0u32..).zip(&sorted).map(|(rank, word)| (f64::from(rank) / count - uniform(*word)).abs());
    let furthest = distance.fold(0.0, f64::max) * count.sqrt();
    // sqrt(-ln(10^-6 / 2) / 2) = 2.69, and half a word of 16 bits counts when there are 2^26 of them.
    assert!(furthest < 2.7 + count.sqrt() / (2.0 * half + 1.0) / 2.0, "Kolmogorov-Smirnov {furthest}");
}

fn a_masked_input_looks_like_noise(words: u64) {
    for bits in [16, 20, 32] {
        for value in [0, 1000] {
            assert_looks_like_noise(&masked_words(words, bits, value, 60), bits);
        }
        // Two runs with different inputs differ by noise as well.
        let (one, other) = (masked_words(words, bits, 0, 61), masked_words(words, bits, 1000, 62));
        let kept = u32::MAX >> (32 - bits);
        let difference: Vec<u32> = one.iter().zip(&other).map(|(a, b)| a.wrapping_sub(*b) & kept).collect();
        assert_looks_like_noise(&difference, bits);
    }
}

#[test]
fn a_masked_input_looks_like_noise_in_short() {
    a_masked_input_looks_like_noise(1 << 16);
}

#[test]
#[ignore = "2^26 words: `just soak`"]
fn a_masked_input_looks_like_noise_at_length() {
    a_masked_input_looks_like_noise(1 << 26);
}

#[test]
#[should_panic(expected = "chi-square")]
fn the_noise_test_notices_an_input_that_is_not_masked() {
    let words: Vec<u32> = (0..1u32 << 16).map(|word| word.wrapping_mul(0x9e37_79b9) & 0xffff_00ff).collect();
    let balanced: Vec<u32> = words.iter().map(|word| word | 0x0000_5500).collect();
    assert_looks_like_noise(&balanced, 32);
}
