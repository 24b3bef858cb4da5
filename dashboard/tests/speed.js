// What the page of a task with very many rounds costs a browser, while rounds go on: prints figures beside their goals, asserts none.
//
//   node speed.js BINARY [ROUNDS, 10000] [SECONDS, 10]        or .ci/dashboard.sh --figures, which installs what it needs
//
// The rounds are real ones of three participants, and take a minute a thousand, or longer: TMPDIR=/dev/shm spares the disk.
// TRIBUTARY_DASHBOARD=FOLDER serves the pages from that folder instead of those in the program. Coordinator, participants and browser
// share the machine, so that frames are counted while rounds go on, while the task is paused and others pin its versions, and at rest.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Federation, MODEL } from './federation.js';
import { launch, open, signIn } from './window.js';

const [binary, rounds = '10000', seconds = '10'] = process.argv.slice(2);
assert.ok(binary, 'node speed.js BINARY [ROUNDS] [SECONDS]');
const PARTICIPANTS = 3;
const MANY = Number(rounds);
/** Events a second that must not stall the page. */
const RATE = 60;
/** Versions that are pinned and unpinned in turn: more than are written at once. */
const PINNED = 20;
const TOP_UP_MS = 50;
const [PAINT_MS, WEIGHT_KIB] = [1_000, 300];
const WAIT_MS = 7_200_000;
const DRAWN_MS = 120_000;
const folder = mkdtempSync(join(tmpdir(), 'tributary-speed-'));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const said = (text) => console.log(text);

/** Counts frames, and stretches in which the page answers nobody, from now on. */
const observing = () => {
  const seen = { frames: 0, gap: 0, busy: 0, longest: 0, tasks: 0, since: performance.now() };
  let before = seen.since;
  const frame = (now) => {
    seen.frames++;
    seen.gap = Math.max(seen.gap, now - before);
    before = now;
    if (globalThis.seen === seen) requestAnimationFrame(frame);
  };
  seen.observer = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) {
      seen.tasks++;
      seen.busy += duration;
      seen.longest = Math.max(seen.longest, duration);
    }
  });
  seen.observer.observe({ type: 'longtask' });
  globalThis.seen = seen;
  requestAnimationFrame(frame);
};
const observed = () => {
  const { observer, since, ...seen } = globalThis.seen;
  observer.disconnect();
  globalThis.seen = null;
  return { ...seen, seconds: (performance.now() - since) / 1000 };
};

const position = async () => (await federation.call('GET', '/v1/audit?limit=1')).items[0].position;

/** Has at least `rate` events of the task a second happen until `isOver()`: what its rounds lack is made up by pinning versions. */
async function madeUp(rate, isOver) {
  const [begun, first, pinned] = [Date.now(), await position(), new Set()];
  const versions = Math.min(PINNED, MANY);
  let written = 0;
  const write = () => {
    const version = 1 + (written++ % versions);
    const isPinned = pinned.has(version);
    if (isPinned) pinned.delete(version);
    else pinned.add(version);
    return federation.call('POST', `/v1/tasks/many/models/${version}/${isPinned ? 'unpin' : 'pin'}`, {});
  };
  while (!isOver()) {
    // What was written a moment ago may have no position yet.
    const happened = Math.max(written, (await position()) - first);
    const due = Math.floor((rate * (Date.now() - begun)) / 1000) - happened;
    await Promise.all(Array.from({ length: Math.max(0, Math.min(due, versions)) }, write));
    await pause(TOP_UP_MS);
  }
}

async function watched(page, name, newest, rate) {
  const [events, round] = [await position(), await newest()];
  let isOver = false;
  const writing = rate > 0 ? madeUp(rate, () => isOver) : null;
  await page.evaluate(observing);
  await pause(Number(seconds) * 1000);
  const seen = await page.evaluate(observed);
  isOver = true;
  await writing;
  const per = (count) => (count / seen.seconds).toFixed(0);
  said(
    `  ${name}: ${per((await position()) - events)} events and ${per((await newest()) - round)} rounds a second; ${per(seen.frames)} frames a second, the longest gap ${seen.gap.toFixed(0)} ms; ` +
      `${seen.tasks} tasks of more than 50 ms, the longest ${seen.longest.toFixed(0)} ms, together ${((seen.busy / seen.seconds) / 10).toFixed(0)} % of the time`,
  );
}

const federation = await Federation.start(binary, folder);
const browser = await launch();
try {
  for (let index = 0; index < PARTICIPANTS; index++) federation.participant(index, PARTICIPANTS, await federation.enrollmentToken(), ['--insecure-aggregation']);
  const spec = {
    name: 'many',
    model: MODEL,
    training: { epochs: 1, batch_size: 10, learning_rate: 0.01 },
    metrics: ['loss', 'accuracy', 'train_loss'],
    rounds: { count: 10 * MANY, select_max: PARTICIPANTS },
    selection: { cohort: { count: PARTICIPANTS } },
    aggregation: { clip_range: 1.0, max_weight: 1000 },
    secure_aggregation: { enabled: false },
  };
  await federation.call('POST', '/v1/tasks', { spec });
  const newest = async () => (await federation.call('GET', '/v1/tasks/many')).rounds_completed;
  const [begun, end] = [Date.now(), Date.now() + WAIT_MS];
  while ((await newest()) < MANY) {
    assert.ok(Date.now() < end, 'the rounds take too long');
    await pause(500);
  }
  said(`a task of ${MANY} rounds, made in ${((Date.now() - begun) / 1000).toFixed(0)} s`);
  const { page, context } = await open(browser);
  page.setDefaultTimeout(DRAWN_MS);
  page.on('pageerror', (error) => said(`an exception: ${error}`));
  await page.goto(federation.url);
  await signIn(page, federation.token);
  await page.getByRole('link', { name: 'many' }).waitFor();
  await page.close();

  const fresh = await context.newPage();
  fresh.setDefaultTimeout(DRAWN_MS);
  const network = await context.newCDPSession(fresh);
  const [kinds, wire] = [new Map(), { page: 0, api: 0 }];
  network.on('Network.requestWillBeSent', ({ requestId, request }) => kinds.set(requestId, new URL(request.url).pathname.startsWith('/v1/') ? 'api' : 'page'));
  network.on('Network.dataReceived', ({ requestId, encodedDataLength }) => (wire[kinds.get(requestId) ?? 'page'] += encodedDataLength));
  await network.send('Network.enable');
  await network.send('Network.setCacheDisabled', { cacheDisabled: true });
  await fresh.addInitScript(observing);
  const start = Date.now();
  await fresh.goto(`${federation.url}/#/tasks/many`);
  const plot = fresh.getByRole('slider', { name: 'Loss, by round' });
  await plot.waitFor();
  const [first, paint] = [Date.now() - start, await fresh.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime)];
  await fresh.waitForFunction((most) => {
    const shown = document.querySelector('[role=slider]');
    // The page asks for so many of the newest: the first ones are not among them once there are more.
    return Number(shown.getAttribute('aria-valuemax')) - Number(shown.getAttribute('aria-valuemin')) + 1 >= most;
  }, MANY);
  const all = Date.now() - start;
  const { longest } = await fresh.evaluate(observed);
  said(`  first contentful paint after ${paint.toFixed(0)} ms (goal ${PAINT_MS}), a chart after ${first} ms, all rounds after ${all} ms; the longest task meanwhile ${longest.toFixed(0)} ms`);
  // Files from a folder do not come over it.
  if (!process.env.TRIBUTARY_DASHBOARD) said(`  over the wire: ${(wire.page / 1024).toFixed(0)} KiB of the page (goal ${WEIGHT_KIB}), ${(wire.api / 1024).toFixed(0)} KiB of what it asked for`);
  await watched(fresh, `while rounds go on, at least ${RATE} events a second`, newest, RATE);
  await federation.call('POST', '/v1/tasks/many/pause', {});
  await pause(2_000);
  await watched(fresh, `while they rest, ${RATE} events a second`, newest, RATE);
  await watched(fresh, 'while nothing happens', newest, 0);
} finally {
  await browser.close();
  federation.stop();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
