//! Bad input: required rejections and their effect on the sum; and unusual input with a correct result. Each case panics if the device
//! behaves otherwise.

use std::io::{self, Read};
use std::sync::Barrier;
use std::thread;

use secure_agg::mask::{self, MaskPlan, Plane};
use secure_agg::modular::Modulus;
use secure_agg::packing::{self, PackingError, Unpacker};

use super::cases::{Numbers, begin, plan};
use crate::{Accumulator, AggregationError, Aggregator, Shape};

const WORDS: usize = 70_003;
const BITS: u8 = 20;

/// A sum with one input, that input's words (reduced), and another packed input.
fn started(device: &dyn Aggregator) -> (Box<dyn Accumulator>, Vec<u32>, Vec<u8>) {
    let mut numbers = Numbers::new(7);
    let modulus = Modulus::new(BITS).expect("the case is in range");
    let mut words = numbers.words(WORDS);
    secure_agg::modular::reduce(&mut words, modulus);
    let mut sum = begin(device, WORDS, BITS);
    sum.merge(&words).expect("the length fits");
    (sum, words, packing::pack(&numbers.words(WORDS), modulus))
}

fn unchanged(sum: &mut dyn Accumulator, words: &[u32], case: &str) {
    assert!(sum.partial().expect("a refused input does not tear the sum") == words, "{case}: the sum is unchanged");
}

/// A wrong length is rejected, and the sum is unchanged.
pub fn another_length(device: &dyn Aggregator) {
    let (mut sum, words, packed) = started(device);
    for packed in [&packed[..packed.len() - 1], &[&packed[..], &[0]].concat(), &[]] {
        let outcome = sum.add_packed(packed);
        assert!(matches!(outcome, Err(AggregationError::Packing(PackingError::Length { .. }))), "{outcome:?}");
        unchanged(&mut *sum, &words, "a packed input of another length");
        let outcome = sum.add_stream(&mut &packed[..], packed.len() as u64);
        assert!(matches!(outcome, Err(AggregationError::Packing(PackingError::Length { .. }))), "{outcome:?}");
        unchanged(&mut *sum, &words, "a stream of another length");
    }
    for other in [0, WORDS - 1, WORDS + 1] {
        let outcome = sum.merge(&vec![1; other]);
        assert!(matches!(outcome, Err(AggregationError::Length { .. })), "{outcome:?}");
        unchanged(&mut *sum, &words, "words of another length");
    }
}

/// Nonzero padding bits.
pub fn padding(device: &dyn Aggregator) {
    let (mut sum, words, mut packed) = started(device);
    *packed.last_mut().expect("the input is not empty") |= 0x80;
    let outcome = sum.add_packed(&packed);
    assert!(matches!(outcome, Err(AggregationError::Packing(PackingError::Padding))), "{outcome:?}");
    unchanged(&mut *sum, &words, "padding bits");
}

/// Masks for a vector of another length or modulus.
pub fn a_plan_for_another_vector(device: &dyn Aggregator) {
    for (words, bits) in [(WORDS - 1, BITS), (WORDS, BITS + 1)] {
        let modulus = Modulus::new(bits).expect("the case is in range");
        let plan = MaskPlan::new(Plane::Model, words as u64, modulus).expect("the case is in range");
        let outcome = begin(device, WORDS, BITS).unmask(&plan);
        assert!(matches!(outcome, Err(AggregationError::Plan { .. })), "{words} words, b = {bits}");
    }
}

/// b below 16 or above 32, zero words, or too many: rejected before any device is involved. Within the limits every device starts.
pub fn out_of_range(device: &dyn Aggregator) {
    for bits in [0, 1, 15, 33, 64, 255] {
        assert!(matches!(Shape::new(10, bits), Err(AggregationError::Modulus(_))), "b = {bits}");
    }
    for words in [0, Shape::MAX_WORDS + 1, usize::MAX] {
        assert!(matches!(Shape::new(words, 20), Err(AggregationError::Words { .. })), "{words} words");
    }
    for bits in [16, 32] {
        assert_eq!(begin(device, 1, bits).partial().expect("a sum of nothing"), [0], "b = {bits}");
    }
}

/// A plan without masks is valid: the result is the sum of the inputs, reduced.
pub fn no_seeds(device: &dyn Aggregator) {
    let (mut sum, words, packed) = started(device);
    sum.add_packed(&packed).expect("a good input is added");
    let modulus = Modulus::new(BITS).expect("the case is in range");
    let mut expected = words.clone();
    let added = Unpacker::new(WORDS, modulus).push(&packed, {
        let mut sums = expected.iter_mut();
        move |word| *sums.next().expect("no more words than the sum has") += word
    });
    added.expect("the input is well formed");
    secure_agg::modular::reduce(&mut expected, modulus);
    let plan = MaskPlan::new(Plane::Model, WORDS as u64, modulus).expect("the case is in range");
    assert!(sum.unmask(&plan).expect("no masks, no error") == expected, "{}: no seeds", device.name());
    let mut slice = vec![7; WORDS];
    device.unmask_slice(&plan, 0, &words, &mut slice).expect("no masks, no error");
    assert!(slice == words, "{}: a slice and no seeds", device.name());
}

/// Slices that lie outside, start at invalid offsets, or have no room of their length.
pub fn another_slice(device: &dyn Aggregator) {
    let modulus = Modulus::new(BITS).expect("the case is in range");
    let plan = MaskPlan::new(Plane::Model, WORDS as u64, modulus).expect("the case is in range");
    for (offset, len) in [(0, WORDS + 1), (1 << 16, WORDS), (1000, 10), (1 << 17, 0), (u64::MAX - 0xffff, 1)] {
        let outcome = device.unmask_slice(&plan, offset, &vec![1; len], &mut vec![0; len]);
        assert!(matches!(outcome, Err(AggregationError::Slice { .. })), "{len} words at {offset}: {outcome:?}");
        let outcome = begin(device, len.max(1), BITS).unmask_at(&plan, offset);
        assert!(
            matches!(outcome, Err(AggregationError::Slice { .. })),
            "a sum of {len} words at {offset}: {outcome:?}"
        );
    }
    let outcome = begin(device, 2, BITS + 1).unmask_at(&plan, 0);
    assert!(matches!(outcome, Err(AggregationError::Plan { .. })), "{outcome:?}");
    let outcome = device.unmask_slice(&plan, 0, &[1, 2], &mut [0]);
    assert!(matches!(outcome, Err(AggregationError::Length { expected: 2, got: 1 })), "{outcome:?}");
}

/// A stream of the wrong length tears the sum, and a torn sum reveals nothing.
pub fn broken_streams(device: &dyn Aggregator) {
    let (_, _, packed) = started(device);
    let length = packed.len() as u64;
    let mut padded = packed.clone();
    *padded.last_mut().expect("the input is not empty") |= 0x80;
    let longer = [&packed[..], &[0]].concat();
    let streams: [(&str, Box<dyn Read>); 4] = [
        ("too short", Box::new(&packed[..packed.len() - 1])),
        ("too long", Box::new(&longer[..])),
        ("padding bits", Box::new(&padded[..])),
        ("a failing disk", Box::new((&packed[..packed.len() / 2]).chain(Broken))),
    ];
    for (case, mut stream) in streams {
        let (mut sum, words, packed) = started(device);
        assert!(sum.add_stream(&mut *stream, length).is_err(), "{case}");
        let torn =
            |outcome: Result<(), AggregationError>| assert!(matches!(outcome, Err(AggregationError::Torn)), "{case}");
        torn(sum.add_packed(&packed));
        torn(sum.add_stream(&mut &packed[..], length));
        torn(sum.merge(&words));
        torn(sum.partial().map(drop));
        torn(sum.write_partial(&mut io::sink()));
        let modulus = Modulus::new(BITS).expect("the case is in range");
        let plan = MaskPlan::new(Plane::Model, WORDS as u64, modulus).expect("the case is in range");
        torn(sum.unmask(&plan).map(drop));
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

/// An empty sum is zero; with masks it equals the masks.
pub fn no_inputs(device: &dyn Aggregator) {
    let mut numbers = Numbers::new(3);
    let shape = Shape::new(100, 20).expect("the case is in range");
    let empty = plan(shape, Plane::Model, 0, &mut numbers);
    assert_eq!(begin(device, 100, 20).unmask(&empty).expect("an empty plan is a plan"), vec![0; 100]);
    let masks = plan(shape, Plane::Model, 3, &mut numbers);
    let mut expected = vec![0; 100];
    mask::apply(&masks, 0, &mut expected).expect("the plan is for this vector");
    assert_eq!(begin(device, 100, 20).unmask(&masks).expect("zero inputs are no error"), expected);
}

/// Two rounds on one device do not interfere.
pub fn two_rounds_at_once(device: &dyn Aggregator) {
    let together = Barrier::new(2);
    let round = |seed: u64| {
        let mut numbers = Numbers::new(seed);
        let (words, bits) = (70_000, 32);
        let shape = Shape::new(words, bits).expect("the case is in range");
        let plan = plan(shape, Plane::Model, 3, &mut numbers);
        let input = numbers.words(words);
        let mut expected = input.clone();
        mask::apply(&plan, 0, &mut expected).expect("the plan is for this vector");
        let mut sum = begin(device, words, bits);
        together.wait();
        sum.merge(&input).expect("the length fits");
        assert!(sum.unmask(&plan).expect("the plan is for this sum") == expected, "{}: round {seed}", device.name());
    };
    thread::scope(|scope| {
        scope.spawn(|| round(5));
        round(6);
    });
}
