//! Runs the CUDA device against a stand-in for NVIDIA's driver (`driver.cpp`), without a GPU: every call, its order and its arguments are
//! real, the memory is the processor's and the kernels are their own text compiled as C++.
//!
//! Each case is a process of its own, since a driver is loaded once and reads its faults at startup.
#![cfg(all(feature = "cuda", feature = "host-cuda-test", target_os = "linux"))]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use aggregation::conformance::{self, Lockstep};
use aggregation::cpu::CpuAggregator;
use aggregation::cuda;
use aggregation::device::{DeviceChoice, select};
use aggregation::fallback::Fallback;
use aggregation::robust::{Inputs, RobustStatistics};
use aggregation::{AggregationError, Aggregator, Shape};
use secure_agg::mask::{self, MaskPlan, MaskSeed, Plane, Sign};

/// The folder with the stand-in under the driver's name.
fn driver() -> &'static PathBuf {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda_stand_in/driver.cpp");
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O2", "-shared", "-fPIC", "-Wno-unknown-pragmas", source, "-o"]);
        let made = compiler.arg(folder.join("libcuda.so.1")).status().expect("the C++ compiler starts");
        assert!(made.success(), "the stand-in compiles");
        folder
    })
}

/// Runs one of the cases below in a process with the stand-in, and returns their output.
fn case(name: &str, faults: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().expect("a test knows its program"));
    child.args(["--exact", name, "--ignored", "--nocapture"]).env("LD_LIBRARY_PATH", driver());
    let output = child.envs(faults.iter().copied()).output().expect("the case starts");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{name}: {text}");
    text
}

#[test]
fn the_device_conforms() {
    case("conforms", &[]);
}

/// The same with streams that execute at once.
#[test]
fn the_device_conforms_when_streams_are_fast() {
    case("conforms", &[("STAND_IN_EAGER", "1")]);
}

/// One page-locked buffer is filled while the other is transferred; two buffers suffice.
#[test]
fn uploads_go_through_two_buffers_at_a_time() {
    let said = case("uploads", &[]);
    assert!(said.contains("uploads under way at the same time: 2\n"), "{said}");
}

/// A virtual GPU may not report its clock, which determines the size of launches.
#[test]
fn masks_share_launches_whatever_the_clock() {
    for (clock, launches) in [("1000", 7), ("0", 1)] {
        let said = case("takes_masks_off", &[("STAND_IN_CLOCK", clock)]);
        assert!(said.contains(&format!("kernels launched: {launches}\n")), "{said}");
    }
}

#[test]
fn auto_takes_it() {
    case("is_chosen", &[]);
}

#[test]
fn little_memory_makes_pieces_smaller() {
    case("goes_on_with_smaller_pieces", &[("STAND_IN_MEMORY", "1200000")]);
}

#[test]
fn no_memory_and_a_lost_device_leave_the_work_to_the_cpu() {
    case("falls_back", &[("STAND_IN_MEMORY", "100000"), ("REASON", "there is no memory for")]);
    case("falls_back", &[("STAND_IN_LAUNCHES", "2"), ("REASON", "unspecified launch failure")]);
}

#[test]
fn a_device_lost_while_adding_tears_the_sum() {
    case("is_torn", &[("STAND_IN_LAUNCHES", "1")]);
}

fn cpu() -> CpuAggregator {
    CpuAggregator::new(1).expect("the processor is there")
}

const WORDS: usize = 600_000;

/// A sum, a plan for it, and the unmasked result.
fn work() -> (Vec<u32>, MaskPlan, Vec<u32>) {
    let shape = Shape::new(WORDS, 24).expect("in range");
    let mut plan = MaskPlan::new(Plane::Model, WORDS as u64, shape.modulus()).expect("in range");
    for number in 0..7 {
        plan.push(MaskSeed::new(&mut [number; 32]), if number % 2 == 0 { Sign::Subtract } else { Sign::Add });
    }
    let sum: Vec<u32> = (0..600_000).map(|i: u32| i.wrapping_mul(0x9e37_79b9)).collect();
    let mut expected = sum.clone();
    mask::apply(&plan, 0, &mut expected).expect("the plan is for this sum");
    (sum, plan, expected)
}

#[test]
#[ignore = "a case of the_device_conforms"]
fn conforms() {
    for which in [None, Some(1)] {
        let device = cuda::open(which).expect("the stand-in opens");
        conformance::run(&device);
        conformance::run(&Lockstep::new(device, cpu()));
    }
    let error = cuda::open(Some(2)).err().expect("there are two").to_string();
    assert_eq!(error, "device cuda:2 failed: there are 2 GPUs, counted from 0");
}

#[test]
#[ignore = "a case of uploads_go_through_two_buffers_at_a_time"]
fn uploads() {
    let device = cuda::open(Some(0)).expect("the stand-in opens");
    let words = 5_000_001;
    let sum: Vec<u32> = (0..5_000_001).collect();
    let plan = MaskPlan::new(Plane::Model, words as u64, Shape::new(words, 32).expect("in range").modulus());
    let mut out = vec![0; words];
    device.unmask_slice(&plan.expect("in range"), 0, &sum, &mut out).expect("the device works");
    assert!(out == sum, "no mask changes nothing");
}

#[test]
#[ignore = "a case of masks_share_launches_whatever_the_clock"]
fn takes_masks_off() {
    let device = cuda::open(Some(0)).expect("the stand-in opens");
    let (sum, plan, expected) = work();
    let mut out = vec![0; WORDS];
    device.unmask_slice(&plan, 0, &sum, &mut out).expect("the device works");
    assert!(out == expected, "the bits are the same");
}

#[test]
#[ignore = "a case of auto_takes_it"]
fn is_chosen() {
    let selected = select(DeviceChoice::Auto, 1).expect("something sums");
    assert_eq!(selected.aggregator.name(), "cuda (stand-in + stand-in)");
    conformance::run(&*selected.aggregator);
}

#[test]
#[ignore = "a case of little_memory_makes_pieces_smaller"]
fn goes_on_with_smaller_pieces() {
    let device = cuda::open(Some(0)).expect("the stand-in opens");
    let (sum, plan, expected) = work();
    let mut out = vec![0; WORDS];
    device.unmask_slice(&plan, 0, &sum, &mut out).expect("smaller pieces fit");
    assert!(out == expected, "the bits are the same");
    let shape = Shape::new(WORDS, 24).expect("in range");
    assert!(matches!(device.begin(shape), Err(AggregationError::OutOfMemory { .. })));
}

#[test]
#[ignore = "a case of no_memory_and_a_lost_device_leave_the_work_to_the_cpu"]
#[expect(clippy::disallowed_methods, reason = "the parent says what must go wrong")]
fn falls_back() {
    let device = cuda::open(None).expect("the stand-in opens");
    let fallback = Fallback::new(Arc::new(device), Arc::new(cpu()));
    let (sum, plan, expected) = work();
    let mut started = fallback.begin(Shape::new(WORDS, 24).expect("in range")).expect("there is main memory");
    started.merge(&sum).expect("the length fits");
    let finished = started.finish(&plan).expect("the processor takes over");
    assert!(finished.words == expected, "the bits are the same");
    let event = finished.fallback.expect("the device failed");
    assert!(event.reason.contains(&std::env::var("REASON").expect("a reason is expected")), "{}", event.reason);
    let vectors = [(0..20_000).collect::<Vec<i16>>(), (0..20_000).rev().collect(), vec![7; 20_000]];
    let vectors = vectors.each_ref().map(Vec::as_slice);
    let inputs = Inputs::new(&vectors).expect("in range");
    assert!(fallback.median(inputs).expect("the processor takes over") == cpu().median(inputs).expect("a median"));
    assert!(fallback.gram(inputs).expect("the processor takes over") == cpu().gram(inputs).expect("products"));
}

#[test]
#[ignore = "a case of a_device_lost_while_adding_tears_the_sum"]
fn is_torn() {
    let device = cuda::open(Some(0)).expect("the stand-in opens");
    let mut sum = device.begin(Shape::new(10, 32).expect("in range")).expect("there is memory");
    sum.merge(&[1; 10]).expect("the first launch succeeds");
    assert!(matches!(sum.merge(&[1; 10]), Err(AggregationError::Device { .. })));
    assert!(matches!(sum.merge(&[1; 10]), Err(AggregationError::Torn)));
    assert!(matches!(sum.partial(), Err(AggregationError::Torn)));
}
