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

/// What only some builds have. A device whose feature is off or that is absent is named, not passed over in silence.
mod cuda_text {
    #[cfg(not(feature = "host-cuda-test"))]
    #[test]
    fn is_not_in_this_build() {
        println!("SKIPPED: the CUDA kernels' text is compiled for the processor with --features host-cuda-test");
    }

    #[cfg(feature = "host-cuda-test")]
    mod on_the_processor {
        use aggregation::cuda::host::HostCudaAggregator;
        use aggregation::{conformance, cpu::Kernel};
        use conformance::Lockstep;

        #[test]
        fn conforms_on_one_device_and_on_three() {
            for devices in [1, 3] {
                conformance::run(&HostCudaAggregator::new(devices, 0));
            }
        }

        #[test]
        fn keeps_step_with_the_cpu() {
            let cpu = crate::cpu(Kernel::fastest(), 2);
            conformance::run(&Lockstep::new(HostCudaAggregator::new(2, 0), cpu));
        }
    }
}
