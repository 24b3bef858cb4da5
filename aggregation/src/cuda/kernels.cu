// What a GPU does for a sum: adds packed inputs and applies masks. One text for nvcc, NVRTC and, through host.cpp, for the
// tests' C++ compiler: no barrier, no shared memory, no warp operation, so a plain loop over all threads runs it too.
//
// The mask definition is that of secure-agg (RFC 8439 block function). Words are integers modulo 2^32 and their sums do
// not depend on order, so however the work is cut into launches, blocks and parts, the bits are the same.
typedef unsigned int u32;
typedef unsigned long long u64;

// One mask: its ChaCha20 key, and 1 to add it or 2^32 - 1 to subtract it.
struct __align__(16) Seed {
    u32 key[8];
    u32 factor;
    u32 unused[3];
};

__device__ __forceinline__ u32 rotl(u32 v, int n) { return __funnelshift_l(v, v, n); }

#define QUARTER(a, b, c, d)        \
    a += b; d = rotl(d ^ a, 16);   \
    c += d; b = rotl(b ^ c, 12);   \
    a += b; d = rotl(d ^ a, 8);    \
    c += d; b = rotl(b ^ c, 7);

// sum[0..len] += every mask of seeds[first_seed..first_seed + n_seeds], where sum[0] is word 0 of block first_block.
//
// A thread owns one 64-byte block position: it keeps 16 sums in registers through all seeds and stores once, so memory
// sees the vector once however many masks there are. Seeds are read at the same address by all threads of a warp.
// grid.x covers the vector, grid.y splits the seeds where the vector is too short to fill the device.
extern "C" __global__ void __launch_bounds__(256)
unmask(const Seed *__restrict__ seeds, u32 *__restrict__ sum, u64 len, u32 first_seed, u32 n_seeds, u32 first_block,
       u32 nonce0, u32 nonce1) {
    const u64 pos = (u64)blockIdx.x * blockDim.x + threadIdx.x, at = pos * 16;
    const u32 part = (n_seeds + gridDim.y - 1) / gridDim.y, start = blockIdx.y * part;
    const u32 end = start + part < n_seeds ? start + part : n_seeds;
    if (at >= len || start >= end) return;
    const u32 counter = first_block + (u32)pos;
    u32 acc[16];
#pragma unroll
    for (int i = 0; i < 16; i++) acc[i] = 0;
    for (u32 s = first_seed + start; s < first_seed + end; s++) {
        const uint4 *record = (const uint4 *)(seeds + s);
        const uint4 k0 = record[0], k1 = record[1];
        const u32 factor = seeds[s].factor;
        u32 x0 = 0x61707865, x1 = 0x3320646e, x2 = 0x79622d32, x3 = 0x6b206574;
        u32 x4 = k0.x, x5 = k0.y, x6 = k0.z, x7 = k0.w, x8 = k1.x, x9 = k1.y, x10 = k1.z, x11 = k1.w;
        u32 x12 = counter, x13 = nonce0, x14 = nonce1, x15 = 0;
#pragma unroll
        for (int round = 0; round < 10; round++) {
            QUARTER(x0, x4, x8, x12) QUARTER(x1, x5, x9, x13) QUARTER(x2, x6, x10, x14) QUARTER(x3, x7, x11, x15)
            QUARTER(x0, x5, x10, x15) QUARTER(x1, x6, x11, x12) QUARTER(x2, x7, x8, x13) QUARTER(x3, x4, x9, x14)
        }
        const u32 y[16] = {x0 + 0x61707865, x1 + 0x3320646e, x2 + 0x79622d32, x3 + 0x6b206574,
                           x4 + k0.x, x5 + k0.y, x6 + k0.z, x7 + k0.w,
                           x8 + k1.x, x9 + k1.y, x10 + k1.z, x11 + k1.w,
                           x12 + counter, x13 + nonce0, x14 + nonce1, x15};
        // The sign as a factor: one multiply-add per word on the otherwise idle multiplier, and no branch.
#pragma unroll
        for (int i = 0; i < 16; i++) acc[i] += y[i] * factor;
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        if (at + i < len) {
            if (gridDim.y == 1) sum[at + i] += acc[i]; else atomicAdd(&sum[at + i], acc[i]);
        }
    }
}

// sum[at..at + len] += the words of `packed`, `bits` bits each without gaps. One u32 after the last must be readable.
extern "C" __global__ void __launch_bounds__(256)
add_packed(u32 *__restrict__ sum, u64 at, const u32 *__restrict__ packed, u64 len, u32 bits) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= len) return;
    const u64 bit = i * bits;
    const u32 low = packed[bit / 32], high = packed[bit / 32 + 1];
    sum[at + i] += __funnelshift_r(low, high, (u32)(bit % 32)) & (0xffffffffu >> (32 - bits));
}
