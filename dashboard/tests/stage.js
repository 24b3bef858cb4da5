// The stage of the test in a browser: a federation, an identity provider, and where problems and pictures go.
//
// It begins when it is imported, by the arguments of the program.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Federation } from './federation.js';
import { take } from './pages.js';
import { Provider, freePort } from './provider.js';
import { open as openWindow } from './window.js';

const [binary, out] = process.argv.slice(2);
assert.ok(binary && out, 'node browser.js BINARY OUT');
mkdirSync(out, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), 'tributary-dashboard-'));
export const PARTICIPANTS = 7;
export const WAIT_MS = 120_000;
/** `last`: the participant that is lost. */
export const crowd = { last: null };
/** Whatever is wrong, and does not stop the test. */
export const problems = [];
/** Addresses whose answers a step has the browser lose: that the console says so is no problem. */
export const lost = new Set();
export const said = (text) => console.log(`${new Date().toISOString().slice(11, 19)} ${text}`);

const port = await freePort();
export const provider = await Provider.start();
export const federation = await Federation.start(binary, folder, port, provider.configuration(`https://localhost:${port}`));

export function end() {
  federation.stop();
  provider.stop();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

/** A browser window; whatever goes wrong in it is a problem of the test. */
export async function open(browser) {
  const { context, page } = await openWindow(browser, { acceptDownloads: true });
  page.on('pageerror', (error) => problems.push(`an exception: ${error.stack ?? error}`));
  page.on('console', (message) => message.type() === 'error' && !lost.has(message.location().url) && !/status of (400|401|403|404|409|412|422)/.test(message.text()) && problems.push(`the console: ${message.text()}`));
  page.on('request', (request) => new URL(request.url()).protocol !== 'data:' && ![federation.url, provider.url].some((ours) => request.url().startsWith(ours)) && problems.push(`a request elsewhere: ${request.url()}`));
  return { context, page };
}

/** Takes a picture of the page in every theme and width; what is wrong with it is a problem. */
export const shot = async (page, name) => {
  problems.push(...(await take(page, name, out)));
  said(`  ${name}`);
};
export const at = (hash) => `${federation.url}/#/${hash}`;
export const heading = (page, name) => page.getByRole('heading', { level: 1, name }).waitFor();

/** Takes a picture of a page once this text is on it. */
export async function reading(page, where, text, name) {
  await page.goto(at(where));
  await page.getByText(text).waitFor();
  await shot(page, name);
}

export const picture = (name) => join(out, name);

/** The page says that somebody else was faster, until that is seen. */
export async function seeing(page, what, name) {
  const told = page.getByRole('alert').filter({ hasText: `Someone changed this ${what} since.` });
  await told.waitFor();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  if (name) await shot(page, name);
  await told.getByRole('button', { name: 'I have seen it' }).click();
  await told.waitFor({ state: 'detached' });
}

/** Waits for what the API has to say; `what` is told if it does not come. */
export async function until(isThere, what) {
  const end = Date.now() + WAIT_MS;
  while (!(await isThere())) {
    assert.ok(Date.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

export const completed = (name) => until(async () => (await federation.call('GET', `/v1/tasks/${name}`)).status === 'COMPLETED', `${name} does not end`);
