//! Bad input by name, on every device that is here. What a device does that is lost or has no memory is tested where that
//! can be brought about: `fallback.rs`, `cuda_stand_in`, `devices.rs` and the units of `wgpu`.

use aggregation::Aggregator;
use aggregation::conformance::bad_input;
use aggregation::cpu::{CpuAggregator, Kernel};

/// The processor, and what else this build and this machine have; `devices.rs` says what is absent.
fn devices() -> Vec<Box<dyn Aggregator>> {
    let cpu = |kernel| CpuAggregator::with_kernel(kernel, 2).expect("an available kernel can be chosen");
    #[cfg_attr(
        not(any(feature = "wgpu", feature = "host-cuda-test")),
        expect(unused_mut, reason = "this build has no other device")
    )]
    let mut devices: Vec<Box<dyn Aggregator>> = vec![Box::new(cpu(Kernel::fastest())), Box::new(cpu(Kernel::Portable))];
    #[cfg(feature = "host-cuda-test")]
    devices.push(Box::new(aggregation::cuda::host::open(2, 0)));
    #[cfg(feature = "wgpu")]
    for found in aggregation::wgpu::adapters() {
        devices.push(Box::new(found.open().expect("an adapter that was found can be opened")));
    }
    devices
}

fn each(case: fn(&dyn Aggregator)) {
    devices().iter().for_each(|device| case(&**device));
}

#[test]
fn a_length_that_does_not_match() {
    each(bad_input::another_length);
    each(bad_input::another_slice);
    each(bad_input::a_plan_for_another_vector);
}

#[test]
fn b_out_of_range() {
    each(bad_input::out_of_range);
}

#[test]
fn an_empty_seed_list() {
    each(bad_input::no_seeds);
}

#[test]
fn zero_inputs() {
    each(bad_input::no_inputs);
}

#[test]
fn two_rounds_at_once_on_one_device() {
    each(bad_input::two_rounds_at_once);
}

#[test]
fn set_padding_bits_and_streams_that_break_off() {
    each(bad_input::padding);
    each(bad_input::broken_streams);
}
