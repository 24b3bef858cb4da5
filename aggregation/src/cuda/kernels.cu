// What a GPU does for a sum: adds packed inputs and applies masks; and for robust rules: order statistics and inner
// products. One text for nvcc, NVRTC and, through host.cpp, for the tests' C++ compiler: no barrier, no shared memory, no
// warp operation, so a plain loop over all threads runs it too.
//
// The mask definition is that of secure-agg (RFC 8439 block function). Words are integers modulo 2^32 and their sums do
// not depend on order, so however the work is cut into launches, blocks and parts, the bits are the same.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

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

// Robust statistics. `rows` holds a row of `width` u32 for each of `vectors` vectors, at most 2^30 u32 in all; a u32 is two
// 16-bit words, the first in its low half.

// One column's search for the values that `low` and `high` others come before, bit by bit from the highest: a bit is set if
// no more values than that lie below the value with the bit set. Words are shifted by 2^15, so their order is that of u32.
struct Column {
    u32 low, high, below_low, below_high;
};

__device__ __forceinline__ void count(Column &column, u32 word, u32 bit) {
    column.below_low += word < (column.low | bit);
    column.below_high += word < (column.high | bit);
}

__device__ __forceinline__ void decide(Column &column, u32 bit, u32 low, u32 high) {
    if (column.below_low <= low) column.low |= bit;
    if (column.below_high <= high) column.high |= bit;
    column.below_low = column.below_high = 0;
}

__device__ __forceinline__ u32 clamped(const Column &column, u32 word) {
    const u32 least = word < column.low ? column.low : word;
    return least > column.high ? column.high : least;
}

// out[0..2 * width] = the sum of each column without its `trim` smallest and largest words, as i32.
//
// A thread owns two columns. What is cut off counts as the word at the cut, and is taken off again: ties need no care.
extern "C" __global__ void __launch_bounds__(256)
trimmed_sum(const u32 *__restrict__ rows, u32 vectors, u32 width, u32 trim, u32 *__restrict__ out) {
    const u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= width) return;
    const u32 low = trim, high = vectors - 1 - trim;
    Column even = {0, 0, 0, 0}, odd = {0, 0, 0, 0};
    for (u32 bit = 0x8000; bit; bit >>= 1) {
        for (u32 v = 0; v < vectors; v++) {
            const u32 pair = rows[v * width + at] ^ 0x80008000u;
            count(even, pair & 0xffff, bit);
            count(odd, pair >> 16, bit);
        }
        decide(even, bit, low, high);
        decide(odd, bit, low, high);
    }
    u32 sum_even = 0, sum_odd = 0;
    for (u32 v = 0; v < vectors; v++) {
        const u32 pair = rows[v * width + at] ^ 0x80008000u;
        sum_even += clamped(even, pair & 0xffff);
        sum_odd += clamped(odd, pair >> 16);
    }
    const u32 shift = (vectors - 2 * trim) << 15;
    out[2 * (u64)at] = sum_even - trim * (even.low + even.high) - shift;
    out[2 * (u64)at + 1] = sum_odd - trim * (odd.low + odd.high) - shift;
}

// sums[(i - first_row) * vectors + j] += the inner product of vectors i and j, as i64, for the tiles of 4 x 4 pairs on and
// above the diagonal whose rows of tiles begin at `first_tile`; what lies below the diagonal is undefined.
//
// grid.y has a tile of the square for each of its values, those below the diagonal end at once. The threads of grid.x
// share the columns: neighbours read neighbours, and each adds what it found once.
extern "C" __global__ void __launch_bounds__(256)
gram(const u32 *__restrict__ rows, u32 vectors, u32 width, u32 first_tile, u32 first_row, u64 *__restrict__ sums) {
    const u32 tiles = (vectors + 3) / 4, left = first_tile + blockIdx.y / tiles, right = blockIdx.y % tiles;
    if (right < left) return;
    u32 i[4], j[4], row[4], other[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        i[k] = 4 * left + k, j[k] = 4 * right + k;
        // Beyond the last vector the last is read, and its products are not written.
        row[k] = (i[k] < vectors ? i[k] : vectors - 1) * width;
        other[k] = (j[k] < vectors ? j[k] : vectors - 1) * width;
    }
    s64 acc[4][4];
#pragma unroll
    for (u32 k = 0; k < 16; k++) acc[k / 4][k % 4] = 0;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < width; at += gridDim.x * blockDim.x) {
        int low[4], high[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 pair = rows[row[k] + at];
            low[k] = (short)(pair & 0xffff), high[k] = (short)(pair >> 16);
        }
#pragma unroll
        for (u32 m = 0; m < 4; m++) {
            const u32 pair = rows[other[m] + at];
            const int other_low = (short)(pair & 0xffff), other_high = (short)(pair >> 16);
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                // Each product fits 32 bits; two of them may not.
                acc[k][m] += (s64)low[k] * other_low;
                acc[k][m] += (s64)high[k] * other_high;
            }
        }
    }
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
#pragma unroll
        for (u32 m = 0; m < 4; m++) {
            if (i[k] < vectors && j[m] < vectors)
                atomicAdd(&sums[(u64)(i[k] - first_row) * vectors + j[m]], (u64)acc[k][m]);
        }
    }
}
