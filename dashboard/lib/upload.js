// A file as the initial model of a task: sent in parts that the coordinator keeps, so that an upload goes on where it was cut.

import { Problem, path, put, putBytes } from './api.js';
import { Sha256, hex } from './sha256.js';

export const PART_BYTES = 8 << 20;
const ATTEMPTS = 6;

const changed = () => new Problem({ title: 'The file changed while it was read', detail: 'Choose it again.' });

async function piece(file, number) {
  try {
    return new Uint8Array(await file.slice(number * PART_BYTES, (number + 1) * PART_BYTES).arrayBuffer());
  } catch {
    throw changed();
  }
}

const digestOf = async (bytes) => hex(await crypto.subtle.digest('SHA-256', bytes));

/** The SHA-256 of a file and of its parts. `onRead(bytes)` tells how much of it was read. */
export async function digests(file, { signal, onRead = () => {} } = {}) {
  const whole = new Sha256();
  const parts = [];
  for (let number = 0; number * PART_BYTES < file.size; number++) {
    const bytes = await piece(file, number);
    signal?.throwIfAborted();
    whole.update(bytes);
    parts.push(await digestOf(bytes));
    onRead(Math.min(file.size, (number + 1) * PART_BYTES));
  }
  return { sha256: whole.finish(), bytes: file.size, parts };
}

/** Sends the parts of a file that the coordinator lacks. `onSent(bytes)` tells how much of it the coordinator has. */
export async function upload(file, { sha256, bytes, parts }, { signal, onSent = () => {} } = {}) {
  for (let turn = 0; turn < ATTEMPTS; turn++) {
    const { missing } = await again(() => put(path`/v1/model-files/${sha256}`, { bytes, parts }, { signal }), signal);
    const sizes = missing.map((number) => Math.min(PART_BYTES, bytes - number * PART_BYTES));
    let left = sizes.reduce((sum, size) => sum + size, 0);
    onSent(bytes - left);
    if (missing.length === 0) return;
    for (const [at, number] of missing.entries()) {
      const part = await piece(file, number);
      if ((await digestOf(part)) !== parts[number]) throw changed();
      await again(() => putBytes(path`/v1/model-file-parts/${parts[number]}`, part, { signal }), signal);
      left -= sizes[at];
      onSent(bytes - left);
    }
  }
  throw new Problem({ title: 'The coordinator does not keep the parts of the file', detail: 'Its storage may be full, or files are removed as they come.' });
}

/** Tries a request several times while the connection fails or the coordinator is busy. */
async function again(request, signal) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await request();
    } catch (problem) {
      const isBusy = problem instanceof Problem && (problem.status === 0 || problem.status === 429 || problem.status >= 502);
      if (!isBusy || attempt === ATTEMPTS) throw problem;
      await pause(Math.max(1000 * 2 ** (attempt - 1), problem.retryAfterMs), signal);
    }
  }
}

const pause = (ms, signal) => new Promise((resolve, reject) => {
  const stop = () => (clearTimeout(timer), reject(signal.reason));
  const timer = setTimeout(() => (signal?.removeEventListener('abort', stop), resolve()), ms);
  signal?.addEventListener('abort', stop, { once: true });
});
