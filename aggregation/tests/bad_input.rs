//! Bad input on every present device. Lost devices and lack of memory are tested where they can be provoked: `fallback.rs`,
//! `cuda_stand_in`, `devices.rs` and the unit tests of `wgpu`.

use aggregation::Aggregator;
use aggregation::conformance::bad_input;
use aggregation::cpu::{CpuAggregator, Kernel};

/// The CPU and the other available devices; `devices.rs` reports missing ones.
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
