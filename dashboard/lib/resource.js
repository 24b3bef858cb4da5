// Data that a page loads: loading, there, or a problem; with a way to ask again.

import { useCallback, useEffect, useRef, useState } from './html.js';
import { isStale, post } from './api.js';

/** A load that takes longer has stalled, and makes room for the next. */
const STALLED_MS = 10_000;

/**
 * `load(signal, sofar)` runs when `keys` change, in place of a load that is under way; and when `fresh` changes, after it, so that no
 * haste keeps slow answers from being shown. What was there stays until its successor arrives: `sofar(data)` shows a part of the first
 * one meanwhile. Without a `load` it waits for one.
 */
export function useResource(load, keys, fresh = []) {
  const [state, setState] = useState({ loading: true });
  const [turn, setTurn] = useState(0);
  const running = useRef(null);
  const latest = useRef();
  latest.current = load;
  const stop = () => {
    running.current?.abort.abort();
    running.current = null;
  };
  const start = () => {
    if (!latest.current) return;
    if (running.current && performance.now() - running.current.since < STALLED_MS) {
      running.current.isOld = true;
      return;
    }
    stop();
    const run = { abort: new AbortController(), since: performance.now(), isOld: false };
    running.current = run;
    const { signal } = run.abort;
    const ended = (next) => {
      if (signal.aborted) return;
      running.current = null;
      setState(next);
      if (run.isOld) start();
    };
    setState((before) => ({ ...before, loading: true }));
    latest.current(signal, (data) => signal.aborted || setState((before) => (before.isWhole ? before : { loading: true, data }))).then(
      (data) => ended({ loading: false, isWhole: true, data }),
      (problem) => ended(({ data, isWhole }) => ({ loading: false, isWhole, data, problem })),
    );
  };
  useEffect(() => stop, keys);
  useEffect(start, [...keys, ...fresh, turn]);
  const again = useCallback(() => setTurn((before) => before + 1), []);
  return { ...state, again };
}

/**
 * Runs something the user asked for: whether it is under way, what it returned, and what went wrong. That somebody else was faster is told by `onStale()`
 * in place of a problem, if there is one.
 */
export function useAction(run, onStale) {
  const [state, setState] = useState({ busy: false });
  const start = async (...given) => {
    setState({ busy: true });
    try {
      const done = await run(...given);
      setState({ busy: false, done });
      return done;
    } catch (problem) {
      if (!onStale || !isStale(problem)) {
        setState({ busy: false, problem });
        return undefined;
      }
      setState({ busy: false });
      onStale();
      return undefined;
    }
  };
  return { ...state, start, forget: () => setState({ busy: false }) };
}

/**
 * `create(body)` posts to an address that creates something. If an answer was lost and the same body is sent again, it has the idempotency key of
 * the first request, so that the coordinator creates nothing twice. If it refuses the repeat as a conflict, perhaps with what the first request
 * created, the problem is marked `repeated`, and the next request has a new key.
 */
export function useCreation(address) {
  const sent = useRef({});
  return async (body) => {
    const text = JSON.stringify(body);
    if (sent.current.text !== text) sent.current = { text, key: crypto.randomUUID(), times: 0 };
    const { key } = sent.current;
    const times = ++sent.current.times;
    try {
      const made = await post(address, body, { headers: { 'idempotency-key': key } });
      sent.current = {};
      return made;
    } catch (problem) {
      if (problem.status !== 409) throw problem;
      sent.current = {};
      throw Object.assign(problem, { repeated: times > 1 });
    }
  };
}

/** The time, told every second while a page shows deadlines. */
export function useNow(interval = 1000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), interval);
    return () => clearInterval(timer);
  }, [interval]);
  return now;
}

/** Whoever shows how long ago something was: all are told at once. */
const clocks = new Set();
let ticking = null;
const TICK_MS = 10_000;

/** The time, to within `TICK_MS`, for the many places of a page that need it no better. */
export function useClock() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    clocks.add(setNow);
    ticking ??= setInterval(() => clocks.forEach((told) => told(Date.now())), TICK_MS);
    return () => {
      clocks.delete(setNow);
      if (clocks.size > 0) return;
      clearInterval(ticking);
      ticking = null;
    };
  }, []);
  return now;
}

/** A value that changes often, as of a moment ago: it is another at most once in `interval` milliseconds, the first time at once. */
export function usePaced(value, interval) {
  const [paced, setPaced] = useState({ value, at: -Infinity });
  const latest = useRef();
  latest.current = value;
  useEffect(() => {
    if (Object.is(paced.value, value)) return undefined;
    const wait = Math.max(0, paced.at + interval - performance.now());
    const timer = setTimeout(() => setPaced({ value: latest.current, at: performance.now() }), wait);
    return () => clearTimeout(timer);
  }, [value, paced, interval]);
  return paced.value;
}

/** A typed value, once it has not changed for `wait` milliseconds. */
export function useSettled(value, wait) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), wait);
    return () => clearTimeout(timer);
  }, [value, wait]);
  return settled;
}
