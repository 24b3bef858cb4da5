//! Compiles the CUDA kernels as C++ for the processor if the test feature `host-cuda-test` is on; otherwise does
//! nothing and needs no C++ compiler.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "host-cuda-test")]
    {
        println!("cargo::rerun-if-changed=src/cuda/kernels.cu");
        println!("cargo::rerun-if-changed=src/cuda/host.cpp");
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(2).flag("-Wno-unknown-pragmas").file("src/cuda/host.cpp");
        build.compile("aggregation_host_cuda");
    }
}
