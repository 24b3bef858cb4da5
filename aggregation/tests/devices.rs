//! Runs the conformance suite on every present device.

use std::io::Write as _;

use aggregation::conformance::{self, Lockstep};
use aggregation::cpu::{CpuAggregator, Kernel};

/// Prints directly, since the harness hides the output of passing tests.
fn skipped(why: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

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

/// Devices of some builds only. A device without its feature or hardware is named in the output.
mod cuda_text {
    #[cfg(not(feature = "host-cuda-test"))]
    #[test]
    fn is_not_in_this_build() {
        crate::skipped("the CUDA kernels' text is compiled for the processor with --features host-cuda-test");
    }

    #[cfg(feature = "host-cuda-test")]
    mod on_the_processor {
        use aggregation::conformance::{self, Lockstep};
        use aggregation::cpu::Kernel;
        use aggregation::cuda::host;
        use aggregation::robust::{Inputs, RobustStatistics as _};
        use aggregation::{AggregationError, Aggregator, Shape};
        use secure_agg::mask::{self, MaskPlan, MaskSeed, Plane, Sign};

        #[test]
        fn conforms_on_one_device_and_on_three() {
            for devices in [1, 3] {
                conformance::run(&host::open(devices, 0));
            }
        }

        #[test]
        fn keeps_step_with_the_cpu() {
            let cpu = crate::cpu(Kernel::fastest(), 2);
            conformance::run(&Lockstep::new(host::open(2, 0), cpu));
        }

        /// Three devices with room for 2^17 words each begin with pieces of 2^18.
        #[test]
        fn goes_on_with_smaller_pieces_when_memory_is_short() {
            let shape = Shape::new(700_001, 23).expect("in range");
            let mut plan = MaskPlan::new(Plane::Scalars, 700_001, shape.modulus()).expect("in range");
            for number in 0..9 {
                plan.push(MaskSeed::new(&mut [number; 32]), if number < 4 { Sign::Add } else { Sign::Subtract });
            }
            let sum: Vec<u32> = (0..700_001).collect();
            let mut expected = sum.clone();
            mask::apply(&plan, 0, &mut expected).expect("the plan is for this sum");
            let (device, mut out) = (host::open(3, 1 << 17), vec![0; 700_001]);
            assert!(matches!(device.begin(shape), Err(AggregationError::OutOfMemory { .. })));
            device.unmask_slice(&plan, 0, &sum, &mut out).expect("smaller pieces fit");
            assert!(out == expected, "the bits are the same");
            let told: Vec<_> = device.memory().iter().map(|one| (one.in_use, one.peak)).collect();
            assert_eq!(told, [(0, (3 * 4) << 17)], "what was allocated at once, and is not any more");
            let outcome = host::open(1, 1000).unmask_slice(&plan, 0, &sum, &mut out);
            assert!(matches!(outcome, Err(AggregationError::OutOfMemory { .. })), "{outcome:?}");
        }

        #[test]
        fn takes_fewer_columns_at_a_time_when_memory_is_short() {
            let vectors: Vec<Vec<i16>> =
                (1..=21).map(|seed: i16| (0..5000).map(|i: i16| i.wrapping_mul(seed)).collect()).collect();
            let vectors: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
            let inputs = Inputs::new(&vectors).expect("in range");
            let (cpu, device) = (crate::cpu(Kernel::Portable, 1), host::open(2, 2000));
            assert!(device.median(inputs).expect("fewer columns fit") == cpu.median(inputs).expect("a median"));
            assert!(device.gram(inputs).expect("fewer columns fit") == cpu.gram(inputs).expect("products"));
            let outcome = host::open(1, 100).median(inputs);
            assert!(matches!(outcome, Err(AggregationError::OutOfMemory { .. })), "{outcome:?}");
        }
    }
}

mod cuda {
    #[cfg(not(feature = "cuda"))]
    #[test]
    fn is_not_in_this_build() {
        crate::skipped("NVIDIA's GPUs are tested with --features cuda");
    }

    #[cfg(feature = "cuda")]
    mod gpus {
        use aggregation::Aggregator;
        use aggregation::conformance::{self, Lockstep};
        use aggregation::cpu::Kernel;
        use aggregation::cuda::{count, open};

        /// All GPUs as one device and the first alone. With `AGGREGATION_REQUIRE_CUDA` in the environment there must be one.
        #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says what must not be skipped")]
        fn opened() -> Vec<impl Aggregator> {
            match count() {
                Ok(_) => [None, Some(0)].map(|which| open(which).expect("a GPU opens")).into(),
                Err(reason) => {
                    assert!(std::env::var_os("AGGREGATION_REQUIRE_CUDA").is_none(), "a GPU is required: {reason}");
                    crate::skipped(reason);
                    Vec::new()
                }
            }
        }

        #[test]
        fn conform() {
            for device in opened() {
                println!("{}", device.name());
                conformance::run(&device);
            }
        }

        #[test]
        fn keep_step_with_the_cpu() {
            for device in opened() {
                conformance::run(&Lockstep::new(device, crate::cpu(Kernel::fastest(), 2)));
            }
        }

        #[test]
        fn one_that_is_not_there_is_an_error_and_no_panic() {
            let error = open(Some(1000)).err().expect("nobody has a thousand GPUs").to_string();
            assert!(error.starts_with("device cuda:1000 failed: "), "{error}");
        }
    }
}

mod wgpu {
    #[cfg(not(feature = "wgpu"))]
    #[test]
    fn is_not_in_this_build() {
        crate::skipped("Vulkan, Metal and Direct3D devices are tested with --features wgpu");
    }

    #[cfg(feature = "wgpu")]
    mod adapters {
        use aggregation::Aggregator;
        use aggregation::conformance::{self, Lockstep};
        use aggregation::cpu::Kernel;
        use aggregation::device::{DeviceChoice, select};
        use aggregation::wgpu::adapters;

        /// Every adapter, opened. With `AGGREGATION_REQUIRE_WGPU` in the environment there must be one.
        #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says what must not be skipped")]
        fn opened() -> Vec<impl Aggregator> {
            let found = adapters();
            if found.is_empty() {
                assert!(std::env::var_os("AGGREGATION_REQUIRE_WGPU").is_none(), "there is no adapter, one is required");
                crate::skipped("no Vulkan, Metal or Direct3D adapter (Debian: mesa-vulkan-drivers libvulkan1)");
            }
            found.into_iter().map(|found| found.open().expect("an adapter that was found can be opened")).collect()
        }

        #[test]
        fn conform() {
            for device in opened() {
                println!("{}", device.name());
                conformance::run(&device);
            }
        }

        /// With the processor behind them, as the coordinator has them.
        #[test]
        fn are_chosen_by_name() {
            for name in adapters().iter().map(|found| found.name().to_owned()) {
                let choice: DeviceChoice = format!("wgpu:{}", name.to_uppercase()).parse().expect("a name is a choice");
                let selected = select(choice, 1).expect("an adapter that was found passes its self-test");
                assert!(selected.aggregator.name().contains(&name), "{selected:?}");
                conformance::run(&*selected.aggregator);
            }
        }

        #[test]
        fn one_that_is_not_there_is_an_error_that_names_those_that_are() {
            let choice: DeviceChoice = "wgpu:abacus".parse().expect("a name is a choice");
            let error = select(choice, 1).expect_err("nobody has an abacus").to_string();
            assert!(error.starts_with("device wgpu:abacus failed: "), "{error}");
            for found in adapters() {
                assert!(error.contains(found.name()), "{error}");
            }
        }

        #[test]
        fn keep_step_with_the_cpu() {
            for device in opened() {
                conformance::run(&Lockstep::new(device, crate::cpu(Kernel::fastest(), 2)));
            }
        }
    }
}
