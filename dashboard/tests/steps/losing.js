// Answers that are lost: whoever asks again for the same makes nothing twice.

import assert from 'node:assert/strict';
import { MODEL } from '../federation.js';
import { at, federation, heading, lost, shot } from '../stage.js';

/** The next answer to a creating request is lost on its way; returns the keys of all requests from here on. */
async function losing(page, path) {
  const keys = [];
  const url = `${federation.url}${path}`;
  lost.add(url);
  await page.route(url, async (route) => {
    if (route.request().method() !== 'POST') return route.continue();
    keys.push(route.request().headers()['idempotency-key']);
    if (keys.length > 1) return route.continue();
    await route.fetch();
    return route.abort();
  });
  return keys;
}

const made = async (kind) => (await federation.call('GET', `/v1/audit?kind=${kind}&limit=500`)).items.length;

/** In a dialog that makes a secret: once, once more in vain, and once anew. */
async function twice(page, path, kind, isNew) {
  const before = await made(kind);
  const keys = await losing(page, path);
  const create = page.getByRole('button', { name: 'Create the token' });
  await create.click();
  await page.getByText('The coordinator cannot be reached').waitFor();
  await create.click();
  await page.getByRole('dialog').getByText('nobody was shown its secret').waitFor();
  assert.equal(await made(kind), before + 1, `${path}: the same again makes no second secret`);
  if (kind.startsWith('enrollment')) await shot(page, 'enrol-again');
  await create.click();
  await page.getByRole('button', { name: 'I have kept it' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  assert.equal(await made(kind), before + 2, `${path}: whoever knows asks anew`);
  assert.ok(keys[0] && keys[0] === keys[1] && keys[2] && keys[2] !== keys[0], `${path}: the keys are ${keys}`);
  await isNew?.();
  await page.unrouteAll({ behavior: 'ignoreErrors' });
}

export async function losingAnswers(page) {
  await page.goto(at('participants'));
  await page.getByRole('button', { name: 'Enrol a participant' }).first().click();
  await page.getByLabel('Labels (optional)').fill('region=eu');
  await twice(page, '/v1/enrollment-tokens', 'enrollment_token_created');

  await page.goto(at('tokens'));
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByLabel('Name of the owner').fill('mallory');
  await twice(page, '/v1/operator-tokens', 'operator_token_created', () => page.getByRole('button', { name: 'Revoke the token of mallory' }).nth(1).waitFor());

  // A task has no secret: whoever asks again is told of the first.
  await page.goto(at('new'));
  await page.getByLabel('Name', { exact: true }).fill('lost');
  await page.getByLabel('Cohort', { exact: true }).fill('60');
  await page.getByLabel('Model, as JSON').fill(JSON.stringify(MODEL));
  const keys = await losing(page, '/v1/tasks');
  await page.getByRole('button', { name: 'Create the task' }).click();
  await page.getByText('The coordinator cannot be reached').waitFor();
  await page.getByRole('button', { name: 'Create the task' }).click();
  await heading(page, 'lost');
  assert.ok(keys[0] && keys[0] === keys[1], `the keys are ${keys}`);
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await federation.call('POST', '/v1/tasks/lost/cancel', {});
}
