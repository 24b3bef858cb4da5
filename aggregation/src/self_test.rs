//! The self-test required of every device before its first round: known answers, then a comparison with the definition.

use secure_agg::mask::{self, MaskPlan, MaskSeed, Plane, Sign};
use secure_agg::packing;

use crate::cpu::{CpuAggregator, Kernel};
use crate::robust::{Inputs, RobustStatistics};
use crate::{AggregationError, Aggregator, Shape};

/// RFC 8439 appendix A.1, test vector 1: the first words for the key and nonce of zeros.
const ZERO_KEY_BLOCK_0: [u32; 16] = [
    0xade0_b876,
    0x903d_f1a0,
    0xe56a_5d40,
    0x28bd_8653,
    0xb819_d2bd,
    0x1aed_8da0,
    0xccef_36a8,
    0xc70d_778b,
    0x7c59_41da,
    0x8d48_5751,
    0x3fe0_2477,
    0x374a_d8b8,
    0xf4b8_436a,
    0x1ca1_1815,
    0x69b6_87c3,
    0x8665_eeb2,
];

/// Runs the test; takes milliseconds.
///
/// # Errors
/// [`AggregationError::Device`] if an answer is wrong; errors of the device.
pub(crate) fn run(device: &dyn Aggregator) -> Result<(), AggregationError> {
    known_answer(device)?;
    for (words, bits, masks) in [(1, 16, 1), (4097, 20, 3), (40_000, 32, 5)] {
        comparison(device, words, bits, masks)?;
    }
    robust_statistics(device)
}

fn known_answer(device: &dyn Aggregator) -> Result<(), AggregationError> {
    let shape = Shape::new(16, 32)?;
    let mut plan = plan_for(device, shape)?;
    plan.push(MaskSeed::new(&mut [0; 32]), Sign::Add);
    let words = device.begin(shape)?.unmask(&plan)?;
    expect_equal(device, "the RFC 8439 block", &words, &ZERO_KEY_BLOCK_0)
}

/// Two packed inputs and some masks, compared with plain arithmetic and the portable expansion.
fn comparison(device: &dyn Aggregator, words: usize, bits: u8, masks: u8) -> Result<(), AggregationError> {
    let shape = Shape::new(words, bits)?;
    let mut plan = plan_for(device, shape)?;
    for number in 1..=masks {
        let sign = if number % 2 == 0 { Sign::Subtract } else { Sign::Add };
        plan.push(MaskSeed::new(&mut [number; 32]), sign);
    }
    // Any words serve as inputs; those of the definition are at hand.
    let mut input = vec![0; words];
    mask::apply(&plan, 0, &mut input).map_err(|error| fault(device, &error.to_string()))?;
    let packed = packing::pack(&input, shape.modulus());
    let mut sum = device.begin(shape)?;
    sum.add_packed(&packed)?;
    sum.merge(&input)?;
    let mut expected: Vec<u32> = input.iter().map(|word| word.wrapping_mul(2)).collect();
    mask::apply(&plan, 0, &mut expected).map_err(|error| fault(device, &error.to_string()))?;
    let kept = sum.partial()?;
    expect_equal(device, "the comparison with the definition", &sum.unmask(&plan)?, &expected)?;
    let mut slice = vec![0; words];
    device.unmask_slice(&plan, 0, &kept, &mut slice)?;
    expect_equal(device, "the comparison of a kept sum with the definition", &slice, &expected)
}

/// Order statistics and inner products of a few vectors, compared with the processor's portable loops.
fn robust_statistics(device: &dyn Aggregator) -> Result<(), AggregationError> {
    let cpu = CpuAggregator::with_kernel(Kernel::Portable, 1)?;
    let vector = |seed: i16| (0..301).map(|i: i16| i.wrapping_mul(seed).wrapping_mul(7919)).collect::<Vec<i16>>();
    let vectors: Vec<Vec<i16>> = (1..=7).map(vector).collect();
    let vectors: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
    let inputs = Inputs::new(&vectors)?;
    let right = device.median(inputs)? == cpu.median(inputs)?
        && device.trimmed_mean(inputs, 2)? == cpu.trimmed_mean(inputs, 2)?
        && device.gram(inputs)? == cpu.gram(inputs)?;
    if right { Ok(()) } else { Err(fault(device, "its self-test gave a wrong answer to robust statistics")) }
}

fn plan_for(device: &dyn Aggregator, shape: Shape) -> Result<MaskPlan, AggregationError> {
    MaskPlan::new(Plane::Model, shape.words() as u64, shape.modulus())
        .map_err(|error| fault(device, &error.to_string()))
}

fn expect_equal(device: &dyn Aggregator, what: &str, got: &[u32], expected: &[u32]) -> Result<(), AggregationError> {
    if got == expected {
        return Ok(());
    }
    Err(fault(device, &format!("its self-test gave a wrong answer to {what}")))
}

fn fault(device: &dyn Aggregator, reason: &str) -> AggregationError {
    AggregationError::Device { device: device.name().to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::Accumulator;
    use crate::robust::robust_from;

    /// A device whose memory has one bad bit.
    struct Faulty(CpuAggregator);
    robust_from!(Faulty, 0);
    struct FaultySum(Box<dyn Accumulator>);

    impl Aggregator for Faulty {
        fn name(&self) -> &str {
            "faulty"
        }

        fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError> {
            Ok(Box::new(FaultySum(self.0.begin(shape)?)))
        }

        fn unmask_slice(
            &self,
            plan: &MaskPlan,
            offset: u64,
            sum: &[u32],
            out: &mut [u32],
        ) -> Result<(), AggregationError> {
            self.0.unmask_slice(plan, offset, sum, out)
        }
    }

    impl Accumulator for FaultySum {
        fn shape(&self) -> Shape {
            self.0.shape()
        }

        fn summing(&self) -> crate::Effort {
            self.0.summing()
        }

        fn add_packed(&mut self, packed: &[u8]) -> Result<(), AggregationError> {
            self.0.add_packed(packed)
        }

        fn add_stream(&mut self, packed: &mut dyn Read, length: u64) -> Result<(), AggregationError> {
            self.0.add_stream(packed, length)
        }

        fn merge(&mut self, words: &[u32]) -> Result<(), AggregationError> {
            self.0.merge(words)
        }

        fn partial(&mut self) -> Result<Vec<u32>, AggregationError> {
            self.0.partial()
        }

        fn write_partial(&mut self, out: &mut dyn Write) -> Result<(), AggregationError> {
            self.0.write_partial(out)
        }

        fn unmask_at(self: Box<Self>, plan: &MaskPlan, offset: u64) -> Result<Vec<u32>, AggregationError> {
            let mut words = self.0.unmask_at(plan, offset)?;
            if let Some(word) = words.get_mut(30_000) {
                *word ^= 1 << 7;
            }
            Ok(words)
        }
    }

    #[test]
    fn one_wrong_bit_fails_the_test() {
        let cpu = CpuAggregator::new(1).unwrap();
        run(&cpu).unwrap();
        let message = run(&Faulty(cpu)).unwrap_err().to_string();
        assert!(message.starts_with("device faulty failed: its self-test gave a wrong answer"), "{message}");
    }
}
