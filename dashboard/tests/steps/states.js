// What pages show when there is nothing, too much, or something wrong: each is looked at by axe and kept as a picture.

import assert from 'node:assert/strict';
import { task } from '../federation.js';
import { see } from '../places.js';
import { at, federation, heading, lost, reading, shot } from '../stage.js';

/** Before anybody is enrolled and anything was done. */
export async function lookingAtNothing(page) {
  await reading(page, 'participants', 'Nobody is enrolled', 'participants-empty');
  await reading(page, 'privacy', 'No task is private', 'privacy-empty');
  await reading(page, 'compare/vitals', 'Nothing to compare', 'compare-nothing');
}

/** A viewer who follows a link to what viewers are refused. */
export async function lookingAsViewer(page) {
  await reading(page, 'new', 'This needs the role operator', 'new-task-viewer');
  await reading(page, 'tokens', 'This needs the role admin', 'tokens-viewer');
}

/** More entries than a page keeps that is left open: they come in one piece, as many as a night brings. */
async function overflowing(page) {
  const [shown, live] = [50, 500];
  const { items: [newest] } = await federation.call('GET', '/v1/audit?limit=1');
  const entries = Array.from({ length: live + 1 }, (_, index) => ({ ...newest, position: newest.position + 1 + index }));
  const body = entries.map((entry) => `id: ${entry.position}\ndata: ${JSON.stringify(entry)}\n\n`).join('');
  // Then no more: the coordinator does not know of these.
  let isTold = false;
  await page.route(/\/v1\/events\?/, (route) => (isTold ? undefined : ((isTold = true), route.fulfill({ contentType: 'text/event-stream', body }))));
  await see(page, 'audit');
  await page.getByText('So many entries came that the oldest are left out.').waitFor();
  const rows = page.getByRole('region', { name: /^Audit log/ }).getByRole('row');
  assert.equal(await rows.count(), shown + live + 1, 'with the head of the table');
  // All of them would make a picture that nobody looks at.
  await page.evaluate((most) => [...document.querySelectorAll('.rows tbody tr')].slice(most).forEach((row) => (row.style.display = 'none')), shown);
  await shot(page, 'audit-cut');
  await page.getByRole('button', { name: 'Begin at the newest' }).click();
  await page.waitForFunction((most) => document.querySelectorAll('.rows tbody tr').length === most, shown);
  await page.unrouteAll({ behavior: 'ignoreErrors' });
}

/** Changes what the coordinator answers at an address. */
const change = (page, address, by) => page.route(address, async (route) => route.fulfill({ json: by(await (await route.fetch()).json()) }));
const collecting = (phases, more) => phases.map((phase) => (phase.state === 'COLLECTING' ? { ...phase, ...more } : phase));

/** A round that failed, written into a real one, and one that was cancelled with its task. Why is told on top, and once. */
async function failing(page) {
  const [address, people] = [/\/v1\/tasks\/vitals\/rounds\/2$/, /\/rounds\/2\/assignments/];
  const refused = { state: 'ABANDONED', dropped_in: 'COLLECTING', detail: 'refused: policy: the cohort is too small' };
  await change(page, address, ({ work, model, ...view }) => ({ ...view, state: 'FAILED', failure: 'too_few_inputs', spent: true, metrics: {}, phases: collecting(view.phases, { min: 3, count: 2 }), dropped_in: { COLLECTING: 4 } }));
  await change(page, people, (view) => ({ ...view, items: view.items.map((one, at) => ({ ...one, ...(at < 3 && refused), ...(at === 3 && { state: 'LATE', dropped_in: 'COLLECTING' }) })) }));
  await see(page, 'tasks/vitals/rounds/2');
  await page.getByText('Collecting ended with 2 of the 3 that it needs. Inputs may have left by then, so this number is not tried again.').waitFor();
  assert.deepEqual(await page.getByRole('list', { name: 'Why participants dropped out' }).getByRole('listitem').allInnerTexts(), [
    '3 participants: refused: policy: the cohort is too small',
    '1 participant: no answer before the phase closed',
  ]);
  await shot(page, 'round-failed');
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.goto(at('tasks/imaging/rounds/1'));
  await page.locator('h1 .badge', { hasText: 'Cancelled' }).waitFor();
  await shot(page, 'round-cancelled');
}

/** More participants than a round needs are drawn, so that some may be slow: those that it had no need of did not drop out. */
async function drawingMore(page) {
  const more = (view) => ({ ...view, cohort: 6, phases: collecting(view.phases, { max: 5, count: 5 }), dropped_in: { COLLECTING: 1 }, dropped: 1 });
  await change(page, /\/v1\/tasks\/vitals\/rounds\/3$/, more);
  await change(page, /\/rounds\/3\/assignments/, (view) => ({ ...view, items: view.items.map((one, at) => (at === 0 ? { ...one, state: 'LATE', dropped_in: 'COLLECTING' } : one)) }));
  await change(page, /\/v1\/tasks\/vitals\/rounds\?/, (view) => ({ ...view, items: view.items.map(more) }));
  await page.goto(at('tasks/vitals/rounds/3'));
  await page.getByText('Nobody dropped out. 1 more than needed had been drawn.').waitFor();
  await page.getByRole('region', { name: 'The cohort of the round' }).getByRole('row').filter({ hasText: 'Not needed' }).getByText('enough others had sent their input').waitFor();
  await shot(page, 'round-more');
  await page.goto(at('tasks/vitals'));
  const plot = page.getByRole('slider', { name: 'Cohort, by round' });
  await plot.focus();
  await page.keyboard.press('Home');
  assert.equal(await plot.getAttribute('aria-valuetext'), 'Round 1: In the sum 5, Not needed 1');
  await page.unrouteAll({ behavior: 'ignoreErrors' });
}

/** Charts of rounds that came to nothing have no figures on their axes. */
async function drawingNothing(page) {
  const nothing = { number: 1, state: 'FAILED', failure: 'too_few_participants', metrics: {}, distributions: {}, cohort: 0, reported: 0, dropped: 0, dropped_in: {}, secure_aggregation: null, bytes_up: 0, bytes_down: 0 };
  await change(page, /\/v1\/tasks\/vitals\/rounds\?/, ({ items: [first] }) => ({ items: [{ ...first, ...nothing, phases: first.phases.slice(0, 1) }] }));
  await page.goto(at('tasks'));
  await heading(page, 'Tasks');
  await page.goto(at('tasks/vitals'));
  await page.getByText('1 of 1 round failed: too few participants (1).').waitFor();
  assert.equal(await page.locator('.chart').getByText('nothing so far').count(), 2, 'cohort and traffic');
  await shot(page, 'task-nothing');
  await page.unrouteAll({ behavior: 'ignoreErrors' });
}

/** The coordinator is in trouble: at the first reading of a page, later, and when it cannot be reached at all. */
async function refusing(page) {
  const url = `${federation.url}/v1/privacy`;
  lost.add(url);
  const problem = { type: 'urn:tributary:problem:internal', title: 'Something went wrong in the coordinator', status: 500, detail: 'The log says what', instance: '5f0c9d3a' };
  let answer = (route) => route.fulfill({ status: 500, contentType: 'application/problem+json', json: problem });
  await page.route(url, (route) => answer(route));
  await page.goto(at('privacy'));
  await page.getByRole('alert').getByText(problem.title).waitFor();
  await shot(page, 'problem');
  answer = (route) => route.abort();
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByText('The coordinator cannot be reached').waitFor();
  await shot(page, 'unreachable');
  // What was read before stays, beside what is wrong.
  answer = (route) => route.continue();
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByRole('region', { name: 'Private tasks' }).waitFor();
  answer = (route) => route.fulfill({ status: 500, contentType: 'application/problem+json', json: problem });
  await federation.call('POST', '/v1/tasks', task('trifle', { spec: { selection: { cohort: { count: 60 } } } }));
  await page.getByRole('alert').getByText(problem.title).waitFor();
  assert.ok(await page.getByRole('region', { name: 'Private tasks' }).isVisible());
  await shot(page, 'problem-beside');
  await page.unroute(url);
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByRole('alert').waitFor({ state: 'detached' });
  await federation.call('POST', '/v1/tasks/trifle/cancel', {});
}

export async function looking(page) {
  await overflowing(page);
  await failing(page);
  await drawingMore(page);
  await drawingNothing(page);
  await refusing(page);
  await see(page, 'nowhere');
  await shot(page, 'no-such-page');
}
