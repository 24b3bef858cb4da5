// What the page of a task with very many rounds costs a browser, while rounds go on: prints figures, asserts none.
//
//   node speed.js BINARY [ROUNDS, 10000] [SECONDS, 10]
//
// TRIBUTARY_DASHBOARD=FOLDER serves the pages from that folder instead of those in the program. Coordinator, participants and browser
// share the machine, so that frames are counted once while rounds go on and once while they rest.

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

async function watched(page, name, newest) {
  const position = async () => (await federation.call('GET', '/v1/audit?limit=1')).items[0].position;
  const [events, round] = [await position(), await newest()];
  await page.evaluate(observing);
  await pause(Number(seconds) * 1000);
  const seen = await page.evaluate(observed);
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
    return shown.getAttribute('aria-valuemin') === '1' && Number(shown.getAttribute('aria-valuemax')) >= most;
  }, MANY);
  const all = Date.now() - start;
  const { longest } = await fresh.evaluate(observed);
  said(`  first contentful paint after ${paint.toFixed(0)} ms, a chart after ${first} ms, all rounds after ${all} ms; the longest task meanwhile ${longest.toFixed(0)} ms`);
  // Files from a folder do not come over it.
  if (!process.env.TRIBUTARY_DASHBOARD) said(`  over the wire: ${(wire.page / 1024).toFixed(0)} KiB of the page, ${(wire.api / 1024).toFixed(0)} KiB of what it asked for`);
  await watched(fresh, 'while rounds go on', newest);
  await federation.call('POST', '/v1/tasks/many/pause', {});
  await pause(2_000);
  await watched(fresh, 'while they rest', newest);
} finally {
  await browser.close();
  federation.stop();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
