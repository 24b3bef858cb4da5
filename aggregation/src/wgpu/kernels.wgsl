// What a GPU does for a sum and for robust rules. The same kernels as in ../cuda/kernels.cu; read there
// why they are cut as they are.

struct Params {
    // Words of the piece, or packed words to add.
    len: u32,
    // First word to add to.
    at: u32,
    // Bits of a packed word.
    bits: u32,
    first_seed: u32,
    n_seeds: u32,
    first_block: u32,
    nonce0: u32,
    nonce1: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// Three vectors a seed: the key, and (1 to add or 2^32 - 1 to subtract, 0, 0, 0).
@group(0) @binding(1) var<storage, read> seeds: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> packed: array<u32>;
@group(0) @binding(2) var<storage, read_write> sum: array<u32>;
@group(0) @binding(2) var<storage, read_write> shared_sum: array<atomic<u32>>;

fn rotl(v: vec4<u32>, n: u32) -> vec4<u32> {
    return (v << vec4(n)) | (v >> vec4(32u - n));
}

// Every mask of seeds[start..end] for the block `counter`.
fn masks(start: u32, end: u32, counter: u32) -> array<u32, 16> {
    let k = vec4(0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u);
    let d0 = vec4(counter, params.nonce0, params.nonce1, 0u);
    var s0 = vec4(0u);
    var s1 = vec4(0u);
    var s2 = vec4(0u);
    var s3 = vec4(0u);
    for (var s = start; s < end; s++) {
        let k1 = seeds[3u * s];
        let k2 = seeds[3u * s + 1u];
        let factor = seeds[3u * s + 2u].x;
        var a = k;
        var b = k1;
        var c = k2;
        var d = d0;
        for (var round = 0u; round < 10u; round++) {
            a += b; d = rotl(d ^ a, 16u);
            c += d; b = rotl(b ^ c, 12u);
            a += b; d = rotl(d ^ a, 8u);
            c += d; b = rotl(b ^ c, 7u);
            b = b.yzwx; c = c.zwxy; d = d.wxyz;
            a += b; d = rotl(d ^ a, 16u);
            c += d; b = rotl(b ^ c, 12u);
            a += b; d = rotl(d ^ a, 8u);
            c += d; b = rotl(b ^ c, 7u);
            b = b.wxyz; c = c.zwxy; d = d.yzwx;
        }
        s0 += (a + k) * factor;
        s1 += (b + k1) * factor;
        s2 += (c + k2) * factor;
        s3 += (d + d0) * factor;
    }
    return array(s0.x, s0.y, s0.z, s0.w, s1.x, s1.y, s1.z, s1.w, s2.x, s2.y, s2.z, s2.w, s3.x, s3.y, s3.z, s3.w);
}

// A thread owns one 64-byte block position and goes through all seeds.
@compute @workgroup_size(64)
fn unmask(@builtin(global_invocation_id) id: vec3<u32>) {
    let at = id.x * 16u;
    if (at >= params.len) { return; }
    var acc = masks(params.first_seed, params.first_seed + params.n_seeds, params.first_block + id.x);
    for (var i = 0u; i < 16u; i++) {
        if (at + i < params.len) { sum[at + i] += acc[i]; }
    }
}

// The same where the vector is too short to fill the device: the second dimension of the grid splits the seeds.
@compute @workgroup_size(64)
fn unmask_split(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = id.x * 16u;
    let part = (params.n_seeds + groups.y - 1u) / groups.y;
    let start = id.y * part;
    let end = min(start + part, params.n_seeds);
    if (at >= params.len || start >= end) { return; }
    var acc = masks(params.first_seed + start, params.first_seed + end, params.first_block + id.x);
    for (var i = 0u; i < 16u; i++) {
        if (at + i < params.len) { atomicAdd(&shared_sum[at + i], acc[i]); }
    }
}

// sum[at..at + len] += the words of `packed`, `bits` bits each without gaps. One u32 after the last must be readable.
@compute @workgroup_size(64)
fn add_packed(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.len) { return; }
    let bit = id.x * params.bits;
    let shift = bit % 32u;
    let low = packed[bit / 32u] >> shift;
    // A shift by 32 has no meaning: two shifts do it.
    let high = (packed[bit / 32u + 1u] << (31u - shift)) << 1u;
    sum[params.at + id.x] += (low | high) & (0xffffffffu >> (32u - params.bits));
}

struct Robust {
    vectors: u32,
    // u32 of a row.
    width: u32,
    trim: u32,
    first_tile: u32,
    first_row: u32,
}

@group(0) @binding(0) var<uniform> robust: Robust;
// A row of `width` u32 for each vector; a u32 is two 16-bit words, the first in its low half.
@group(0) @binding(1) var<storage, read> rows: array<u32>;
// Words of 64 bits, the low half first.
@group(0) @binding(2) var<storage, read_write> products: array<atomic<u32>>;

// Words `at` of vector `v`, shifted by 2^15 so that their order is that of u32.
fn shifted(v: u32, at: u32) -> vec2<u32> {
    let pair = rows[v * robust.width + at] ^ 0x80008000u;
    return vec2(pair & 0xffffu, pair >> 16u);
}

fn less(words: vec2<u32>, limits: vec4<u32>) -> vec4<u32> {
    return select(vec4(0u), vec4(1u), words.xxyy < limits);
}

// out[0..2 * width] = the sum of each column without its `trim` smallest and largest words. A thread owns two columns.
//
// Two vectors in each turn: Mesa's software rasteriser ends the loops of a thread after 65,535 turns in all.
@compute @workgroup_size(64)
fn trimmed_sum(@builtin(global_invocation_id) id: vec3<u32>) {
    let at = id.x;
    if (at >= robust.width) { return; }
    // For the lower and the upper cut of the even, then of the odd column.
    let before = vec4(robust.trim, robust.vectors - 1u - robust.trim, robust.trim, robust.vectors - 1u - robust.trim);
    var found = vec4(0u);
    for (var bit = 0x8000u; bit != 0u; bit >>= 1u) {
        let tried = found | vec4(bit);
        var below = vec4(0u);
        for (var v = 0u; v < robust.vectors; v += 2u) {
            below += less(shifted(v, at), tried);
            if (v + 1u < robust.vectors) { below += less(shifted(v + 1u, at), tried); }
        }
        found = select(found, tried, below <= before);
    }
    var total = vec2(0u);
    for (var v = 0u; v < robust.vectors; v++) {
        total += clamp(shifted(v, at), found.xz, found.yw);
    }
    let shift = (robust.vectors - 2u * robust.trim) << 15u;
    total -= robust.trim * (found.xz + found.yw) + vec2(shift);
    sum[2u * at] = total.x;
    sum[2u * at + 1u] = total.y;
}

// The two words of a u32.
fn words(pair: u32) -> vec2<i32> {
    return vec2(bitcast<i32>(pair << 16u) >> 16u, bitcast<i32>(pair) >> 16u);
}

// products[(i - first_row) * vectors + j] += the inner product of vectors i and j, for tiles of 4 x 4 pairs on and above the
// diagonal. The products of a thread are summed in two halves of 16 bits: no thread has more than 2^16 columns.
@compute @workgroup_size(64)
fn gram(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let tiles = (robust.vectors + 3u) / 4u;
    let left = robust.first_tile + id.y / tiles;
    let right = id.y % tiles;
    if (right < left) { return; }
    let last = robust.vectors - 1u;
    let i = vec4(4u * left) + vec4(0u, 1u, 2u, 3u);
    let j = vec4(4u * right) + vec4(0u, 1u, 2u, 3u);
    let row = min(i, vec4(last)) * robust.width;
    let other = min(j, vec4(last)) * robust.width;
    // Entry m: the products of all four rows with other row m.
    var low: array<vec4<u32>, 4>;
    var high: array<vec4<i32>, 4>;
    for (var at = id.x; at < robust.width; at += 64u * groups.x) {
        let a0 = words(rows[row.x + at]);
        let a1 = words(rows[row.y + at]);
        let a2 = words(rows[row.z + at]);
        let a3 = words(rows[row.w + at]);
        let even = vec4(a0.x, a1.x, a2.x, a3.x);
        let odd = vec4(a0.y, a1.y, a2.y, a3.y);
        for (var m = 0u; m < 4u; m++) {
            let b = words(rows[other[m] + at]);
            let first = even * b.x;
            let second = odd * b.y;
            low[m] += (bitcast<vec4<u32>>(first) & vec4(0xffffu)) + (bitcast<vec4<u32>>(second) & vec4(0xffffu));
            high[m] += (first >> vec4(16u)) + (second >> vec4(16u));
        }
    }
    for (var m = 0u; m < 4u; m++) {
        for (var k = 0u; k < 4u; k++) {
            if (i[k] <= last && j[m] <= last) {
                add64(2u * ((i[k] - robust.first_row) * robust.vectors + j[m]), low[m][k], high[m][k]);
            }
        }
    }
}

// Adds low + high * 2^16 to the 64 bits at `index`. Whoever makes the low half wrap adds the carry, so the sum is right
// once all have added.
fn add64(index: u32, low: u32, high: i32) {
    let middle = bitcast<u32>(high) << 16u;
    let lower = middle + low;
    let upper = bitcast<u32>(high >> 16u) + select(0u, 1u, lower < middle);
    let before = atomicAdd(&products[index], lower);
    let carry = select(0u, 1u, before + lower < before);
    atomicAdd(&products[index + 1u], upper + carry);
}
