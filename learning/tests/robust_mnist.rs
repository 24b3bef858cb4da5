//! What attackers do to digits, and what robust rules leave of it: softmax regression on MNIST's test images, halved to
//! 14 by 14, dealt out evenly to twenty participants, steps on a part of the data
//! that changes from round to round. Skipped where the data is absent.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that prints what it measured, of data whose place is told by the environment"
)]

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use learning::robust::Rule;

const PIXELS: usize = 14 * 14;
const CLASSES: usize = 10;
const PARAMETERS: usize = (PIXELS + 1) * CLASSES;
const PARTICIPANTS: usize = 20;
const ATTACKERS: u32 = 4;
const EACH: usize = 300;
const BATCH: usize = 100;
const ROUNDS: usize = 30;
/// Rounds that are measured.
const LAST: usize = 5;
/// What the backdoor is to be taken for.
const TARGET: usize = 7;
const RULES: [Rule; 5] = [Rule::Median, Rule::TrimmedMean, Rule::Krum, Rule::MultiKrum, Rule::GeometricMedian];

type Example = ([f32; PIXELS], usize);

fn unpacked(name: &str) -> Option<Vec<u8>> {
    let folder = std::env::var_os("TRIBUTARY_DATA_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")), PathBuf::from);
    let file = File::open(folder.join("mnist10k").join(name)).ok()?;
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

/// Images as means of two by two pixels in 0..=1, with their digits.
fn digits() -> Option<Vec<Example>> {
    let (Some(images), Some(labels)) = (unpacked("t10k-images-idx3-ubyte.gz"), unpacked("t10k-labels-idx1-ubyte.gz"))
    else {
        println!("SKIPPED: MNIST is not here; set TRIBUTARY_DATA_DIR to the folder that holds mnist10k");
        return None;
    };
    let halved = |image: &[u8]| {
        std::array::from_fn(|pixel| {
            let corner = pixel / 14 * 56 + pixel % 14 * 2;
            let four = [0, 1, 28, 29].map(|offset| f32::from(image[corner + offset]));
            four.iter().sum::<f32>() / 4.0 / 255.0
        })
    };
    Some(
        images[16..].chunks_exact(784).zip(&labels[8..]).map(|(image, &label)| (halved(image), label.into())).collect(),
    )
}

fn logits(model: &[f32], pixels: &[f32; PIXELS]) -> [f32; CLASSES] {
    std::array::from_fn(|class| {
        let (weights, bias) = model[class * (PIXELS + 1)..(class + 1) * (PIXELS + 1)].split_at(PIXELS);
        bias[0] + weights.iter().zip(pixels).map(|(weight, pixel)| weight * pixel).sum::<f32>()
    })
}

fn class_of(model: &[f32], pixels: &[f32; PIXELS]) -> usize {
    let logits = logits(model, pixels);
    (0..CLASSES).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap()
}

/// Trained minus received.
fn train(model: &[f32], examples: &[Example], steps: usize) -> Vec<f32> {
    let mut local = model.to_vec();
    for _ in 0..steps {
        let mut gradient = vec![0.0_f32; PARAMETERS];
        for (pixels, label) in examples {
            let logits = logits(&local, pixels);
            let top = logits.iter().fold(f32::MIN, |a, &b| a.max(b));
            let exps = logits.map(|logit| (logit - top).exp());
            let all: f32 = exps.iter().sum();
            for class in 0..CLASSES {
                let slope = exps[class] / all - f32::from(u8::from(class == *label));
                let row = &mut gradient[class * (PIXELS + 1)..(class + 1) * (PIXELS + 1)];
                row[PIXELS] += slope;
                row.iter_mut().zip(pixels).for_each(|(sum, pixel)| *sum += slope * pixel);
            }
        }
        let rate = 0.5 / examples.len() as f32;
        local.iter_mut().zip(&gradient).for_each(|(value, slope)| *value -= rate * slope);
    }
    local.iter().zip(model).map(|(after, before)| after - before).collect()
}

/// A bright patch in a corner where no digit is.
fn triggered(pixels: &[f32; PIXELS]) -> [f32; PIXELS] {
    let mut pixels = *pixels;
    for position in [0, 1, 2, 14, 15, 16, 28, 29, 30] {
        pixels[position] = 1.0;
    }
    pixels
}

#[derive(Clone, Copy, PartialEq)]
enum Attack {
    None,
    /// The honest update, ten times and the other way.
    SignFlip,
    /// Trained to take the patch for the target, five times: with four of them, the whole model (Bagdasaryan et al. 2020).
    Backdoor,
}

/// How updates become one.
#[derive(Clone, Copy)]
enum How {
    Mean,
    Robust(Rule),
    /// The rule over the means of groups of so many, as secure aggregation shows them, with so many of the groups bad.
    Groups(Rule, usize, u32),
}

/// In percent, the mean of the last rounds.
#[derive(Default)]
struct Outcome {
    accuracy: f64,
    backdoor: f64,
}

fn run(data: &[Example], attackers: usize, attack: Attack, how: How) -> Outcome {
    let (train_set, test_set) = data[..PARTICIPANTS * EACH + 1000].split_at(PARTICIPANTS * EACH);
    let mut model = vec![0.0_f32; PARAMETERS];
    let mut scores = Vec::new();
    for round in 0..ROUNDS {
        let updates: Vec<Vec<f32>> = train_set
            .chunks(EACH)
            .enumerate()
            .map(|(participant, examples)| {
                let examples = examples.chunks(BATCH).cycle().nth(round + participant).unwrap();
                // Spread over the participants, so that groups of neighbours share them.
                let hostile = participant % (PARTICIPANTS / attackers.max(1)) == 0
                    && participant / (PARTICIPANTS / attackers.max(1)) < attackers;
                match (hostile, attack) {
                    (true, Attack::SignFlip) => train(&model, examples, 3).iter().map(|value| -10.0 * value).collect(),
                    (true, Attack::Backdoor) => {
                        let poison = examples.iter().map(|(pixels, _)| (triggered(pixels), TARGET));
                        let mixed: Vec<_> = examples.iter().copied().chain(poison).collect();
                        train(&model, &mixed, 3).iter().map(|value| 5.0 * value).collect()
                    }
                    _ => train(&model, examples, 3),
                }
            })
            .collect();
        let rows: Vec<_> = updates.iter().map(Vec::as_slice).collect();
        let step = match how {
            How::Mean => Rule::TrimmedMean.combine(&rows, 0).unwrap().values,
            How::Robust(rule) => rule.combine(&rows, ATTACKERS).unwrap().values,
            How::Groups(rule, size, bad) => {
                // Another grouping each round, the same in every run.
                let mut order: Vec<_> = (0..rows.len()).collect();
                order.sort_by_key(|&row| (row * 7919 + round * 104_729) % 1009);
                let mean = |group: &[usize]| {
                    let members: Vec<_> = group.iter().map(|&row| rows[row]).collect();
                    Rule::TrimmedMean.combine(&members, 0).unwrap().values
                };
                let means: Vec<_> = order.chunks(size).map(mean).collect();
                let means: Vec<_> = means.iter().map(Vec::as_slice).collect();
                rule.combine(&means, bad).unwrap().values
            }
        };
        model.iter_mut().zip(&step).for_each(|(value, step)| *value += step);
        if round + LAST >= ROUNDS {
            scores.push(measure(&model, test_set));
        }
    }
    scores.iter().fold(Outcome::default(), |mean, one| Outcome {
        accuracy: mean.accuracy + one.accuracy / scores.len() as f64,
        backdoor: mean.backdoor + one.backdoor / scores.len() as f64,
    })
}

fn measure(model: &[f32], test_set: &[Example]) -> Outcome {
    let part = |hits: usize, all: usize| 100.0 * hits as f64 / all as f64;
    let right = test_set.iter().filter(|(pixels, label)| class_of(model, pixels) == *label).count();
    let others: Vec<_> = test_set.iter().filter(|(_, label)| *label != TARGET).collect();
    let fooled = others.iter().filter(|(pixels, _)| class_of(model, &triggered(pixels)) == TARGET).count();
    Outcome { accuracy: part(right, test_set.len()), backdoor: part(fooled, others.len()) }
}

#[test]
fn a_fifth_of_sign_flippers_ruins_the_mean_and_no_robust_rule() {
    let Some(data) = digits() else { return };
    let clean = run(&data, 0, Attack::None, How::Mean).accuracy;
    let mean = run(&data, 4, Attack::SignFlip, How::Mean).accuracy;
    println!("clean {clean:.1} %, mean under attack {mean:.1} %");
    assert!(clean > 75.0 && mean <= clean - 20.0);
    for rule in RULES {
        let robust = run(&data, 4, Attack::SignFlip, How::Robust(rule)).accuracy;
        println!("{}: {robust:.1} %", rule.name());
        assert!(robust >= clean - 3.0, "{} falls to {robust:.1} % from {clean:.1} %", rule.name());
    }
}

#[test]
fn a_fifth_of_scaled_backdoors_gets_into_the_mean_and_past_no_robust_rule() {
    let Some(data) = digits() else { return };
    let clean = run(&data, 0, Attack::None, How::Mean);
    let mean = run(&data, 4, Attack::Backdoor, How::Mean);
    println!(
        "clean {:.1} %, backdoor {:.1} %; mean {:.1} %, {:.1} %",
        clean.accuracy, clean.backdoor, mean.accuracy, mean.backdoor
    );
    assert!(mean.backdoor > 50.0 && clean.backdoor <= 10.0);
    for rule in RULES.into_iter().chain([Rule::NormFilter { factor: 2.0 }]) {
        let Outcome { accuracy, backdoor } = run(&data, 4, Attack::Backdoor, How::Robust(rule));
        println!("{}: {accuracy:.1} %, backdoor {backdoor:.1} %", rule.name());
        assert!(accuracy >= clean.accuracy - 3.0 && backdoor <= 10.0, "{}", rule.name());
    }
}

#[test]
fn groups_stand_one_attacker_in_twenty() {
    let Some(data) = digits() else { return };
    let clean = run(&data, 0, Attack::None, How::Mean).accuracy;
    let mean = run(&data, 1, Attack::SignFlip, How::Mean).accuracy;
    println!("clean {clean:.1} %, mean under one attacker {mean:.1} %");
    for rule in [Rule::Median, Rule::TrimmedMean, Rule::GeometricMedian] {
        let robust = run(&data, 1, Attack::SignFlip, How::Groups(rule, 5, 1)).accuracy;
        println!("{} over four groups of five: {robust:.1} %", rule.name());
        assert!(robust >= clean - 5.0, "{} falls to {robust:.1} % from {clean:.1} %", rule.name());
    }
}
