// Just enough of CUDA C++ to run barrier-free kernels as nested loops on the processor: for tests.
#include <cstdint>
#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint4 { unsigned x, y, z, w; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };
static thread_local dim3 blockIdx, threadIdx, blockDim, gridDim;

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    n &= 31;
    return n ? high << n | low >> (32 - n) : high;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    n &= 31;
    return n ? high << (32 - n) | low >> n : low;
}
static inline unsigned atomicAdd(unsigned *p, unsigned v) {
    const unsigned old = *p;
    *p += v;
    return old;
}

static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long v) {
    const unsigned long long old = *p;
    *p += v;
    return old;
}

#include "kernels.cu"

// What a launch does, one thread after the other.
template <typename Kernel> static void launch(unsigned gx, unsigned gy, unsigned bx, Kernel kernel) {
    gridDim = dim3{gx, gy, 1};
    blockDim = dim3{bx, 1, 1};
    for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < bx; threadIdx.x++) kernel();
}

extern "C" void host_unmask(u32 gx, u32 gy, u32 bx, const Seed *seeds, u32 *sum, u64 len, u32 first_seed, u32 n_seeds,
                            u32 first_block, u32 nonce0, u32 nonce1) {
    launch(gx, gy, bx, [&] { unmask(seeds, sum, len, first_seed, n_seeds, first_block, nonce0, nonce1); });
}

extern "C" void host_add_packed(u32 gx, u32 bx, u32 *sum, u64 at, const u32 *packed, u64 len, u32 bits) {
    launch(gx, 1, bx, [&] { add_packed(sum, at, packed, len, bits); });
}

extern "C" void host_trimmed_sum(u32 gx, u32 bx, const u32 *rows, u32 vectors, u32 width, u32 trim, u32 *out) {
    launch(gx, 1, bx, [&] { trimmed_sum(rows, vectors, width, trim, out); });
}

extern "C" void host_gram(u32 gx, u32 gy, u32 bx, const u32 *rows, u32 vectors, u32 width, u32 first_tile, u32 first_row,
                          u64 *sums) {
    launch(gx, gy, bx, [&] { gram(rows, vectors, width, first_tile, first_row, sums); });
}
