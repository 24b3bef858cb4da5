//! A device with the processor as fallback: if the device fails in the middle of a round, the round completes with the same bits.
//!
//! Inputs are added in main memory as they arrive, faster than any network. The device only unmasks: it receives one sum and the seeds. So
//! data survive a lost device, and memory does not depend on the number of inputs. Every answer is checked against the definition in three
//! places before it is used.

use std::any::Any;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use secure_agg::mask::{self, MaskPlan};

use crate::cpu::{CpuAccumulator, CpuAggregator};
use crate::panic::panic_message;
use crate::robust::{Inputs, RobustStatistics};
use crate::shape::room_for;
use crate::work::Stopwatch;
use crate::{
    Accumulator, AggregationError, Aggregator, Answered, Effort, FallbackEvent, Finished, MemoryUse, Shape, Work,
};

/// Unmasks on a device, and on the processor when that fails.
pub struct Fallback {
    device: Arc<dyn Aggregator>,
    cpu: Arc<CpuAggregator>,
}

impl Fallback {
    #[must_use]
    pub fn new(device: Arc<dyn Aggregator>, cpu: Arc<CpuAggregator>) -> Self {
        Self { device, cpu }
    }
}

impl Aggregator for Fallback {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError> {
        let sum = self.cpu.begin_here(shape)?;
        Ok(Box::new(FallbackSum { sum, device: Arc::clone(&self.device), cpu: Arc::clone(&self.cpu) }))
    }

    fn unmask_slice(&self, plan: &MaskPlan, offset: u64, sum: &[u32], out: &mut [u32]) -> Result<(), AggregationError> {
        unmask_slice(&*self.device, &self.cpu, plan, (offset, sum), out).map(drop)
    }

    fn measured_median(&self, inputs: Inputs<'_>) -> Result<Answered<i32>, AggregationError> {
        self.robust(
            |device| device.median(inputs),
            |medians| self.same_columns(inputs, medians, |cpu, sample| cpu.median(sample)),
        )
    }

    fn measured_trimmed_mean(&self, inputs: Inputs<'_>, trim: usize) -> Result<Answered<i32>, AggregationError> {
        inputs.check_trim(trim)?;
        self.robust(
            |device| device.trimmed_mean(inputs, trim),
            |means| self.same_columns(inputs, means, |cpu, sample| cpu.trimmed_mean(sample, trim)),
        )
    }

    fn measured_gram(&self, inputs: Inputs<'_>) -> Result<Answered<i64>, AggregationError> {
        self.robust(
            |device| device.gram(inputs),
            |products| {
                let (first, last) = (0, inputs.vectors().len() - 1);
                let pair = [inputs.vectors()[first], inputs.vectors()[last]];
                let expected = Inputs::new(&pair).and_then(|pair| self.cpu.gram(pair));
                let at = |i: usize, j: usize| products.get(i * (last + 1) + j).copied();
                let found = [at(first, first), at(first, last), at(last, first), at(last, last)];
                expected.is_ok_and(|expected| found.into_iter().eq(expected.into_iter().map(Some)))
            },
        )
    }

    fn memory(&self) -> Vec<MemoryUse> {
        self.device.memory().into_iter().chain(self.cpu.memory()).collect()
    }

    fn spare(&self) -> Option<Arc<dyn Aggregator>> {
        Some(Arc::clone(&self.cpu) as _)
    }
}

/// Checks the device's answer against the processor's in some columns, or for some vectors, before it is used.
impl RobustStatistics for Fallback {
    fn median(&self, inputs: Inputs<'_>) -> Result<Vec<i32>, AggregationError> {
        self.measured_median(inputs).map(|answered| answered.answers)
    }

    fn trimmed_mean(&self, inputs: Inputs<'_>, trim: usize) -> Result<Vec<i32>, AggregationError> {
        self.measured_trimmed_mean(inputs, trim).map(|answered| answered.answers)
    }

    fn gram(&self, inputs: Inputs<'_>) -> Result<Vec<i64>, AggregationError> {
        self.measured_gram(inputs).map(|answered| answered.answers)
    }
}

impl Fallback {
    fn robust<T>(
        &self,
        work: impl Fn(&dyn RobustStatistics) -> Result<Vec<T>, AggregationError>,
        is_right: impl Fn(&[T]) -> bool,
    ) -> Result<Answered<T>, AggregationError> {
        let watch = Stopwatch::start();
        let told = |answers, device: &str, fallback| Answered {
            answers,
            effort: Effort { device: device.to_owned(), took: watch.elapsed() },
            fallback,
        };
        let attempt = catch_unwind(AssertUnwindSafe(|| work(&*self.device)));
        let reason = match attempt {
            Ok(Ok(answers)) if is_right(&answers) => return Ok(told(answers, self.device.name(), None)),
            outcome => failure(outcome),
        };
        let event = fallback_event(&*self.device, &self.cpu, reason);
        let answers = work(&*self.cpu)?;
        Ok(told(answers, self.cpu.name(), Some(event)))
    }

    /// Whether the answers for the first, the middle and the last columns equal the processor's.
    fn same_columns(
        &self,
        inputs: Inputs<'_>,
        answers: &[i32],
        work: impl Fn(&CpuAggregator, Inputs<'_>) -> Result<Vec<i32>, AggregationError>,
    ) -> bool {
        let words = inputs.words();
        let sample = SAMPLE.min(words);
        answers.len() == words
            && [0, words / 2, words].into_iter().all(|place| {
                let columns = place.min(words - sample)..place.min(words - sample) + sample;
                let vectors: Vec<&[i16]> = inputs.vectors().iter().map(|vector| &vector[columns.clone()]).collect();
                let expected = Inputs::new(&vectors).and_then(|inputs| work(&self.cpu, inputs));
                expected.is_ok_and(|expected| expected == answers[columns])
            })
    }
}

struct FallbackSum {
    sum: CpuAccumulator,
    device: Arc<dyn Aggregator>,
    cpu: Arc<CpuAggregator>,
}

impl Accumulator for FallbackSum {
    fn shape(&self) -> Shape {
        self.sum.shape()
    }

    fn summing(&self) -> Effort {
        self.sum.summing()
    }

    fn add_packed(&mut self, packed: &[u8]) -> Result<(), AggregationError> {
        self.sum.add_packed(packed)
    }

    fn add_stream(&mut self, packed: &mut dyn Read, length: u64) -> Result<(), AggregationError> {
        self.sum.add_stream(packed, length)
    }

    fn merge(&mut self, words: &[u32]) -> Result<(), AggregationError> {
        self.sum.merge(words)
    }

    fn partial(&mut self) -> Result<Vec<u32>, AggregationError> {
        self.sum.partial()
    }

    fn write_partial(&mut self, out: &mut dyn Write) -> Result<(), AggregationError> {
        self.sum.write_partial(out)
    }

    fn unmask_at(self: Box<Self>, plan: &MaskPlan, offset: u64) -> Result<Vec<u32>, AggregationError> {
        self.finish_slice(plan, offset).map(|(finished, _)| finished.words)
    }

    fn finish_slice(self: Box<Self>, plan: &MaskPlan, offset: u64) -> Result<(Finished, Work), AggregationError> {
        let watch = Stopwatch::start();
        let sum = self.sum.words()?;
        let shape = self.sum.shape();
        shape.check_place(plan, offset)?;
        let mut words = room_for(shape)?;
        words.resize(shape.words(), 0);
        let (fallback, device) = unmask_slice(&*self.device, &self.cpu, plan, (offset, sum), &mut words)?;
        let unmasking = Effort { device, took: watch.elapsed() };
        Ok((Finished { words, fallback }, Work::new(self.sum.summing(), unmasking, plan, shape.words())))
    }
}

/// Unmasks the words `slice.1` at offset `slice.0`, and reports the device. Errors come from the caller or the processor; a device's
/// failure is handled here.
fn unmask_slice(
    device: &dyn Aggregator,
    cpu: &CpuAggregator,
    plan: &MaskPlan,
    slice: (u64, &[u32]),
    out: &mut [u32],
) -> Result<(Option<FallbackEvent>, String), AggregationError> {
    let (offset, sum) = slice;
    Shape::check_slice(plan, offset, sum.len(), out.len())?;
    // Without masks, the transfers to and from a device cost more than the work.
    if plan.is_empty() {
        cpu.unmask_slice(plan, offset, sum, out)?;
        return Ok((None, cpu.name().to_owned()));
    }
    // A driver's wrapper may panic instead of failing. Its inputs are read-only or written anew below.
    let attempt = catch_unwind(AssertUnwindSafe(|| device.unmask_slice(plan, offset, sum, out)));
    let reason = match attempt {
        Ok(Ok(())) if is_right(plan, offset, sum, out) => return Ok((None, device.name().to_owned())),
        outcome => failure(outcome),
    };
    let event = fallback_event(device, cpu, reason);
    cpu.unmask_slice(plan, offset, sum, out)?;
    let finished_by = event.taken_over_by.clone();
    Ok((Some(event), finished_by))
}

/// The reason an answer is missing or not trusted.
fn failure<T>(outcome: Result<Result<T, AggregationError>, Box<dyn Any + Send>>) -> String {
    match outcome {
        Ok(Ok(_)) => "it gave a wrong answer".to_owned(),
        Ok(Err(AggregationError::Device { reason, .. })) => reason,
        Ok(Err(error)) => error.to_string(),
        Err(panic) => format!("it panicked: {}", panic_message(&*panic)),
    }
}

/// Logs that the processor takes over.
fn fallback_event(device: &dyn Aggregator, cpu: &CpuAggregator, reason: String) -> FallbackEvent {
    let (device, taken_over_by) = (device.name().to_owned(), cpu.name().to_owned());
    tracing::error!(%device, %reason, %taken_over_by, "an aggregation device failed in the middle of a round");
    FallbackEvent { device, reason, taken_over_by }
}

/// Number of words compared with the definition at each place.
const SAMPLE: usize = 16;

/// Whether the first, the middle and the last words match the definition. Detects a device that stopped halfway or did not start.
fn is_right(plan: &MaskPlan, offset: u64, sum: &[u32], out: &[u32]) -> bool {
    let sample = SAMPLE.min(sum.len());
    [0, sum.len() / 2, sum.len()].into_iter().all(|place| {
        let start = place.min(sum.len() - sample);
        let mut expected = sum[start..start + sample].to_vec();
        mask::apply(plan, offset + start as u64, &mut expected).is_ok() && expected == out[start..start + sample]
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secure_agg::mask::{MaskSeed, Plane, Sign};

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Fault {
        Lost,
        NoMemory,
        Panics,
        WritesNothing,
        StopsHalfWay,
        None,
    }

    /// A device that fails on request.
    struct Injected(Fault, CpuAggregator);

    impl Injected {
        fn answer<T>(
            &self,
            answer: impl FnOnce(&CpuAggregator) -> Result<Vec<T>, AggregationError>,
        ) -> Result<Vec<T>, AggregationError> {
            match self.0 {
                Fault::Lost => {
                    Err(AggregationError::Device { device: "injected".into(), reason: "the device is lost".into() })
                }
                Fault::NoMemory => Err(AggregationError::OutOfMemory { bytes: 64 }),
                Fault::Panics => panic!("a driver's wrapper gave up"),
                Fault::WritesNothing => Ok(Vec::new()),
                Fault::StopsHalfWay => answer(&self.1).map(|mut answers| {
                    answers.truncate(answers.len() / 2);
                    answers
                }),
                Fault::None => answer(&self.1),
            }
        }
    }

    impl RobustStatistics for Injected {
        fn median(&self, inputs: Inputs<'_>) -> Result<Vec<i32>, AggregationError> {
            self.answer(|cpu| cpu.median(inputs))
        }

        fn trimmed_mean(&self, inputs: Inputs<'_>, trim: usize) -> Result<Vec<i32>, AggregationError> {
            self.answer(|cpu| cpu.trimmed_mean(inputs, trim))
        }

        fn gram(&self, inputs: Inputs<'_>) -> Result<Vec<i64>, AggregationError> {
            self.answer(|cpu| cpu.gram(inputs))
        }
    }

    impl Aggregator for Injected {
        fn name(&self) -> &str {
            "injected"
        }

        fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError> {
            self.1.begin(shape)
        }

        fn unmask_slice(
            &self,
            plan: &MaskPlan,
            offset: u64,
            sum: &[u32],
            out: &mut [u32],
        ) -> Result<(), AggregationError> {
            let half = out.len() / 2;
            let failed =
                |reason: &str| Err(AggregationError::Device { device: "injected".into(), reason: reason.into() });
            match self.0 {
                Fault::Lost => {
                    out.fill(0xdead);
                    failed("the device is lost")
                }
                Fault::NoMemory => Err(AggregationError::OutOfMemory { bytes: 64 }),
                Fault::Panics => panic!("a driver's wrapper gave up"),
                Fault::WritesNothing => Ok(()),
                Fault::StopsHalfWay => self.1.unmask_slice(plan, offset, &sum[..half], &mut out[..half]),
                Fault::None => self.1.unmask_slice(plan, offset, sum, out),
            }
        }
    }

    /// A plan of so many masks, and a sum to remove them from.
    fn case(masks: u8) -> (MaskPlan, Vec<u32>) {
        let mut plan = MaskPlan::new(Plane::Model, 100_000, Shape::new(100_000, 20).unwrap().modulus()).unwrap();
        for number in 0..masks {
            plan.push(MaskSeed::new(&mut [number; 32]), if number == 1 { Sign::Subtract } else { Sign::Add });
        }
        (plan, (0..100_000).collect())
    }

    fn finished(fault: Fault, masks: u8) -> (Finished, Work, Vec<u32>) {
        let cpu = Arc::new(CpuAggregator::new(1).unwrap());
        let device = Fallback::new(Arc::new(Injected(fault, CpuAggregator::new(1).unwrap())), cpu);
        let (plan, mut expected) = case(masks);
        let mut sum = device.begin(Shape::new(100_000, 20).unwrap()).unwrap();
        sum.merge(&expected).unwrap();
        mask::apply(&plan, 0, &mut expected).unwrap();
        let (finished, work) = sum.finish_measured(&plan).unwrap();
        (finished, work, expected)
    }

    #[test]
    fn whatever_happens_to_the_device_the_bits_are_the_same_and_the_caller_learns_of_it() {
        for (fault, reason) in [
            (Fault::Lost, "the device is lost"),
            (Fault::NoMemory, "there is no memory for a sum of 64 bytes"),
            (Fault::Panics, "it panicked: a driver's wrapper gave up"),
            (Fault::WritesNothing, "it gave a wrong answer"),
            (Fault::StopsHalfWay, "it gave a wrong answer"),
        ] {
            let (finished, work, expected) = finished(fault, 3);
            assert!(finished.words == expected, "{fault:?}");
            let event = finished.fallback.unwrap();
            assert_eq!((&*event.device, &*event.reason), ("injected", reason));
            assert!(event.taken_over_by.starts_with("cpu ("), "{event:?}");
            assert_eq!(work.unmasking.device, event.taken_over_by);
        }
    }

    #[test]
    fn who_answered_a_robust_statistic_is_told_and_who_failed_at_it() {
        let vectors: Vec<Vec<i16>> = (0..5).map(|n| (0..100).map(|word| word * 7 % 13 - n).collect()).collect();
        let vectors: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
        let (inputs, processor) = (Inputs::new(&vectors).unwrap(), CpuAggregator::new(1).unwrap());
        for (fault, reason) in [
            (Fault::Lost, Some("the device is lost")),
            (Fault::NoMemory, Some("there is no memory for a sum of 64 bytes")),
            (Fault::Panics, Some("it panicked: a driver's wrapper gave up")),
            (Fault::WritesNothing, Some("it gave a wrong answer")),
            (Fault::StopsHalfWay, Some("it gave a wrong answer")),
            (Fault::None, None),
        ] {
            let cpu = Arc::new(CpuAggregator::new(1).unwrap());
            let device = Fallback::new(Arc::new(Injected(fault, CpuAggregator::new(1).unwrap())), cpu);
            let (median, mean) =
                (device.measured_median(inputs).unwrap(), device.measured_trimmed_mean(inputs, 1).unwrap());
            let gram = device.measured_gram(inputs).unwrap();
            assert_eq!(median.answers, processor.median(inputs).unwrap(), "{fault:?}");
            assert_eq!(mean.answers, processor.trimmed_mean(inputs, 1).unwrap(), "{fault:?}");
            assert_eq!(gram.answers, processor.gram(inputs).unwrap(), "{fault:?}");
            let told = [(median.effort, median.fallback), (mean.effort, mean.fallback), (gram.effort, gram.fallback)];
            for (effort, fallback) in told {
                assert_eq!(fallback.as_ref().map(|event| event.reason.as_str()), reason, "{fault:?}");
                let by = fallback.map_or_else(|| "injected".to_owned(), |event| event.taken_over_by);
                assert_eq!(effort.device, by, "{fault:?}");
            }
        }
        let alone = processor.measured_median(inputs).unwrap();
        assert_eq!((alone.effort.device.as_str(), alone.fallback), (processor.name(), None));
    }

    #[test]
    fn slices_are_the_sum_and_the_spare_device_goes_on_after_a_failure() {
        let (_, whole, expected) = finished(Fault::None, 3);
        let cpu = Arc::new(CpuAggregator::new(1).unwrap());
        let injected = Injected(Fault::Lost, CpuAggregator::new(1).unwrap());
        let mut device: Arc<dyn Aggregator> = Arc::new(Fallback::new(Arc::new(injected), cpu));
        let (plan, input) = case(3);
        let (mut words, mut events, mut work) = (Vec::new(), 0, None::<Work>);
        let start = usize::try_from(Shape::SLICE_START).unwrap();
        for (offset, slice) in (0..).step_by(start).zip(input.chunks(start)) {
            let mut sum = device.begin(Shape::new(slice.len(), 20).unwrap()).unwrap();
            sum.merge(slice).unwrap();
            let (finished, of_slice) = sum.finish_slice(&plan, offset).unwrap();
            words.extend(finished.words);
            work = Some(match work {
                Some(before) => before.and(of_slice),
                None => of_slice,
            });
            if finished.fallback.is_some() {
                events += 1;
                device = device.spare().unwrap();
            }
        }
        let work = work.unwrap();
        assert!(words == expected);
        assert_eq!((events, work.keystream_bytes), (1, whole.keystream_bytes));
        assert!(work.unmasking.device.starts_with("cpu ("), "{work:?}");
    }

    #[test]
    fn a_device_that_works_is_no_event_and_one_without_masks_is_not_asked() {
        for (fault, masks) in [(Fault::None, 3), (Fault::Panics, 0)] {
            let (finished, _, expected) = finished(fault, masks);
            assert!(finished.words == expected && finished.fallback.is_none(), "{fault:?}");
        }
    }

    #[test]
    fn who_summed_who_unmasked_how_long_and_how_much_keystream_are_told() {
        let (_, work, _) = finished(Fault::None, 3);
        assert!(work.summing.device.starts_with("cpu ("), "{work:?}");
        assert_eq!((&*work.unmasking.device, work.keystream_bytes), ("injected", 3 * 4 * 100_000));
        assert!(work.summing.took > Duration::ZERO && work.unmasking.took > Duration::ZERO, "{work:?}");
        let (_, work, _) = finished(Fault::None, 0);
        assert!(work.unmasking.device.starts_with("cpu (") && work.keystream_bytes == 0, "{work:?}");
    }

    #[test]
    fn a_plan_for_another_vector_is_the_callers_error_not_the_devices() {
        let cpu = Arc::new(CpuAggregator::new(1).unwrap());
        let device = Fallback::new(Arc::new(Injected(Fault::Lost, CpuAggregator::new(1).unwrap())), cpu);
        let sum = device.begin(Shape::new(10, 20).unwrap()).unwrap();
        let plan = MaskPlan::new(Plane::Model, 11, Shape::new(10, 20).unwrap().modulus()).unwrap();
        assert!(matches!(sum.finish(&plan), Err(AggregationError::Plan { .. })));
    }
}
