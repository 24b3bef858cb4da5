//! Test cases of sums and masks, and the plain arithmetic to compare with.

use secure_agg::mask::{self, MaskPlan, MaskSeed, Plane, Sign, WORDS_PER_NONCE};
use secure_agg::packing;

use crate::{Accumulator, Aggregator, Shape, self_test};

/// SplitMix64: reproducible test data.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.word() as usize % bound
    }

    pub(super) fn words(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.word()).collect()
    }
}

/// A plan with `masks` random masks of random signs.
pub(super) fn plan(shape: Shape, plane: Plane, masks: usize, numbers: &mut Numbers) -> MaskPlan {
    let mut plan =
        MaskPlan::new(plane, shape.words() as u64, shape.modulus()).expect("a shape is no longer than a plan");
    for _ in 0..masks {
        let mut key = [0; 32];
        key.iter_mut().for_each(|byte| *byte = numbers.word().to_le_bytes()[0]);
        let sign = if numbers.word().is_multiple_of(2) { Sign::Add } else { Sign::Subtract };
        plan.push(MaskSeed::new(&mut key), sign);
    }
    plan
}

pub(super) fn begin(device: &dyn Aggregator, words: usize, bits: u8) -> Box<dyn Accumulator> {
    device.begin(Shape::new(words, bits).expect("the case is in range")).expect("there is memory for a test")
}

pub(super) fn known_answers(device: &dyn Aggregator) {
    self_test::run(device).expect("the device passes its self-test");
}

/// Lengths around the sizes at which implementations split: a word, a block, a cipher's tile, a cache block, a piece.
const LENGTHS: [usize; 16] = [1, 7, 8, 9, 15, 16, 17, 127, 128, 255, 257, 4095, 8193, 65_535, 65_544, 150_001];

/// Random inputs in all three forms, random masks.
pub(super) fn random_sums(device: &dyn Aggregator) {
    let mut numbers = Numbers::new(1);
    let widths = (16u8..=32).cycle();
    let planes = [Plane::Model, Plane::Scalars, Plane::HomomorphicKey].into_iter().cycle();
    let cases = LENGTHS.iter().chain(&LENGTHS).chain(&LENGTHS);
    for ((words, bits), plane) in cases.copied().zip(widths).zip(planes) {
        let shape = Shape::new(words, bits).expect("the case is in range");
        let masks = numbers.below(6);
        let plan = plan(shape, plane, masks, &mut numbers);
        let mut sum = begin(device, words, bits);
        let mut expected = vec![0u32; words];
        for input in 0..1 + numbers.below(4) {
            let input_words = numbers.words(words);
            let packed = packing::pack(&input_words, shape.modulus());
            match input % 3 {
                0 => sum.add_packed(&packed),
                1 => {
                    sum.add_stream(&mut Dribble { bytes: &packed, most: 1 + numbers.below(9000) }, packed.len() as u64)
                }
                _ => sum.merge(&input_words),
            }
            .expect("a good input is added");
            secure_agg::modular::add_assign(&mut expected, &input_words);
        }
        mask::apply(&plan, 0, &mut expected).expect("the plan is for this vector");
        let got = sum.unmask(&plan).expect("the plan is for this sum");
        assert!(got == expected, "{}: {words} words, b = {bits}, {masks} masks, {plane:?}", device.name());
    }
}

/// As many masks as a round of a hundred participants leaves in its sum.
pub(super) fn many_masks(device: &dyn Aggregator) {
    let mut numbers = Numbers::new(8);
    let shape = Shape::new(3001, 32).expect("the case is in range");
    let plan = plan(shape, Plane::Model, 100, &mut numbers);
    let mut expected = numbers.words(3001);
    let mut sum = begin(device, 3001, 32);
    sum.merge(&expected).expect("the length fits");
    mask::apply(&plan, 0, &mut expected).expect("the plan is for this vector");
    assert!(sum.unmask(&plan).expect("the plan is for this sum") == expected, "{}: 100 masks", device.name());
    // More masks than a device takes at a time.
    let shape = Shape::new(40, 17).expect("the case is in range");
    let plan = self::plan(shape, Plane::HomomorphicKey, 70_000, &mut numbers);
    let mut expected = vec![0; 40];
    mask::apply(&plan, 0, &mut expected).expect("the plan is for this vector");
    let got = begin(device, 40, 17).unmask(&plan).expect("the plan is for this sum");
    assert!(got == expected, "{}: 70,000 masks", device.name());
}

/// A reader with a few bytes per read.
pub(super) struct Dribble<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) most: usize,
}

impl std::io::Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = self.most.min(buffer.len());
        self.bytes.read(&mut buffer[..most])
    }
}

/// Word 2^24 starts a new nonce.
pub(super) fn chunk_boundary(device: &dyn Aggregator) {
    let boundary = usize::try_from(WORDS_PER_NONCE).expect("2^24 fits");
    let words = boundary + 1000;
    let mut numbers = Numbers::new(2);
    let shape = Shape::new(words, 32).expect("the case is in range");
    let plan = plan(shape, Plane::Model, 2, &mut numbers);
    let got = begin(device, words, 32).unmask(&plan).expect("the plan is for this sum");
    let start = boundary - 1000;
    let mut expected = vec![0; 2000];
    mask::apply(&plan, start as u64, &mut expected).expect("the slice lies inside");
    assert!(got[start..] == expected, "{}: the words around 2^24", device.name());
}

/// The sum does not depend on how inputs are spread over accumulators or how partial sums are merged.
pub(super) fn splits(device: &dyn Aggregator) {
    let mut numbers = Numbers::new(4);
    let (words, bits) = (1001, 21);
    let shape = Shape::new(words, bits).expect("the case is in range");
    let inputs: Vec<Vec<u8>> = (0..6).map(|_| packing::pack(&numbers.words(words), shape.modulus())).collect();
    let plan = plan(shape, Plane::Model, 4, &mut numbers);
    let mut whole = begin(device, words, bits);
    for input in &inputs {
        whole.add_packed(input).expect("a good input is added");
    }
    let whole_partial = whole.partial().expect("the sum is whole");
    let expected = whole.unmask(&plan).expect("the plan is for this sum");
    for cut in 0..=inputs.len() {
        let (mut first, mut second) = (begin(device, words, bits), begin(device, words, bits));
        for input in inputs[cut..].iter().rev() {
            first.add_packed(input).expect("a good input is added");
        }
        for input in &inputs[..cut] {
            second.add_packed(input).expect("a good input is added");
        }
        if cut % 2 == 0 {
            first.merge(&second.partial().expect("the sum is whole")).expect("partial sums fit");
        } else {
            let mut stored = Vec::new();
            second.write_partial(&mut stored).expect("memory takes everything");
            first.add_packed(&stored).expect("a partial sum is an input");
        }
        assert_eq!(first.partial().expect("the sum is whole"), whole_partial, "{}: cut at {cut}", device.name());
        assert_eq!(first.unmask(&plan).expect("the plan is for this sum"), expected, "{}: cut at {cut}", device.name());
    }
}

/// A sum stored elsewhere, unmasked slice by slice, on both sides of a nonce boundary too.
pub(super) fn slices(device: &dyn Aggregator) {
    let mut numbers = Numbers::new(9);
    let mut cases = vec![(0, 1000, 2), (3, 65_536, 5), (255, 70_001, 3), (256, 17, 40), (2, 200_000, 0)];
    cases.extend((0..12).map(|_| (u64::from(numbers.word() % 600), 1 + numbers.below(90_000), numbers.below(20))));
    for ((start, words, masks), bits) in cases.into_iter().zip((16..=32).cycle()) {
        let offset = start * Shape::SLICE_START;
        let whole = usize::try_from(offset).expect("2^24 fits") + words + 5;
        let shape = Shape::new(whole, bits).expect("the case is in range");
        let plan = plan(shape, Plane::Scalars, masks, &mut numbers);
        let sum = numbers.words(words);
        let mut expected = sum.clone();
        mask::apply(&plan, offset, &mut expected).expect("the slice lies inside");
        let mut out = vec![7; words];
        device.unmask_slice(&plan, offset, &sum, &mut out).expect("the slice lies inside");
        assert!(out == expected, "{}: {words} words at {offset}, {masks} masks", device.name());
        let mut slice = begin(device, words, bits);
        slice.merge(&sum).expect("the length fits");
        let got = slice.unmask_at(&plan, offset).expect("the slice lies inside");
        assert!(got == expected, "{}: the sum of {words} words at {offset}, {masks} masks", device.name());
    }
}
