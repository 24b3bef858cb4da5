// SHA-256 of a file in pieces: the browser's own takes a whole file from memory.

/** The first 32 bits of the fractional parts of the roots of the first primes: cube roots of 64, square roots of 8 (FIPS 180-4). */
const PRIMES = (() => {
  const found = [];
  for (let number = 2; found.length < 64; number++) if (found.every((prime) => number % prime !== 0)) found.push(number);
  return found;
})();
const fraction = (value) => ((value - Math.floor(value)) * 2 ** 32) | 0;
const ROUND = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
const BLOCK = 64;

export const hex = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('');

export class Sha256 {
  #state = START.slice();
  #words = new Int32Array(64);
  #rest = new Uint8Array(0);
  #length = 0;

  /** Adds a piece, in bytes. */
  update(piece) {
    this.#length += piece.length;
    const bytes = this.#rest.length > 0 ? joined(this.#rest, piece) : piece;
    const whole = bytes.length - (bytes.length % BLOCK);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let at = 0; at < whole; at += BLOCK) this.#block(view, at);
    this.#rest = bytes.slice(whole);
    return this;
  }

  /** The digest, in hexadecimal. Ends the computation. */
  finish() {
    const bits = BigInt(this.#length) * 8n;
    const padding = new Uint8Array((this.#rest.length < 56 ? 64 : 128) - this.#rest.length);
    padding[0] = 0x80;
    new DataView(padding.buffer).setBigUint64(padding.length - 8, bits);
    this.update(padding);
    const digest = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, at) => digest.setInt32(4 * at, word));
    return hex(digest.buffer);
  }

  #block(view, from) {
    const words = this.#words;
    for (let at = 0; at < 16; at++) words[at] = view.getInt32(from + 4 * at);
    for (let at = 16; at < 64; at++) {
      const x = words[at - 15];
      const y = words[at - 2];
      const low = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const high = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      words[at] = (words[at - 16] + low + words[at - 7] + high) | 0;
    }
    const state = this.#state;
    let a = state[0];
    let b = state[1];
    let c = state[2];
    let d = state[3];
    let e = state[4];
    let f = state[5];
    let g = state[6];
    let h = state[7];
    for (let at = 0; at < 64; at++) {
      const high = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const first = (h + high + ((e & f) ^ (~e & g)) + ROUND[at] + words[at]) | 0;
      const low = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const second = (low + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + first) | 0;
      d = c;
      c = b;
      b = a;
      a = (first + second) | 0;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
  }
}

function joined(first, second) {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
