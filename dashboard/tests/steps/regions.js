// A region’s tasks: one row among all tasks, and a page of the upper rounds.

import assert from 'node:assert/strict';
import { folded, regional } from '../../lib/regions.js';
import { task } from '../federation.js';
import { at, completed, federation, heading, reading, shot } from '../stage.js';

const REGION = 'north-0f3a9c';

/** Names of tasks, without a browser. */
function naming() {
  assert.deepEqual(regional(`${REGION}-12-0123abcd`), { region: REGION, round: 12 });
  for (const other of ['vitals', 'north-12', `${REGION}-12-0123abc`, `${REGION}-x-0123abcd`]) assert.equal(regional(other), null, other);
  const tasks = [`${REGION}-2-0123abcd`, 'vitals', `${REGION}-1-0123abcd`].map((name) => ({ name }));
  assert.deepEqual(folded(tasks), { shown: tasks.slice(0, 2), counts: new Map([[REGION, 2]]) });
}

export async function followingARegion(page) {
  naming();
  const names = [`${REGION}-1-0123abcd`, `${REGION}-2-4567abcd`];
  for (const name of names) {
    await federation.call('POST', '/v1/tasks', task(name, { spec: { rounds: { count: 2, collect_deadline_ms: 60_000 } } }));
    await completed(name);
  }
  await page.goto(at('tasks'));
  await heading(page, 'Tasks');
  await page.getByRole('link', { name: names[1] }).waitFor();
  assert.equal(await page.getByRole('link', { name: names[0] }).count(), 0, 'one row for a region');
  await page.getByRole('searchbox', { name: 'Find by name' }).fill(REGION);
  await page.getByRole('link', { name: names[0] }).waitFor();
  await page.getByRole('searchbox', { name: 'Find by name' }).fill('');
  await page.getByRole('link', { name: REGION, exact: true }).click();
  await heading(page, REGION);
  const table = page.getByRole('region', { name: 'Upper rounds, newest first' });
  await table.waitFor();
  assert.deepEqual(await table.getByRole('rowheader').allInnerTexts(), ['2', '1']);
  assert.equal(await page.getByRole('slider', { name: 'Loss, by round' }).getAttribute('aria-valuemax'), '2');
  await shot(page, 'region');
  await reading(page, 'regions/nowhere-0f3a9c', 'This region has no task here', 'region-empty');
}
