//! What must be refused, and what a refusal leaves behind.

use std::io::{self, Read};

use secure_agg::mask::{MaskPlan, Plane};
use secure_agg::modular::Modulus;
use secure_agg::packing::{self, PackingError};

use super::cases::{Numbers, begin};
use crate::{Accumulator, AggregationError, Aggregator, Shape};

const WORDS: usize = 70_003;
const BITS: u8 = 20;

/// A sum with one input, that input's words (reduced), and another input in its wire form.
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

pub(super) fn lengths(device: &dyn Aggregator) {
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

pub(super) fn padding(device: &dyn Aggregator) {
    let (mut sum, words, mut packed) = started(device);
    *packed.last_mut().expect("the input is not empty") |= 0x80;
    let outcome = sum.add_packed(&packed);
    assert!(matches!(outcome, Err(AggregationError::Packing(PackingError::Padding))), "{outcome:?}");
    unchanged(&mut *sum, &words, "padding bits");
}

pub(super) fn plans(device: &dyn Aggregator) {
    for (words, bits) in [(WORDS - 1, BITS), (WORDS, BITS + 1)] {
        let modulus = Modulus::new(bits).expect("the case is in range");
        let plan = MaskPlan::new(Plane::Model, words as u64, modulus).expect("the case is in range");
        let outcome = begin(device, WORDS, BITS).unmask(&plan);
        assert!(matches!(outcome, Err(AggregationError::Plan { .. })), "{words} words, b = {bits}");
    }
    for (words, bits) in [(0, 20), (Shape::MAX_WORDS + 1, 20), (10, 15), (10, 33)] {
        assert!(Shape::new(words, bits).is_err(), "{words} words, b = {bits}");
    }
}

pub(super) fn slices(device: &dyn Aggregator) {
    let modulus = Modulus::new(BITS).expect("the case is in range");
    let plan = MaskPlan::new(Plane::Model, WORDS as u64, modulus).expect("the case is in range");
    for (offset, len) in [(0, WORDS + 1), (1 << 16, WORDS), (1000, 10), (1 << 17, 0), (u64::MAX - 0xffff, 1)] {
        let outcome = device.unmask_slice(&plan, offset, &vec![1; len], &mut vec![0; len]);
        assert!(matches!(outcome, Err(AggregationError::Slice { .. })), "{len} words at {offset}: {outcome:?}");
    }
    let outcome = device.unmask_slice(&plan, 0, &[1, 2], &mut [0]);
    assert!(matches!(outcome, Err(AggregationError::Length { expected: 2, got: 1 })), "{outcome:?}");
}

/// A stream that breaks its promise tears the sum, and a torn sum gives nothing away.
pub(super) fn torn_streams(device: &dyn Aggregator) {
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
