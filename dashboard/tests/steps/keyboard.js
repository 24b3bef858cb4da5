// Without a pointer: Tab reaches every control and shows where it is, dialogs keep the focus and give it back, and a whole way is walked.

import assert from 'node:assert/strict';
import { task } from '../federation.js';
import { focused, tabTo, walk } from '../focus.js';
import { PLACES, see } from '../places.js';
import { at, federation, heading, open, problems, said } from '../stage.js';

const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 900 };

/** Those that have most of what a phone shows in another way. */
const ON_PHONES = new Set(['tasks', 'tasks/vitals', 'participants']);

export async function tabbing(page) {
  let sum = 0;
  for (const [where] of PLACES) {
    await see(page, where);
    for (const size of ON_PHONES.has(where) ? [DESK, PHONE] : [DESK]) {
      await page.setViewportSize(size);
      const { stops, wrong } = await walk(page, `${where}, ${size.width} px`);
      problems.push(...wrong);
      sum += stops;
    }
    await page.setViewportSize(DESK);
  }
  said(`  ${sum} controls on ${PLACES.length} pages`);
}

/** Where a dialog is opened from: the page, and the button that opens it. */
const OPENERS = [
  ['participants', /^Enrol a participant$/],
  ['participants', /^Revoke (?!ward-7$)/],
  ['tokens', /^New token$/],
  ['tokens', /^Revoke the token of /],
  ['tasks/opened', /^Pause$/],
  ['tasks/opened', /^Cancel$/],
  ['tasks/vitals/models', /^Where version 3 comes from$/],
  ['tasks/vitals/models', /^Promote version 3$/],
];

/** Goes to a page, whose content then has the focus. */
async function come(page, where) {
  if (page.url() === at(where)) return;
  await page.goto(at(where));
  await page.waitForFunction(() => document.activeElement?.id === 'content');
}

/** Each dialog takes the focus, keeps it, and gives it back to whatever opened it. */
export async function opening(page) {
  await federation.call('POST', '/v1/tasks', task('opened', { spec: { selection: { cohort: { count: 60 } } } }));
  for (const [where, name] of OPENERS) {
    await come(page, where);
    // A button that is drawn anew meanwhile would lose the key.
    await page.waitForFunction(() => !document.querySelector('.loading'));
    const opener = page.getByRole('button', { name }).first();
    await opener.focus();
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    await dialog.getByRole('status').waitFor({ state: 'detached' });
    assert.ok(await focused(dialog), `${name}: the dialog takes the focus`);
    problems.push(...(await walk(page, `${where}, ${name}`)).wrong);
    for (const key of ['Tab', 'Shift+Tab']) {
      for (let times = 0; times < 12; times++) {
        await page.keyboard.press(key);
        assert.ok(await page.evaluate(() => document.activeElement === document.body || document.querySelector('dialog').contains(document.activeElement)), `${name}: the focus stays`);
      }
    }
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    assert.ok(await focused(opener), `${name}: the focus comes back`);
  }
  await federation.call('POST', '/v1/tasks/opened/cancel', {});
  await openingSoon(page);
}

/** A dialog that is there before its page is drawn whole stays modal, and keeps the focus. */
async function openingSoon(page) {
  await come(page, 'tasks');
  let draw;
  const isOpen = new Promise((resolve) => (draw = resolve));
  await page.route(/\/v1\/participants\?/, async (route) => (await isOpen, route.continue()), { times: 1 });
  await come(page, 'participants');
  await page.getByRole('button', { name: 'Enrol a participant' }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  draw();
  await page.locator('.rows').waitFor();
  assert.ok(await dialog.evaluate((one) => one.matches(':modal')), 'it is modal');
  assert.ok(await focused(page.getByLabel('Name (optional)')), 'its first field has the focus');
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
}

/** Presses a button that has been found by Tab alone. */
const press = async (page, role, name) => {
  await tabTo(page, page.getByRole(role, { name, exact: true }));
  await page.keyboard.press('Enter');
};

/** Signs in, creates a task, pauses it, makes a token and signs out, by keys alone. */
export async function typing(page) {
  const { context, page: mine } = await open(page.context().browser());
  await mine.goto(federation.url);
  await mine.getByRole('button', { name: 'Sign in with the hospital' }).waitFor();
  problems.push(...(await walk(mine, 'sign-in')).wrong);
  await tabTo(mine, mine.getByLabel('Operator token'));
  await mine.keyboard.type(federation.token);
  await mine.keyboard.press('Enter');
  await heading(mine, 'Tasks');

  // The first stop of every page leads past the navigation.
  const skip = mine.getByRole('link', { name: 'Skip to content' });
  await mine.keyboard.press('Tab');
  assert.ok(await focused(skip), 'the first stop');
  assert.ok((await skip.boundingBox()).y >= 0, 'it is on the screen when it has the focus');
  await mine.keyboard.press('Enter');
  assert.ok(await focused(mine.getByRole('main')), 'the content has the focus');
  await mine.keyboard.press('Tab');
  assert.ok(await mine.evaluate(() => document.querySelector('main').contains(document.activeElement)), 'the next stop is in the content');

  await press(mine, 'link', 'New task');
  await heading(mine, 'New task');
  assert.ok(await focused(mine.getByRole('main')), 'a new page begins at its content');
  const plain = mine.getByRole('radio', { name: /^Plain/ });
  await tabTo(mine, plain);
  await mine.keyboard.press('ArrowDown');
  assert.equal(await plain.isChecked(), false, 'arrow keys choose a preset');
  await mine.keyboard.press('ArrowUp');
  assert.ok(await plain.isChecked());
  await tabTo(mine, mine.getByLabel('Name', { exact: true }));
  await mine.keyboard.type('no name');
  await press(mine, 'button', 'Create the task');
  await mine.locator('[aria-invalid]').waitFor();
  assert.ok(await focused(mine.getByLabel('Name', { exact: true })), 'what is wrong has the focus');
  await mine.keyboard.press('Control+a');
  await mine.keyboard.type('by-keys');
  await press(mine, 'button', 'Create the task');
  await heading(mine, 'by-keys');

  await press(mine, 'button', 'Pause');
  await press(mine, 'button', 'Pause by-keys');
  await mine.locator('h1 .badge', { hasText: 'Paused' }).waitFor();
  assert.equal((await federation.call('GET', '/v1/tasks/by-keys')).status, 'PAUSED');
  await mine.getByRole('dialog').waitFor({ state: 'detached' });
  assert.ok(await mine.evaluate(() => document.querySelector('main').contains(document.activeElement)), 'the focus stays where it was');
  await federation.call('POST', '/v1/tasks/by-keys/cancel', {});

  await press(mine, 'link', 'Participants');
  await press(mine, 'button', 'Enrol a participant');
  await press(mine, 'button', 'Create the token');
  await mine.getByRole('button', { name: 'I have kept it' }).waitFor();
  assert.ok(await focused(mine.getByRole('dialog')), 'the secret’s dialog takes the focus');
  await press(mine, 'button', 'I have kept it');
  await mine.getByRole('dialog').waitFor({ state: 'detached' });
  assert.ok(await focused(mine.getByRole('button', { name: 'Enrol a participant' })), 'the focus comes back');

  // A phone's menu.
  await mine.setViewportSize(PHONE);
  const menu = mine.getByRole('button', { name: 'Menu' });
  assert.equal(await menu.getAttribute('aria-expanded'), 'false');
  await press(mine, 'button', 'Menu');
  assert.equal(await menu.getAttribute('aria-expanded'), 'true');
  problems.push(...(await walk(mine, 'the menu')).wrong);
  await press(mine, 'link', 'Audit');
  await heading(mine, 'Audit log');
  assert.equal(await menu.getAttribute('aria-expanded'), 'false', 'the menu closes');
  assert.ok(await focused(mine.getByRole('main')), 'the page begins at its content');
  await press(mine, 'button', 'Menu');
  await press(mine, 'button', 'Sign out');
  await mine.getByRole('heading', { name: 'Sign in' }).waitFor();
  await context.close();
}
