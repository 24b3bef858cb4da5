// What a GPU does for a sum: adds packed inputs and applies masks. The same kernels as in ../cuda/kernels.cu; read there
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
