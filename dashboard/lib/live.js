// The one place that knows how changes arrive: as server-sent events, which tell that something changed; what it is then is asked for.

import { get, path, stream } from './api.js';
import { useEffect, useRef, useState } from './html.js';

/** How long to wait for further events before the coordinator is asked what changed: many may come at once. */
const GATHER_MS = 200;
/** How many have answered so far is no event, so an open round is looked at this often. */
const LOOK_MS = 3_000;
/** Until a stream that ended is asked for again, if the coordinator names no longer time. */
const PAUSE_MS = 2_000;
/** A stream that is silent for so long is lost: comments come more often. */
const SILENCE_MS = 40_000;
/** A stream that is away for less is no matter: coordinators are restarted. */
const LOST_MS = 5_000;
/** A page waits no longer for its stream: something between may hold it back. */
const BEGIN_MS = 1_500;
const ENDED = new Set(['COMPLETED', 'FAILED', 'CANCELLED']);
const ROUNDS_MAX = 500;
/** What is done to a task, its status and its versions, rather than by its rounds. */
const DONE_TO_TASK = /^task_|^version_(restored|promoted|pinned|unpinned)$/;

/**
 * Follows a stream of events, of some kinds or all, after a position or from now on: `onEvent(event)` for each, `onState(connected)` when
 * it is found or lost, `onBegun()` when it has begun from now on. What happened while it was lost is told later, unless the log ends before
 * that: `onReset()`. Ends when nobody is signed in any more. Returns a function that ends it.
 */
function follow(address, { after = null, kind, onEvent, onState = () => {}, onBegun = () => {}, onReset = () => {} }) {
  const abort = new AbortController();
  const { signal } = abort;
  const field = (block, name) => block.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  const take = (block) => {
    // A stream says where it begins, before any event.
    after = field(block, 'id') ?? after;
    const data = field(block, 'data');
    if (data != null) onEvent(JSON.parse(data));
  };
  const once = async () => {
    const query = String(new URLSearchParams({ ...(after != null && { after }), ...(kind && { kind }) }));
    const response = await stream(query ? `${address}?${query}` : address, signal);
    onState(true);
    if (after == null) onBegun();
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let text = '';
    let silence;
    try {
      for (;;) {
        silence = setTimeout(() => reader.cancel().catch(() => {}), SILENCE_MS);
        const { done, value } = await reader.read();
        clearTimeout(silence);
        if (done) return;
        const blocks = (text + decoder.decode(value, { stream: true })).split('\n\n');
        text = blocks.pop();
        blocks.forEach(take);
      }
    } finally {
      clearTimeout(silence);
    }
  };
  const forever = async () => {
    while (!signal.aborted) {
      const problem = await once().catch((caught) => caught);
      if (signal.aborted || problem?.status === 401) return;
      // A position that the log does not have is that of a newer database: the stream then begins at the end.
      if (problem?.code === 'invalid-value' && after != null) {
        after = null;
        onReset();
      }
      onState(false);
      await new Promise((resolve) => setTimeout(resolve, Math.max(PAUSE_MS, problem?.retryAfterMs ?? 0)));
    }
  };
  forever();
  return () => abort.abort();
}

/** Calls `run` once, a moment after the first of many calls; `stop` ends that. */
function gathered(run) {
  let timer = null;
  const start = () => {
    timer ??= setTimeout(() => ((timer = null), run()), GATHER_MS);
  };
  return { start, stop: () => clearTimeout(timer) };
}

/**
 * Calls `onRound(round)` for the newest round of a task and whenever one changes; `onTask()` when the task itself may have changed, but
 * by its rounds; `onState(connected)` when the coordinator is lost or found again. Returns a function that ends it.
 */
export function watchTask(task, { onRound, onTask = () => {}, onState = () => {} }) {
  const abort = new AbortController();
  const { signal } = abort;
  const shown = new Map();
  const changed = new Set();
  let newest = null;
  let isFollowed = false;
  const look = async () => {
    // Attempts at changed rounds are among the newest rounds, as a rule all of them.
    const limit = Math.min(ROUNDS_MAX, 2 * changed.size + 1);
    changed.clear();
    try {
      const { items } = await get(`${path`/v1/tasks/${task}/rounds`}?limit=${limit}`, { signal });
      onState(true);
      newest = items[0] ?? null;
      for (const round of items.reverse()) {
        // All but the clock.
        const text = JSON.stringify({ ...round, seconds: 0 });
        if (shown.get(round.number) !== text) onRound(round);
        shown.set(round.number, text);
      }
    } catch (problem) {
      if (!signal.aborted) onState(problem.status !== 0 && problem.status < 500);
    }
  };
  const soon = gathered(look);
  const ofTask = gathered(onTask);
  const end = follow(path`/v1/tasks/${task}/events`, {
    onEvent: ({ round, kind }) => {
      if (round != null) changed.add(round);
      soon.start();
      if (DONE_TO_TASK.test(kind)) ofTask.start();
    },
    onState: (connected) => {
      isFollowed = connected;
      if (!connected) return onState(false);
      // The stream has begun by now: what happened before it is in what is asked for from here on.
      ofTask.start();
      return soon.start();
    },
  });
  soon.start();
  const timer = setInterval(() => document.hidden || (isFollowed && newest && ENDED.has(newest.state)) || look(), LOOK_MS);
  return () => (abort.abort(), end(), soon.stop(), ofTask.stop(), clearInterval(timer));
}

/**
 * Calls `onEvents(events)` for what changes in one task, or in any task, participant or token, many at once: of some kinds or all, after a
 * position or from now on. The others are as for `follow`. Returns a function that ends it.
 */
export function watchAll(onEvents, { task, after, kind, onState, onBegun, onReset } = {}) {
  const waiting = [];
  const soon = gathered(() => onEvents(waiting.splice(0)));
  const address = task ? path`/v1/tasks/${task}/events` : '/v1/events';
  const end = follow(address, { after, kind, onState, onBegun, onReset, onEvent: (event) => (waiting.push(event), soon.start()) });
  return () => (end(), soon.stop());
}

/**
 * Follows events of some kinds or all while a page is open. `reads` is how often the page is to be read: 0 until the stream has begun, so
 * that nothing happens unseen between the page and the stream; once more whenever it begins anew or comes back; once at least if it cannot
 * be had, or not soon. `isLost` while it has been away for some time.
 */
export function useEvents(onEvents, kind) {
  const [state, setState] = useState({ reads: 0, isLost: false });
  const told = useRef();
  told.current = onEvents;
  useEffect(() => {
    let timer = null;
    const onBegun = () => setState(({ reads }) => ({ reads: reads + 1, isLost: false }));
    const onState = (connected) => {
      if (!connected) {
        setState(({ reads, isLost }) => ({ reads: Math.max(reads, 1), isLost }));
        timer ??= setTimeout(() => setState((before) => ({ ...before, isLost: true })), LOST_MS);
      } else if (timer !== null) {
        clearTimeout(timer);
        timer = null;
        // What could not be read meanwhile is read now.
        onBegun();
      }
    };
    const late = setTimeout(() => onState(false), BEGIN_MS);
    const end = watchAll((events) => told.current(events), { kind, onBegun, onState: (connected) => (clearTimeout(late), onState(connected)) });
    return () => (end(), clearTimeout(late), clearTimeout(timer));
  }, [kind]);
  return state;
}
