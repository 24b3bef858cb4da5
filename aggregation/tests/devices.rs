//! Runs the conformance suite on every device that is present.

use aggregation::conformance::{self, Lockstep};
use aggregation::cpu::{CpuAggregator, Kernel};

fn cpu(kernel: Kernel, threads: usize) -> CpuAggregator {
    CpuAggregator::with_kernel(kernel, threads).expect("an available kernel can be chosen")
}

#[test]
fn every_cpu_kernel_conforms() {
    for kernel in Kernel::available() {
        println!("cpu kernel {kernel}");
        conformance::run(&cpu(kernel, 1));
    }
}

#[test]
fn threads_change_nothing() {
    conformance::run(&cpu(Kernel::fastest(), 3));
}

#[test]
fn the_fastest_kernel_keeps_step_with_the_portable_one() {
    conformance::run(&Lockstep::new(cpu(Kernel::fastest(), 2), cpu(Kernel::Portable, 1)));
}
