// What pages show when there is nothing, too much, or something wrong: each is looked at by axe and kept as a picture.

import assert from 'node:assert/strict';
import { task } from '../federation.js';
import { see } from '../places.js';
import { at, federation, lost, reading, shot } from '../stage.js';

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

/** A round that failed, written into a real one, and one that was cancelled with its task. */
async function failing(page) {
  const address = /\/v1\/tasks\/vitals\/rounds\/2$/;
  await page.route(address, async (route) => {
    const { work, model, ...view } = await (await route.fetch()).json();
    return route.fulfill({ json: { ...view, state: 'FAILED', failure: 'too_few_inputs', spent: true, metrics: {} } });
  });
  await see(page, 'tasks/vitals/rounds/2');
  await page.getByText('Inputs may have left by then, so this number is not tried again.').waitFor();
  await shot(page, 'round-failed');
  await page.unroute(address);
  await page.goto(at('tasks/imaging/rounds/1'));
  await page.locator('h1 .badge', { hasText: 'Cancelled' }).waitFor();
  await shot(page, 'round-cancelled');
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
  await refusing(page);
  await see(page, 'nowhere');
  await shot(page, 'no-such-page');
}
