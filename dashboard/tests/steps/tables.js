// Tables: sorted by a heading, searched, exported, and with decimal points below each other.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { aligned, csv } from '../../lib/format.js';
import { at, federation, heading, shot } from '../stage.js';

const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 900 };

const rowsOf = async (region) => {
  const all = await region.getByRole('row').all();
  return Promise.all(all.slice(1).map(async (row) => [await row.getByRole('rowheader').innerText(), ...(await row.getByRole('cell').allInnerTexts())]));
};

async function exported(page, caption) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: `Export ${caption} as CSV` }).click()]);
  return { name: download.suggestedFilename(), lines: readFileSync(await download.path(), 'utf8').trim().split('\r\n') };
}

/** Texts of tables, without a browser. */
function writing() {
  assert.deepEqual(aligned(['89.8 %', '91.65 %', '–', '100 %', null]), ['89.8\u2007 %', '91.65 %', '–', '100\u2008\u2007\u2007 %', null]);
  for (const other of [['1,234', '5'], ['1 s', '2.5 min'], ['1.00e+6', '3'], [{}, '0.5']]) assert.deepEqual(aligned(other), other);
  assert.equal(csv([['a', '=1+1'], ['x,"y"', new Date(0)], [null, -5]]), 'a,\'=1+1\r\n"x,""y""",1970-01-01T00:00:00.000Z\r\n,-5\r\n');
}

export async function sorting(page) {
  writing();
  const { items } = await federation.call('GET', '/v1/tasks/vitals/rounds?limit=500');
  await page.goto(at('tasks'));
  await heading(page, 'Tasks');
  await page.goto(at('tasks/vitals/rounds'));
  const table = page.getByRole('region', { name: 'Rounds, newest first' });
  await table.waitFor();
  const firstOf = async () => (await rowsOf(table)).map(([number]) => Number(number));
  const numbers = (order) => items.toSorted(order).map(({ number }) => number);
  const newest = numbers((one, other) => other.number - one.number);
  assert.deepEqual(await firstOf(), newest);
  const loss = ({ metrics }) => metrics.loss.value;
  const by = page.getByRole('columnheader', { name: 'Loss', exact: true });
  for (const [direction, order] of [['ascending', (one, other) => loss(one) - loss(other)], ['descending', (one, other) => loss(other) - loss(one)], [null, (one, other) => other.number - one.number]]) {
    await by.getByRole('button').click();
    assert.equal(await by.getAttribute('aria-sort'), direction);
    assert.deepEqual(await firstOf(), numbers(order), String(direction));
  }
  const column = (await page.getByRole('columnheader').allInnerTexts()).indexOf('Loss');
  const points = (await rowsOf(table)).map((cells) => cells[column].length - (cells[column].search(/[.\u2008]/)));
  assert.equal(new Set(points).size, 1, `decimal points of ${points}`);

  await page.getByRole('searchbox', { name: 'Search Rounds, newest first' }).fill('completed');
  await page.getByRole('status').getByText(`${items.length} of ${items.length}`).waitFor();
  await page.getByRole('searchbox', { name: 'Search Rounds, newest first' }).fill(new Date(items[3].opened_at).toISOString());
  await page.getByRole('status').getByText(`1 of ${items.length}`).waitFor();
  assert.deepEqual(await firstOf(), [items[3].number]);
  const one = await exported(page, 'Rounds, newest first');
  assert.equal(one.name, 'rounds-newest-first.csv');
  assert.equal(one.lines.length, 2, 'what was found');
  await page.getByRole('searchbox', { name: 'Search Rounds, newest first' }).fill('no such round');
  await page.getByText('None matches').waitFor();
  await page.getByRole('searchbox', { name: 'Search Rounds, newest first' }).fill('');
  await by.getByRole('button').click();
  await shot(page, 'rounds-sorted');
  const all = await exported(page, 'Rounds, newest first');
  assert.match(all.lines[0], /^Round,State,Cohort,In the sum,Dropped,.*Loss.*,Took,Opened$/);
  assert.equal(all.lines.length, items.length + 1);
  const lossAt = all.lines[0].split(',').indexOf('Loss');
  assert.deepEqual(all.lines.slice(1).map((line) => Number(line.split(',')[lossAt])), items.map(loss).toSorted((a, b) => a - b), 'in the order that is shown, in full precision');

  // On a phone the headings that sort stay.
  await page.setViewportSize(PHONE);
  await by.getByRole('button').click();
  assert.deepEqual(await firstOf(), numbers((a, b) => loss(b) - loss(a)));
  await page.setViewportSize(DESK);
  await page.goto(at('participants'));
  const people = await exported(page, 'Participants');
  const { items: enrolled } = await federation.call('GET', '/v1/participants?limit=100');
  assert.equal(people.lines.length, enrolled.length + 1);
}
