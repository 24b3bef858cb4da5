// Script in every text: of the coordinator's answers, of addresses, and of whatever somebody types. It is shown as it was written.

import assert from 'node:assert/strict';
import { PLACES, see } from '../places.js';
import { HOSTILE, isHarmless, isText, poison, poisoned } from '../poison.js';
import { at, federation, open } from '../stage.js';
import { reporting } from './serving.js';

const DIALOGS = [
  ['participants', /^Revoke /],
  ['tokens', /^Revoke the token of /],
  ['tasks/vitals/models', /^Where version 3 comes from/],
  ['tasks/vitals/models', /^Promote version 3/],
];

/** Some that each page must show, one of every kind that somebody else writes. */
const SHOWN = {
  tasks: ['vitals'],
  'tasks/vitals': ['Loss', 'Accuracy'],
  'tasks/vitals/specification': ['linear'],
  'tasks/vitals/serving': ['icu.example.org:8500', 'unheard'],
  'tasks/vitals/rounds/2': ['cuda:0', 'gone', 'Loss'],
  devices: ['cpu', 'north', 'cuda:0'],
  participants: ['eu', 'ward-7'],
  audit: ['reason', 'why'],
  tokens: ['first'],
  'tasks/nowhere': ['there is no task "nowhere"'],
};

/** Texts that this federation has no cause for: a device that failed, groups, and a reason that a participant gave. */
function withMore(view, path) {
  if (path.endsWith('/rounds/2')) return { ...view, work: { ...view.work, sum_because: 'chosen_failed', device_failure: 'cuda:0' }, compression: { codec: 'codec' } };
  if (path.endsWith('/assignments')) return { ...view, items: view.items.map((one) => ({ ...one, state: 'ABANDONED', detail: 'gone' })) };
  if (path === '/v1/devices') return { ...view, items: view.items.map((one) => ({ ...one, device: 'cpu', coordinator: 'north', last_failure: 'cuda:0' })) };
  if (path.endsWith('/servers')) return { ...view, items: view.items.map((one) => ({ ...one, report: { ...one.report, refused: [{ version: 1, because: 'unheard' }] } })) };
  return view;
}

/** What the coordinator says: names, labels, descriptions, metrics, architectures, devices, servers, problems, each entry of the log. */
async function answers(page) {
  await reporting();
  await poison(page, withMore);
  const { items: [entry] } = await federation.call('GET', '/v1/audit?limit=1');
  const actor = { by: 'identity', subject_sha256: 'somebody', issuer: 'somewhere' };
  const data = JSON.stringify(poisoned({ ...entry, position: entry.position + 1, actor, body: { reason: 'why' } }));
  await page.route(/\/v1\/events/, (route) => route.fulfill({ contentType: 'text/event-stream', body: `id: ${entry.position + 1}\ndata: ${data}\n\n` }));
  await page.reload();
  for (const [where] of PLACES.filter(([place]) => !place.startsWith('join'))) {
    await see(page, where);
    for (const text of SHOWN[where] ?? []) await page.getByText(text + HOSTILE).first().waitFor();
    for (const table of await page.getByText('As a table').all()) await table.click();
    await isText(page, where);
  }
  for (const [where, name] of DIALOGS) {
    await see(page, where);
    await page.getByRole('button', { name }).first().click();
    await page.getByRole('dialog').waitFor();
    await page.getByRole('dialog').getByRole('status').waitFor({ state: 'detached' });
    await isText(page, `${where}, ${name}`);
    await page.keyboard.press('Escape');
  }
  await page.unrouteAll({ behavior: 'ignoreErrors' });
}

/** What a link says that somebody sends. */
async function addresses(page) {
  const shown = ['tasks/*', 'tasks/*/rounds/1', 'tasks/vitals/rounds/*', 'compare/*/*'];
  const unshown = ['*', 'tasks/vitals/*', 'audit/*', 'join/*', 'participants/*', '%', '%E0%A4%A'];
  for (const written of [encodeURIComponent(HOSTILE), HOSTILE]) {
    for (const where of [...shown, ...unshown]) {
      await page.goto(at(where.replaceAll('*', written)));
      await page.locator('h1').waitFor();
      await page.waitForFunction(() => !/^Loading|^Comparing/m.test(document.querySelector('main').innerText));
      await (shown.includes(where) && written !== HOSTILE ? isText : isHarmless)(page, where);
    }
  }
}

/** What is typed into each field, and comes back in a note or a problem. */
async function fields(page) {
  const forms = [
    ['tasks', null],
    ['participants', null],
    ['participants', 'Enrol a participant'],
    ['tokens', 'New token'],
    ['new', null],
  ];
  for (const [where, opener] of forms) {
    await see(page, where);
    if (opener) await page.getByRole('button', { name: opener }).click();
    const form = opener ? page.getByRole('dialog') : page.getByRole('main');
    // A model that cannot be read has no sizes to be filled in any more.
    for (const field of await form.locator('input:not([type]), input[type=search], textarea').elementHandles()) {
      if (await field.evaluate((one) => one.isConnected)) await field.fill(HOSTILE);
    }
    const send = form.getByRole('button', { name: /^Create the t/ });
    if ((await send.count()) > 0) {
      await send.click();
      await form.locator('.field-wrong, [role=alert]').first().waitFor();
    }
    await isHarmless(page, `${where}, ${opener}`);
    await page.goto(at('nowhere'));
  }
}

/** What the page of the sign-in says before anybody is signed in: the provider's name, and why somebody is refused. */
async function entrance(page) {
  const guest = await open(page.context().browser());
  await poison(guest.page);
  await guest.page.goto(federation.url);
  await guest.page.getByRole('button', { name: `Sign in with the hospital${HOSTILE}` }).waitFor();
  await guest.page.getByLabel('Operator token').fill(HOSTILE);
  await guest.page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await guest.page.getByRole('alert').getByText(HOSTILE).first().waitFor();
  await isText(guest.page, 'the sign-in');
  await guest.context.close();
}

export async function scripting(page) {
  // One participant did enrol with such a label.
  await see(page, 'participants');
  await page.getByText(`site=${HOSTILE}`).waitFor();
  await isText(page, 'the label of a participant');
  await answers(page);
  await addresses(page);
  await fields(page);
  await entrance(page);
  assert.equal(await page.evaluate(() => globalThis.ran ?? null), null);
}
