// The one place that knows how changes arrive: at present by long polls on the round whose turn it is.

import { get, path } from './api.js';

/** Changes of state arrive at once; how many have answered so far, after this time at the latest. */
const WAIT_MS = 4_000;
const PAUSE_MS = 2_000;
const ENDED = new Set(['COMPLETED', 'FAILED', 'CANCELLED']);

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });

/**
 * Calls `onRound(round)` for the newest round of a task and whenever it, or the next one, changes; `onState(connected)` when
 * the coordinator is lost or found again. Returns a function that ends it.
 */
export function watchTask(task, onRound, onState = () => {}) {
  const abort = new AbortController();
  const { signal } = abort;
  follow(task, onRound, onState, signal).catch(() => {});
  return () => abort.abort();
}

async function follow(task, onRound, onState, signal) {
  let last = null;
  while (!signal.aborted) {
    try {
      const next = await change(task, last, signal);
      if (signal.aborted) return;
      onState(true);
      if (!next) {
        await pause(PAUSE_MS, signal);
      } else if (!isSame(next, last)) {
        last = next;
        onRound(next);
      }
    } catch (problem) {
      if (signal.aborted || problem.status === 401) return;
      onState(problem.status !== 0 && problem.status < 500);
      await pause(PAUSE_MS, signal);
    }
  }
}

/** Whether nothing but the clock differs. */
const isSame = (one, other) => other !== null && JSON.stringify({ ...one, seconds: 0 }) === JSON.stringify({ ...other, seconds: 0 });

async function change(task, last, signal) {
  if (!last) {
    const page = await get(`${path`/v1/tasks/${task}/rounds`}?limit=1`, { signal });
    return page.items[0] ?? waited(task, 1, null, signal);
  }
  // A round that failed may be tried again under its number.
  if (ENDED.has(last.state) && last.state === 'COMPLETED') return waited(task, last.number + 1, null, signal);
  const view = await waited(task, last.number, last.state, signal);
  if (!view || !ENDED.has(last.state) || view.attempt !== last.attempt || view.state !== last.state) return view;
  return waited(task, last.number + 1, null, signal);
}

async function waited(task, number, state, signal) {
  const query = new URLSearchParams({ wait_ms: WAIT_MS });
  if (state) query.set('after_state', state);
  try {
    return await get(`${path`/v1/tasks/${task}/rounds/${number}`}?${query}`, { signal });
  } catch (problem) {
    if (problem.status === 404) return null;
    throw problem;
  }
}
