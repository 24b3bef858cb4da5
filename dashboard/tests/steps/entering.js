// Signing in and out, by a token and at an identity provider, and the reference of the API.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { at, federation, heading, open, provider, reading, said, shot } from '../stage.js';
import { signIn } from '../window.js';

/** What the handshake and the certificate are worth to a browser that does not know our authority: nothing else is wrong. */
export async function trusting(page) {
  const context = await page.context().browser().newContext();
  const stranger = await context.newPage();
  await assert.rejects(stranger.goto(federation.url), /ERR_CERT_AUTHORITY_INVALID/);
  await context.close();
}

export async function signingIn(page) {
  await page.goto(federation.url);
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  said(`  first paint after ${Math.round(paint)} ms`);
  await shot(page, 'sign-in');
  await signIn(page, 'guess');
  await page.getByText('Who you are could not be established').waitFor();
  await shot(page, 'sign-in-refused');
  await signIn(page, federation.token);
  await heading(page, 'Tasks');
  const cookies = await page.context().cookies();
  const [cookie] = cookies.filter((one) => one.name === '__Host-tributary');
  assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === 'Strict', JSON.stringify(cookie));
  assert.equal(await page.evaluate(() => document.cookie), '');
  await page.getByText('No task yet').waitFor();
  await shot(page, 'tasks-empty');
}

/** Ann signs in at the provider: to where she was, as a viewer, until she signs out. And is told why when the provider does not want her. */
export async function signingInElsewhere(page) {
  const ann = await open(page.context().browser());
  const signedInBy = async (link) => {
    await ann.page.goto(at('audit'));
    await ann.page.getByRole('button', { name: 'Sign in with the hospital' }).click();
    await ann.page.getByRole('link', { name: link }).click();
  };
  provider.declines = true;
  await signedInBy('I am Ann');
  await ann.page.getByText('the identity provider did not sign you in: access_denied').waitFor();
  await shot(ann.page, 'sign-in-declined');
  await ann.page.getByRole('link', { name: 'Back to the sign-in' }).click();
  await ann.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.equal((await ann.context.cookies(federation.url)).some((one) => one.name === '__Host-tributary'), false);
  provider.declines = false;
  await signedInBy('I am Ann');
  await heading(ann.page, 'Audit log');
  assert.equal(new URL(ann.page.url()).search, '', 'the code is in no address');
  const log = ann.page.getByRole('region', { name: 'Audit log, newest first' });
  const entry = log.getByRole('row').filter({ hasText: 'Signed in' }).filter({ hasText: 'identity provider' }).first();
  // The line feed is part of what is hashed.
  const subject = createHash('sha256').update(`${provider.url}\nann`).digest('hex');
  await entry.getByText(subject.slice(0, 12)).waitFor();
  assert.ok((await entry.getByTitle(subject).count()) > 0, 'who it is, in full');
  const [cookie, ...others] = await ann.context.cookies(federation.url);
  assert.ok(cookie.name === '__Host-tributary' && cookie.httpOnly && cookie.secure && cookie.sameSite === 'Strict' && others.length === 0, JSON.stringify([cookie, others]));
  assert.equal(await ann.page.getByRole('link', { name: 'New task' }).count(), 0, 'a viewer is offered nothing that is refused');
  await ann.page.getByRole('button', { name: 'Sign out' }).click();
  await ann.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await ann.context.close();
}

/** The reference lists every operation, and asks this coordinator as whoever is signed in. */
export async function readingTheReference(page) {
  const paths = Object.values((await federation.call('GET', '/openapi.json')).paths);
  const operations = paths.reduce((sum, item) => sum + Object.keys(item).length, 0);
  await page.goto(at('tasks'));
  await page.getByRole('link', { name: 'API reference' }).click();
  await page.locator('.opblock').first().waitFor();
  assert.equal(await page.locator('.opblock').count(), operations);
  await shot(page, 'reference');
  const opened = async (id) => {
    const operation = page.locator(`[id="operations-default-${id}"]`);
    const summary = operation.locator('.opblock-summary-control');
    await summary.focus();
    await page.keyboard.press('Enter');
    await operation.getByRole('button', { name: 'Try it out' }).click();
    return operation;
  };
  const presets = await opened('get_presets');
  await presets.getByRole('button', { name: 'Execute' }).click();
  await presets.locator('.live-responses-table td.response-col_status', { hasText: '200' }).waitFor();
  // One whose answer is described by a schema, one with a body and one whose body is bytes.
  await presets.getByRole('tab', { name: 'Schema' }).first().click();
  await (await opened('create_task')).getByLabel('Request body', { exact: true }).waitFor();
  await opened('put_task_round_masked_input');
  await page.locator('.models').getByRole('button', { name: 'Expand all' }).nth(1).click();
  await shot(page, 'reference-answer');
  await authorizing(page);
  await page.goto(federation.url);
  await heading(page, 'Tasks');
}

/** The dialog of tokens is opened and left by keys alone, and the focus is back where it was. */
async function authorizing(page) {
  const button = page.getByRole('button', { name: 'Authorize' });
  await button.focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Available authorizations' });
  await dialog.waitFor();
  await shot(page, 'reference-authorize');
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.ok(await button.evaluate((one) => one === document.activeElement), 'the focus is where it was');
}

export async function leaving(page) {
  await page.goto(at('nowhere'));
  await page.getByRole('heading', { name: 'There is no such page' }).waitFor();
  await reading(page, 'tasks/nowhere', 'there is no task', 'error');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.equal((await page.context().cookies()).length, 0);
}
